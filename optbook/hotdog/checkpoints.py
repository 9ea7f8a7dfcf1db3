"""The state of learning on disk, so that a run that was cut off can go on.

A checkpoint holds plain tensors and numbers: loading one can run no code of its own.
"""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from optbook.hotdog.coco import Picture
from optbook.hotdog.loss import as_number

if TYPE_CHECKING:
    from optbook.hotdog.recipe import Recipe
    from optbook.hotdog.training import Learner

FORMAT = "optbook hotdog checkpoint 1"


def save_now(learner: Learner, path: Path | str) -> None:
    """Write everything needed to go on; learning waits until it is written."""
    _write(_state(learner), list(learner.history), Path(path))


def save_in_background(learner: Learner, path: Path | str) -> None:
    """Copy everything needed to go on; a thread writes the copy. `learner.finish()` waits for it.

    An error in writing is raised by the next work given to `learner.background`, or by `finish`.
    """
    learner.background.do(_write, copy.deepcopy(_state(learner)), list(learner.history), Path(path))


def load_checkpoint(path: Path | str, recipe: Recipe, pictures: Sequence[Picture]) -> Learner:
    """A learner that goes on exactly where the saved one was; `history` holds its losses as numbers.

    Raises FileNotFoundError, or ValueError when the file is damaged, is no checkpoint, or is one of another
    network than the recipe's.
    """
    path = Path(path)
    content = read_plain(path, "no checkpoint", "save one with recipe.checkpoint(learner, path)")
    if content.get("format") != FORMAT:
        raise ValueError(f"{path} holds no checkpoint: expected the format {FORMAT!r}")
    learner = recipe.learner(pictures)
    if (saved := content["network_is"]) != (ours := _network_is(learner)):
        raise ValueError(f"{path} is a checkpoint of {saved}, the recipe's network is {ours}")
    learner.network.load_state_dict(content["network"])
    learner.optimiser.load_state_dict(content["optimiser"])
    learner.schedule.load_state_dict(content["schedule"])
    learner.steps = content["steps"]
    learner.history.extend(content["losses"])
    return learner


def read_plain(path: Path, missing: str, remedy: str) -> dict[str, Any]:
    """What `torch.save` wrote, if it is a dictionary of plain tensors and numbers; else an empty one.

    Raises FileNotFoundError, and ValueError when the file is damaged; both end in the `remedy`.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{missing} at {path}: {remedy}")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError, ValueError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{path} is cut short, or no file of plain tensors ({reason}): {remedy}") from None
    return content if isinstance(content, dict) else {}


def _state(learner: Learner) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "network_is": _network_is(learner),
        "network": learner.network.state_dict(),
        "optimiser": learner.optimiser.state_dict(),
        "schedule": learner.schedule.state_dict(),
        "steps": learner.steps,
    }


def _network_is(learner: Learner) -> str:
    return f"{type(learner.network).__name__}({learner.recipe.width})"


def _write(state: dict[str, Any], history: Sequence[Any], path: Path) -> None:
    """All or nothing: the file gets its name once it is complete, also if the power fails meanwhile."""
    state["losses"] = [as_number(loss) for loss in history]
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    with part.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
