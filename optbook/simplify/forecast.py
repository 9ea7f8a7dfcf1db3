"""What a stored ceiling says of one component: the system's throughput by the component's own speed-up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from optbook.errors import OptionError
from optbook.experiments import log
from optbook.experiments.errors import LogError
from optbook.experiments.profiles import StoredProfile
from optbook.simplify.result import Estimate
from optbook.simplify.whatif import ALLOWED

REAL = Estimate(1.0, 1.0, 1.0)
NO_CALLABLE = "what is no callable (a data type, a batch size, a flag) has no ceiling, and so no prediction"


@dataclass(frozen=True)
class Forecast:
    """A component's part of a stored ceiling.

    Attributes:
        component: its name in the ceiling.
        label: of the ceiling.
        experiment: id of the measurement of the real system that the ratios are against.
        calls: of the component, per run or tracked step.
        seconds: a call took then.
        curve: speed-up of the component (inf for free) → throughput against the real system's.
        next: the component that limits once this one is free; "" if none of those looked at does.
    """

    component: str
    label: str
    experiment: str
    calls: float
    seconds: float
    curve: tuple[tuple[float, Estimate], ...]
    next: str = ""

    @property
    def free(self) -> Estimate:
        """What the system would reach were the component free."""
        return dict(self.curve)[math.inf]

    @property
    def busy(self) -> float:
        """Seconds in the component, per run or tracked step of the real system."""
        return self.calls * self.seconds

    def at(self, speedup: float, real: float | None) -> Estimate:
        """The prediction for a component that is so many times as fast.

        The system's time is read off a straight line over the component's time (1 ÷ speed-up) between the
        two nearest that were measured. That time is a convex function of the component's (Baccelli et al.,
        "Synchronization and Linearity", 1992), so the line is the most that it can be, and the lines through
        the neighbours, prolonged, the least. Where freeing the component saves just what was spent in it,
        its time is a summand of the whole, and the line is the answer.

        Args:
            speedup: above 0; inf for free.
            real: seconds of a run or step of the real system; None if they are not known.
        """
        x = 1 / speedup
        nodes = sorted([(1 / s, e) for s, e in self.curve] + [(1.0, REAL)], key=lambda node: node[0])
        xs = [node[0] for node in nodes]
        middle = [1 / e.ratio for _, e in nodes]
        if x > 1:
            time = max(1.0, _line(xs[-2:], middle[-2:], x))
            return Estimate(1 / time, min(1 / x, 1 / time), 1 / time)
        right = next(i for i, at in enumerate(xs) if at >= x)
        left = right - (xs[right] > x)
        around = slice(left, right + 1)
        slowest, fastest = [1 / e.low for _, e in nodes], [1 / e.high for _, e in nodes]
        time = _line(xs[around], middle[around], x)
        most = _line(xs[around], slowest[around], x)
        least = _line(xs[around], fastest[around], x)
        if left < right and not self._adds(real):
            beyond = [x, fastest[0]]
            for near, far in ((left, left - 1), (right, right + 1)):
                if 0 <= far < len(xs):
                    beyond.append(_line((xs[near], xs[far]), (fastest[near], slowest[far]), x))
            least = min(least, max(beyond))
        return Estimate(1 / time, 1 / max(most, time), 1 / max(min(least, time), 1e-12))

    def _adds(self, real: float | None) -> bool:
        """Whether freeing the component saves all that was spent in it."""
        if math.inf not in dict(self.curve) or not real or not self.busy > 0:
            return False
        unsure = (1 / self.free.low - 1 / self.free.high) / 2
        return abs((1 - 1 / self.free.ratio) - self.busy / real) <= ALLOWED + unsure


def _line(xs: Sequence[float], ys: Sequence[float], x: float) -> float:
    """The height at ``x`` of the line through the first and the last of the points."""
    if xs[0] == xs[-1]:
        return ys[0]
    return ys[0] + (ys[-1] - ys[0]) * (x - xs[0]) / (xs[-1] - xs[0])


def newest(component: str, label: str | None = None) -> Forecast:
    """The newest stored ceiling that has this component; only of experiments with this label if one is given.

    The last part of a dotted name is enough.

    Raises:
        OptionError: there is none.
        LogError: the log can't be read.
    """
    ceilings = [profile for profile in log.profiles(label) if profile.kind == "ceiling"]
    seen: dict[str, None] = {}
    for profile in reversed(ceilings):
        found = list(forecasts(profile))
        seen |= dict.fromkeys(forecast.component for forecast in found)
        exact = [f for f in found if f.component == component]
        for forecast in exact or [f for f in found if f.component.endswith("." + component)]:
            return forecast
    of = "" if label is None else f" of {label!r}"
    there = f"they have {', '.join(list(seen)[:8])}" if seen else f"write %%ceiling {component} first"
    raise OptionError(f"no ceiling{of} in the log has a component {component!r}: {there}; {NO_CALLABLE}")


def forecasts(profile: StoredProfile) -> Iterable[Forecast]:
    """What a stored ceiling says of each of its components; rows that can't be read are passed over."""
    try:
        rows = profile.to_frame().to_dict("records")
    except LogError:
        return
    curves: dict[str, dict[float, Estimate]] = {}
    costs: dict[str, tuple[float, float]] = {}
    following: dict[str, str] = {}
    for row in rows:
        name, ratio = row.get("component"), _number(row.get("predicted_ratio"))
        low, high = _number(row.get("low")), _number(row.get("high"))
        speedup = _number(row.get("speedup"))  # JSON has no infinity: free is stored as null
        if not isinstance(name, str) or not 0 < low <= ratio <= high:
            continue
        at = math.inf if math.isnan(speedup) else speedup
        if at > 1:
            curves.setdefault(name, {})[at] = Estimate(ratio, low, high)
            costs[name] = _number(row.get("calls")), _number(row.get("seconds"))
            then = row.get("next")
            following[name] = then if isinstance(then, str) else ""
    for name, curve in curves.items():
        if math.inf in curve:
            estimates = tuple(sorted(curve.items()))
            yield Forecast(name, profile.label, profile.experiment, *costs[name], estimates, following[name])


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else math.nan
