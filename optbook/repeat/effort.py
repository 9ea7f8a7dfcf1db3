"""Hours of effort: the time between experiments, without the pauses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime

PAUSE = 30 * 60.0
"""Seconds. Who records nothing for longer than this, and the time of the measurement, was away."""


def effort(created: Sequence[datetime | None], busy: Sequence[float]) -> list[float]:
    """Seconds of effort up to each experiment.

    The time since the experiment before counts where it is at most `PAUSE` and the measurement's own time;
    a longer one is a pause, of which only the measurement counts. The same holds where the clock jumped
    backwards or a time isn't known, and for the first experiment.

    Parameters
    ----------
    created
        When each was recorded, in the order of the log.
    busy
        Seconds that each was measured for; NaN where that isn't known.
    """
    total, before = 0.0, None
    found = []
    for moment, own in zip(created, busy, strict=True):
        own = own if 0 <= own < math.inf else 0.0
        gap = (moment - before).total_seconds() if moment is not None and before is not None else -1.0
        total += gap if 0 <= gap <= PAUSE + own else own
        before = moment if moment is not None else before
        found.append(total)
    return found
