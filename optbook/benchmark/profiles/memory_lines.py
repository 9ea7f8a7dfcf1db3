"""Memory line by line: memory_profiler's tracer under our own look-up of code, and our own meters.

memory_profiler refuses functions that are defined in cells, gives a line the difference to the highest value
of the line before, and sees only what is left when a line ends. Here its tracer tells which line has ended;
the code is any, the difference is that within the line, and the peak is the highest within it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from optbook.benchmark.profiles.memory_meters import Meter
from optbook.benchmark.profiles.places import is_yours
from optbook.benchmark.profiles.targets import Target

MOST_EVENTS = 10_000
"""Lines of one function that are looked at; a look at resident memory takes some 10 µs."""


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
