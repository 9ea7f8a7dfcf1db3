"""PyTorch's profiler as an instrument that ends a trace before it gets too large."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from optbook.benchmark.profiles.trace_summary import STEP
from optbook.benchmark.recorder import active
from optbook.errors import OptbookError

MOST_EVENTS = 300_000
"""Some 600 MB of memory while PyTorch works on them, and 75 MB of JSON before it is compressed."""
LOOK_SECONDS = 1.0
"""When a trace is long, how many events there are is looked at after so long. On a fast core that is some
300 000 events at most, since the profiler itself takes about 3 µs for each."""
LONGEST_SECONDS = 60.0


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


@dataclass
class _Part:
    """One stretch of tracing."""

    profiler: Any
    began: float
    seconds: float = 0.0


class Tracer:
    """torch.profiler over all threads, from `start` to `stop`, with spans, steps and runs as annotations.

    Nobody can tell how many events a running trace has. So a trace that is still on after ``look`` seconds is
    ended, its events are counted, and another begun that ends before it has ``most`` events. The longer of
    the two is `profiler`, and `notes` say what is missing.
    """

    def __init__(
        self,
        tracked: bool,
        most: int = MOST_EVENTS,
        look: float = LOOK_SECONDS,
        longest: float = LONGEST_SECONDS,
    ) -> None:
        self.notes: list[str] = []
        self.thread = 0
        self._tracked = tracked
        self._most, self._look, self._longest = most, look, longest
        self._parts: list[_Part] = []
        self._on = False
        self._stolen = False
        self._ended = threading.Event()
        self._watch = threading.Thread(target=self._limit, name="optbook-trace", daemon=True)
        self._runs = 0
        self._run: AbstractContextManager[object] | None = None

    def start(self) -> None:
        """Begin to trace.

        Raises:
            OptbookError: another torch profiler is on.
        """
        refuse_others()
        self.thread = threading.get_native_id()
        self._begin()
        self._watch.start()

    def stop(self) -> None:
        """End the trace, if it hasn't ended by itself."""
        self._ended.set()
        if self._watch.is_alive():
            self._watch.join()
        if self._on:
            self._end()

    def running(self, on: bool) -> None:
        """Have spans and steps annotated; where none are tracked, the run is the step."""
        recorder = active()
        if recorder is not None:
            recorder.annotate = _annotation if on else None
        if self._tracked:
            return
        if on:
            self._run = _annotation("", self._runs)
            self._runs += 1
            self._run.__enter__()
        elif self._run is not None:
            self._run.__exit__(None, None, None)
            self._run = None

    @property
    def profiler(self) -> Any:
        """The torch.profiler.profile with the longer part of the trace.

        Raises:
            OptbookError: the workload uses torch's profiler itself, which ended this one.
        """
        if self._stolen or not self._parts:
            raise OptbookError(
                "the workload uses torch's profiler itself, and only one can be on: take it out, then trace "
                "again"
            )
        return max(self._parts, key=lambda part: part.seconds).profiler

    def _begin(self) -> None:
        from torch._C._profiler import _ExperimentalConfig
        from torch.profiler import profile

        profiler = profile(experimental_config=_ExperimentalConfig(profile_all_threads=True))
        with _without_marks():
            profiler.start()
        self._parts.append(_Part(profiler, time.perf_counter()))
        self._on = True

    def _end(self) -> _Part:
        part = self._parts[-1]
        self._stolen = self._stolen or not _others()
        part.seconds = time.perf_counter() - part.began
        self._on = False
        with _without_marks():
            part.profiler.stop()
        return part

    def _limit(self) -> None:
        """In a thread of its own: end the trace in time."""
        if self._ended.wait(self._look):
            return
        first = self._end()
        if self._stolen:
            return
        count = len(first.profiler.profiler.kineto_results.events())
        further = min(self._longest, self._most * first.seconds / max(1, count))
        if further <= first.seconds:
            self.notes.append(
                f"the trace holds the first {first.seconds:.1f} s, which were {count} events: more would "
                "need too much memory"
            )
            return
        self._begin()
        second = self._parts[-1]
        late = second.began - first.began
        if not self._ended.wait(further):
            self._end()
            self.notes.append(
                f"the trace holds {second.seconds:.1f} s, from {late:.1f} s on: more would need too much "
                "memory"
            )
        elif time.perf_counter() - second.began > first.seconds:
            self.notes.append(f"the trace begins after {late:.1f} s, in which its events were counted")
        else:
            self.notes.append(f"the trace holds the first {first.seconds:.1f} s, after which it was ended")


def _annotation(name: str, step: int | None) -> AbstractContextManager[object]:
    from torch.profiler import record_function

    return record_function(name if step is None else f"{STEP}{step}")


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
