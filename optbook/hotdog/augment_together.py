"""Augmentation of a whole batch: the changes of `augment_step_by_step`, with less work for each picture.

* Flip, turn and scaling are one matrix, so that each picture is resampled once; torch does it in C.
* All is float32 and changed in place.
* What is the same for all pictures (where each pixel lies, a supply of noise) is made once.

Given the same chance, each picture changes as `augment_step_by_step` would have changed it, but for three
things: it is blended from its neighbours once and not twice, what comes from outside repeats the border of
the original (not of the turned picture), and the noise is other noise of the same strength.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from optbook.hotdog.augment import (
    BRIGHTNESSES,
    CONTRASTS,
    MOST_DEGREES,
    MOST_NOISE,
    SATURATIONS,
    SCALES,
)
from optbook.hotdog.batched import Floats, Images, as_batch, for_a_batch, one_size

GREY = (0.299, 0.587, 0.114)  # how bright red, green and blue look (ITU-R BT.601)
AT_ONCE = 8  # pictures: what is worked on should stay in the processor's cache
NOISE_SUPPLY = 2**20  # numbers; a picture of 128 × 128 takes 49 152 that follow one another


@dataclass(frozen=True)
class Changes:
    """What is to be done to the pictures of a batch, drawn as `augment_step_by_step` draws it."""

    matrices: Floats  # (B, 2, 2): flip, then turn, then scale; x before y
    brightness: Tensor  # this and the next two (B, 1, 1, 1)
    contrast: Tensor
    saturation: Tensor
    noise: Floats  # (B,): its standard deviation
    noise_from: Floats  # (B,): where in the supply of noise to start, 0…1


@for_a_batch
def augment_together(
    images: Images, boxes: Sequence[Floats], rngs: Sequence[np.random.Generator]
) -> tuple[Images, Sequence[Floats]]:
    """Change all pictures of a batch, and their boxes; returns (B, height, width, 3) of float32.

    Pictures of different sizes can't lie in one tensor: then they are changed one by one, and come back as a
    list.
    """
    if not one_size(images):
        each = [
            change_some([image], [some], [rng]) for image, some, rng in zip(images, boxes, rngs, strict=True)
        ]
        return [batch[0].permute(1, 2, 0) for batch, _ in each], [changed[0] for _, changed in each]
    starts = range(0, len(images), AT_ONCE)
    parts = [slice(start, start + AT_ONCE) for start in starts]
    changed = [change_some(images[part], boxes[part], rngs[part]) for part in parts]
    batch = torch.cat([batch for batch, _ in changed]) if len(changed) > 1 else changed[0][0]
    return batch.permute(0, 2, 3, 1), [some for _, group in changed for some in group]


def change_some(
    images: Images, boxes: Sequence[Floats], rngs: Sequence[np.random.Generator]
) -> tuple[Tensor, list[Floats]]:
    """A few pictures of one size, changed: (B, 3, height, width), and their boxes."""
    changes = draw_changes(rngs)
    batch = warp_together(as_batch(images).permute(0, 3, 1, 2), changes.matrices)
    recolour_together(batch, changes)
    add_noise_together(batch, changes)
    height, width = batch.shape[2:]
    return batch, turn_together(boxes, changes.matrices, width, height)


def draw_changes(rngs: Sequence[np.random.Generator]) -> Changes:
    """The same numbers from the same chance as in `augment_step_by_step`, all in one go."""
    draws = np.stack([rng.random(8) for rng in rngs])
    degrees = between((-MOST_DEGREES, MOST_DEGREES), draws[:, 1])
    cosine, sine = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    turn = np.stack([cosine, -sine, sine, cosine], axis=1).reshape(-1, 2, 2)
    scale = between(SCALES, draws[:, 2])
    matrices = turn * scale[:, None, None]
    matrices[:, :, 0] *= np.where(draws[:, 0] < 0.5, -1, 1)[:, None]
    ranges = zip((BRIGHTNESSES, CONTRASTS, SATURATIONS), draws.T[3:6], strict=True)
    brightness, contrast, saturation = (
        torch.from_numpy(between(ends, share)).float().view(-1, 1, 1, 1) for ends, share in ranges
    )
    noise = MOST_NOISE * draws[:, 6]
    return Changes(matrices, brightness, contrast, saturation, noise, noise_from=draws[:, 7])


def between(ends: tuple[float, float], share: Floats) -> Floats:
    """What `Generator.uniform` makes of a random number in 0…1."""
    low, high = ends
    return low + (high - low) * share


def warp_together(batch: Tensor, matrices: Floats) -> Tensor:
    """Move the pixels of each picture (B, 3, height, width) by its matrix, as `warp` does."""
    height, width = batch.shape[2:]
    # grid_sample counts from −1 in the middle of the first pixel to 1 in the middle of the last.
    half = np.array([width - 1, height - 1]) / 2
    back = np.linalg.inv(matrices) * half / half[:, None]
    wanted = torch.from_numpy(back).float()
    # Where a pixel comes from is a sum: one part depends on its column only, the other on its row.
    by_column = wanted[:, :, 0, None] * positions(width)  # (B, 2, width)
    by_row = wanted[:, :, 1, None] * positions(height)
    grid = (by_column[:, :, None, :] + by_row[:, :, :, None]).permute(0, 2, 3, 1)
    return F.grid_sample(batch, grid, mode="bilinear", padding_mode="border", align_corners=True)


@cache
def positions(count: int) -> Tensor:
    """The middles of so many pixels in a row, from −1 to 1."""
    return torch.linspace(-1, 1, count)


def turn_together(boxes: Sequence[Floats], matrices: Floats, width: int, height: int) -> list[Floats]:
    """The boxes of all pictures after the warp: `turned_boxes`, then `keep_visible`, on all boxes at once."""
    counts = [len(some) for some in boxes]
    every = np.concatenate(boxes)
    matrix = np.repeat(matrices, counts, axis=0)
    halves = every[:, 2:] / 2
    middle = np.array([width, height]) / 2
    centres = np.einsum("nij,nj->ni", matrix, every[:, :2] + halves - middle) + middle
    grown = np.sqrt(np.einsum("nij,nj->ni", matrix**2, halves**2))
    inside = ((centres >= 0) & (centres < [width, height])).all(axis=1)
    low = np.clip(centres - grown, 0, [width, height])
    high = np.clip(centres + grown, 0, [width, height])
    turned = np.concatenate([low, high - low], axis=1)[inside]
    ends = np.cumsum(counts)
    still = np.concatenate([[0], np.cumsum(inside)])[ends]
    return np.split(turned, still[:-1])


def recolour_together(batch: Tensor, changes: Changes) -> None:
    """`recolour` each picture of (B, 3, height, width), in place."""
    grey = torch.tensor(GREY).view(1, 3, 1, 1)
    batch.mul_(changes.brightness).clamp_(0, 1)
    mean = (batch.mean(dim=(2, 3), keepdim=True) * grey).sum(dim=1, keepdim=True)
    batch.mul_(changes.contrast).add_(mean * (1 - changes.contrast)).clamp_(0, 1)
    own = F.conv2d(batch, grey)
    torch.lerp(own, batch, changes.saturation, out=batch).clamp_(0, 1)


def add_noise_together(batch: Tensor, changes: Changes) -> None:
    """Add Gaussian noise to each picture in place: a piece of the supply, another one each time."""
    supply = noise_supply(max(NOISE_SUPPLY, 4 * batch[0].numel()))
    room = len(supply) - batch[0].numel()
    for picture, strength, start in zip(batch, changes.noise, changes.noise_from, strict=True):
        first = int(start * room)
        noise = supply[first : first + picture.numel()].view_as(picture)
        picture.add_(noise, alpha=strength)
    batch.clamp_(0, 1)


@cache
def noise_supply(count: int) -> Tensor:
    """So many random numbers from the normal distribution, always the same."""
    return torch.from_numpy(np.random.default_rng(0).standard_normal(count, dtype=np.float32))
