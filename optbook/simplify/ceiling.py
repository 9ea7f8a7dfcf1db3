"""`ceiling`: what a system would reach with a component free, and the component without all else."""

from __future__ import annotations

import math
import random
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

from optbook import settings as configuration
from optbook.benchmark.bench import bench, runnable
from optbook.benchmark.clock import Clock
from optbook.benchmark.profiles.request import Request
from optbook.benchmark.profiles.timing import sampled
from optbook.benchmark.progress import Progress
from optbook.benchmark.recorder import active
from optbook.benchmark.restore import namespaces
from optbook.benchmark.runner import Workload
from optbook.errors import OptbookError, OptionError
from optbook.simplify import stubs
from optbook.simplify.bed import MOST_VARIANTS, REAL, ROUNDS, Bed, Stubbed, Variant
from optbook.simplify.candidates import Found, candidates
from optbook.simplify.components import Component, find
from optbook.simplify.logged import logged
from optbook.simplify.result import IN_PLACE, NOTHING, Ceiling, Estimate, Pair, Part
from optbook.simplify.roofline import Bounds, bounds
from optbook.simplify.subjects import Subject, study
from optbook.simplify.whatif import curves

FIRST_STEPS = 40
FIRST_SHARE = 8
"""The first measurement takes an eighth of the budget."""
ALL_PAIRS = 4
"""Of up to so many components all pairs are looked at; of more, those with the largest."""
MEANINGLESS = (
    "results of the runs with stubs (losses, accuracies) mean nothing; parameters, optimizer state, names "
    "and random state were put back as the first measurement left them, what else the workload changes "
    "(iterators, files, arrays, your own objects) was not"
)


def ceiling(
    function: Callable[[], object],
    components: Sequence[object] | None = None,
    label: str | None = None,
    *,
    speedup: Sequence[float] = (),
    inside: bool = False,
    setup: Callable[[], object] | None = None,
    steps: int | None = None,
    budget: float | None = None,
    source: str = "",
    namespace: Mapping[str, Any] | None = None,
    seed: int | None = None,
    clock: Clock | None = None,
) -> Ceiling:
    """Measure a workload, and what it would reach if components of it cost nothing, or less.

    The real system and all variants run in turn, in random order within each round. A component is *free*
    when recorded outputs take its place; it is *alone* when all the others are free.

    Args:
        function: the workload; called without arguments. It is executed many times, mostly with stubs; a
            tracked loop ends early each time.
        components: names or objects, see `optbook.simplify.components.find`; chosen from a call profile if
            None.
        label: what the experiment is called; the function's name if None.
        speedup: factors above 1: what the system would gain if the component were so many times as fast.
        inside: take the components apart, and ask the same of their parts.
        setup: called untimed before every run.
        steps: ends tracked loops after so many steps; chosen if None.
        budget: seconds for all rounds; four times the setting `OptBook.budget` if None. A slow workload
            takes longer: at least three rounds are run, of fewer variants.
        source: the source of the workload, for the log.
        namespace: where names are looked up first, in place of where the call is made.
        seed: of the random order.
        clock: the clock to read.

    Returns:
        What was found. The real measurement and those with stubs are in the log, with this result's text and
        table beside the real one.

    Raises:
        OptionError: an argument or a component can't be used; nothing was run.
        OptbookError: the measurement of the real system was void.
        Exception: whatever the real workload raised.
    """
    speedups = _speedups(speedup)
    if active() is not None:
        raise OptbookError(
            "a measurement is running already: don't take a ceiling inside a measured workload"
        )
    if namespace is None:
        caller = sys._getframe(1)
        namespace = {**caller.f_globals, **caller.f_locals}
    budget = 4 * configuration.settings().budget if budget is None else budget
    checked: object = budget
    if not isinstance(checked, (int, float)) or not 0 < checked <= 86_400:
        raise OptionError(f"budget is {budget!r}: give seconds between 0 and 86400, such as 20")
    run = runnable(function)
    named = _named(function, components, namespace)
    clock = clock or Clock()
    experiment = bench(
        function,
        label,
        steps=FIRST_STEPS if steps is None else steps,
        budget=budget / FIRST_SHARE,
        setup=setup,
        source=source,
        clock=clock,
    )
    if experiment.status == "void":
        raise OptbookError(f"no ceiling of a void measurement: {experiment.error}")
    request = Request(Workload(run, setup), function, experiment, clock=clock)
    found = _chosen(request, named, inside)
    bed = Bed(request, steps, clock, random.Random(seed))
    name = f"ceiling of {experiment.label}"
    try:
        shown = configuration.settings().progress_bar
        with stubs.known(), Progress(name, budget, shown=shown) as progress:
            result = _answer(bed, found, speedups, budget, progress)
    finally:
        bed.put_back()
    return logged(result, bed.times, experiment)


def _speedups(given: Sequence[float]) -> tuple[float, ...]:
    for value in given:
        checked: object = value
        if isinstance(checked, bool) or not isinstance(checked, (int, float)) or not checked > 1:
            raise OptionError(f"speedup got {value!r}: give factors above 1, such as 2 or 4")
    return tuple(sorted({float(value) for value in given if math.isfinite(value)}))


def _named(
    function: Callable[..., object], given: Sequence[object] | None, namespace: Mapping[str, Any]
) -> list[Component] | None:
    if given is None:
        return None
    if isinstance(given, str):
        raise OptionError(f"components is {given!r}: give a list, such as [{given!r}]")
    names: dict[str, Any] = {}
    for place in reversed(list(namespaces(function))):
        names |= place
    found: list[Component] = []
    for each in given:
        component = find(each, {**names, **namespace})
        stubs.refuse_workload(component, function)
        for other in found:
            if component.is_same(other):
                also = "" if other.name == component.name else f", as {other.name} too"
                raise OptionError(f"{component.name} is named twice{also}: name each component once")
        for stub in stubs.active():
            if component.is_same(stub.component):
                raise OptionError(f"{component.name} is stubbed already: %unstub {stub.name} first")
        found.append(component)
    if not found:
        raise OptionError("components is empty: name some, or leave it out to have them found")
    return found


def _chosen(request: Request, named: Sequence[Component] | None, inside: bool) -> Found:
    if named is not None and not inside:
        return Found(tuple(named), {})
    samples, _ = sampled(request)
    found = candidates(samples, request.given, named)
    if not found.components:
        where = "the workload" if named is None else " and ".join(component.name for component in named)
        raise OptionError(f"no component was found in {where}: name some, such as a function that it calls")
    return found


def _answer(bed: Bed, found: Found, speedups: Sequence[float], budget: float, progress: Progress) -> Ceiling:
    subjects: list[Subject] = []
    broken: dict[str, str] = {}
    for component in found.components:
        subject = study(bed, component)
        if isinstance(subject, Subject):
            subjects.append(subject)
        else:
            broken[component.name] = subject
    first = budget / (2 if speedups else 1)
    at = bed.rounds(_variants(subjects, bed.affordable(first)), first, progress)
    real = statistics.median(bed.times[REAL]) if REAL in bed.times else bed.experiment.seconds or 0.0
    for subject in [subject for subject in subjects if (subject.name,) not in at]:
        subjects.remove(subject)
        broken[subject.name] = f"without it the workload raises {bed.failed[(subject.name,)]}, but not always"
    free = {subject.name: at[(subject.name,)] for subject in subjects}
    faster = curves(bed, subjects, free, speedups, budget - first, progress, first) if speedups else {}
    roofs = bounds(bed, subjects, real)
    parts = [_part(subject, at, subjects, faster.get(subject.name, {}), real, roofs) for subject in subjects]
    parts.sort(key=lambda part: -(part.free.ratio if part.free else 0.0))
    everything = tuple(subject.name for subject in subjects)
    apart = [f"{', '.join(found.inside)} taken apart into these"] if found.inside else []
    if bed.experiment.stubs:
        apart.append(f"{bed.experiment.stubs} stubbed throughout: no figure is one of the real system")
    return Ceiling(
        label=bed.experiment.label,
        unit=bed.experiment.unit if bed.experiment.steps else "run",
        seconds=real,
        parts=(*parts, *(Part(name, error=error) for name, error in broken.items())),
        all_free=at.get(everything),
        pairs=tuple(_hidden(at, free)),
        rounds=min((len(times) for times in bed.times.values()), default=0),
        executions=bed.executions + bed.experiment.executions,
        left_out=found.left_out,
        notes=(*apart, *_short(bed, subjects, at), MEANINGLESS, *filter(None, [roofs.note])),
        experiment=bed.experiment.id,
    )


def _short(bed: Bed, subjects: Sequence[Subject], at: Mapping[Variant, Estimate]) -> Iterable[str]:
    """What the budget was too short for."""
    rounds = min((len(times) for times in bed.times.values()), default=ROUNDS)
    if rounds < ROUNDS:
        yield f"only {rounds} rounds fitted: ranges are what was seen; give more budget for 95 % intervals"
    if len(subjects) > 1 and len(at) < len(_variants(subjects, MOST_VARIANTS)):
        yield "not all combinations were run, for the budget or as they raise: what limits next may lack"


def _variants(subjects: Sequence[Subject], most: int) -> dict[Variant, Stubbed]:
    """Each free, all, pairs with the largest, all but one, other pairs; in this order, as many as wanted."""
    stubbed = {subject.name: subject.free for subject in subjects}
    names = list(stubbed)
    chosen: list[Variant] = [(name,) for name in names]
    if len(names) > 1:
        largest = max(subjects, key=lambda subject: subject.busy).name
        pairs = list(combinations(names, 2))
        chosen.append(tuple(names))
        chosen += [pair for pair in pairs if largest in pair]
        chosen += [tuple(other for other in names if other != name) for name in names if len(names) > 2]
        chosen += pairs if len(names) <= ALL_PAIRS else []
    wanted = list(dict.fromkeys(chosen))[: max(most, len(names))]
    return {variant: tuple(stubbed[name] for name in variant) for variant in wanted}


def _part(
    subject: Subject,
    at: Mapping[Variant, Estimate],
    subjects: Sequence[Subject],
    faster: Mapping[float, Estimate],
    real: float,
    roofs: Bounds,
) -> Part:
    others = tuple(other.name for other in subjects if other is not subject)
    in_place = at.get(others) if others else None
    free = at[(subject.name,)]
    saved = real * (1 - 1 / free.ratio)  # is its own at least: of what replays, the backward as well
    taken = max(subject.busy, saved)
    own = real / taken if taken else math.inf
    by_itself = Estimate(own, own, own) if own >= 1 else None  # less: several calls run at the same time
    recording = subject.replaying.recording
    misses = recording.misses.value - subject.unrecorded
    notes = [*subject.component.notes, *recording.notes]
    if misses:
        notes.append(
            f"{misses} calls had arguments of another form than those recorded, and were real: where it is "
            "free, that is too low"
        )
    if subject.replaying.is_graded:
        notes.append("its stub stands for its forward and its backward: both are free")
    if subject.name in roofs.remarks:
        notes.append(roofs.remarks[subject.name])
    return Part(
        component=subject.name,
        calls=subject.calls,
        seconds=subject.cost.seconds,
        free=free,
        alone=in_place or by_itself,
        alone_how=IN_PLACE if in_place else "its calls × its time a call",
        faster=faster,
        bound=roofs.ratios.get(subject.name),
        next=_next(subject.name, at, [other.name for other in subjects]),
        notes=tuple(notes),
    )


def _next(name: str, at: Mapping[Variant, Estimate], names: Iterable[str]) -> str:
    """What brings most once a component is free; "" if nothing else does."""
    gains = {
        other: both.ratio / at[(name,)].ratio
        for other in names
        if other != name and (both := _both(at, name, other)) is not None
    }
    largest = max(gains, key=lambda other: gains[other], default="")
    return largest if largest and gains[largest] > NOTHING else ""


def _both(at: Mapping[Variant, Estimate], first: str, second: str) -> Estimate | None:
    return at.get((first, second)) or at.get((second, first))


def _hidden(at: Mapping[Variant, Estimate], free: Mapping[str, Estimate]) -> Iterable[Pair]:
    """Pairs in which one saves nothing by itself, but something once the other is free."""
    for hidden, alone in free.items():
        for hiding, other in free.items():
            both = _both(at, hidden, hiding)
            if hidden == hiding or both is None or alone.ratio > NOTHING or other.ratio <= NOTHING:
                continue
            more = 1 / other.ratio - 1 / both.ratio
            if both.low > other.high and more > max(0.0, 1 - 1 / alone.high) + (1 - 1 / NOTHING):
                yield Pair(hiding, hidden, both)
