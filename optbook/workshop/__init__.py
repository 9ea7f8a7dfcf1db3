"""The chapters and their exercises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from optbook.workshop.exercises import Verdict


def check(name: str, namespace: Mapping[str, Any] | None = None) -> Verdict:
    """Judge an exercise by the reader's variables; see `optbook.workshop.exercises.check`."""
    from optbook.workshop import exercises

    return exercises.check(name, namespace)


def solved() -> pd.DataFrame:
    """Who solved which exercise, and when first; see `optbook.experiments.log.solved`."""
    from optbook.experiments import log

    return log.solved()
