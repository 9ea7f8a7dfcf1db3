"""From a picture's file to what the network sees: decode, resize, normalise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from optbook.hotdog.coco import open_rgb

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


def resize_through_bytes(image: Floats, boxes: Floats, size: int) -> tuple[Floats, Floats]:
    """Stretch to (size, size, 3), the boxes too. Pillow resizes bytes, so floats become bytes and back."""
    height, width = image.shape[:2]
    if (height, width) != (size, size):
        whole = Image.fromarray((image * 255).round().astype(np.uint8))
        image = np.asarray(whole.resize((size, size), Image.Resampling.BILINEAR)) / 255.0
    stretch = np.array([size / width, size / height])
    return image, boxes * np.tile(stretch, 2)


def normalise(image: Floats) -> Floats:
    """(S, S, 3) in 0…1 to (3, S, S) with mean 0 and deviation 1, roughly."""
    mean = np.array(MEAN)
    deviation = np.array(DEVIATION)
    normal: Floats = (image - mean) / deviation
    return normal.transpose(2, 0, 1)
