"""`sweep`: throughput over one or two settings, each point measured by itself, in random order."""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from optbook import settings as configuration
from optbook.benchmark import noise, output
from optbook.benchmark.bench import bench, label_of, runnable
from optbook.benchmark.cell import Cell
from optbook.benchmark.clock import Clock
from optbook.benchmark.progress import Progress
from optbook.benchmark.quantities import Quantity, short
from optbook.benchmark.recorder import active
from optbook.errors import OptbookError, OptionError
from optbook.experiments.record import Experiment
from optbook.experiments.render import one_line
from optbook.optimize.grid import Settings, bound, check_use, grid, named
from optbook.optimize.knee import OUT_OF_MEMORY, Point, knee, written

if TYPE_CHECKING:
    import pandas

MOST_WARNINGS = 6
PROBES = 6
"""How often, after each point, a fixed piece of work is timed that shows whether the machine changed."""
_PER_CALL = ("batch", "run")
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory", "alloc_failed")


@dataclass(frozen=True)
class Sweep:
    """Throughput, in ``unit`` per second, over one or two settings.

    ``points`` are in the order of their settings, ``order`` in that in which they were measured. ``knee`` is
    the smallest setting that has 95 % of the best's throughput, None where that is not clear; ``candidates``
    are then the points that may be it; ``verdict`` says so in one sentence (see `optbook.optimize.knee`).
    """

    label: str
    unit: str
    points: tuple[Point, ...]
    knee: Point | None
    candidates: tuple[Point, ...]
    verdict: str
    order: tuple[Point, ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the settings."""
        return tuple(self.points[0].settings)

    @property
    def best(self) -> Point | None:
        """The point of the largest throughput; None if none was measured."""
        measured = [point for point in self.points if point.throughput]
        return max(measured, key=lambda point: point.throughput or 0.0, default=None)

    def to_frame(self) -> pandas.DataFrame:
        """One row a point, indexed by the settings.

        Columns: ``status``, ``throughput``, ``low``, ``high``, ``seconds``, ``memory`` (bytes), ``error``,
        and the ``experiment``'s id ("" of a point that failed).
        """
        import pandas as pd

        names = ("status", "throughput", "low", "high", "seconds", "memory", "error")
        rows = [
            {name: getattr(point, name) for name in names}
            | {"experiment": point.experiment.id if point.experiment else ""}
            for point in self.points
        ]
        index = pd.MultiIndex.from_tuples([tuple(p.settings.values()) for p in self.points], names=self.names)
        return pd.DataFrame(rows, index=index if len(self.names) > 1 else index.get_level_values(0))

    def __str__(self) -> str:
        from optbook.optimize.sweep_render import as_text

        return as_text(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from optbook.optimize.sweep_render import as_html

        return as_html(self)


def sweep(
    function: Callable[..., object],
    settings: Mapping[str, Sequence[float]],
    label: str | None = None,
    *,
    unit: str | None = None,
    budget: float | None = None,
    runs: int | None = None,
    steps: int | None = None,
    warmup: int | None = None,
    setup: Callable[..., object] | None = None,
    units: Mapping[str, Quantity | Callable[..., float]] | None = None,
    metrics: Mapping[str, Quantity | Callable[..., float]] | None = None,
    source: str = "",
    seed: int | None = None,
    clock: Clock | None = None,
) -> Sweep:
    """Measure ``function(batch_size=8)``, ``function(batch_size=16)`` and so on, and find the knee.

    Each point is measured and recorded as `optbook.bench` does, labelled ``label [batch_size=8]``; the order
    is random, so that a machine that slows down makes no trend. A point that runs out of memory is a result,
    and the rest is measured all the same.

    Args:
        function: called with the settings as keywords; a cell finds them as names.
        settings: the values, numbers, of one or two settings; all combinations are measured, 64 at most.
        label: what the experiments are called; the function's name if None.
        unit: what throughput counts; if None, the first counted that is neither batch nor run, if any is.
        budget: seconds for all points; four times the setting `OptBook.budget` if None. A tracked loop runs
            to its end, or for ``steps`` steps.
        runs, steps, warmup: at each point, as for `optbook.bench`.
        setup: called untimed before every run; with those settings that it takes.
        units, metrics: as for `optbook.bench`; functions are called with those settings that they take.
        source: the source of the workload, for the log.
        seed: of the random order.
        clock: the clock to read.

    Returns:
        The curve and its knee.

    Raises:
        OptionError: an argument can't be used, or no point counts ``unit``.
        Exception: whatever ``function`` raised that is not for want of memory. What was measured until then
            is in the log.
    """
    if active() is not None:
        raise OptbookError("a measurement is running already: don't sweep inside a measured workload")
    run = runnable(function)
    name = label_of(function if label is None else label)
    points = list(grid(settings))
    check_use(function, setup, points[0])
    budget = 4 * configuration.settings().budget if budget is None else budget
    checked: object = budget
    if isinstance(checked, bool) or not isinstance(checked, (int, float)) or not 0 < checked <= 86_400:
        raise OptionError(f"budget is {short(budget)}: give seconds between 0 and 86400, such as 20")
    clock = clock or Clock()
    order = list(points)
    random.Random(seed).shuffle(order)
    probe = noise.Probe(clock.now, every=0)
    found: list[tuple[Settings, Experiment | str]] = []
    shown = configuration.settings().progress_bar
    with Progress(name, len(order), len(order), shown) as progress:
        for at in order:
            given: dict[str, Any] = {
                "budget": budget / len(points),
                "runs": runs,
                "steps": steps,
                "warmup": warmup,
                "setup": None if setup is None else bound(setup, at),
                "units": {unit_name: bound(value, at) for unit_name, value in (units or {}).items()},
                "metrics": {metric: bound(value, at) for metric, value in (metrics or {}).items()},
            }
            printing = output.dropped(output.Printed()) if found else contextlib.nullcontext()
            with named(function, at), printing:
                workload = run if isinstance(function, Cell) else functools.partial(function, **at)
                result = _measured(workload, f"{name} [{written(at)}]", source, clock, given, at, len(found))
            found.append((at, result))
            for _ in range(PROBES):
                probe.take()
            if progress.step is not None:
                progress.step()
    return _result(name, found, points, unit, noise.change(probe.times) or 0.0)


def _measured(
    workload: Callable[[], object],
    label: str,
    source: str,
    clock: Clock,
    given: Mapping[str, Any],
    at: Settings,
    done: int,
) -> Experiment | str:
    """The experiment, or in what words the point ran out of memory."""
    try:
        return bench(workload, label, source=source, clock=clock, **given)
    except BaseException as error:
        if not out_of_memory(error):
            if not isinstance(error, OptionError):
                error.add_note(f"raised at {written(at)}; points measured before it, now in the log: {done}")
            raise
        text = one_line(f"{type(error).__name__}: {error}", 300)
    _free()
    return text


def out_of_memory(error: BaseException | None) -> bool:
    """Whether it was raised for want of memory, of this process or of a device."""
    torch = sys.modules.get("torch")
    kinds: tuple[type[BaseException], ...] = (MemoryError,)
    kinds += () if torch is None else (torch.OutOfMemoryError,)
    while error is not None:
        if isinstance(error, kinds) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
            return True
        if isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _OUT_OF_MEMORY):
            return True
        error = error.__cause__
    return False


def _free() -> None:
    """Give back what the failed point held, so that the next one has as much memory as it had."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _result(
    label: str,
    found: Sequence[tuple[Settings, Experiment | str]],
    points: Sequence[Settings],
    unit: str | None,
    drift: float,
) -> Sweep:
    chosen = _unit([e for _, e in found if isinstance(e, Experiment)], unit)
    order = [_point(at, result, chosen) for at, result in found]
    ordered = sorted(order, key=lambda point: points.index(point.settings))
    seen = knee(ordered, drift)
    notes = []
    if drift:
        faster = "faster" if drift < 0 else "slower"
        notes.append(
            f"the machine became {abs(100 * drift):.0f} % {faster} during the sweep (a fixed probe shows): "
            "the knee is judged with that much more doubt"
        )
    batches = [name for name in points[0] if "batch" in name.lower()]
    if chosen in _PER_CALL and batches:
        notes.append(
            f"throughput counts {'batches' if chosen == 'batch' else 'runs'}, whose size changes with "
            f"{batches[0]}: count what stays the same, with track(loader, sample=len) or --samples"
        )
    warnings = list(_warnings(ordered))
    notes += warnings[:MOST_WARNINGS]
    if len(warnings) > MOST_WARNINGS:
        notes.append(
            f"{len(warnings) - MOST_WARNINGS} more warnings are in the log, with the points they are of"
        )
    return Sweep(
        label, chosen, tuple(ordered), seen.point, seen.candidates, seen.why, tuple(order), tuple(notes)
    )


def _warnings(points: Sequence[Point]) -> Iterator[str]:
    """The warnings of the experiments, each once; of one point alone with its name."""
    places: dict[str, list[Point]] = {}
    for point in points:
        for warning in point.experiment.warnings if point.experiment else ():
            places.setdefault(warning, []).append(point)
    for warning, where in places.items():
        yield warning if len(where) > 1 or len(points) == 1 else f"{where[0]}: {warning}"


def _unit(experiments: Sequence[Experiment], asked: str | None) -> str:
    """What throughput counts: what was asked for, else what does not change with the size of a batch."""
    counted = list(dict.fromkeys(unit for e in experiments for unit in (e.unit, *e.units)))
    if asked is None:
        first = counted[0] if counted else "run"
        return next((unit for unit in counted if unit not in _PER_CALL), first)
    if asked not in counted:
        raise OptionError(
            f"unit is {short(asked)}: no point counts it, but {', '.join(counted) or 'none at all'}"
        )
    return asked


def _point(at: Settings, result: Experiment | str, unit: str) -> Point:
    if isinstance(result, str):
        return Point(at, OUT_OF_MEMORY, error=result)
    if result.status == "void":
        return Point(at, "void", error=result.error, experiment=result)
    rate = result.units.get(unit)
    scale = rate / result.throughput if rate and result.throughput else None
    low, high = (
        None if end is None or scale is None else end * scale
        for end in (result.throughput_low, result.throughput_high)
    )
    memory = result.memory_peak if result.gpu_allocated is None else result.gpu_allocated
    return Point(at, "ok", rate, low, high, result.seconds, memory, "", result)
