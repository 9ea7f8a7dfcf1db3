"""What a measured workload prints: shown once, up to a limit; dropped in later runs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

SHOWN_CHARACTERS = 2**20


@dataclass
class Printed:
    """How many characters were written, and how many of them were dropped."""

    written: int = 0
    dropped: int = 0
    displays_dropped: int = 0


class _Limited:
    """Stands in for a text stream and passes on the first characters only.

    Whoever keeps it (a logging handler made inside) writes to the stream itself once `limit` is None.
    """

    def __init__(self, stream: Any, limit: int, printed: Printed) -> None:
        self._stream = stream
        self._printed = printed
        self.limit: int | None = limit

    def write(self, text: str) -> int:
        if self.limit is None:
            self._stream.write(text)
            return len(text)
        room = self.limit - self._printed.written
        self._printed.written += len(text)
        if room >= len(text):
            self._stream.write(text)
        else:
            if room > 0:
                self._stream.write(text[:room])
            self._printed.dropped += len(text) - max(0, room)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _NoDisplay:
    """Stands in for IPython's display publisher and counts what it drops."""

    def __init__(self, publisher: Any, printed: Printed) -> None:
        self._publisher = publisher
        self._printed = printed

    def publish(self, *args: Any, **kwargs: Any) -> None:
        self._printed.displays_dropped += 1

    def clear_output(self, wait: bool = False) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._publisher, name)


def _shell() -> Any:
    interactive = sys.modules.get("IPython.core.getipython")
    return interactive.get_ipython() if interactive is not None else None


@contextlib.contextmanager
def limited(printed: Printed, limit: int = SHOWN_CHARACTERS) -> Iterator[None]:
    """Let what is printed inside appear, up to ``limit`` characters."""
    out, err = (_Limited(stream, limit, printed) for stream in (sys.stdout, sys.stderr))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            yield
    finally:
        out.limit = err.limit = None


@contextlib.contextmanager
def dropped(printed: Printed) -> Iterator[None]:
    """Drop and count what is printed or displayed inside."""
    shell = _shell()
    publisher = None if shell is None else shell.display_pub
    with limited(printed, limit=0):
        if shell is not None:
            shell.display_pub = _NoDisplay(publisher, printed)
        try:
            yield
        finally:
            if shell is not None:
                shell.display_pub = publisher
