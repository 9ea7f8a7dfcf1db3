"""The detector: a small convolutional network without anchors.

From a picture (3, S, S) it makes, on a grid of S/4 × S/4 cells, a heat map that peaks at the centres of hot
dogs and, for every cell, the distances to the four sides of the hot dog it lies on. About 52 MFLOP a picture
at S = 128 and width 12.

The idea is that of CenterNet ("Objects as Points", Zhou et al. 2019, arXiv 1904.07850), with the distances of
FCOS (Tian et al. 2019, arXiv 1904.01355) in place of widths and offsets.
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

STRIDE = 4  # input pixels per cell of the output grid
DEEPEST_STRIDE = 16  # the input's side must be a multiple of this
PIXELS_PER_UNIT = 32.0  # the network predicts distances in units of this many input pixels
RARE = 0.02  # the heat every cell starts with: most cells hold no hot dog


class Output(NamedTuple):
    """`heat` (B, 1, G, G) as logits; `sides` (B, 4, G, G): left, top, right, bottom in input pixels."""

    heat: Tensor
    sides: Tensor


class HotdogNet(nn.Module):
    """Look ever more coarsely (at 1/2, 1/4, 1/8, 1/16 of the size), then bring what was seen back to 1/4."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        at_2, at_4, at_8, at_16 = width, 2 * width, 4 * width, 5 * width
        self.to_2 = convolve(3, at_2, stride=2)
        self.to_4 = convolve(at_2, at_4, stride=2)
        self.to_8 = nn.Sequential(convolve(at_4, at_8, stride=2), Refine(at_8))
        self.to_16 = nn.Sequential(convolve(at_8, at_16, stride=2), Refine(at_16), Refine(at_16))
        self.enlarge = nn.Upsample(scale_factor=2)
        self.from_16 = nn.Conv2d(at_16, at_8, kernel_size=1)
        self.from_8 = convolve(at_8, at_4)
        self.from_4 = nn.Sequential(Refine(at_4), nn.Conv2d(at_4, 5, kernel_size=1))
        self._start_with_few_hotdogs()

    def forward(self, images: Tensor) -> Output:
        """`images` (B, 3, S, S) as `normalise` makes them; S a multiple of 16."""
        seen_at_4 = self.to_4(self.to_2(images))
        seen_at_8 = self.to_8(seen_at_4)
        seen_at_16 = self.to_16(seen_at_8)
        at_8 = self.from_8(seen_at_8 + self.enlarge(self.from_16(seen_at_16)))
        answer = self.from_4(seen_at_4 + self.enlarge(at_8))
        return Output(heat=answer[:, :1], sides=answer[:, 1:] * PIXELS_PER_UNIT)

    def _start_with_few_hotdogs(self) -> None:
        last = self.from_4[-1]
        assert isinstance(last, nn.Conv2d)
        assert last.bias is not None
        with torch.no_grad():
            last.bias[0] = math.log(RARE / (1 - RARE))


class PatchNet(HotdogNet):
    """The same, but the first look is at patches of 4 × 4 pixels, each of which becomes a cell at once.

    `HotdogNet`'s first two layers look at full and half resolution, where there are most positions; together
    they are a sixth of its operations, and take more than that of its time. Patches as a first layer come
    from "An Image is Worth 16x16 Words" (Dosovitskiy et al. 2021, arXiv 2010.11929).
    """

    def __init__(self, width: int = 12) -> None:
        super().__init__(width)
        self.to_2 = nn.Sequential()
        self.to_4 = nn.Sequential(
            nn.Conv2d(3, 2 * width, kernel_size=STRIDE, stride=STRIDE, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(inplace=True),
        )


class Refine(nn.Module):
    """Add to each cell what a convolution makes of it and its neighbours (a residual block of one layer)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, cells: Tensor) -> Tensor:
        return F.relu(cells + self.norm(self.convolution(cells)))


def convolve(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


def keep_channels_last(network: nn.Module) -> nn.Module:
    """The network with its weights laid out for pictures whose channels lie side by side in memory."""
    laid_out: nn.Module = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return laid_out


NETWORKS = MappingProxyType({build.__name__: build for build in (HotdogNet, PatchNet)})  # by their names
