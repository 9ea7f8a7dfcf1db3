"""Code that somebody else wrote: a time limit, and what it raised."""

from __future__ import annotations

import linecache
import signal
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

from optbook.experiments.render import one_line
from optbook.workshop.original import code_of

T = TypeVar("T")
AGAIN = 1.0
"""Seconds after which code that swallowed the first interruption is interrupted again."""
LONGEST = 300


class TooLong(BaseException):
    """The limit was reached. No Exception, so that ``except Exception`` in the limited code lets it pass.

    ``still_running`` says whether the code goes on, in a thread that can't be stopped.
    """

    def __init__(self, seconds: float, still_running: bool) -> None:
        super().__init__(f"it took longer than {seconds:g} s")
        self.still_running = still_running


def limited(function: Callable[[], T], seconds: float) -> T:
    """What ``function`` returns, if it does within ``seconds``.

    In the main thread it is interrupted by a signal, as soon as it is not inside a call of C. In other
    threads and on systems without such signals (Windows) it runs in a thread, which is left to itself.

    Raises:
        TooLong: it took longer.
        Exception: what the function raised.
    """
    main = threading.current_thread() is threading.main_thread()
    if main and hasattr(signal, "setitimer"):
        return _with_signal(function, seconds)
    return _in_thread(function, seconds)


def _with_signal(function: Callable[[], T], seconds: float) -> T:
    armed = True

    def ring(number: int, frame: FrameType | None) -> None:
        if armed:
            raise TooLong(seconds, still_running=False)

    handler = signal.signal(signal.SIGALRM, ring)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    began = time.monotonic()
    try:
        try:
            return function()
        finally:
            armed = False
    finally:  # of its own, since the alarm may ring just before it is disarmed
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:  # somebody else's alarm goes on
            signal.setitimer(signal.ITIMER_REAL, max(left - time.monotonic() + began, 1e-3), interval)


def _in_thread(function: Callable[[], T], seconds: float) -> T:
    returned: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            returned.append(function())
        except BaseException as error:  # it is raised again by whoever waits
            raised.append(error)

    thread = threading.Thread(target=run, name="optbook exercise", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TooLong(seconds, still_running=True)
    if raised:
        raise raised[0]
    return returned[0]


def raised(error: BaseException, name: str = "", given: object = None) -> str:
    """What was raised, and in which line of the reader's function ``given``; on one line."""
    what = one_line(traceback.format_exception_only(error)[-1], LONGEST)
    code = code_of(given)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if code is not None and frame.filename == code.co_filename]
    where = ""
    if own:
        line = own[-1].line or linecache.getline(own[-1].filename, own[-1].lineno or 0)
        where = f" in line {own[-1].lineno}" + (f": {one_line(line)}" if line.strip() else "")
    return f"{name} raised {what}{where}".strip()
