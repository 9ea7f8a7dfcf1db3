"""`same_losses`: whether the loss curves of short training runs differ by more than from seed to seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optbook import formatting as write
from optbook.benchmark.quantities import short
from optbook.errors import OptionError
from optbook.optimize.agreement import ALPHA, Equivalence, signed

FEWEST_SEEDS, MOST_SEEDS = 4, 1000
"""With three seeds each, even curves that never meet come about by chance in 10 % of the cases."""
PARTS = 8
_POWER_80 = 0.8416
_SMALLEST_SPREAD = 1e-9
_RESAMPLES = 9999

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, repr=False)
class SameLosses(Equivalence):
    """Whether loss curves are within seed noise of each other.

    ``chance`` is the p-value of the test: how often, of curves that differ by their seeds only, two groups
    as far apart would come about. ``ends`` are the mean losses over the last eighth of the steps, and
    ``low`` to ``high`` the 95 % interval of their ``difference``, second less first. ``detectable`` is the
    relative difference at the end that four of five such checks would have found. ``reason`` says why the
    curves could not be held against each other. ``curves`` are the losses: seeds × steps, of each.
    """

    chance: float = 0.0
    ends: tuple[float, float] = (math.nan, math.nan)
    difference: float = math.nan
    low: float = math.nan
    high: float = math.nan
    detectable: float = math.nan
    seeds: tuple[int, ...] = ()
    reason: str = ""
    curves: tuple[Floats, Floats]

    @property
    def sentence(self) -> str:
        if self.reason:
            return f"different losses: {self.reason}"
        if self.holds:
            return f"same losses: the curves of {self.label(1)} and {self.label(0)} are within seed noise"
        return f"different losses: {self.label(1)} is further from {self.label(0)} than seeds explain"

    def rows(self) -> list[tuple[str, str]]:
        steps = self.curves[0].shape[1]
        found = [("compared", f"{len(self.seeds)} seeds each, {steps} steps")]
        if self.reason:
            return found
        written = [f"{self.label(i)} {write.number(end, 4)}" for i, end in enumerate(self.ends)]
        interval = f"{signed(self.difference)} ({signed(self.low)} to {signed(self.high)})"
        found.append(("loss at the end", f"{', '.join(written)}; difference {interval}"))
        if math.isfinite(self.detectable):
            found.append(
                ("would have been seen", f"a difference of {write.percent(self.detectable)} at the end")
            )
        return [*found, ("chance", f"{self.chance:.3g}; below {ALPHA:g} counts as different")]


def same_losses(
    first: Callable[[int], Any],
    second: Callable[[int], Any],
    *,
    seeds: int | Sequence[int] = 5,
    labels: tuple[str, str] = ("first", "second"),
) -> SameLosses:
    """Train briefly with several seeds each, and judge whether the loss curves differ by more than that.

    The curves are averaged over eight parts of the steps. What is judged is the largest difference of the
    two means over the parts, each in standard deviations of all curves, by a permutation test: whole curves
    are dealt out to the two sides anew in all ways (9999 random ones beyond that many), so parts that depend
    on each other do no harm (the max-T method of Westfall & Young, "Resampling-Based Multiple Testing",
    1993). Without a difference, at most 5 % of such checks find one. Where a seed makes both curves alike,
    it is fewer.

    Args:
        first, second: called with a seed, which they must apply; return the losses of the steps, as numbers.
        seeds: how many, or which; four at least.
        labels: what the two are called.

    Raises:
        OptionError: the seeds can't be used, the losses are no numbers, the first's are not finite, or the
            curves have different lengths.
        Exception: whatever a training raised.
    """
    chosen = _seeds(seeds)
    runs = [
        [_curve(label, train(seed)) for seed in chosen]
        for label, train in zip(labels, (first, second), strict=True)
    ]
    lengths = {curve.size for side in runs for curve in side}
    if len(lengths) > 1 or 0 in lengths:
        told = ", ".join(map(str, sorted(lengths)))
        raise OptionError(f"the curves have {told} losses: give all the same number of steps, from one on")
    a, b = np.stack(runs[0]), np.stack(runs[1])
    if not np.isfinite(a).all():
        raise OptionError(f"{labels[0]} has {_not_finite(a, chosen)}: there is nothing to compare with")
    if not np.isfinite(b).all():
        reason = f"{labels[1]} has {_not_finite(b, chosen)}"
        return SameLosses(holds=False, labels=labels, seeds=chosen, reason=reason, curves=(a, b))
    chance = _chance(a, b)
    notes = [
        f"{label}: the losses are the same for every seed; apply the seed in the training"
        for label, side in zip(labels, (a, b), strict=True)
        if np.ptp(side, axis=0).max() == 0
    ]
    return SameLosses(
        holds=chance >= ALPHA,
        labels=labels,
        notes=tuple(notes),
        chance=chance,
        seeds=chosen,
        curves=(a, b),
        **_end(a[:, -_last(a) :].mean(axis=1), b[:, -_last(b) :].mean(axis=1)),
    )


def _seeds(given: object) -> tuple[int, ...]:
    chosen = tuple(range(given)) if isinstance(given, int) and given <= MOST_SEEDS else given
    if not isinstance(chosen, (Sequence, range)) or not all(type(seed) is int for seed in chosen):
        raise OptionError(f"seeds is {short(given)}: give how many, such as 5, or a list of whole numbers")
    if len(set(chosen)) != len(chosen):
        raise OptionError(f"seeds is {short(given)}: give different ones")
    if len(chosen) < FEWEST_SEEDS:
        few = f"{len(chosen)} seeds are too few to find any difference"
        raise OptionError(f"{few}: give {FEWEST_SEEDS} at least")
    return tuple(chosen)


def _curve(label: str, losses: Any) -> Floats:
    try:
        curve = np.array([float(loss) for loss in losses], dtype=np.float64)
    except (TypeError, ValueError, RuntimeError):
        raise OptionError(
            f"{label} returned {short(losses)}: return the losses of the steps, as a list of numbers"
        ) from None
    return curve


def _not_finite(curves: Floats, seeds: Sequence[int]) -> str:
    seed, step = (int(i) for i in np.argwhere(~np.isfinite(curves))[0])
    return f"a loss of {curves[seed, step]} at step {step + 1} with seed {seeds[seed]}"


def _last(curves: Floats) -> int:
    return max(1, int(curves.shape[1]) // PARTS)


def _chance(a: Floats, b: Floats) -> float:
    """The p-value of the permutation test; 1 for curves that are all the same."""
    from scipy.stats import permutation_test

    every = np.concatenate([a, b])
    parts = np.stack(
        [part.mean(axis=1) for part in np.array_split(every, min(PARTS, every.shape[1]), axis=1)], axis=1
    )
    spread = parts.std(axis=0)
    known = spread > _SMALLEST_SPREAD * np.abs(parts).max(axis=0)
    if not known.any():
        return 1.0
    scaled = parts[:, known] / spread[known]

    def largest(x: Any, y: Any, axis: int) -> Any:
        one, other = (scaled[side.astype(int)].mean(axis=-2) for side in (x, y))
        return np.abs(one - other).max(axis=-1)

    ids = np.arange(len(every))
    found = permutation_test(
        (ids[: len(a)], ids[len(a) :]),
        largest,
        vectorized=True,
        n_resamples=_RESAMPLES,
        alternative="greater",
        axis=-1,
        rng=np.random.default_rng(0),
    )
    return float(found.pvalue)


def _end(a: Floats, b: Floats) -> dict[str, Any]:
    """The losses at the end, and Welch's interval of their difference."""
    from scipy.stats import t

    ends = float(a.mean()), float(b.mean())
    difference = ends[1] - ends[0]
    variances = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    error = math.sqrt(sum(variances))
    if error == 0:
        return {
            "ends": ends,
            "difference": difference,
            "low": difference,
            "high": difference,
            "detectable": 0.0,
        }
    freedom = sum(variances) ** 2 / sum(v**2 / (len(a) - 1) for v in variances)
    critical = float(t.ppf(1 - ALPHA / 2, freedom))
    return {
        "ends": ends,
        "difference": difference,
        "low": difference - critical * error,
        "high": difference + critical * error,
        "detectable": (critical + _POWER_80) * error / abs(ends[0]) if ends[0] else math.nan,
    }
