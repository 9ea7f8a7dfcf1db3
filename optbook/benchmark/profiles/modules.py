"""The module profile: a workload's models as trees, with the time and the work of each module."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from optbook.benchmark.clock import Clock
from optbook.benchmark.compilation import compiled, eagerly
from optbook.benchmark.machine import peaks as machine
from optbook.benchmark.profiles.module_account import stretches
from optbook.benchmark.profiles.module_counts import Counts, held_by
from optbook.benchmark.profiles.module_tree import Charges, Figures, Forest, Module, Sums
from optbook.benchmark.profiles.module_watch import IN, Event, Watch
from optbook.benchmark.profiles.passes import QUEUED, Pass
from optbook.benchmark.profiles.request import Request
from optbook.benchmark.runner import Workload
from optbook.errors import OptbookError
from optbook.experiments.record import Experiment

if TYPE_CHECKING:
    import pandas

TIMED_SECONDS = 1.0
COUNTED_SECONDS = 1e-9
"""One run, or the fewest steps: counts do not vary by chance."""
LEAST_COVERAGE = 0.95
LEAST_SHARE = 0.005
"""Of the time: modules that take less are not shown."""
NO_LOOK = "support saved tensor hooks"
"""How torch.func says that nobody may see what autograd keeps while it works."""
TIMED = ("calls", "forward", "backward")
NEAR_ROOF = 0.2
COUNTED = ("forward_flops", "backward_flops", "activations", "moved", "arithmetic", "memory")


@dataclass(frozen=True)
class ModulesProfile:
    """The models that a workload calls, with the time, work and memory of each module, a step (or a run).

    ``models`` are those of the workload's own thread, then those of others. ``rest`` has the seconds of what
    is no module's. ``seconds`` is a step (or run) on average: the models of the workload's thread, and the
    rest. ``run`` is the pass in which modules were timed, ``counted`` that in which operators were counted.
    """

    experiment: Experiment = field(repr=False)
    run: Pass
    counted: Pass = field(repr=False)
    models: tuple[Module, ...] = field(repr=False)
    rest: Mapping[str, float]
    executions: int
    notes: tuple[str, ...] = ()

    @property
    def overhead(self) -> float | None:
        """Instrumented time ÷ bare time."""
        return self.run.overhead

    @property
    def seconds(self) -> float:
        """A step, or a run, under the instrument."""
        return sum(m.total.seconds for m in self.models if not m.thread) + sum(self.rest.values())

    @property
    def evidence(self) -> dict[str, float]:
        """What a diagnosis can use of it, by the names of `optbook.benchmark.evidence.Evidence`.

        A module counts on the side of the roof that it hits, where it comes within a fifth of it.
        """
        found = {"arithmetic": 0.0, "memory": 0.0}
        for model in self.models:
            for module in () if model.thread else model.walk():
                if module.own.roof and (module.own.share or 0.0) >= NEAR_ROOF:
                    found[module.own.roof] += module.own.seconds
        known = {name: seconds / self.seconds for name, seconds in found.items() if seconds}
        return {f"{name}_share": min(1.0, share) for name, share in known.items()}

    def to_frame(self) -> pandas.DataFrame:
        """One row a module, with ``path``, ``module`` (its class), ``depth`` and ``thread``.

        In seconds ``forward`` and ``backward``, with all that lies in the module, and their ``share`` of
        the step; ``own_forward`` and ``own_backward`` without it. ``calls``, ``forward_flops``,
        ``backward_flops``, ``parameters``, ``trainable``, and in bytes ``activations`` and ``moved``, all a
        step and with what lies inside but for ``calls``. ``roof`` and ``roof_share``; ``remarks``. Below,
        one row a part of the rest, with ``depth`` -1 and its seconds in ``forward``.
        """
        import pandas as pd

        rows = [_row(module, self.seconds) for model in self.models for module in model.walk()]
        for name, seconds in self.rest.items():
            share = seconds / self.seconds if self.seconds else 0.0
            rows.append({"path": name, "module": "", "depth": -1, "forward": seconds, "share": share})
        return pd.DataFrame(rows, columns=list(_row(_NOTHING, 0.0)))

    def __str__(self) -> str:
        from optbook.benchmark.profiles.module_render import as_text

        return as_text(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from optbook.benchmark.profiles.module_render import as_html

        return as_html(self)


_NOTHING = Module("", "", Figures(), 0, 0)


def _row(module: Module, seconds: float) -> dict[str, Any]:
    total, own = module.total, module.own
    return {
        "path": module.path,
        "module": module.kind,
        "depth": module.depth,
        "thread": module.thread,
        "calls": total.calls,
        "forward": total.forward,
        "backward": total.backward,
        "share": total.seconds / seconds if seconds else 0.0,
        "own_forward": own.forward,
        "own_backward": own.backward,
        "forward_flops": total.forward_flops,
        "backward_flops": total.backward_flops,
        "parameters": module.all_parameters,
        "trainable": module.all_trainable,
        "activations": total.activations,
        "moved": total.moved,
        "roof": total.roof,
        "roof_share": total.share,
        "remarks": "; ".join(module.remarks),
    }


def modules_profile(request: Request) -> ModulesProfile:
    """Execute a measured workload twice more: to time its modules, and to count what their operators do.

    Raises:
        OptbookError: the workload does not use torch, or calls no module.
        Exception: what the workload raised.
    """
    if "torch" not in sys.modules:
        raise OptbookError(
            "a profile of modules needs a model of torch's, and this workload does not use torch: "
            "profile calls or lines instead"
        )
    forest, rest = Forest(request.given), Sums(float)
    run = _timed(request, forest, rest)
    if not forest.models(dict.fromkeys(TIMED, 1.0)):
        raise OptbookError(
            "no torch.nn.Module was called in this process: call the model in the cell, or profile calls or "
            "lines instead"
        )
    peaks, notes = _peaks()
    counts = Counts(peaks)
    try:
        counted = _counted(request, forest, counts)
    except RuntimeError as error:
        if NO_LOOK not in str(error):
            raise
        counts = Counts(peaks, keeps=False)
        counted = _counted(request, forest, counts)
    timed_units, counted_units = (run.steps or run.executions), (counted.steps or counted.executions)
    models = forest.models(dict.fromkeys(TIMED, timed_units) | dict.fromkeys(COUNTED, counted_units))
    notes += _notes(counts, models, run)
    return ModulesProfile(
        experiment=request.experiment,
        run=run,
        counted=counted,
        models=tuple(sorted(models, key=lambda m: (m.thread != "", -m.total.seconds))),
        rest={
            name: seconds / timed_units for name, seconds in sorted(rest.items(), key=lambda part: -part[1])
        },
        executions=request.experiment.executions + run.executions + counted.executions,
        notes=(*notes, *request.experiment.warnings),
    )


def _timed(request: Request, forest: Forest, rest: Sums) -> Pass:
    clock = request.clock or Clock()
    wait = clock.device()

    def now() -> float:
        if wait is not None:
            wait()  # so that a device's work is over before that of the next module begins
        return clock.now()

    def charge(events: Sequence[Event], own_thread: bool) -> Charges:
        charges = _called(events)
        for whose, backward, begin, end in stretches(events):
            if not isinstance(whose, str):
                _of(charges, whose)["backward" if backward else "forward"] += end - begin
            elif own_thread:
                rest[whose] += end - begin
        return charges

    watch = Watch(now, waits=True)
    return _watched(request, watch, forest, charge, "module profile", TIMED_SECONDS, _eagerly)


def _counted(request: Request, forest: Forest, counts: Counts) -> Pass:
    def charge(events: Sequence[Event], own_thread: bool) -> Charges:
        if not own_thread:
            return {}
        charges: Charges = {key: (module, Sums(float)) for key, (module, _) in _called(events).items()}
        parameters = held_by(module for module, _ in charges.values())
        for whose, backward, begin, end in stretches(events):
            if isinstance(whose, str):
                continue
            sums = _of(charges, whose)
            for work in counts.work[int(begin) : int(end)]:
                sums["backward_flops" if backward else "forward_flops"] += work.flops
                sums["moved"] += work.moved
                sums["arithmetic"] += work.arithmetic
                sums["memory"] += work.memory
                sums["activations"] += 0 if work.storage in parameters else work.kept
        counts.work.clear()
        return charges

    @contextlib.contextmanager
    def around() -> Iterator[None]:
        with _eagerly(), counts.counting():
            yield

    watch = Watch(counts.now)
    return _watched(request, watch, forest, charge, "module counts", COUNTED_SECONDS, around)


def _watched(
    request: Request,
    watch: Watch,
    forest: Forest,
    charge: Callable[[Sequence[Event], bool], Charges],
    name: str,
    enough: float,
    around: Callable[[], contextlib.AbstractContextManager[None]],
) -> Pass:
    """A pass whose events are read, and added to the trees, between its runs."""
    before = request.workload

    def read() -> None:
        forest.add([(thread, charge(events, not thread)) for thread, events in watch.taken()])

    def setup() -> None:
        read()
        if before.setup is not None:
            before.setup()

    workload = Workload(before.run, setup)
    run = request.further(watch, enough=enough, name=name, workload=workload, around=around)
    read()
    return run


@contextlib.contextmanager
def _eagerly() -> Iterator[None]:
    """Run compiled functions as written; that hooks see a compiled module and what is in it is known."""
    with eagerly(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Using `torch.compile.* when there are global hooks", UserWarning)
        yield


def _of(charges: Charges, module: Any) -> Sums:
    return charges.setdefault(id(module), (module, Sums(float)))[1]


def _called(events: Sequence[Event]) -> Charges:
    """The modules that were called, and how often."""
    charges: Charges = {}
    for _, kind, what in events:
        if kind == IN and not isinstance(what, str):
            _of(charges, what)["calls"] += 1
    return charges


def _peaks() -> tuple[machine.Peaks | None, list[str]]:
    notes = [] if machine.known() is not None else ["the machine's peaks were measured for this"]
    found = machine.peaks()
    if not found.disturbed:
        return found, notes
    return None, [
        "no share of the roofline: other work took part of the cores while the machine's peaks were "
        "measured; measure them again when it is quiet: optbook.peaks(refresh=True)"
    ]


def _notes(counts: Counts, models: Sequence[Module], run: Pass) -> list[str]:
    notes = []
    least = LEAST_SHARE * sum(model.total.seconds for model in models)
    large = [m for model in models for m in model.walk() if m.total.seconds >= least]
    coverage = counts.kept.coverage
    if coverage is not None and coverage < LEAST_COVERAGE:
        notes.append(
            f"FLOPs are those of operators that took {coverage:.0%} of the operators' time; the rest has "
            "none, or no formula"
        )
    if not counts.keeps:
        notes.append("bytes of activations are not known: torch.func shows nobody what autograd keeps")
    if counts.without_peak:
        names = ", ".join(sorted(counts.without_peak))
        notes.append(f"no peak was measured for {names}: the share of the roofline leaves it out")
    if any((m.total.share or 0) > 1 for m in large):
        notes.append(
            "no share of the roofline where it would be above 100 %: the data came from a cache, or work was "
            "counted that is skipped"
        )
    if any(model.thread for model in models):
        notes.append("modules called in other threads are timed, not counted, and not part of the step's sum")
    if any("TorchScript" in remark for m in models for inner in m.walk() for remark in inner.remarks):
        notes.append("what a TorchScript module calls inside is not seen: it is the module's own")
    if compiled():
        notes.append("functions compiled by torch.compile ran uncompiled (eagerly), as their source has it")
    if QUEUED in run.notes:
        notes.append(
            "the accelerator was waited for at the edges of each module: what would overlap does not, and "
            "the step is slower than without"
        )
    return [*notes, *(note for note in run.notes if note != QUEUED)]
