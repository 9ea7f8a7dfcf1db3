"""What makes the first recipe fast: each cure changes one field (some need a partner), in a sensible order.

This spoils the chapters, as flaws.py does. All cures together are `Recipe.tuned()`. Each can be switched on
alone, and in any order:

    recipe = Recipe.first()
    for cure in CURES:
        recipe = recipe.replace(**cure.changes)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch


@dataclass(frozen=True)
class Cure:
    """`changes`: fields of the recipe and their new values; `row`: of the method; `chapter`: where it is.

    `component` names the stage whose callable is replaced, as a ceiling names it; None where the cure is a
    mere setting, whose gain no ceiling can predict.
    """

    name: str
    changes: Mapping[str, Any]
    row: str
    chapter: str
    component: str | None = None


def _cure(name: str, row: str, chapter: str, component: str | None = None, **changes: Any) -> Cure:
    return Cure(name, MappingProxyType(changes), row, chapter, component)


CURES: tuple[Cure, ...] = (
    _cure("no anomaly detection", "C0", "04", anomaly_detection=False),
    _cure("float32", "M1", "06", dtype=torch.float32),
)
