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


@dataclass(frozen=True)
class StepRate:
    """Steps per second, and how much neighbouring steps depend on each other."""

    rate: Estimate
    correlation: float = 0.0
    doubtful: bool = False


def rate_of_steps(durations: Sequence[float]) -> StepRate:
    """Steps per second over consecutive steps, with an interval for steps that depend on each other.

    A slow fetch follows a slow fetch, so an interval from single steps would be too narrow. The method of
    batch means takes the means of consecutive blocks as independent (Law, "Simulation Modeling and
    Analysis", section 9.5.3), with a Student interval over them. Where the first autocorrelation (with
    the bias correction of Marriott & Pope, Biometrika 41, 1954) exceeds its standard error, the interval
    is at least that of a first-order autoregressive series. It is ``doubtful`` where the steps are worth
    fewer than thirty independent ones.

    Raises:
        ValueError: there are no steps, or they took no time at all.
    """
    total = math.fsum(durations)
    if not durations or total <= 0:
        raise ValueError(f"{len(durations)} steps took {total} s: nothing to compute a rate from")
    n, mean = len(durations), total / len(durations)
    if n < FEWEST:
        return StepRate(Estimate(1 / mean))
    from scipy.special import stdtrit

    count = max(FEWEST, min(20, n // 5))
    edges = [round(i * n / count) for i in range(count + 1)]
    means = [statistics.fmean(durations[a:b]) for a, b in itertools.pairwise(edges)]
    t = float(stdtrit(count - 1, (1 + CONFIDENCE) / 2))
    half = t * statistics.stdev(means) / math.sqrt(count)
    correlation = _first_autocorrelation(durations, mean)
    worth = n * (1 - correlation) / (1 + correlation)
    if correlation * math.sqrt(n) > 1:
        freedom = max(2.0, min(worth, count) - 1)
        t = float(stdtrit(freedom, (1 + CONFIDENCE) / 2))
        half = max(half, t * statistics.stdev(durations) / math.sqrt(worth))
    doubtful = worth < 30 and correlation * math.sqrt(n) > 2.5
    if half >= mean:
        return StepRate(Estimate(1 / mean), correlation, doubtful)
    return StepRate(Estimate(1 / mean, 1 / (mean + half), 1 / (mean - half)), correlation, doubtful)


def _first_autocorrelation(values: Sequence[float], mean: float) -> float:
    centred = [value - mean for value in values]
    squares = math.fsum(c * c for c in centred)
    if squares <= 0:
        return 0.0
    found = math.fsum(a * b for a, b in itertools.pairwise(centred)) / squares
    return min(0.95, found + (1 + 4 * max(found, 0.0)) / len(values))
