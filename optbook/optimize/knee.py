"""The points of a sweep, and its knee: the smallest setting from which on more brings next to nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from optbook import formatting as write
from optbook.benchmark.quantities import short
from optbook.experiments.record import Experiment

ENOUGH = 0.95
"""The share of the best throughput that is enough."""
LISTED = 4
OUT_OF_MEMORY: Literal["out of memory"] = "out of memory"


@dataclass(frozen=True)
class Point:
    """One setting (or pair of settings) and what was measured at it.

    ``throughput``, with its 95 % interval ``low`` to ``high``, is in units of the sweep per second,
    ``seconds`` the median run or tracked step, ``memory`` the peak in bytes (of the device if one is in use).
    They are None where not known: at a point whose ``status`` is not 'ok', and intervals of too few runs.
    ``error`` says what happened at such a point.
    """

    settings: Mapping[str, float]
    status: Literal["ok", "out of memory", "void"] = "ok"
    throughput: float | None = None
    low: float | None = None
    high: float | None = None
    seconds: float | None = None
    memory: float | None = None
    error: str = ""
    experiment: Experiment | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return " with ".join(f"{name}={short(value)}" for name, value in self.settings.items())

    def at_most(self, other: Point) -> bool:
        """Whether no setting is larger than the other's."""
        return all(value <= other.settings[name] for name, value in self.settings.items())


@dataclass(frozen=True)
class Knee:
    """The knee, or None and the points that may be it; and why, in one sentence."""

    point: Point | None
    candidates: tuple[Point, ...]
    why: str


def written(settings: Mapping[str, float]) -> str:
    """``batch_size=8, workers=2``."""
    return ", ".join(f"{name}={short(value)}" for name, value in settings.items())


def knee(points: Sequence[Point], drift: float = 0.0) -> Knee:
    """Find the smallest setting whose throughput is at least 95 % of the best point's.

    It is named only where the intervals leave no other: its own share of the best must reach 95 % with its
    interval, and each setting that is not larger must miss them with its interval (that of a ratio, whose
    logarithm's errors add as squares). ``drift``, by how much the machine changed meanwhile, widens them. Of
    two settings, a point is larger that is larger in one and not smaller in the other. A knee at the
    largest setting is none: the curve still rises.

    This answers how far it pays to go. The point of largest curvature (Kneedle; Satopää et al., "Finding a
    'Kneedle' in a Haystack", 2011) depends on how far one swept and on the axis, and is not defined for a
    handful of points with noise.
    """
    measured = [point for point in points if point.throughput]
    if len(measured) < 2:
        why = "one point alone has no knee" if measured else "no point could be measured"
        return Knee(None, tuple(measured), why)
    best = max(measured, key=lambda point: point.throughput or 0.0)
    if best.low is None or best.high is None:
        return Knee(None, (), "no knee: too few runs or steps were counted for intervals")
    slack = abs(math.log1p(drift))
    possible = [point for point in measured if not _misses(point, best, slack)]
    certain = [point for point in measured if point is best or _reaches(point, best, slack)]
    candidates = tuple(
        point for point in possible if not any(p is not point and p.at_most(point) for p in certain)
    )
    if len(candidates) > 1:
        if all(point in certain for point in candidates):
            return Knee(None, candidates, f"no single knee: each of {_listed(candidates, 'and')} is enough")
        why = f"the knee is not clear, {_listed(candidates, 'or')}: measure longer, the noise hides it"
        return Knee(None, candidates, why)
    (found,) = candidates
    if _at_top(found, points):
        return Knee(None, candidates, f"no knee: still rising at {found}, the largest tried")
    share = (found.throughput or 0.0) / (best.throughput or 1.0)
    of_best = "the best" if found is best else f"{write.percent(share)} of the best, {best}"
    return Knee(found, candidates, f"knee at {found}: {of_best}")


def _reaches(point: Point, best: Point, slack: float) -> bool:
    """Whether it surely has enough of the best's throughput."""
    error = math.hypot(_log(point.throughput, point.low), _log(best.high, best.throughput))
    return _log(point.throughput, best.throughput) - error - slack >= math.log(ENOUGH)


def _misses(point: Point, best: Point, slack: float) -> bool:
    """Whether it surely has less than enough."""
    error = math.hypot(_log(point.high, point.throughput), _log(best.throughput, best.low))
    return _log(point.throughput, best.throughput) + error + slack < math.log(ENOUGH)


def _log(above: float | None, below: float | None) -> float:
    """Logarithm of a ratio; infinite where one is not known."""
    return math.log(above / below) if above and below else math.inf


def _at_top(found: Point, points: Sequence[Point]) -> bool:
    """Whether it is the largest in every setting of which several values were tried."""
    values = {name: {point.settings[name] for point in points} for name in found.settings}
    swept = [name for name, tried in values.items() if len(tried) > 1]
    return all(found.settings[name] == max(values[name]) for name in swept)


def _listed(points: Sequence[Point], word: str) -> str:
    *most, last = map(str, points[:LISTED])
    further = f" or another {len(points) - LISTED}" if len(points) > LISTED else ""
    return f"{', '.join(most)} {word} {last}{further}"
