"""The throughput that is aimed at, as the log keeps it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime


@dataclass(frozen=True, kw_only=True)
class Goal:
    """A throughput worth reaching, and why. Of several goals for one unit the latest holds.

    Parameters
    ----------
    unit
        What throughput counts, as the log names it: ``sample``.
    target
        Units per second.
    because
        Why it matters.
    price
        What an hour on the machine costs, in `currency`; None if not known.
    currency
        As it is written beside an amount; "" if none was given.
    training
        How many units a whole training run takes; None if not known.
    created
        When it was set (UTC).
    id
        Its own, so that logs can be merged.
    """

    unit: str
    target: float
    because: str = ""
    price: float | None = None
    currency: str = ""
    training: float | None = None
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
