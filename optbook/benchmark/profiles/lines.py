"""The line profile: the time of each line of the functions in which the time goes."""

from __future__ import annotations

import inspect
import linecache
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from optbook.benchmark.compilation import compiled
from optbook.benchmark.profiles.passes import Pass
from optbook.benchmark.profiles.places import cell_name, of_code
from optbook.benchmark.profiles.targets import Swap, Target, inner_codes
from optbook.experiments.record import Experiment

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Line:
    """A line of source, how often it was executed, and the seconds in it and in what it called."""

    number: int
    hits: int
    seconds: float
    source: str


@dataclass(frozen=True)
class Listing:
    """The lines of one function."""

    name: str
    file: str
    lines: tuple[Line, ...] = field(repr=False)

    @property
    def seconds(self) -> float:
        """Seconds in all lines."""
        return sum(line.seconds for line in self.lines)


@dataclass(frozen=True)
class LineProfile:
    """The time of each line, from line_profiler; ``listings`` has a function each."""

    experiment: Experiment = field(repr=False)
    run: Pass
    listings: tuple[Listing, ...] = field(repr=False)
    executions: int
    notes: tuple[str, ...] = ()

    @property
    def overhead(self) -> float | None:
        """Instrumented time ÷ bare time."""
        return self.run.overhead

    def to_frame(self) -> pandas.DataFrame:
        """One row a line: ``function``, ``file``, ``line``, ``hits``, ``seconds``, ``share``, ``source``.

        ``share`` is the line's of its function's seconds. Lines that were not executed have 0 hits.
        """
        import pandas as pd

        columns = ["function", "file", "line", "hits", "seconds", "share", "source"]
        rows = [
            (
                listing.name,
                listing.file,
                line.number,
                line.hits,
                line.seconds,
                line.seconds / listing.seconds if listing.seconds else 0.0,
                line.source,
            )
            for listing in self.listings
            for line in listing.lines
        ]
        return pd.DataFrame(rows, columns=columns)

    def __str__(self) -> str:
        from optbook.benchmark.profiles.render import lines_as_text

        return lines_as_text(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from optbook.benchmark.profiles.render import lines_as_html

        return lines_as_html(self)


class LineInstrument:
    """line_profiler on some code, in the workload's thread and in those started in it.

    line_profiler tells code apart by its bytes, and changes them for that. The changed code is put in
    the place of the original in all functions and cells that have or define it, and taken out at the end.
    """

    def __init__(self, targets: Sequence[Target], function: Callable[..., object]) -> None:
        from line_profiler import LineProfiler

        self._profiler: Any = LineProfiler()
        self._function = function
        self._on = False
        instead = {}
        for code in (code for target in targets for code in target.codes):
            shim = SimpleNamespace(__code__=code, __name__=code.co_name)
            self._profiler.add_function(shim)
            instead[id(code)] = shim.__code__
        self._swap = Swap(instead)
        self._threads: Any = None

    def workload(self, run: Callable[[], object]) -> Callable[[], object]:
        """The workload with the changed code in it; ``run`` is what executes it."""
        recoded = getattr(self._function, "recoded", None)
        if recoded is None:
            return run
        changed: Callable[[], object] = recoded(self._swap.code)
        return changed

    def start(self) -> None:
        """As in `Instrument`."""
        self._swap.put()

    def stop(self) -> None:
        """As in `Instrument`."""
        self.running(False)
        self._swap.put_back()

    def running(self, on: bool) -> None:
        """As in `Instrument`."""
        if on == self._on:
            return
        self._on = on
        if on:
            self._profiler.enable_by_count()
            if not hasattr(sys, "monitoring"):  # from 3.12 on, all threads are seen anyway
                self._threads = threading.gettrace()
                threading.settrace(self._in_thread)
        else:
            if not hasattr(sys, "monitoring"):
                threading.settrace(self._threads)
            self._profiler.disable_by_count()

    def _in_thread(self, frame: Any, event: str, argument: Any) -> None:
        """The first that happens in a new thread: from now on line_profiler looks at it too."""
        sys.settrace(None)
        self._profiler.enable_by_count()

    def timings(self) -> dict[tuple[str, int], dict[int, tuple[int, float]]]:
        """By file and first line of a function: hits and seconds by line."""
        stats = self._profiler.get_stats()
        found: dict[tuple[str, int], dict[int, tuple[int, float]]] = {}
        for (file, first, _), entries in stats.timings.items():
            lines = found.setdefault((file, first), {})
            for number, hits, time in entries:
                lines[number] = (hits, time * stats.unit)
        return found


def line_profile(
    instrument: LineInstrument,
    targets: Sequence[Target],
    run: Pass,
    experiment: Experiment,
    executions: int,
) -> LineProfile:
    """Put the lines beside their source."""
    timings = instrument.timings()
    notes = [note for target in targets for note in target.notes]
    listings = []
    for target in targets:
        lines: dict[int, tuple[int, float]] = {}
        for code in target.codes:
            lines |= timings.get((code.co_filename, code.co_firstlineno), {})
        listing, trouble = _listing(target, lines)
        listings.append(listing)
        notes += trouble
        if not any(line.hits for line in listing.lines):
            notes.append(f"{target.name} was not called, or only in a worker process")
    if compiled():
        notes.append("functions compiled by torch.compile ran uncompiled (eagerly), as their source has it")
    return LineProfile(
        experiment, run, tuple(listings), executions, (*notes, *run.notes, *experiment.warnings)
    )


def _listing(target: Target, lines: dict[int, tuple[int, float]]) -> tuple[Listing, list[str]]:
    code = target.codes[0]
    place = of_code(code)
    source, trouble = source_of(target)
    numbers = sorted({*source, *lines})
    listed = tuple(
        Line(number, *lines.get(number, (0, 0.0)), source.get(number, "").rstrip()) for number in numbers
    )
    return Listing(target.name, place.file, listed), trouble


def source_of(target: Target) -> tuple[dict[int, str], list[str]]:
    """The source by line number, and what is wrong with it."""
    code = target.codes[0]
    file = code.co_filename
    linecache.checkcache(file)
    text = linecache.getlines(file)
    if code.co_name == "<module>":
        body = [(number, line) for number, line in enumerate(text, 1) if number > 1 or line.strip()]
        return dict(body), [] if text else [f"the source of {target.name} is missing"]
    first = code.co_firstlineno
    if first > len(text):
        return {}, [f"the source of {target.name} is missing: lines are shown by number only"]
    block = inspect.getblock(text[first - 1 :])
    trouble = []
    if cell_name(file) is None and _changed(code, "".join(text)):
        trouble.append(
            f"the source of {target.name} ({Path(file).name}) is not the one that runs: "
            "load it again, or the lines shown are not those that were timed"
        )
    return {first + i: line for i, line in enumerate(block)}, trouble


def _changed(code: CodeType, text: str) -> bool:
    """Whether a file's text no longer has a function of this name at this line."""
    try:
        now = compile(text, code.co_filename, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return True
    return not any(
        inner.co_qualname == code.co_qualname
        and inner.co_firstlineno == code.co_firstlineno
        and inner.co_names == code.co_names
        for inner in inner_codes([now])
    )
