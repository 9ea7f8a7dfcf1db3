"""Trained weights on disk: plain tensors and numbers, so that loading a file can run no code of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from optbook.hotdog.checkpoints import read_plain
from optbook.hotdog.network import NETWORKS

FORMAT = "optbook hotdog 2"
FIRST_FORMAT = "optbook hotdog 1"  # names no network: it was HotdogNet
DEFAULT_WEIGHTS = Path(__file__).resolve().parents[2] / "data" / "weights" / "hotdog.pt"
MAKE = "make them with `python -m optbook.hotdog.train`"


@dataclass(frozen=True)
class Weights:
    """A network (float32, ready to use), the input size it was trained for, and facts about its training."""

    network: nn.Module
    input_size: int
    facts: dict[str, float | int | str]


def save_weights(
    path: Path | str, network: nn.Module, width: int, input_size: int, facts: dict[str, float | int | str]
) -> None:
    """Write the weights as float32, with the network's name. Folders that are missing are made."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {
        name: value.float() if value.is_floating_point() else value
        for name, value in network.state_dict().items()
    }
    content = {
        "format": FORMAT,
        "network": type(network).__name__,
        "width": width,
        "input_size": input_size,
        "facts": facts,
        "state": state,
    }
    torch.save(content, path)


def load_weights(path: Path | str = DEFAULT_WEIGHTS) -> Weights:
    """Read what `save_weights` wrote.

    Raises FileNotFoundError, or ValueError when the file is damaged, is no weights of this detector, or is of
    a network that this version doesn't have.
    """
    path = Path(path)
    content = read_plain(path, "no weights", MAKE)
    if content.get("format") not in (FIRST_FORMAT, FORMAT):
        raise ValueError(f"{path} holds no weights of the hot-dog detector: expected the format {FORMAT!r}")
    name = content.get("network", "HotdogNet")
    build = NETWORKS.get(name)
    if build is None:
        raise ValueError(f"{path} holds weights of {name}, which is none of {', '.join(NETWORKS)}: {MAKE}")
    network = build(content["width"])
    try:
        network.load_state_dict(content["state"])
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise ValueError(f"{path} does not fit {name} of this version ({reason}): make them again") from None
    facts: dict[str, Any] = content["facts"]
    return Weights(network.eval(), content["input_size"], facts)
