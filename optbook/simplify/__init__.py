"""Simplify: replace parts of a system by stubs, and see what the rest could do without them."""
