"""PyTorch's profiler as an instrument that ends a trace before it gets too large."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import psutil

from optbook.benchmark.profiles.trace_summary import STEP
from optbook.benchmark.recorder import active
from optbook.errors import OptbookError

SURE_SECONDS = 2.0
"""A trace of so long is never too large: at most some 600 000 events from one thread, since the profiler
takes about 3 µs for each, and 1.2 GB while PyTorch works on them."""
MOST_GROWTH = 60e6
"""By so many bytes may the process grow while a longer trace is on: what some 300 000 further events take,
of which PyTorch makes ten times as much when the trace ends."""
LONGEST_SECONDS = 60.0
LOOK_SECONDS = 0.1
_CALL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


def refuse_others() -> None:
    """Make sure that no other torch profiler is on.

    Raises:
        OptbookError: one is.
    """
    if _others():
        raise OptbookError(
            "another torch profiler is on in this process: end it (profiler.stop(), or leave its `with` "
            "block), then trace again"
        )


def _others() -> bool:
    torch: Any = sys.modules.get("torch")
    return torch is not None and bool(
        torch.autograd.profiler._is_profiler_enabled or torch.autograd._profiler_enabled()
    )


class Tracer:
    """torch.profiler from `start` to `stop`, with spans, steps and runs as annotations.

    It sees the thread that starts it and those of its backward passes. How many events a running trace has
    can't be asked. So one that is still on after ``sure`` seconds is ended in the thread that it traces when
    the process has grown by ``most`` bytes, or after ``longest`` seconds; `notes` then say so.
    """

    def __init__(
        self,
        tracked: bool,
        sure: float = SURE_SECONDS,
        most: float = MOST_GROWTH,
        longest: float = LONGEST_SECONDS,
    ) -> None:
        self.notes: list[str] = []
        self.profiler: Any = None
        self.thread = 0
        self._tracked = tracked
        self._sure, self._most, self._longest = sure, most, longest
        self._on = self._due = False
        self._ended = threading.Event()
        self._undo = contextlib.ExitStack()
        self._runs = 0
        self._run: AbstractContextManager[object] | None = None

    def start(self) -> None:
        """Begin to trace.

        Raises:
            OptbookError: another torch profiler is on.
        """
        from torch.profiler import profile

        refuse_others()
        self.thread = threading.get_native_id()
        self.profiler = profile()
        with _without_marks():
            self.profiler.start()
        self._on, self._began = True, time.perf_counter()
        self._undo.enter_context(_no_others())
        threading.Thread(target=self._watch, name="optbook-trace", daemon=True).start()

    def stop(self) -> None:
        """End the trace, if it hasn't ended by itself."""
        self._ended.set()
        self._end()
        self._undo.close()

    def running(self, on: bool) -> None:
        """Have spans and steps annotated; where none are tracked, the run is the step."""
        recorder = active()
        if recorder is not None:
            recorder.annotate = self._annotation if on else None
        if self._tracked:
            return
        if on:
            self._run = self._annotation("", self._runs)
            self._runs += 1
            self._run.__enter__()
        elif self._run is not None:
            self._run.__exit__(None, None, None)
            self._run = None

    def _annotation(self, name: str, step: int | None) -> AbstractContextManager[object]:
        from torch.profiler import record_function

        self._end_if_due()
        return record_function(name if step is None else f"{STEP}{step}")

    def _watch(self) -> None:
        """In a thread of its own: find when to end the trace, and have it ended in the thread it traces."""
        if self._ended.wait(self._sure):
            return
        process = psutil.Process()
        least = process.memory_info().rss
        until = self._began + self._longest
        while time.perf_counter() < until and not self._ended.wait(LOOK_SECONDS):
            now = process.memory_info().rss
            least = min(least, now)
            if now - least > self._most:
                break
        self._due = True
        if not self._ended.is_set() and threading.main_thread().native_id == self.thread:
            # Between two of its bytecodes, where no operator is at work; in other threads at the next span.
            self._call = _CALL(lambda _: self._end_if_due())
            ctypes.pythonapi.Py_AddPendingCall(self._call, None)

    def _end_if_due(self) -> int:
        if self._due and self._on and threading.get_native_id() == self.thread:
            lasted = time.perf_counter() - self._began
            self._end()
            self.notes.append(f"the trace ends after {lasted:.1f} s: more would need too much memory")
        return 0

    def _end(self) -> None:
        if self._on:
            self._on = False
            with _without_marks():
                self.profiler.stop()


@contextlib.contextmanager
def _no_others() -> Iterator[None]:
    """Let no further torch profiler start: it would end this one, and stopping that crashes PyTorch."""
    from torch.autograd.profiler import profile

    def refused(self: object) -> None:
        raise OptbookError(
            "the workload starts a torch profiler of its own, and only one can be on: take it out to trace it"
        )

    before = profile._prepare_trace
    setattr(profile, "_prepare_trace", refused)  # noqa: B010 (mypy lets no method be assigned)
    try:
        yield
    finally:
        setattr(profile, "_prepare_trace", before)  # noqa: B010


@contextlib.contextmanager
def _without_marks() -> Iterator[None]:
    """Without what PyTorch's tracer writes to the process's standard error whenever it starts or stops."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with tempfile.TemporaryFile() as file:
            os.dup2(file.fileno(), 2)
            try:
                yield
            finally:
                os.dup2(kept, 2)
                file.seek(0)
                for line in file:
                    if not line.startswith(b"USDT:"):
                        os.write(2, line)
    finally:
        os.close(kept)
