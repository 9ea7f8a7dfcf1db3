"""What `track` and `span` write down while a workload runs."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from optbook.benchmark.clock import Clock

Count = float | Callable[[Any], float]
SYNC_EVERY_SECONDS = 0.25


def _doubles() -> array[float]:
    return array("d")


@dataclass
class Series:
    """The steps of one unit: absolute times, in seconds, of asking for an item, having it, being done."""

    unit: str
    asked: array[float] = field(default_factory=_doubles)
    ready: array[float] = field(default_factory=_doubles)
    done: array[float] = field(default_factory=_doubles)
    synced: list[int] = field(default_factory=list)
    counts: dict[str, array[float]] = field(default_factory=dict)
    startup: float | None = None

    def __len__(self) -> int:
        return len(self.done)

    @property
    def seconds(self) -> float:
        """Seconds inside the steps, without what lies between one loop and the next."""
        return sum(self.done) - sum(self.asked)


@dataclass
class Spans:
    """The entries of one span: absolute start times and durations, in seconds."""

    starts: array[float] = field(default_factory=_doubles)
    durations: array[float] = field(default_factory=_doubles)


class Recorder:
    """Collects the steps and spans of one run of a workload.

    ``limit`` ends the loops of the first unit tracked after so many steps. ``on_loop`` is called
    with True when the outermost tracked loop starts and with False when it ends.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        limit: int | None = None,
        on_loop: Callable[[bool], None] | None = None,
        on_step: Callable[[], None] | None = None,
    ) -> None:
        self.clock = clock or Clock()
        self.limit = limit
        self.series: dict[str, Series] = {}
        self.spans: dict[str, Spans] = {}
        self._on_loop = on_loop
        self._on_step = on_step
        self._depth = 0

    def _enter_loop(self) -> None:
        self._depth += 1
        if self._depth == 1 and self._on_loop is not None:
            self._on_loop(True)

    def _leave_loop(self) -> None:
        self._depth -= 1
        if self._depth == 0 and self._on_loop is not None:
            self._on_loop(False)

    def steps(self, iterable: Iterable[Any], unit: str, counts: Mapping[str, Count]) -> Iterator[Any]:
        """Yield the items of ``iterable`` and note the times of every completed step."""
        first_unit = next(iter(self.series), unit)
        series = self.series.setdefault(unit, Series(unit))
        limit = self.limit if unit == first_unit else None
        if limit is not None and len(series) >= limit:
            return
        now, synchronize, on_step = self.clock.now, self.clock.device(), self._on_step
        note_asked, note_ready, note_done = series.asked.append, series.ready.append, series.done.append
        self._enter_loop()
        try:
            if synchronize is not None:
                synchronize()
            asked = synced = now()
            iterator = iter(iterable)
            for item in iterator:
                ready = now()
                if series.startup is None:
                    series.startup = ready - asked
                yield item
                done = now()
                if synchronize is not None and done - synced >= SYNC_EVERY_SECONDS:
                    synchronize()
                    done = synced = now()
                    series.synced.append(len(series))
                note_asked(asked)
                note_ready(ready)
                note_done(done)
                if counts:
                    _count(series, counts, item)
                    done = now()
                if on_step is not None:
                    on_step()
                if limit is not None and len(series) >= limit:
                    break
                asked = done
        finally:
            if synchronize is not None and len(series):
                synchronize()
                series.done[-1] = max(series.done[-1], now())
                series.synced.append(len(series) - 1)
            self._leave_loop()

    def enter_span(self, name: str, start: float, duration: float) -> None:
        """Note one completed entry of a span."""
        spans = self.spans.get(name)
        if spans is None:
            spans = self.spans.setdefault(name, Spans())
        spans.starts.append(start)
        spans.durations.append(duration)


def _count(series: Series, counts: Mapping[str, Count], item: Any) -> None:
    for name, count in counts.items():
        value = count(item) if callable(count) else count
        series.counts.setdefault(name, _doubles()).append(float(value))


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
        _Active.recorder = self._previous


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
        ValueError: ``unit`` or the name of a further unit is empty.
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

    __slots__ = ("_recorder", "_start", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._recorder: Recorder | None = None
        self._start = 0.0

    def __enter__(self) -> span:
        self._recorder = _Active.recorder
        self._start = time.perf_counter()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._recorder is not None:
            self._recorder.enter_span(self.name, self._start, time.perf_counter() - self._start)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        import functools

        name = self.name

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            with span(name):
                return function(*args, **kwargs)

        return timed
