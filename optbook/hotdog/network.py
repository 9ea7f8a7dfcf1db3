"""The detector: a small convolutional network without anchors.

From a picture (3, S, S) it makes, on a grid of S/4 × S/4 cells, a heat map that peaks at the centres of hot
dogs and, for every cell, the distances to the four sides of the hot dog it lies on. About 41 MFLOP a picture
at S = 128 and width 12.

The idea is that of CenterNet ("Objects as Points", Zhou et al. 2019, arXiv 1904.07850), with the distances of
FCOS (Tian et al. 2019, arXiv 1904.01355) in place of widths and offsets.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
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
    """Look ever more coarsely (1/2, 1/4, 1/8, 1/16), then add up the three coarsest views at 1/4."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.at_2 = convolve(3, width, stride=2)
        self.at_4 = convolve(width, 2 * width, stride=2)
        self.at_8 = nn.Sequential(
            convolve(2 * width, 4 * width, stride=2),
            convolve(4 * width, 4 * width),
        )
        self.at_16 = nn.Sequential(
            convolve(4 * width, 4 * width, stride=2),
            convolve(4 * width, 4 * width),
        )
        self.from_8 = nn.Conv2d(4 * width, 2 * width, kernel_size=1)
        self.from_16 = nn.Conv2d(4 * width, 2 * width, kernel_size=1)
        self.enlarge = nn.Upsample(scale_factor=2)
        self.mix = convolve(2 * width, 2 * width)
        self.answer = nn.Conv2d(2 * width, 5, kernel_size=1)
        self._start_with_few_hotdogs()

    def forward(self, images: Tensor) -> Output:
        """`images` (B, 3, S, S) as `normalise` makes them; S a multiple of 16."""
        quarter = self.at_4(self.at_2(images))
        eighth = self.at_8(quarter)
        sixteenth = self.at_16(eighth)
        coarse = self.from_8(eighth) + self.enlarge(self.from_16(sixteenth))
        answer = self.answer(self.mix(quarter + self.enlarge(coarse)))
        return Output(heat=answer[:, :1], sides=answer[:, 1:] * PIXELS_PER_UNIT)

    def _start_with_few_hotdogs(self) -> None:
        bias = self.answer.bias
        assert bias is not None
        with torch.no_grad():
            bias[0] = math.log(RARE / (1 - RARE))


def convolve(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )
