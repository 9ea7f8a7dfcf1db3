"""How wrong an answer of the network is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch.nn.functional as F
from torch import Tensor

from optbook.hotdog.network import PIXELS_PER_UNIT, Output

if TYPE_CHECKING:
    from optbook.hotdog.dataset import Batch

SIDES_WEIGHT = 0.25


class Losses(NamedTuple):
    """The parts of the loss (scalars); `total` is what is minimised."""

    heat: Tensor
    sides: Tensor

    @property
    def total(self) -> Tensor:
        return self.heat + SIDES_WEIGHT * self.sides


def as_number(remembered: Any) -> float:
    """A remembered loss as a number, whether it is one or a tensor."""
    return float(remembered.detach() if isinstance(remembered, Tensor) else remembered)


def focal_and_l1(output: Output, batch: Batch) -> Losses:
    """Focal loss on the heat map, mean absolute error on the distances; each per hot dog or cell concerned.

    The focal loss is that of CenterNet (arXiv 1904.07850, equation 1, with α = 2 and β = 4): cells with a
    centre (heat exactly 1) pull upwards, all others downwards, the less the hotter their target is. A batch
    without any hot dog has a loss as well: its cells must stay cold.
    """
    heat, target = output.heat, batch.heat
    probability = heat.sigmoid()
    centre = (target == 1).to(heat.dtype)
    pull_up = centre * (1 - probability) ** 2 * F.logsigmoid(heat)
    pull_down = (1 - centre) * (1 - target) ** 4 * probability**2 * F.logsigmoid(-heat)
    centres = centre.sum().clamp(min=1)
    heat_loss = -(pull_up + pull_down).sum() / centres

    distance = (output.sides - batch.sides).abs() / PIXELS_PER_UNIT
    cells = batch.close.sum().clamp(min=1)
    sides_loss = (distance * batch.close).sum() / cells
    return Losses(heat_loss, sides_loss)
