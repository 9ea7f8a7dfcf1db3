"""Repeat: how far one has come, and when to stop."""
