"""From a picture's file to what the network sees: decode, resize, normalise."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from optbook.hotdog.batched import Images, as_batch, for_a_batch, one_size
from optbook.hotdog.coco import open_rgb, open_rgb_image

Floats = NDArray[np.floating]
Pixels = NDArray[np.uint8] | Floats
Source = Path | str | NDArray[np.uint8]  # a picture's file, or its pixels (height, width, 3)

# What the pictures of data/hotdogs have as mean and standard deviation, over all pixels; red, green, blue.
MEAN = (0.55, 0.48, 0.40)
DEVIATION = (0.23, 0.23, 0.26)


def pixels_of(source: Source) -> NDArray[np.uint8]:
    """The pixels (height, width, 3) of a picture that is a file or is in memory already.

    Raises ValueError for an array of another shape or type, and what `open_rgb` raises for a file.
    """
    if not isinstance(source, np.ndarray):
        return open_rgb(source)
    if source.ndim != 3 or source.shape[2] != 3 or source.dtype != np.uint8 or source.size == 0:
        raise ValueError(
            f"a picture must be uint8 (height, width, 3), not {source.dtype} {source.shape}: "
            "convert it, as in np.asarray(image.convert('RGB'))"
        )
    return source


def decode_full_size(source: Source, size: int) -> Floats:
    """All pixels as floats in 0…1, (height, width, 3), whatever `size` the network will need."""
    return pixels_of(source) / 255.0


def decode_small(source: Source, size: int) -> NDArray[np.uint8]:
    """The picture stretched to (size, size, 3), as bytes: all that is needed, in an eighth of the memory.

    A JPEG is not even decoded at full size where a half or a quarter of it suffices.
    """
    if isinstance(source, np.ndarray):
        image = Image.fromarray(pixels_of(source))
    else:
        image = open_rgb_image(source, at_least=size)
    if image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(image)


def resize_through_bytes(image: Floats, boxes: Floats, size: int) -> tuple[Floats, Floats]:
    """Stretch to (size, size, 3), the boxes too. Pillow resizes bytes, so floats become bytes and back."""
    height, width = image.shape[:2]
    if (height, width) != (size, size):
        whole = Image.fromarray((image * 255).round().astype(np.uint8))
        image = np.asarray(whole.resize((size, size), Image.Resampling.BILINEAR)) / 255.0
    stretch = np.array([size / width, size / height])
    return image, boxes * np.tile(stretch, 2)


@for_a_batch
def resize_floats(images: Images, boxes: Sequence[Floats], size: int) -> tuple[Images, Sequence[Floats]]:
    """Stretch to (size, size, 3) without making bytes of floats; where the size fits, nothing is done."""
    shapes = [image.shape[:2] for image in images]
    if any(shape != (size, size) for shape in shapes):
        groups = [images] if one_size(images) else [[image] for image in images]
        images = torch.cat([_stretched(as_batch(group), size) for group in groups])
        boxes = [
            some * [size / width, size / height, size / width, size / height]
            for some, (height, width) in zip(boxes, shapes, strict=True)
        ]
    return images, boxes


def _stretched(batch: Tensor, size: int) -> Tensor:
    colours_first = batch.permute(0, 3, 1, 2)
    resized = F.interpolate(colours_first, (size, size), mode="bilinear", antialias=True)
    return resized.permute(0, 2, 3, 1)


def normalise(image: Floats) -> Floats:
    """(S, S, 3) in 0…1 to (3, S, S) with mean 0 and deviation 1, roughly."""
    mean = np.array(MEAN)
    deviation = np.array(DEVIATION)
    normal: Floats = (image - mean) / deviation
    return normal.transpose(2, 0, 1)


@for_a_batch
def normalise_together(images: Images) -> Tensor:
    """Images of one size, (S, S, 3), to (B, 3, S, S) of float32: multiplied and added to in one pass."""
    factor, summand = _factor_and_summand()
    return torch.addcmul(summand, as_batch(images).permute(0, 3, 1, 2), factor)


@cache
def _factor_and_summand() -> tuple[Tensor, Tensor]:
    """(x − mean) ÷ deviation is x · factor + summand. Each is (3, 1, 1), made once."""
    mean, deviation = (torch.tensor(colours).view(3, 1, 1) for colours in (MEAN, DEVIATION))
    return 1 / deviation, -mean / deviation
