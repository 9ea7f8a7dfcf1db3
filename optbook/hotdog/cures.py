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

from optbook.hotdog.augment_together import augment_together
from optbook.hotdog.background import log_in_background
from optbook.hotdog.checkpoints import save_in_background
from optbook.hotdog.dataset import collate_into_buffers
from optbook.hotdog.detect import hot_cells_together
from optbook.hotdog.loaders import ahead_loader
from optbook.hotdog.network import PatchNet
from optbook.hotdog.pixels import decode_small, normalise_together, resize_floats
from optbook.hotdog.precision import fast_bfloat16
from optbook.hotdog.suppress import suppress_together
from optbook.hotdog.targets import draw_together
from optbook.hotdog.training import fused_adamw, remember_detached, step_without_waiting


@dataclass(frozen=True)
class Cure:
    """`changes`: fields of the recipe and their new values; `row`: of the method; `chapter`: where it is.

    `component` names the stage whose callable is replaced, as a ceiling names it; None where the cure is a
    mere setting, or where what changes is what the callable made; no ceiling can predict that gain.
    """

    name: str
    changes: Mapping[str, Any]
    row: str
    chapter: str
    component: str | None = None


def _cure(name: str, row: str, chapter: str, component: str | None = None, **changes: Any) -> Cure:
    return Cure(name, MappingProxyType(changes), row, chapter, component)


CURES: tuple[Cure, ...] = (
    # Less work, then the same work on all pictures at once.
    _cure("decode at the size needed", "C0", "04", "recipe.decode", decode=decode_small),
    _cure("keep decoded pictures", "C2", "04", keep_decoded=True),
    _cure("augment the batch in one warp", "C1", "04", "recipe.augment", augment=augment_together),
    _cure("resize floats as they are", "C0", "04", "recipe.resize", resize=resize_floats),
    _cure("normalise with ready constants", "C2", "04", "recipe.normalise", normalise=normalise_together),
    _cure("draw targets together", "C1", "04", "recipe.targets", targets=draw_together),
    _cure("no anomaly detection", "C0", "04", anomaly_detection=False),
    _cure("patches first", "C0", "04", network=PatchNet),
    _cure("batches twice as large", "C1", "04", batch_size=16),
    _cure("fused optimiser", "C3", "04", optimiser=fused_adamw),
    # The smallest type, and nothing kept that is not needed.
    _cure("float32", "M1", "06", dtype=torch.float32),
    _cure("bfloat16 where it is fast", "M1", "06", autocast=torch.bfloat16 if fast_bfloat16() else None),
    _cure("a pixel's channels side by side for bfloat16", "C3", "04", channels_last=fast_bfloat16()),
    _cure("remember only numbers", "M4", "06", "recipe.remember", remember=remember_detached),
    _cure("batches in ready buffers", "M3", "06", "recipe.collate", collate=collate_into_buffers),
    # Nobody waits.
    _cure("steps that don't wait", "K3", "05", "recipe.step", step=step_without_waiting),
    _cure("log in the background", "K3", "05", "recipe.log", log=log_in_background),
    _cure("checkpoints in the background", "K3", "05", "recipe.checkpoint", checkpoint=save_in_background),
    _cure("batches prepared ahead", "K1", "05", make_loader=ahead_loader),
    # Counting.
    _cure("find in batches", "C1", "04", inference_batch_size=32),
    _cure("pictures to count prepared ahead", "K1", "05", inference_threads=2),
    _cure("no gradients for finding", "C0", "04", inference_mode=True),
    _cure("hot cells together", "C1", "04", "recipe.find", find=hot_cells_together),
    _cure("suppress together", "C1", "04", "recipe.suppress", suppress=suppress_together),
)
