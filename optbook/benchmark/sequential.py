"""Looking at paired data several times without crying wolf.

The pairs are interleaved and the order within each is drawn at random. If both workloads are the
same, the sign of each pair's log-ratio is then a fair coin, whatever the noise looks like: drift,
outliers and dependence between runs cancel. The signed-rank statistic rests on just that
(Wilcoxon, "Individual Comparisons by Ranking Methods", Biometrics Bulletin 1, 1945).

Looking again and again and stopping at the first significant result would raise the share of false
alarms, so the looks are fixed beforehand and share one error probability (O'Brien & Fleming, "A
Multiple Testing Procedure for Clinical Trials", Biometrics 35, 1979), with the boundary computed by
the recursion of Armitage, McPherson & Rowe (J. R. Statist. Soc. A 132, 1969).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@functools.cache
def boundary(looks: int, alpha: float) -> tuple[float, ...]:
    """The two-sided critical value of the standardised statistic at each of ``looks`` equally spaced looks.

    O'Brien and Fleming's shape: ``c·√(looks ÷ k)`` at look ``k``, with ``c`` such that the probability
    to cross at any look is ``alpha`` when there is no difference.

    Raises:
        ValueError: ``looks`` is below 1 or ``alpha`` is not between 0 and 1.
    """
    if looks < 1 or not 0 < alpha < 1:
        raise ValueError(
            f"{looks} looks at {alpha}: give at least one look and a probability between 0 and 1"
        )
    from scipy.optimize import brentq

    shape = np.sqrt(looks / np.arange(1, looks + 1))
    constant = brentq(lambda c: _crossing(c * shape) - alpha, 0.5, 6.0, xtol=1e-6)
    return tuple(float(value) for value in constant * shape)


def _crossing(critical: Floats, points: int = 801) -> float:
    """Probability that Brownian motion, seen at times 1 … n, is ever beyond ``critical·√time``."""
    inside = 1.0
    density: Floats | None = None
    grid: Floats = np.zeros(1)
    for time, value in enumerate(critical, start=1):
        limit = value * np.sqrt(time)
        new_grid = np.linspace(-limit, limit, points)
        if density is None:
            new_density = _normal(new_grid)
        else:
            weights = density * (grid[1] - grid[0])
            weights[[0, -1]] /= 2
            new_density = _normal(new_grid[:, None] - grid[None, :]) @ weights
        grid, density = new_grid, new_density
        inside = float(np.trapezoid(density, grid))
    return 1 - inside


def _normal(x: Floats) -> Floats:
    density: Floats = np.exp(-0.5 * x**2) / np.sqrt(2 * np.pi)
    return density


@dataclass(frozen=True)
class Look:
    """What the pairs seen so far say: ``center`` with its interval, and the standardised statistic."""

    pairs: int
    statistic: float
    critical: float
    center: float
    low: float
    high: float

    @property
    def crossed(self) -> bool:
        """Whether a difference is shown."""
        return abs(self.statistic) >= self.critical


def look(differences: Floats, critical: float) -> Look:
    """Judge paired differences (n,) against a critical value of the standardised signed-rank statistic.

    The centre is the median of all pairwise means, its interval holds the shifts that the same test
    would not reject (Hodges & Lehmann, "Estimates of Location Based on Rank Tests", Ann. Math.
    Statist. 34, 1963).

    Raises:
        ValueError: there are no differences.
    """
    n = len(differences)
    if n == 0:
        raise ValueError("no pairs to look at")
    i, j = np.triu_indices(n)
    walsh = np.sort((differences[i] + differences[j]) / 2)
    positive = float(np.sum(walsh > 0) + 0.5 * np.sum(walsh == 0))
    mean, sd = n * (n + 1) / 4, np.sqrt(n * (n + 1) * (2 * n + 1) / 24)
    reach = critical * sd + 0.5  # half a rank: the statistic is discrete, the boundary is not
    lowest, highest = int(np.floor(mean - reach)), int(np.ceil(mean + reach)) - 1
    low = float(walsh[lowest]) if lowest >= 0 else -np.inf
    high = float(walsh[highest]) if highest < len(walsh) else np.inf
    beyond = positive - mean
    statistic = np.sign(beyond) * max(0.0, abs(beyond) - 0.5) / sd
    return Look(n, float(statistic), critical, float(np.median(walsh)), low, high)
