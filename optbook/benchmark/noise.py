"""What makes a measurement doubtful: a machine that changed, times that drift, times of two kinds.

Each test asks for a difference that is large enough to matter and too large for chance, so that
clean noise rarely gives a warning (below 5 % for all of them together, measured by `make bench
NAME=measure`).
"""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PROBE_TURNS = 1500
PROBE_EVERY_SECONDS = 0.02
CHANCE = 0.002
SMALLEST_CHANGE = 0.05
FEWEST_FOR_CHANGE = 12
FEWEST_FOR_MODES = 20
MODES_APART = 5.0
"""Distance of the groups in standard deviations inside them; one bell curve split in two gives 2.6."""
SMALLEST_GROUP = 0.1

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Noise:
    """What was noticed; None where it could not be judged.

    ``drift`` is the relative change of the times from the first third to the last, ``machine`` the
    same of the probe's; both are 0 where the change may be chance. ``modes`` is how many kinds of
    times there are, 1 or 2, and ``apart`` the ratio of the slower kind to the quicker.
    """

    drift: float | None = None
    machine: float | None = None
    modes: int | None = None
    apart: float = 1.0

    def sentences(self, kind: str) -> Iterator[str]:
        """One plain sentence for each thing noticed; ``kind`` is what was timed, 'runs' or 'steps'."""
        if self.machine:
            faster = "faster" if self.machine < 0 else "slower"
            yield (
                f"the machine became {abs(100 * self.machine):.0f} % {faster} while measuring (a fixed "
                "probe between the runs shows it): measure again when nothing else runs"
            )
        if self.drift:
            longer = "shorter" if self.drift < 0 else "longer"
            yield (
                f"the {kind} became {abs(100 * self.drift):.0f} % {longer} from the first third to the last: "
                "the median depends on how long one measures"
            )
        if self.modes == 2:
            yield (
                f"there are two kinds of {kind}, the slower {self.apart:.2g} times as long: the median is of "
                "one kind only; look for what alternates"
            )


def judge(times: Sequence[float], probes: Sequence[float]) -> Noise:
    """What the times (seconds, in their order) and the probe's times show."""
    modes, apart = two_kinds(times)
    return Noise(drift=change(times), machine=change(probes), modes=modes, apart=apart)


def change(times: Sequence[float]) -> float | None:
    """Relative change of the median from the first third to the last; 0 if small or within chance.

    Whether it is chance is judged by the rank correlation of the times with their order (Spearman, "The
    Proof and Measurement of Association between Two Things", 1904). None for fewer than twelve times.
    """
    n = len(times)
    if n < FEWEST_FOR_CHANGE:
        return None
    values: Floats = np.asarray(times, dtype=np.float64)
    third = n // 3
    first, last = float(np.median(values[:third])), float(np.median(values[-third:]))
    if first <= 0 or abs(last / first - 1) < SMALLEST_CHANGE:
        return 0.0
    from scipy.stats import spearmanr

    chance = float(spearmanr(np.arange(n), values).pvalue)
    return last / first - 1 if chance < CHANCE else 0.0


def two_kinds(times: Sequence[float]) -> tuple[int | None, float]:
    """Whether there are two kinds of times, and how many times as long the slower kind is.

    The logarithms are split where the two groups differ most (Otsu, "A Threshold Selection Method from
    Gray-Level Histograms", 1979). They are two kinds if the groups lie further apart than five standard
    deviations inside them (D of Ashman, Bird & Zepf, 1994, is this distance up to a factor), neither
    is small, and they differ by 5 % at least. (None, 1) for fewer than twenty times.
    """
    n = len(times)
    if n < FEWEST_FOR_MODES or min(times) <= 0:
        return None, 1.0
    values: Floats = np.sort(np.log(np.asarray(times, dtype=np.float64)))
    counts = np.arange(1, n)
    sums, squares = np.cumsum(values), np.cumsum(values**2)
    left, right = sums[:-1] / counts, (sums[-1] - sums[:-1]) / (n - counts)
    between = counts * (n - counts) * (right - left) ** 2
    smallest = max(2, math.ceil(SMALLEST_GROUP * n))
    split = int(np.argmax(between[smallest - 1 : n - smallest])) + smallest - 1
    size = split + 1
    within = (squares[split] - size * left[split] ** 2) + (
        squares[-1] - squares[split] - (n - size) * right[split] ** 2
    )
    distance = float(right[split] - left[split])
    spread = math.sqrt(max(float(within), 0.0) / (n - 2))
    if distance < math.log1p(SMALLEST_CHANGE) or distance < MODES_APART * spread:
        return 1, 1.0
    return 2, math.exp(distance)


class Probe:
    """A small fixed piece of work, timed now and then between runs: it shows whether the machine changed."""

    def __init__(
        self, now: Callable[[], float] = time.perf_counter, every: float = PROBE_EVERY_SECONDS
    ) -> None:
        self.times: array[float] = array("d")
        self._now = now
        self._every = every
        self._last = -math.inf

    def take(self) -> None:
        """Take the probe, unless that was done a moment ago."""
        start = self._now()
        if start - self._last < self._every:
            return
        for _ in range(PROBE_TURNS):
            pass
        self._last = self._now()
        self.times.append(self._last - start)
