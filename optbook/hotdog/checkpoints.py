"""The state of learning on disk, so that a run that was cut off can go on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from optbook.hotdog.training import Learner


def save_now(learner: Learner, path: Path) -> None:
    """Write everything needed to go on; learning waits until it is written."""
    torch.save(
        {
            "network": learner.network.state_dict(),
            "optimiser": learner.optimiser.state_dict(),
            "schedule": learner.schedule.state_dict(),
            "steps": learner.steps,
        },
        path,
    )
