"""That somebody solved an exercise, as the log keeps it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True)
class Solved:
    """Who solved which exercise, and when (UTC); ``id`` is its own, so that logs can be merged."""

    id: str
    created: datetime
    exercise: str
    participant: str

    @classmethod
    def now(cls, exercise: str, participant: str) -> Solved:
        """Solved at this moment."""
        return cls(uuid.uuid4().hex, datetime.now(UTC), exercise, participant)
