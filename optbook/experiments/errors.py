"""What goes wrong with the log, told in one line."""

from __future__ import annotations

from optbook.errors import OptbookError


class LogError(OptbookError):
    """The log cannot be used: one line with what is wrong and what to do instead."""


class AlreadyLoggedError(LogError):
    """An experiment with this id is in the log already."""


class AwayError(LogError):
    """The log's server can't be reached, or doesn't let us in."""
