"""What `track` and `span` write down while a workload runs."""

from __future__ import annotations

import functools
import inspect
import math
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Any

from optbook.benchmark.clock import Clock
from optbook.benchmark.compilation import COMPILER, compiled_frames
from optbook.benchmark.quantities import amount
from optbook.errors import OptionError

Count = float | Callable[[Any], float]
SYNC_EVERY_SECONDS = 0.25


def _doubles() -> array[float]:
    return array("d")


@dataclass
class Series:
    """The steps of one unit: absolute times, in seconds, of asking for an item, having it, being done.

    They are kept in one array, three a step, since threads may note steps at the same time and one
    ``extend`` adds all three or none.
    """

    unit: str
    stamps: array[float] = field(default_factory=_doubles)
    synced: list[int] = field(default_factory=list)
    counts: dict[str, array[float]] = field(default_factory=dict)
    compiled: list[int] = field(default_factory=list)
    startup: float | None = None

    def __len__(self) -> int:
        return len(self.stamps) // 3

    @property
    def asked(self) -> array[float]:
        """When each step asked for its item (a copy)."""
        return self.stamps[0::3]

    @property
    def ready(self) -> array[float]:
        """When each step had its item (a copy)."""
        return self.stamps[1::3]

    @property
    def done(self) -> array[float]:
        """When each step was done with its item (a copy)."""
        return self.stamps[2::3]

    @property
    def seconds(self) -> float:
        """Seconds inside the steps, without what lies between one loop and the next."""
        return math.fsum(done - asked for asked, done in zip(self.asked, self.done, strict=True))


@dataclass
class Spans:
    """The entries of one span: absolute start times and durations, in seconds, two an entry in one array."""

    entries: array[float] = field(default_factory=_doubles)

    @property
    def starts(self) -> array[float]:
        """When each entry began (a copy)."""
        return self.entries[0::2]

    @property
    def durations(self) -> array[float]:
        """How long each entry lasted (a copy)."""
        return self.entries[1::2]


class Recorder:
    """Collects the steps and spans of one run of a workload, from any of its threads.

    ``limit`` ends the loops of the first unit tracked after so many steps. ``on_loop`` is called
    with True when the first tracked loop starts and with False when no loop is left; ``on_step``
    after every step, outside the timed intervals. ``starting`` gives a context in which the iterator
    of each loop is made. While ``annotate`` is set, every span and step runs inside the context that it
    gives for a name and, where it is a step of the first unit, its number from 0 on.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        limit: int | None = None,
        on_loop: Callable[[bool], None] | None = None,
        on_step: Callable[[], None] | None = None,
        starting: Callable[[Iterable[Any]], AbstractContextManager[None]] = lambda _: nullcontext(),
    ) -> None:
        self.clock = clock or Clock()
        self.limit = limit
        self.series: dict[str, Series] = {}
        self.spans: dict[str, Spans] = {}
        self.annotate: Callable[[str, int | None], AbstractContextManager[object]] | None = None
        self._on_loop = on_loop
        self._on_step = on_step
        self._starting = starting
        self._open_loops = 0
        self._closed = False
        self._lock = threading.RLock()

    @property
    def closed(self) -> bool:
        """Whether the recording has ended."""
        return self._closed

    def close(self) -> None:
        """End the recording: threads and loops that outlive the run add nothing more."""
        with self._lock:
            if self._open_loops:
                self._loops(-self._open_loops)
            self._closed = True

    def _loops(self, more: int) -> None:
        with self._lock:
            if self._closed:
                return
            before, self._open_loops = self._open_loops, self._open_loops + more
            if self._on_loop is not None and 0 in (before, self._open_loops):
                self._on_loop(before == 0)

    def steps(self, iterable: Iterable[Any], unit: str, counts: Mapping[str, Count]) -> Iterator[Any]:
        """Yield the items of ``iterable`` and note the times of every completed step."""
        with self._lock:
            first_unit = next(iter(self.series), unit)
            series = self.series.setdefault(unit, Series(unit))
        limit = self.limit if unit == first_unit else None
        if limit is not None and len(series) >= limit:
            return
        now, synchronize, on_step = self.clock.now, self.clock.device(), self._on_step
        compiled, note, modules = compiled_frames(), series.stamps.extend, sys.modules
        marks = ExitStack()
        self._loops(1)
        try:
            self._annotate(marks, unit, len(series), unit == first_unit)
            if synchronize is not None:
                synchronize()
            asked = synced = now()
            with self._starting(iterable):
                iterator = iter(iterable)  # kept to the end: what it holds is not freed inside the loop
            for item in iterator:
                ready = now()
                if series.startup is None:
                    series.startup = ready - asked
                yield item
                done = now()
                at_edge = synchronize is not None and done - synced >= SYNC_EVERY_SECONDS
                if at_edge and synchronize is not None:
                    synchronize()
                    done = synced = now()
                if not self._closed:
                    if counts:
                        self._note_counts(series, counts, item)
                    if at_edge:
                        series.synced.append(len(series))
                    note((asked, ready, done))
                if COMPILER in modules and compiled_frames() != compiled:
                    compiled = compiled_frames()
                    series.compiled.append(len(series) - 1)
                if on_step is not None:
                    on_step()
                if limit is not None and len(series) >= limit:
                    break
                if self.annotate is not None:
                    marks.close()
                    self._annotate(marks, unit, len(series), unit == first_unit)
                asked = now()
        finally:
            if synchronize is not None and len(series) and not self._closed:
                synchronize()
                series.stamps[-1] = max(series.stamps[-1], now())
                series.synced.append(len(series) - 1)
            marks.close()
            self._loops(-1)

    def _annotate(self, marks: ExitStack, unit: str, number: int, is_step: bool) -> None:
        if self.annotate is not None:
            marks.enter_context(self.annotate(f"{unit} {number}", number if is_step else None))

    def _note_counts(self, series: Series, counts: Mapping[str, Count], item: Any) -> None:
        found = {
            name: amount(name, count(item) if callable(count) else count, or_zero=True)
            for name, count in counts.items()
        }
        with self._lock:
            for name, value in found.items():
                values = series.counts.setdefault(name, _doubles())
                values.extend([0.0] * (len(series) - len(values)))  # steps of loops that did not count it
                values.append(value)

    def note_span(self, name: str, start: float, duration: float) -> None:
        """Note one completed entry of a span."""
        if not self._closed:
            spans = self.spans.get(name) or self.spans.setdefault(name, Spans())
            spans.entries.extend((start, duration))


class _Active:
    """The recorder of the workload that runs in this process now: the one state `track` and `span` share.

    It is one per process rather than per context, so that spans entered in the workload's threads
    are seen.
    """

    recorder: Recorder | None = None


def active() -> Recorder | None:
    """The recorder of the running workload, or None."""
    return _Active.recorder


class recording:  # noqa: N801 (used as a function is)
    """Make ``recorder`` the active one inside a ``with`` block."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._previous: Recorder | None = None

    def __enter__(self) -> Recorder:
        self._previous, _Active.recorder = _Active.recorder, self.recorder
        return self.recorder

    def __exit__(self, *exception: object) -> None:
        self.recorder.close()
        ended = self._previous is None or self._previous.closed  # in another thread, meanwhile
        _Active.recorder = None if ended else self._previous


class Tracked:
    """An iterable whose steps are timed and counted when it is looped over inside a measurement."""

    def __init__(self, iterable: Iterable[Any], unit: str, counts: Mapping[str, Count]) -> None:
        self.iterable = iterable
        self.unit = unit
        self.counts = counts

    def __iter__(self) -> Iterator[Any]:
        recorder = active()
        if recorder is None:
            return iter(self.iterable)
        return recorder.steps(self.iterable, self.unit, self.counts)

    def __len__(self) -> int:
        return len(self.iterable)  # type: ignore[arg-type]


def track(iterable: Iterable[Any], unit: str = "batch", **counts: Count) -> Tracked:
    """Count ``unit`` and time every step of a loop inside ``%%bench`` or `optbook.bench`.

    ``for batch in track(loader): ...`` times, for every turn of the loop, the wait for the item and
    the work done with it. Further keywords name further units: a number of them per step, or a
    function of the item (``sample=lambda batch: len(batch[0])``), called outside the timed
    intervals. Outside a measurement the loop runs as if `track` were not there.

    Raises:
        TypeError: ``iterable`` cannot be iterated over.
        ValueError: ``unit`` is not a name.
        OptionError: in the loop, when what a further unit counts is no number from zero on.
    """
    if not hasattr(iterable, "__iter__") and not hasattr(iterable, "__getitem__"):
        raise TypeError(
            f"track() got {type(iterable).__name__}, which cannot be looped over: give a loader or a list"
        )
    name: object = unit
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"track() got unit {unit!r}: give a name in the singular, such as 'batch'")
    return Tracked(iterable, unit.strip(), counts)


class span:  # noqa: N801 (used as a function is)
    """Time a part of a workload: ``with span("augment"): ...``, or ``@span("augment")`` on a function.

    The seconds inside each name are summed per measurement. Spans may be nested; a nested span's
    time is part of the outer one's as well. Outside a measurement it does nothing.
    """

    __slots__ = ("_mark", "_recorder", "_start", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._recorder: Recorder | None = None
        self._mark: AbstractContextManager[object] | None = None
        self._start = 0.0

    def __enter__(self) -> span:
        self._recorder = _Active.recorder
        if self._recorder is not None and self._recorder.annotate is not None:
            self._mark = self._recorder.annotate(self.name, None)
            self._mark.__enter__()
        self._start = time.perf_counter()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._recorder is not None:
            self._recorder.note_span(self.name, self._start, time.perf_counter() - self._start)
        if self._mark is not None:
            self._mark.__exit__(None, None, None)
            self._mark = None

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Time every call of ``function``; of a coroutine function, every await.

        Raises:
            OptionError: it is a generator function, whose call does no work.
        """
        name = self.name
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise OptionError(
                f"{function.__name__} is a generator function, and calling it does no work: "
                f"write `with span({name!r}):` inside it, or around the loop"
            )
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: Any, **kwargs: Any) -> Any:
                with span(name):
                    return await function(*args, **kwargs)

            return awaited

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            with span(name):
                return function(*args, **kwargs)

        return timed
