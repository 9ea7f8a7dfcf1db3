"""The way so far: what each experiment and each hour brought, what is missing, and what to do next."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from optbook import formatting as write
from optbook.experiments.goal import Goal
from optbook.experiments.log import session
from optbook.experiments.profiles import StoredProfile
from optbook.experiments.render import one_line
from optbook.repeat.effort import PAUSE, effort
from optbook.repeat.goal import goal_for, sentence
from optbook.repeat.progress import Point, points
from optbook.repeat.stopping import LEAST, Advice, Outlook, Prospect, Standing, advise, times
from optbook.simplify.forecast import forecasts

if TYPE_CHECKING:
    import pandas as pd

CEILING = "ceiling"
"""The kind under which a ceiling is stored."""
HOURS_SHOWN = 5
_HOUR = 3600.0


@dataclass(frozen=True)
class Journey:
    """The experiments of a log in one unit, on one machine, and what they amount to.

    Parameters
    ----------
    unit
        What throughput counts.
    points
        The experiments, as `optbook.repeat.progress.points` has them.
    seconds
        Seconds of effort up to each of them.
    goal
        What is aimed at in this unit; None if nothing is.
    outlook
        The newest ceiling of a real system that is one of the points; None if there is none.
    """

    unit: str
    points: tuple[Point, ...] = ()
    seconds: tuple[float, ...] = ()
    goal: Goal | None = None
    outlook: Outlook | None = None

    @cached_property
    def first(self) -> Point | None:
        """The first that counts."""
        return next((point for point in self.points if point.counts), None)

    @cached_property
    def best(self) -> Point | None:
        """The best that counts."""
        return max((p for p in self.points if p.counts), key=lambda point: point.value, default=None)

    @cached_property
    def improvements(self) -> tuple[Point, ...]:
        """The first that counts, then each that is really better than the one before it here.

        That is where its interval lies above the other's value; where none is known, where it is better by
        more than `LEAST`.
        """
        found: list[Point] = []
        for point in self.points:
            if point.counts and (not found or _surely(point) > found[-1].value):
                found.append(point)
        return tuple(found)

    @cached_property
    def standing(self) -> Standing:
        """What `advise` decides by."""
        best = self.best
        target = self.goal.target if self.goal is not None else None
        if best is None:
            return Standing(self.unit, target=target, outlook=self.outlook)
        half = (best.high - best.low) / 2 / best.value
        later = sum(point.counts for point in self.points[best.number :])
        return Standing(
            self.unit, best.value, half if half >= 0 else 0.0, target, self.outlook, fruitless=later
        )

    @property
    def advice(self) -> Advice:
        """What to do next."""
        return advise(self.standing)

    @cached_property
    def by_hour(self) -> tuple[tuple[int, float], ...]:
        """For each hour of effort in which something counts: its number, from 1, and how many times the best
        before it the best is at its end."""
        at_end: dict[int, float] = {}
        for point, seconds in zip(self.points, self.seconds, strict=True):
            if point.counts:
                at_end[int(seconds // _HOUR) + 1] = point.best
        before = self.first.value if self.first is not None else math.nan
        found = []
        for hour, best in at_end.items():
            found.append((hour, best / before))
            before = best
        return tuple(found)

    def lines(self) -> list[str]:
        """The goal, the gains, the gaps, and what to do next, a sentence each; those that say something."""
        if not self.points:
            return [sentence(self.goal)] if self.goal is not None else []
        goal = [sentence(self.goal)] if self.goal is not None else []
        return [*goal, *self._gains(), *self._gaps(), f"Next: {self.advice.sentence}"]

    def _gains(self) -> Iterable[str]:
        counting = [point for point in self.points if point.counts]
        if len(counting) < 2 or self.best is None:
            return
        each = self.best.ratio ** (1 / (len(counting) - 1))
        hours = ", ".join(f"{ordinal(n)} {times(gain)}" for n, gain in self.by_hour[-HOURS_SHOWN:])
        yield (
            f"Effort: {write.duration(self.seconds[-1])} (without pauses over {PAUSE / 60:.0f} min); "
            f"{times(each)} an experiment on average; by hour of effort {hours}."
        )

    def _gaps(self) -> Iterable[str]:
        gaps = [f"{write.percent(gap)} to {what}" for what, gap in self.gaps]
        if gaps:
            yield f"Open gap: {', '.join(gaps)}."

    @property
    def gaps(self) -> tuple[tuple[str, float], ...]:
        """What the best is held against, and the gap: 1 − best ÷ that; none below 0."""
        found = []
        standing = self.standing
        if standing.missing > 0:
            found.append(("the goal", max(0.0, 1 - 1 / standing.missing)))
        if standing.left is not None and standing.outlook is not None:
            name = f"the ceiling ({one_line(standing.left.component, 60)} free)"
            found.append((name, max(0.0, 1 - 1 / standing.left.ratio)))
        return tuple(found)


def journey(frame: pd.DataFrame, unit: str, goal: Goal | None, ceilings: Sequence[StoredProfile]) -> Journey:
    """The way so far over these experiments.

    Parameters
    ----------
    frame
        The log, as `optbook.log` gives it.
    unit
        What throughput counts.
    goal
        What is aimed at in this unit.
    ceilings
        The stored ceilings, oldest first.

    Raises
    ------
    OptionError
        No experiment counts this unit.
    """
    found = points(frame, unit)
    counted = frame["steps"].where(frame["steps"] > 0, frame["runs"])
    moments = [None if moment is None or moment != moment else moment for moment in frame["created"]]
    spent = dict(zip(frame.index, effort(moments, list(counted * frame["seconds"])), strict=True))
    ids = dict(zip(frame["id"], frame.index, strict=True))
    by_row = {point.row: point for point in found if point.counts}
    real = {id: by_row[row] for id, row in ids.items() if row in by_row}
    return Journey(
        unit, tuple(found), tuple(spent[point.row] for point in found), goal, _outlook(ceilings, real)
    )


def so_far(frame: pd.DataFrame, unit: str) -> Journey:
    """`journey` with the goal and the ceilings of the log in force.

    Raises
    ------
    OptionError
        No experiment counts this unit.
    LogError
        The log can't be read.
    """
    return journey(frame, unit, goal_for(unit), session().profiles(kind=CEILING))


def ordinal(number: int) -> str:
    """``1st``, ``2nd``, ``3rd``, ``4th`` …"""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _surely(point: Point) -> float:
    return point.low if point.low <= point.value else point.value / (1 + LEAST)


def _outlook(ceilings: Sequence[StoredProfile], real: dict[str, Point]) -> Outlook | None:
    """The newest ceiling whose experiment counts, and of which something can be read."""
    for profile in reversed(ceilings):
        point = real.get(profile.experiment)
        if point is None:
            continue
        prospects = tuple(
            Prospect(each.component, each.free.ratio, each.free.low, each.free.high, each.next)
            for each in forecasts(profile)
        )
        if prospects:
            return Outlook(point.label, point.value, prospects)
    return None
