"""The chapters and their exercises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optbook.workshop.exercises import Verdict


def check(name: str, namespace: Mapping[str, Any] | None = None) -> Verdict:
    """Judge an exercise by the reader's variables; see `optbook.workshop.exercises.check`."""
    from optbook.workshop import exercises

    return exercises.check(name, namespace)
