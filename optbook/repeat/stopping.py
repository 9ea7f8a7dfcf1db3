"""When to stop: one rule, from the best so far, the target and the newest ceiling."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from optbook import formatting as write
from optbook.experiments.render import one_line

Verdict = Literal["measure first", "target met", "look for it", "go on", "moved on", "below the noise"]
LEAST = 0.03
"""Gains up to this share are nothing, however exact the figures are: they are hardly worth a day."""
LONGEST = 60


@dataclass(frozen=True)
class Prospect:
    """What a ceiling says of one component.

    Parameters
    ----------
    component
        Its name.
    ratio, low, high
        The system's throughput, were it free, against that of the ceiling's experiment.
    next
        The component that limits then; "" if none of those looked at does.
    """

    component: str
    ratio: float
    low: float
    high: float
    next: str = ""


@dataclass(frozen=True)
class Outlook:
    """The newest ceiling of the real system.

    Parameters
    ----------
    label
        Of its experiment.
    throughput
        What the real system reached there, in units per second.
    prospects
        What it says of each component that could be removed.
    """

    label: str
    throughput: float
    prospects: tuple[Prospect, ...]

    @property
    def first(self) -> Prospect | None:
        """The component whose removal was to bring most, of those that surely bring something if there are
        any; None if none could be removed."""
        known = [each for each in self.prospects if each.ratio > 0]
        return max(known, key=lambda each: (each.low > 1, each.ratio), default=None)


@dataclass(frozen=True)
class Standing:
    """Where one stands, in one unit on one machine.

    Parameters
    ----------
    unit
        What throughput counts.
    best
        The best that the real system reached; NaN if nothing counts yet.
    noise
        Share to which `best` is known: half its interval.
    target
        Units per second that are aimed at; None without a goal.
    outlook
        The newest ceiling; None if there is none.
    fruitless
        How many experiments that count came after the best.
    """

    unit: str
    best: float = math.nan
    noise: float = 0.0
    target: float | None = None
    outlook: Outlook | None = None
    fruitless: int = 0

    @property
    def least(self) -> float:
        """The smallest share that counts as a gain: `noise`, at least `LEAST`."""
        return max(self.noise, LEAST)

    @property
    def missing(self) -> float:
        """target ÷ best; NaN without either."""
        return math.nan if self.target is None or not self.best > 0 else self.target / self.best

    @property
    def gained(self) -> float:
        """best ÷ what the ceiling's experiment reached; NaN without a ceiling."""
        return math.nan if self.outlook is None else self.best / self.outlook.throughput

    @property
    def left(self) -> Prospect | None:
        """The ceiling's first component, its ratios against the best; None if nothing is known."""
        first = self.outlook.first if self.outlook is not None else None
        if first is None or not self.best > 0:
            return None
        low, high = (end if end == end else first.ratio for end in (first.low, first.high))
        ratio, low, high = (each / self.gained for each in (first.ratio, low, high))
        return Prospect(first.component, ratio, low, high, first.next)


@dataclass(frozen=True)
class Advice:
    """What to do next.

    Parameters
    ----------
    verdict
        Which of the cases of `advise` it is.
    sentence
        What to do and why, in one sentence.
    left
        What the newest ceiling leaves to gain; None if nothing is known.
    """

    verdict: Verdict
    sentence: str
    left: Prospect | None = None

    @property
    def stop(self) -> bool:
        """Whether it says to stop."""
        return self.verdict in ("target met", "below the noise")


def advise(standing: Standing) -> Advice:
    """Whether to go on, with what, and why. The first that holds, in this order:

    1. *measure first*: nothing counts yet.
    2. *target met*: the best reaches the target. What more could be gained no longer matters.
    3. *look for it*: no ceiling says what could be gained.
    4. *go on*: were the component free that the newest ceiling puts first, the best would surely be exceeded,
       and by more than the noise. What was gained since the ceiling was taken is taken off its promise.
       Noise is half the best's interval, at least `LEAST`.
    5. *moved on*: nothing is left of that promise because as much was gained since: the bottleneck is no
       longer where it was.
    6. *below the noise*: nothing is left, and nothing was gained since.
    """
    left = standing.left
    verdict: Verdict
    if not standing.best > 0:
        verdict = "measure first"
    elif standing.missing <= 1:
        verdict = "target met"
    elif left is None:
        verdict = "look for it"
    elif left.ratio > 1 + standing.least and left.low > 1:
        verdict = "go on"
    elif standing.gained > 1 + standing.least:
        verdict = "moved on"
    else:
        verdict = "below the noise"
    return Advice(verdict, _sentence(verdict, standing), left)


def _sentence(verdict: Verdict, standing: Standing) -> str:
    unit, outlook, left = one_line(standing.unit, LONGEST), standing.outlook, standing.left
    best = write.rate(standing.best, unit)
    if verdict == "measure first":
        return f"Measure first: no experiment counts {write.plural(unit)} of the real system yet."
    if verdict == "target met":
        target = write.rate(standing.target, unit)
        return f"Stop: the target of {target} is met, with {best}."
    away = f"; the target is {times(standing.missing)} away" if standing.target is not None else ""
    if left is None or outlook is None or outlook.first is None:
        tries = standing.fruitless
        vain = f", which the last {tries} experiments did not beat" if tries > 1 else ""
        return f"Take a %%ceiling: nothing says yet what could be gained beyond {best}{vain}{away}."
    name, promise = one_line(left.component, LONGEST), spread(outlook.first)
    label = one_line(outlook.label, LONGEST)
    if verdict == "go on":
        since = standing.gained > 1 + standing.least
        so_far = f", {times(standing.gained)} of which is gained since" if since else ""
        alone = "" if left.ratio >= standing.missing else " by itself"
        enough = f", for which that is {'not ' if alone else ''}enough{alone}" if away else ""
        return (
            f"Go on with {name}, {times(left.ratio)} to gain: the ceiling of {label!r} promises {promise} "
            f"were it free{so_far}{away}{enough}."
        )
    if verdict == "moved on":
        limits = f", and {one_line(left.next, LONGEST)} was to limit next" if left.next else ""
        return (
            f"Take a new %%ceiling: the bottleneck is hardly {name} any longer, since {promise} was all "
            f"it promised and {times(standing.gained)} is gained{limits}{away}."
        )
    return (
        f"Stop: what remains is below the noise: of the parts looked at {name} would bring most, "
        f"{spread(left)}, and {write.percent(standing.least)} can't be told from chance{away}."
    )


def spread(prospect: Prospect) -> str:
    """A ratio with its range: ``1.46× (1.41 to 1.50)``."""
    if not prospect.low < prospect.high < math.inf:
        return times(prospect.ratio)
    return f"{times(prospect.ratio)} ({times(prospect.low)[:-1]} to {times(prospect.high)[:-1]})"


def times(ratio: float) -> str:
    """``1.46×``, ``12.3×``, ``340×``."""
    if ratio == math.inf:
        return "any factor"
    return f"{ratio:.{2 if ratio < 9.995 else 1 if ratio < 99.95 else 0}f}×"
