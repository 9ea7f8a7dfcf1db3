"""What the system would gain if a component were faster, but not free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import geometric_mean

from optbook.benchmark.progress import Progress
from optbook.simplify.bed import Bed, Stubbed, Variant
from optbook.simplify.result import Estimate
from optbook.simplify.subjects import Subject

AGREE = 0.05
"""Two imitations that differ by no more are one answer; else the answer is the range."""
ALLOWED = 0.02
"""By how much a range may lie beyond what is possible: that is known from measurements too."""
UNSURE = 0.02
"""How much of the uncertainty of what is saved counts for there being nothing to imitate."""


def curves(
    bed: Bed,
    subjects: Sequence[Subject],
    free: Mapping[str, Estimate],
    speedups: Sequence[float],
    budget: float,
    progress: Progress,
    done: float,
) -> dict[str, dict[float, Estimate]]:
    """For each component the throughput against the real system's, by speed-up of the component.

    Where a component's time adds to the others', which shows in that freeing it saves all that was spent in
    it, its speed-up saves the part of this that it should: nothing has to be imitated. Else the system is
    run with imitations.

    Args:
        bed: where variants are run.
        subjects: the components.
        free: what the system reaches without each.
        speedups: how many times as fast they are.
        budget: seconds for all rounds.
        progress: is told the seconds spent.
        done: seconds spent before.
    """
    found: dict[str, dict[float, Estimate]] = {subject.name: {} for subject in subjects}
    variants: dict[Variant, Stubbed] = {}
    for subject in subjects:
        for speedup in speedups:
            if is_decided(subject, free[subject.name], speedup):
                found[subject.name][speedup] = added(free[subject.name], speedup)
                continue
            for number, imitation in enumerate(subject.imitations(1 / speedup)):
                variants[(subject.name, f"{speedup:g}", str(number))] = (imitation,)
    measured = bed.rounds(variants, budget, progress, done)
    for subject in subjects:
        for speedup in speedups:
            answers = [e for v, e in measured.items() if v[:2] == (subject.name, f"{speedup:g}")]
            if answers:
                inside = [within(answer, free[subject.name], speedup) for answer in answers]
                found[subject.name][speedup] = agreed(inside)
    return found


def added(free: Estimate, speedup: float) -> Estimate:
    """The throughput if the component's time is a summand of the whole (Amdahl, AFIPS 1967).

    Of what freeing it saves, a component that is ``speedup`` times as fast saves 1 − 1 ÷ ``speedup``.
    """

    def at(ratio: float) -> float:
        return 1 / (1 - (1 - 1 / ratio) * (1 - 1 / speedup))

    return Estimate(at(free.ratio), at(free.low), at(free.high))


def possible(free: Estimate, speedup: float) -> tuple[float, float]:
    """The least and the most that a speed-up of the component can bring.

    The time of a system of stages and queues is a convex function of each stage's time (Baccelli et al.,
    "Synchronization and Linearity", 1992), so it lies below the straight line between real and free; and no
    speed-up of a part can bring more than the same of the whole.
    """
    line = added(free, speedup).ratio
    return min(1.0, line) if free.ratio < 1 else line, max(line, min(free.ratio, speedup))


def is_decided(subject: Subject, free: Estimate, speedup: float) -> bool:
    """Whether nothing has to be imitated: the possible is narrow, or freeing it saves all that it took."""
    least, most = possible(free, speedup)
    if most <= least * (1 + ALLOWED):
        return True
    saved = 1 - 1 / free.ratio
    unsure = (1 / free.low - 1 / free.high) / 2
    return abs(saved - subject.share) <= ALLOWED + min(unsure, UNSURE)


def within(estimate: Estimate, free: Estimate, speedup: float) -> Estimate:
    """The estimate, pulled back to what is possible; its range, to what is with the range of ``free``."""

    def inside(ratio: float, of_free: float, allowed: float) -> float:
        least, most = possible(Estimate(of_free, of_free, of_free), speedup)
        return min(most * (1 + allowed), max(least * (1 - allowed), ratio))

    ratio = inside(estimate.ratio, free.ratio, 0.0)
    low, high = inside(estimate.low, free.low, ALLOWED), inside(estimate.high, free.high, ALLOWED)
    return Estimate(ratio, min(low, ratio), max(high, ratio))


def agreed(answers: Sequence[Estimate]) -> Estimate:
    """One answer out of those of several imitations, the better one first; the range where they disagree."""
    ratios, lows, highs = zip(*((a.ratio, a.low, a.high) for a in answers), strict=True)
    if max(ratios) <= min(ratios) * (1 + AGREE):
        return Estimate(geometric_mean(ratios), geometric_mean(lows), geometric_mean(highs))
    return Estimate(ratios[0], min(lows), max(highs), doubtful=True)
