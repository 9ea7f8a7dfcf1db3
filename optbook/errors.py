"""What optbook raises of its own: one line that says what was wrong and what to write instead."""

from __future__ import annotations


class OptbookError(Exception):
    """Base class of optbook's own errors."""


class OptionError(OptbookError, ValueError):
    """An option, name or value that can't be used; the message says what to write instead."""
