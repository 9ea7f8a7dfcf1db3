"""Trained weights on disk: plain tensors and numbers, so that loading a file can run no code of its own."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from optbook.hotdog.network import HotdogNet

FORMAT = "optbook hotdog 1"
DEFAULT_WEIGHTS = Path(__file__).resolve().parents[2] / "data" / "weights" / "hotdog.pt"


@dataclass(frozen=True)
class Weights:
    """A network (float32, ready to use), the input size it was trained for, and facts about its training."""

    network: HotdogNet
    input_size: int
    facts: dict[str, float | int | str]


def save_weights(
    path: Path | str, network: HotdogNet, width: int, input_size: int, facts: dict[str, float | int | str]
) -> None:
    """Write the weights as float32. Folders that are missing are made."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {
        name: value.float() if value.is_floating_point() else value
        for name, value in network.state_dict().items()
    }
    content = {"format": FORMAT, "width": width, "input_size": input_size, "facts": facts, "state": state}
    torch.save(content, path)


def load_weights(path: Path | str = DEFAULT_WEIGHTS) -> Weights:
    """Read what `save_weights` wrote.

    Raises FileNotFoundError, or ValueError when the file is damaged, or is no weights of this detector.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no weights at {path}: make them with `python -m optbook.hotdog.train`")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{path} is damaged or holds no plain weights ({reason}): make them again") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"{path} holds no weights of the hot-dog detector: expected the format {FORMAT!r}")
    network = HotdogNet(content["width"])
    try:
        network.load_state_dict(content["state"])
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise ValueError(
            f"{path} does not fit the network of this version ({reason}): make them again"
        ) from None
    facts: dict[str, Any] = content["facts"]
    return Weights(network.eval(), content["input_size"], facts)
