"""Intervals for what was measured. Times are in seconds; every interval is a 95 % interval."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
FEWEST = 6
"""Fewer runs have no 95 % order-statistic interval: with five, the extremes cover 93.75 %."""


@dataclass(frozen=True)
class Estimate:
    """A value and its interval; ``low`` and ``high`` are None where the data are too few for one."""

    value: float
    low: float | None = None
    high: float | None = None

    def inverse(self, scale: float = 1.0) -> Estimate:
        """``scale`` ÷ this, for turning seconds a run into runs a second."""
        if self.low is None or self.high is None or self.low <= 0:
            return Estimate(scale / self.value)
        return Estimate(scale / self.value, scale / self.high, scale / self.low)


def median(times: Sequence[float]) -> Estimate:
    """Median with an interpolated order-statistic interval.

    No distribution is assumed. Interpolating between neighbouring order statistics follows
    Hettmansperger & Sheather, "Confidence intervals based on interpolated order statistics",
    Statistics & Probability Letters 4 (1986).

    Raises:
        ValueError: there are no times.
    """
    if not times:
        raise ValueError("no times: at least one run is needed")
    n = len(times)
    middle = statistics.median(times)
    if n < FEWEST:
        return Estimate(middle)
    ordered = sorted(times)
    k = _widest_rank(n)
    outer, inner = _coverage(n, k), _coverage(n, k + 1)
    share = (outer - CONFIDENCE) / (outer - inner)
    weight = (n - k) * share / (k + (n - 2 * k) * share)
    low = (1 - weight) * ordered[k - 1] + weight * ordered[k]
    high = (1 - weight) * ordered[n - k] + weight * ordered[n - k - 1]
    return Estimate(middle, low, high)


def _coverage(n: int, k: int) -> float:
    """Probability that the median lies between the k-th smallest and the k-th largest of n."""
    from scipy.special import bdtr

    return 1 - 2 * float(bdtr(k - 1, n, 0.5)) if k >= 1 else 1.0


def _widest_rank(n: int) -> int:
    """The largest rank k whose interval still covers at least the confidence asked for."""
    k = max(1, math.floor(n / 2 - math.sqrt(n)))
    while k > 1 and _coverage(n, k) < CONFIDENCE:
        k -= 1
    while _coverage(n, k + 1) >= CONFIDENCE:
        k += 1
    return k


def rate_of_steps(durations: Sequence[float]) -> Estimate:
    """Steps per second over consecutive steps, with an interval from the means of blocks of steps.

    Neighbouring steps depend on each other (a slow fetch follows a slow fetch), so single steps
    would give too narrow an interval: the method of batch means takes the means of consecutive
    blocks as independent (Law, "Simulation Modeling and Analysis", section 9.5.3) and a Student
    interval over them.

    Raises:
        ValueError: there are no steps, or they took no time at all.
    """
    total = math.fsum(durations)
    if not durations or total <= 0:
        raise ValueError(f"{len(durations)} steps took {total} s: nothing to compute a rate from")
    n = len(durations)
    rate = n / total
    if n < FEWEST:
        return Estimate(rate)
    from scipy.special import stdtrit

    count = max(FEWEST, min(20, n // 5))
    edges = [round(i * n / count) for i in range(count + 1)]
    means = [statistics.fmean(durations[a:b]) for a, b in itertools.pairwise(edges)]
    half = float(stdtrit(count - 1, (1 + CONFIDENCE) / 2)) * statistics.stdev(means) / math.sqrt(count)
    mean = total / n
    if half >= mean:
        return Estimate(rate)
    return Estimate(rate, 1 / (mean + half), 1 / (mean - half))
