"""Memory line by line: memory_profiler's tracer under our own look-up of code, and our own meters.

memory_profiler refuses functions that are defined in cells, gives a line the difference to the highest value
of the line before, and sees only what is left when a line ends. Here its tracer tells which line has ended;
the code is any, the difference is that within the line, and the peak is the highest within it.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import threading
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, Protocol

from optbook.benchmark.meters import memory
from optbook.benchmark.profiles.places import is_measuring, is_yours
from optbook.benchmark.profiles.targets import Target

MOST_EVENTS = 10_000
"""Lines of one function that are looked at; a look at resident memory takes some 10 µs."""
SNAPSHOT_GROWTH, SNAPSHOT_BYTES = 1.1, 64 * 1024
FRAMES = 8
MOST_ALLOCATIONS, LEAST_SHARE = 12, 0.01
_INSTRUMENTS = (tracemalloc.__file__, threading.__file__)


class Meter(Protocol):
    """Reads how much memory is in use, in bytes."""

    def start(self) -> None:
        """Before the workload runs."""

    def stop(self) -> None:
        """After it."""

    def read(self) -> tuple[float, float]:
        """In use now, and the most since `mark`."""

    def mark(self) -> float:
        """In use now; the most is counted from here."""


class Resident:
    """Resident memory, from the kernel; ``reset`` allows setting back its high-water mark for exact peaks."""

    def __init__(self, reset: bool) -> None:
        self.exact = reset and memory.reset_high_water_mark()
        self._fields = re.compile(rb"VmHWM:\s+(\d+).*?VmRSS:\s+(\d+)", re.DOTALL)
        self._status = self._clear = -1

    def start(self) -> None:
        """As in `Meter`."""
        if self.exact:
            self._status = os.open("/proc/self/status", os.O_RDONLY)
            self._clear = os.open("/proc/self/clear_refs", os.O_WRONLY)

    def stop(self) -> None:
        """As in `Meter`."""
        if self.exact:
            os.close(self._status)
            os.close(self._clear)

    def read(self) -> tuple[float, float]:
        """As in `Meter`; without exact peaks the most is what is there now."""
        found = self._fields.search(os.pread(self._status, 4096, 0)) if self.exact else None
        if found is None:
            now = memory.resident() or 0.0
            return now, now
        now = 1024.0 * int(found[2])
        return now, max(now, 1024.0 * int(found[1]))

    def mark(self) -> float:
        """As in `Meter`."""
        if self.exact:
            os.pwrite(self._clear, b"5", 0)
        return self.read()[0]


@dataclass(frozen=True)
class Allocation:
    """What one line had allocated, in Python's and NumPy's memory, when most was in use."""

    file: str
    line: int
    size: int
    count: int


class Traced:
    """Memory of Python's allocators (also NumPy's), to the byte, by tracemalloc.

    Notes the lines that hold most whenever clearly more is in use than before.
    """

    def __init__(self) -> None:
        self.allocations: tuple[Allocation, ...] = ()
        self._highest = 0.0
        self._before = 0.0

    def start(self) -> None:
        """As in `Meter`; where it is traced already that stays so."""
        self._mine = not tracemalloc.is_tracing()
        if self._mine:
            tracemalloc.start(FRAMES)
        self._before = tracemalloc.get_traced_memory()[0]

    def stop(self) -> None:
        """As in `Meter`."""
        self.note()
        if self._mine:
            tracemalloc.stop()

    def read(self) -> tuple[float, float]:
        """As in `Meter`."""
        return tracemalloc.get_traced_memory()

    def mark(self) -> float:
        """As in `Meter`."""
        self.note()
        tracemalloc.reset_peak()
        return tracemalloc.get_traced_memory()[0]

    def note(self) -> None:
        """Note the lines that hold most, if more is in use than when that was last done."""
        now = tracemalloc.get_traced_memory()[0] - self._before
        if now > SNAPSHOT_GROWTH * self._highest + SNAPSHOT_BYTES:
            self._highest = now
            self.allocations = _by_line(tracemalloc.take_snapshot())


def _by_line(snapshot: tracemalloc.Snapshot) -> tuple[Allocation, ...]:
    """The lines that hold most; what a library allocated counts for the line of yours that called it."""
    sums: dict[tuple[str, int], list[int]] = {}
    for statistic in snapshot.statistics("traceback"):
        place = calling_line(statistic.traceback)
        if place is not None:
            of_line = sums.setdefault(place, [0, 0])
            of_line[0] += statistic.size
            of_line[1] += statistic.count
    largest = sorted(sums.items(), key=lambda item: -item[1][0])[:MOST_ALLOCATIONS]
    found = [Allocation(file, line, size, count) for (file, line), (size, count) in largest]
    return tuple(one for one in found if one.size >= LEAST_SHARE * found[0].size)


def calling_line(frames: tracemalloc.Traceback | None) -> tuple[str, int] | None:
    """The line of yours in which something was allocated, else the library's; None if by the instrument."""
    innermost = None
    for frame in reversed(frames or ()):
        file = frame.filename
        whose = _whose(file)
        if innermost is None and whose is None:
            return None
        innermost = innermost or (file, frame.lineno)
        if whose:
            return file, frame.lineno
    return innermost


@functools.lru_cache(maxsize=4096)
def _whose(file: str) -> bool | None:
    """Whether a file is yours; None for the instrument's."""
    ours = file in _INSTRUMENTS or is_measuring(file) or file.endswith("memory_profiler.py")
    return None if ours else is_yours(file)


@dataclass
class Sums:
    """Of a line, in bytes: what was added and taken away in all its executions, and in the one with the most
    the rise from its start and the height above the start of the run."""

    hits: int = 0
    grew: float = 0.0
    rose: float = 0.0
    peak: float = 0.0


@dataclass
class _Open:
    """A frame that runs: memory as its line started, the most in that line, and the most in the frame."""

    code: CodeType
    began: float
    start: float
    most: float
    top: float
    inner: float = 0.0
    fresh: bool = True

    def see(self, high: float) -> None:
        self.most, self.top = max(self.most, high), max(self.top, high)


@dataclass
class Seen:
    """What was seen: by the id of a code object the code, and its lines."""

    codes: dict[int, CodeType] = field(default_factory=dict)
    lines: dict[int, dict[int, Sums]] = field(default_factory=dict)
    events: dict[int, int] = field(default_factory=dict)
    recursive: set[int] = field(default_factory=set)
    threads: set[int] = field(default_factory=set)

    def cut(self, code: CodeType) -> bool:
        """Whether no more lines of it are looked at."""
        return self.events.get(id(code), 0) >= MOST_EVENTS


class LineMemory:
    """Looks at the memory at every line of some functions, in the workload's thread and those it starts.

    Args:
        meter: what is read.
        targets: whose lines.
        further: whether also the lines of all other functions of yours.
    """

    def __init__(self, meter: Meter, targets: Sequence[Target], *, further: bool) -> None:
        self.seen = Seen({id(code): code for target in targets for code in target.codes})
        self.base = 0.0
        self.meter = meter
        self._others: dict[int, CodeType] = {}
        self._further = further
        self._of_thread = threading.local()

    def workload(self, run: Callable[[], object]) -> Callable[[], object]:
        """The workload, looked at while it runs."""

        def looked_at() -> None:
            before = threading.gettrace()
            self.meter.start()
            try:
                self._tracer(start=True)
                self.base = self.meter.mark()
                threading.settrace(self._in_thread)
                run()
            finally:
                threading.settrace(before)
                self._tracer().stop()
                self.meter.stop()

        return looked_at

    def start(self) -> None:
        """As in `Instrument`."""

    def stop(self) -> None:
        """As in `Instrument`."""

    def running(self, on: bool) -> None:
        """As in `Instrument`; what lies before and after a tracked loop is looked at as well."""

    def wants(self, code: CodeType) -> bool:
        """Whether lines of this code are looked at."""
        if id(code) in self.seen.codes:
            return not self.seen.cut(code)
        if not self._further or id(code) in self._others:
            return False
        if is_yours(code.co_filename) and not code.co_name.startswith("<"):
            self.seen.codes[id(code)] = code
            return True
        self._others[id(code)] = code  # kept, so that its id is not given to other code
        return False

    def _tracer(self, *, start: bool = False) -> _Tracer:
        if start:
            self._of_thread.tracer = _Tracer(self)
        tracer: _Tracer = self._of_thread.tracer
        return tracer

    def _in_thread(self, frame: FrameType, event: str, argument: Any) -> Any:
        """The first that happens in a new thread."""
        sys.settrace(None)
        return self._tracer(start=True).on_call(frame, event, argument)


class _Tracer:
    """Of one thread: memory_profiler's tracer, and what it calls at the end of a line (as its code map)."""

    def __init__(self, memory: LineMemory) -> None:
        from memory_profiler import LineProfiler

        self._memory = memory
        self._stack: list[_Open] = []
        self._now = self._high = 0.0
        self._engine = LineProfiler()
        self._engine.code_map = self
        self._engine.enable()
        sys.settrace(self.on_call)

    def stop(self) -> None:
        """Put back the tracer that was there before."""
        self._engine.disable()

    def __contains__(self, code: CodeType) -> bool:
        return True

    def on_call(self, frame: FrameType, event: str, argument: Any) -> Any:
        """As `sys.settrace` has it."""
        if event != "call" or not self._memory.wants(frame.f_code):
            return None
        return self._on_event(frame, event, argument)

    def _on_event(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "exception":
            return self._on_event
        memory, stack, code = self._memory, self._stack, frame.f_code
        self._now, self._high = memory.meter.read()
        if event == "call":
            if stack:
                stack[-1].see(self._high)
            self._engine.trace_memory_usage(frame, event, argument)
            stack.append(_Open(code, self._now, self._now, self._now, self._now))
            memory.seen.threads.add(threading.get_ident())
        else:
            stack[-1].see(self._high)
            self._engine.trace_memory_usage(frame, event, argument)
        if event == "return":
            self._returned(stack.pop())
            memory.meter.mark()
            return None
        memory.seen.events[id(code)] = memory.seen.events.get(id(code), 0) + 1
        if memory.seen.cut(code):
            frame.f_trace_lines = False
        stack[-1].start = stack[-1].most = memory.meter.mark()
        return self._on_event

    def _returned(self, done: _Open) -> None:
        if self._stack:
            self._stack[-1].see(done.top)
        outer = next((o for o in reversed(self._stack) if o.code is done.code), None)
        if outer is not None:  # each level's growth is its own
            outer.inner += self._now - done.began
            self._memory.seen.recursive.add(id(done.code))

    def trace(self, code: CodeType, number: int, before: int | None) -> None:
        """Called by memory_profiler's tracer when a line has ended."""
        now = self._stack[-1]
        first, now.fresh = now.fresh, False
        if self._memory.seen.cut(code):
            return
        sums = self._memory.seen.lines.setdefault(id(code), {}).setdefault(number, Sums())
        sums.hits += not first
        sums.grew += self._now - now.start - now.inner
        sums.rose = max(sums.rose, now.most - now.start)
        sums.peak = max(sums.peak, now.most - self._memory.base)
        now.inner = 0.0
