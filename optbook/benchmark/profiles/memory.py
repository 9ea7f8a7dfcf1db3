"""The memory profile: which lines take memory, what is alive afterwards, what grows, and who holds it."""

from __future__ import annotations

import inspect
import tracemalloc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from optbook import settings as configuration
from optbook.benchmark.compilation import compiled, eagerly
from optbook.benchmark.profiles import slots, tensors
from optbook.benchmark.profiles.leaks import Growth
from optbook.benchmark.profiles.leaks_pass import CAN_NOT, LeakSearch
from optbook.benchmark.profiles.lines import LineInstrument, source_of
from optbook.benchmark.profiles.memory_lines import MOST_EVENTS, LineMemory, Sums
from optbook.benchmark.profiles.memory_meters import Allocation, Resident, Traced
from optbook.benchmark.profiles.passes import Pass
from optbook.benchmark.profiles.places import of_code
from optbook.benchmark.profiles.references import References, hidden, roots
from optbook.benchmark.profiles.request import Request
from optbook.benchmark.profiles.targets import Target, named, of_hot, of_workload
from optbook.benchmark.profiles.tensors import HeldTensor
from optbook.benchmark.runner import Workload
from optbook.experiments.record import Experiment

if TYPE_CHECKING:
    import pandas

MOST_HOT, HOT_SHARE, LEAST_BYTES = 4, 0.05, 64 * 1024
LINES_SECONDS = 0.3
_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
RESOLUTION = (
    "resident memory comes in pages of 4 KiB and is counted in batches: take less than about 0.25 MiB as "
    "nothing. A line that uses memory which was freed before shows no growth; the Python columns "
    "(Python's and NumPy's memory, not torch's) are exact to some 100 bytes"
)


@dataclass(frozen=True)
class MemoryLine:
    """A line of source and its memory in bytes.

    ``grew`` is what resident memory gained over all hits; ``rose`` the most that it stood above the start of
    the line in one hit, temporary values included, and ``peak`` above the start of the run. ``python_grew``
    and ``python_rose`` are the same of Python's and NumPy's memory. ``seconds`` is None unless time was
    asked for.
    """

    number: int
    hits: int
    grew: float
    rose: float
    peak: float
    python_grew: float
    python_rose: float
    seconds: float | None
    source: str


@dataclass(frozen=True)
class MemoryListing:
    """The lines of one function."""

    name: str
    file: str
    lines: tuple[MemoryLine, ...] = field(repr=False)

    @property
    def most(self) -> float:
        """The largest rise in one of its lines, in bytes."""
        return max((max(line.rose, line.python_rose) for line in self.lines), default=0.0)


@dataclass(frozen=True)
class MemoryProfile:
    """Where a workload's memory goes.

    ``run`` is the pass that looked at resident memory line by line, whose overhead is stated.
    ``allocations`` are the lines that held most of Python's and NumPy's memory when most was in use;
    ``tensors`` the largest that are alive afterwards, ``tensor_bytes`` those of all by device. ``growth`` is
    None where it can't be judged.
    """

    experiment: Experiment = field(repr=False)
    run: Pass
    listings: tuple[MemoryListing, ...] = field(repr=False)
    allocations: tuple[Allocation, ...]
    tensors: tuple[HeldTensor, ...]
    tensor_bytes: Mapping[str, int]
    growth: Growth | None
    executions: int
    notes: tuple[str, ...] = ()

    @property
    def overhead(self) -> float | None:
        """Instrumented time ÷ bare time."""
        return self.run.overhead

    def to_frame(self) -> pandas.DataFrame:
        """One row a line: ``function``, ``file``, and the fields of `MemoryLine`."""
        import pandas as pd

        columns = ["function", "file", "line", "hits", "seconds", "grew", "rose", "peak"]
        columns += ["python_grew", "python_rose", "source"]
        rows = [
            (
                *(listing.name, listing.file, line.number, line.hits, line.seconds, line.grew, line.rose),
                *(line.peak, line.python_grew, line.python_rose, line.source),
            )
            for listing in self.listings
            for line in listing.lines
        ]
        return pd.DataFrame(rows, columns=columns)

    def __str__(self) -> str:
        from optbook.benchmark.profiles.memory_render import memory_as_text

        return memory_as_text(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from optbook.benchmark.profiles.memory_render import memory_as_html

        return memory_as_html(self)


def memory_profile(request: Request) -> MemoryProfile:
    """Look at the memory of a workload, in passes of their own.

    The first reads resident memory at every line, the second Python's own; then the workload is run four
    times more to see what grows. With the option ``time`` one more pass times the lines.
    """
    slots.refuse_others()
    chosen = [named(given, request.given) for given in request.functions]
    targets = chosen or of_workload(request.given)
    resident = Resident(configuration.settings().reset_peak)
    traced = Traced()
    by_page = LineMemory(resident, targets, further=not chosen)
    by_byte = LineMemory(traced, targets, further=not chosen)
    run = _looked_at(request, by_page, "memory profile")
    exact = _looked_at(request, by_byte, "allocation profile")
    executions = request.experiment.executions + run.executions + exact.executions
    targets = [*targets, *([] if chosen else _hot([by_page, by_byte], targets))]
    growth, held, totals, tried = _afterwards(request)
    executions += tried
    seconds: dict[tuple[str, int], dict[int, tuple[int, float]]] | None = None
    if request.options.get("time"):
        clock = LineInstrument(targets, request.given)
        timed = Workload(clock.workload(request.workload.run), request.workload.setup)
        executions += request.further(
            clock, enough=LINES_SECONDS, name="line profile", workload=timed, around=eagerly
        ).executions
        seconds = clock.timings()
    listings, trouble = _listings(targets, by_page, by_byte, seconds)
    notes = [*trouble, RESOLUTION, *_notes([by_page, by_byte], targets), *([] if growth else [CAN_NOT])]
    if tracemalloc.is_tracing():
        notes.append(
            "tracemalloc was on, and stays on: the search for leaks is slower, its peak was set back"
        )
    if not resident.exact:
        notes.append("peaks are those at the ends of lines: the kernel's high-water mark was not set back")
    return MemoryProfile(
        experiment=request.experiment,
        run=run,
        listings=listings,
        allocations=traced.allocations,
        tensors=held,
        tensor_bytes=totals,
        growth=growth,
        executions=executions,
        notes=(*notes, *run.notes, *request.experiment.warnings),
    )


def _looked_at(request: Request, lines: LineMemory, name: str) -> Pass:
    workload = Workload(lines.workload(request.workload.run), request.workload.setup)
    return request.further(lines, enough=LINES_SECONDS, name=name, workload=workload, around=eagerly)


def _afterwards(request: Request) -> tuple[Growth | None, tuple[HeldTensor, ...], Mapping[str, int], int]:
    """What grew, the tensors that are alive, and how often the workload was run for that."""
    search = LeakSearch(request)
    if search.possible:
        request.further(search, enough=LINES_SECONDS, name="leak search", workload=search.workload())
    growth = search.growth
    if growth is not None:
        return growth, growth.held, growth.totals, search.executions
    if not tensors.living():
        return None, (), {}, search.executions
    there = References(roots(request.given), hidden())
    return None, *tensors.held(there, tensors.storages(tensors.living())), search.executions


def _hot(instruments: Sequence[LineMemory], known: Sequence[Target]) -> list[Target]:
    """The functions of yours in which most memory is taken, beside the known."""
    most: dict[int, float] = {}
    codes = {key: code for instrument in instruments for key, code in instrument.seen.codes.items()}
    for instrument in instruments:
        for key, lines in instrument.seen.lines.items():
            highest = max(max(sums.rose, abs(sums.grew)) for sums in lines.values())
            most[key] = max(most.get(key, 0.0), highest)
    least = max(LEAST_BYTES, HOT_SHARE * max(most.values(), default=0.0))
    seen = {id(code) for target in known for code in target.codes}
    hot = [key for key in sorted(most, key=lambda k: -most[k]) if most[key] >= least and key not in seen]
    return of_hot([codes[key] for key in hot[:MOST_HOT]], known)


def _listings(
    targets: Sequence[Target],
    by_page: LineMemory,
    by_byte: LineMemory,
    seconds: Mapping[tuple[str, int], Mapping[int, tuple[int, float]]] | None,
) -> tuple[tuple[MemoryListing, ...], list[str]]:
    """The lines beside their source, and what is wrong with it."""
    listings, notes = [], []
    for target in targets:
        pages, exact, times = _of(target, by_page), _of(target, by_byte), dict[int, tuple[int, float]]()
        for code in target.codes:
            times |= (seconds or {}).get((code.co_filename, code.co_firstlineno), {})
        source, trouble = source_of(target)
        notes += trouble
        lines = []
        for number in sorted({*source, *pages, *exact} - {0}):
            page, byte = pages.get(number, Sums()), exact.get(number, Sums())
            spent = None if seconds is None else times.get(number, (0, 0.0))[1]
            text = source.get(number, "").rstrip()
            figures = (page.grew, page.rose, page.peak, byte.grew, byte.rose)
            lines.append(MemoryLine(number, times.get(number, (page.hits,))[0], *figures, spent, text))
        listings.append(MemoryListing(target.name, of_code(target.codes[0]).file, tuple(lines)))
        if not any(line.hits for line in lines):
            notes.append(f"{target.name} was not called, or only in a worker process")
    if compiled():
        notes.append("functions compiled by torch.compile ran uncompiled (eagerly), as their source has it")
    return tuple(listings), notes


def _of(target: Target, instrument: LineMemory) -> dict[int, Sums]:
    found: dict[int, Sums] = {}
    for code in target.codes:
        found |= instrument.seen.lines.get(id(code), {})
    return found


def _notes(instruments: Sequence[LineMemory], targets: Sequence[Target]) -> list[str]:
    notes = []
    for target in targets:
        keys = {id(code) for code in target.codes}
        if any(keys & instrument.seen.recursive for instrument in instruments):
            notes.append(f"{target.name} calls itself: each of its calls counts its own growth only")
        if any(instrument.seen.cut(code) for instrument in instruments for code in target.codes):
            notes.append(f"of {target.name} only the first {MOST_EVENTS} executed lines were looked at")
        if any(code.co_flags & _SUSPENDED for code in target.codes):
            notes.append(f"{target.name} stops and goes on: what others take in between is not in its lines")
    if any(len(instrument.seen.threads) > 1 for instrument in instruments):
        notes.append(
            "lines ran in several threads: memory is the process's, one thread's is in another's lines"
        )
    return notes
