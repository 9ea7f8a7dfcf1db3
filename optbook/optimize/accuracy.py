"""`same_accuracy`: whether two shares of right answers differ by more than chance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optbook import formatting as write
from optbook.benchmark.quantities import short
from optbook.errors import OptionError
from optbook.optimize.agreement import ALPHA, Equivalence

_Z95 = 1.959964
_EXAMPLES = "give (right, total), or a list of truth values, one an example"

Bools = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, repr=False)
class SameAccuracy(Equivalence):
    """Whether two accuracies are within each other's noise.

    ``rates`` are the two shares, ``intervals`` the 95 % interval of each, ``difference`` the second less the
    first, and ``low`` to ``high`` its 95 % interval. ``chance`` is McNemar's p-value where both judged the
    same examples, else None. ``holds`` is false for a gain beyond chance too: results are not the same then.
    """

    rates: tuple[float, float]
    totals: tuple[int, int]
    intervals: tuple[tuple[float, float], tuple[float, float]]
    difference: float
    low: float
    high: float
    chance: float | None = None
    apart: tuple[int, int] = (0, 0)

    @property
    def sentence(self) -> str:
        what = "better" if self.difference > 0 else "worse"
        written = f"{write.percent(self.rates[1])} against {write.percent(self.rates[0])}"
        if self.holds:
            return (
                f"same accuracy: {self.label(1)} and {self.label(0)} differ by no more than chance, {written}"
            )
        return f"different accuracy: {self.label(1)} is {what} than {self.label(0)}, {written}"

    def rows(self) -> list[tuple[str, str]]:
        found = [
            (
                self.label(i),
                f"{write.percent(self.rates[i])} of {self.totals[i]} "
                f"({write.percent(self.intervals[i][0])} to {write.percent(self.intervals[i][1])})",
            )
            for i in (0, 1)
        ]
        found.append(
            ("difference", f"{_points(self.difference)} ({_points(self.low)} to {_points(self.high)})")
        )
        if self.chance is not None:
            lost, won = self.apart
            paired = f"{lost} right in the first only, {won} in the second only; chance {self.chance:.3g}"
            found.append(("same examples", f"{paired}, below {ALPHA:g} counts as different"))
        return found


def same_accuracy(
    first: object, second: object, *, labels: tuple[str, str] = ("first", "second")
) -> SameAccuracy:
    """Hold two accuracies against each other: counts, or the same examples judged by both.

    Each rate gets Wilson's interval ("Probable Inference, the Law of Succession, and Statistical
    Inference", 1927). Of counts, the difference has the interval that Newcombe builds from these two
    (method 10 in Statistics in Medicine 17, 1998, 873–890), and the accuracies are the same if it covers 0.
    Where the same examples are judged, which finds smaller differences, the exact test of McNemar
    (Psychometrika 12, 1947) decides, and the interval shown is that of Agresti & Min (Statistics in Medicine
    24, 2005, 729–740). Without a difference, about 5 % of checks of counts find one, and at most 5 % of
    those of the same examples.

    Args:
        first, second: of both ``(right, total)``, or of both whether each example was right, in the same
            order: a list, array or tensor of truth values.
        labels: what the two are called.

    Raises:
        OptionError: they are neither, or not of the same kind or length.
    """
    counts = [_counts(each) for each in (first, second)]
    if all(count is not None for count in counts):
        return _of_counts(counts, labels)
    if any(count is not None for count in counts):
        raise OptionError(f"one is a count, the other is not: {_EXAMPLES}, for both alike")
    judged = [_judged(each) for each in (first, second)]
    if judged[0].size != judged[1].size:
        sizes = " and ".join(str(each.size) for each in judged)
        raise OptionError(
            f"they judge {sizes} examples: give both the same ones, or counts as (right, total)"
        )
    return _of_pairs(judged[0], judged[1], labels)


def _counts(given: Any) -> tuple[int, int] | None:
    if not isinstance(given, tuple) or len(given) != 2 or any(isinstance(n, (bool, np.bool_)) for n in given):
        return None
    try:
        right, total = (int(n) for n in given)
    except (TypeError, ValueError, OverflowError):
        return None
    if (right, total) != given or not 0 <= right <= total or total < 1:
        raise OptionError(
            f"{short(given)} is no count of right answers: give (right, total), such as (97, 100)"
        )
    return right, total


def _judged(given: Any) -> Bools:
    try:
        values = np.asarray(given.tolist() if hasattr(given, "tolist") else given)
    except (TypeError, ValueError):
        values = np.empty(0)
    if (
        values.ndim != 1
        or not values.size
        or values.dtype.kind not in "biuf"
        or not np.isin(values, (0, 1)).all()
    ):
        raise OptionError(f"{short(given)} is no list of right and wrong answers: {_EXAMPLES}")
    return values.astype(bool)


def _wilson(right: int, total: int) -> tuple[float, float]:
    from scipy.stats import binomtest

    interval = binomtest(right, total).proportion_ci(1 - ALPHA, method="wilson")
    return float(interval.low), float(interval.high)


def _of_counts(counts: Any, labels: tuple[str, str]) -> SameAccuracy:
    (p, q), ((p_low, p_high), (q_low, q_high)) = (
        [r / n for r, n in counts],
        [_wilson(*each) for each in counts],
    )
    difference = q - p
    low = difference - math.hypot(q - q_low, p_high - p)
    high = difference + math.hypot(q_high - q, p - p_low)
    return SameAccuracy(
        holds=low <= 0 <= high,
        labels=labels,
        rates=(p, q),
        totals=(counts[0][1], counts[1][1]),
        intervals=((p_low, p_high), (q_low, q_high)),
        difference=difference,
        low=low,
        high=high,
    )


def _of_pairs(first: Bools, second: Bools, labels: tuple[str, str]) -> SameAccuracy:
    from scipy.stats import binomtest

    n = first.size
    lost, won = int((first & ~second).sum()), int((second & ~first).sum())
    chance = float(binomtest(lost, lost + won).pvalue) if lost + won else 1.0
    middle = (won - lost) / (n + 2)
    half = _Z95 * math.sqrt(max(0.0, lost + won + 1 - (won - lost) ** 2 / (n + 2))) / (n + 2)
    return SameAccuracy(
        holds=chance >= ALPHA,
        labels=labels,
        rates=(float(first.mean()), float(second.mean())),
        totals=(n, n),
        intervals=(_wilson(int(first.sum()), n), _wilson(int(second.sum()), n)),
        difference=(won - lost) / n,
        low=max(-1.0, middle - half),
        high=min(1.0, middle + half),
        chance=chance,
        apart=(lost, won),
    )


def _points(difference: float) -> str:
    """A difference of shares, in percentage points."""
    return f"{100 * difference:+.2g} points".replace("-", "−")
