"""`compare`: which of two workloads is faster, from interleaved pairs in random order."""

from __future__ import annotations

import dataclasses
import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optbook import formatting as write
from optbook import settings as configuration
from optbook.benchmark import sequential
from optbook.benchmark.bench import label_of, runnable
from optbook.benchmark.clock import Clock
from optbook.benchmark.interleave import Interleaved, Side
from optbook.benchmark.progress import Progress
from optbook.benchmark.quantities import Quantity
from optbook.benchmark.recorder import active
from optbook.errors import OptbookError, OptionError
from optbook.experiments.checked import ResultCheck, record_check
from optbook.optimize.check import Check, Pair, Same
from optbook.optimize.outputs import SameOutputs

Setup = Callable[[], object] | None
ALPHA = 0.03
"""Probability of a verdict where there is no difference; below 5 %, so that 5 % is kept in practice too."""
LOOKS = 5
FEWEST_PAIRS = 8
"""With fewer, even if all pairs agree, the boundary can't be crossed."""
MOST_PAIRS = 400
SMALLEST = 0.005
"""Smaller differences get no verdict: where code lies in memory changes its speed by half a per cent."""
OVER_BUDGET = 4
_POWER_80 = statistics.NormalDist().inv_cdf(0.8)


@dataclass(frozen=True)
class Comparison:
    """The second workload against the first.

    ``ratio`` is the throughput of the second divided by that of the first: above 1 the second is
    faster. ``low`` and ``high`` are its interval, which holds over all looks at the data together.
    ``detectable`` is the smallest relative difference that would have been seen in four of five such
    comparisons. ``times`` are the seconds of one run, per sample, of each. ``same`` says whether both gave
    the same results, None where that was not checked; ``metrics`` are figures of the first and the second.
    """

    labels: tuple[str, str]
    verdict: str
    ratio: float
    low: float
    high: float
    detectable: float
    pairs: int
    loops: int
    looks: int
    times: tuple[tuple[float, ...], tuple[float, ...]] = field(repr=False, default=((), ()))
    warnings: tuple[str, ...] = ()
    same: SameOutputs | None = None
    metrics: Mapping[str, Pair] = field(default_factory=dict)

    @property
    def seconds(self) -> tuple[float, float]:
        """Median seconds of a run of each."""
        return statistics.median(self.times[0]), statistics.median(self.times[1])

    def __str__(self) -> str:
        from optbook.optimize.verdicts import as_text

        return as_text(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from optbook.optimize.verdicts import as_html

        return as_html(self)


def compare(
    first: Callable[[], object],
    second: Callable[[], object],
    labels: tuple[str, str] | None = None,
    *,
    budget: float | None = None,
    setup: Setup | tuple[Setup, Setup] = None,
    steps: int | None = None,
    isolate: bool = False,
    same: Same = False,
    metrics: Mapping[str, Quantity] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    strict: bool = True,
    seed: int | None = None,
    clock: Clock | None = None,
) -> Comparison:
    """Run two workloads in turn, in random order within each pair, and decide which is faster.

    The data are looked at five times at most, at times fixed beforehand, with a group-sequential
    boundary (`optbook.optimize.sequential`): the share of verdicts where there is no difference stays
    at 3 %.

    Args:
        first, second: called without arguments.
        labels: what they are called; their names if None.
        budget: seconds for all pairs; four times the setting `OptBook.budget` if None.
        setup: called untimed before every run; a pair gives each its own.
        steps: ends tracked loops after so many steps. Of a workload with a tracked loop, the seconds a
            step are compared.
        isolate: run each in fresh interpreters; both must be importable, and ``setup`` and ``steps`` None.
        same: what must be equal after a run of each: what this function returns, or what the two return if
            True. Both are run once more for it, from the same random state, before anything is timed. What
            came of it goes to the log, for the report.
        metrics: figures to show for both, by name; functions are called after that run of each.
        rtol, atol, strict: how equal they must be; see `optbook.same_outputs`.
        seed: of the random order.
        clock: the clock to read.

    Returns:
        The verdict, with the ratio of throughputs (second ÷ first).

    Raises:
        OptionError: an argument can't be used; nothing was run.
        Exception: whatever a workload raised.
    """
    budget = 4 * configuration.settings().budget if budget is None else budget
    checked: object = budget
    if not isinstance(checked, (int, float)) or not 0 < checked <= 86_400:
        raise OptionError(f"budget is {budget!r}: give seconds between 0 and 86400, such as 10")
    if active() is not None:
        raise OptbookError("a measurement is running already: don't compare inside a measured workload")
    names = labels or (label_of(first), label_of(second))
    check = Check(same, dict(metrics or {}), rtol, atol, strict)
    if isolate:
        from optbook.optimize.isolate import compare_isolated, importable

        if setup is not None or steps is not None:
            raise OptionError("setup and steps have no meaning with isolate: write them into the functions")
        if check:
            raise OptionError("results can't be checked with isolate: check them in a comparison without it")
        return compare_isolated(importable(first), importable(second), names, budget=budget, seed=seed)
    setups = setup if isinstance(setup, tuple) else (setup, setup)
    sides = (Side(runnable(first), setups[0]), Side(runnable(second), setups[1]))
    clock = clock or Clock()
    checked = check.of((first, second), sides, names, steps, clock) if check else None
    pair = Interleaved(sides, steps, clock, random.Random(seed))
    with Progress(
        f"{names[0]} | {names[1]}", budget, shown=configuration.settings().progress_bar
    ) as progress:
        planned = _planned(pair, budget)
        last = _collect(pair, planned, budget, progress, clock)
    looks = max(1, round(_looks(planned) * last.pairs / planned))
    times = tuple(pair.times[0]), tuple(pair.times[1])
    result = comparison(names, last, times, pair.loops, looks, _warnings(pair, last))
    if checked is None:
        return result
    if checked.same is not None:
        record_check(ResultCheck(*names, checked.same.holds, checked.same.sentence))
    warnings = (*result.warnings, *checked.problems)
    return dataclasses.replace(result, same=checked.same, metrics=checked.metrics, warnings=warnings)


def _planned(pair: Interleaved, budget: float) -> int:
    """Run both uncounted, and return how many pairs to take."""
    seconds = sum(pair.warm_up())
    fitting = int(budget / max(seconds, 1e-9))
    at_least = FEWEST_PAIRS if FEWEST_PAIRS * seconds <= OVER_BUDGET * budget else 1
    return max(at_least, min(MOST_PAIRS, fitting))


def _looks(planned: int) -> int:
    return min(LOOKS, max(1, planned // FEWEST_PAIRS))


def _collect(
    pair: Interleaved, planned: int, budget: float, progress: Progress, clock: Clock
) -> sequential.Look:
    """Take pairs up to each look, and stop as soon as the matter is decided."""
    looks = _looks(planned)
    critical = sequential.boundary(looks, ALPHA)
    started = clock.now()
    for k, value in enumerate(critical, start=1):
        while len(pair.times[0]) < round(planned * k / looks):
            pair.round()
            elapsed = clock.now() - started
            progress.elapsed(elapsed)
            if elapsed > OVER_BUDGET * budget and len(pair.times[0]) >= FEWEST_PAIRS:
                return sequential.look(pair.differences(), critical[-1])
        seen = sequential.look(pair.differences(), value)
        different = seen.crossed and abs(seen.center) >= SMALLEST
        the_same = max(-seen.low, seen.high) < SMALLEST
        if different or the_same:
            break
    return seen


def comparison(
    labels: tuple[str, str],
    seen: sequential.Look,
    times: tuple[tuple[float, ...], tuple[float, ...]],
    loops: int,
    looks: int,
    warnings: Sequence[str] = (),
) -> Comparison:
    """What the last look at the pairs means."""
    error = (seen.high - seen.low) / (2 * seen.critical)
    detectable = math.expm1((seen.critical + _POWER_80) * error) if math.isfinite(error) else math.inf
    if seen.crossed and abs(seen.center) >= SMALLEST:
        verdict = "faster" if seen.center > 0 else "slower"
    elif not math.isfinite(detectable):
        verdict = f"no difference seen ({seen.pairs} pairs are too few to see any)"
    else:
        smallest = max(detectable, SMALLEST)
        verdict = f"no difference seen (one of {write.number(100 * smallest, 2)} % would have been)"
    return Comparison(
        labels=labels,
        verdict=verdict,
        ratio=math.exp(seen.center),
        low=math.exp(seen.low) if math.isfinite(seen.low) else 0.0,
        high=math.exp(seen.high) if math.isfinite(seen.high) else math.inf,
        detectable=detectable,
        pairs=seen.pairs,
        loops=loops,
        looks=looks,
        times=times,
        warnings=tuple(warnings),
    )


def _warnings(pair: Interleaved, seen: sequential.Look) -> Sequence[str]:
    found = []
    if seen.pairs < FEWEST_PAIRS:
        found.append(
            f"only {seen.pairs} pairs fit into the budget, and {FEWEST_PAIRS} are needed for a verdict: "
            "give a larger --budget or a smaller workload"
        )
    if pair.repeated.written or pair.repeated.displays_dropped:
        found.append("a workload prints or displays: shown for its first run only")
    return found
