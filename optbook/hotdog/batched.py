"""Stages for a whole batch at once.

A stage of the recipe treats one picture, as in `targets(boxes, grid)`. One that is marked `@for_a_batch` is
called once for all pictures of a batch, with a list in place of each thing that belongs to one picture, as in
`targets([boxes, boxes, …], grid)`, and returns lists, or tensors with the pictures along the first axis. The
data set calls every stage in its own way, so that both kinds can be combined. (`decode` is always called for
one picture: each lies in a file of its own.)

An unmarked stage always gets its image as a NumPy array of floats in 0…1. A marked one gets what the stage
before it left, and makes of it what it wants: `as_batch` is for that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats: TypeAlias = NDArray[np.floating]
Image: TypeAlias = NDArray[np.uint8] | Floats | Tensor  # (height, width, 3): bytes, or floats in 0…1
Images: TypeAlias = Sequence[Image] | Tensor  # or all in one: (B, height, width, 3)
Stage = TypeVar("Stage", bound=Callable[..., Any])


def for_a_batch(stage: Stage) -> Stage:
    """Mark a stage that is to be called once for all pictures of a batch, with lists."""
    stage.for_a_batch = True  # type: ignore[attr-defined]
    return stage


def takes_a_batch(stage: Callable[..., Any]) -> bool:
    """Whether the stage is marked `@for_a_batch`."""
    return getattr(stage, "for_a_batch", False)


def on_all(stage: Callable[..., Any], *lists: Any, settings: tuple[Any, ...] = ()) -> Any:
    """Call the stage for all pictures, in its own way: once with the lists, or once for each picture.

    `settings` come last and are the same for all. Returns what a marked stage returned, or a list.
    """
    if takes_a_batch(stage):
        return stage(*lists, *settings)
    return [stage(*map(_plain, one), *settings) for one in zip(*lists, strict=True)]


def on_all_pairs(
    stage: Callable[..., Any], *lists: Any, settings: tuple[Any, ...] = ()
) -> tuple[Images, Sequence[Floats]]:
    """The same for a stage that returns an image and its boxes: all images, and all boxes."""
    result = on_all(stage, *lists, settings=settings)
    images, boxes = result if takes_a_batch(stage) else zip(*result, strict=True)
    return images, boxes


def as_floats(image: Image) -> Floats:
    """One image as a NumPy array of floats in 0…1; floats stay what they are."""
    array: Any = image.numpy() if isinstance(image, Tensor) else image
    floats: Floats = array / 255.0 if array.dtype == np.uint8 else array
    return floats


def as_batch(images: Images) -> Tensor:
    """Images of one size as one tensor (B, height, width, 3) of float32 in 0…1."""
    if not isinstance(images, Tensor):
        images = torch.from_numpy(np.stack([np.asarray(image) for image in images]))
    if images.dtype == torch.uint8:
        return images.to(torch.float32).mul_(1 / 255)
    return images.to(torch.float32)


def one_size(images: Images) -> bool:
    """Whether all images have the same height and width."""
    return isinstance(images, Tensor) or len({image.shape for image in images}) == 1


def _plain(thing: Any) -> Any:
    """What belongs to one picture, as an unmarked stage wants it: bytes become floats, tensors arrays."""
    is_bytes = isinstance(thing, np.ndarray) and thing.dtype == np.uint8
    return as_floats(thing) if is_bytes or isinstance(thing, Tensor) else thing
