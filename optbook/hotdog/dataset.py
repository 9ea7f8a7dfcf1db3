"""Pictures as a torch data set: one picture after the other becomes a sample, samples become batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from optbook.hotdog.batched import Image, Images, as_floats, on_all, on_all_pairs, takes_a_batch
from optbook.hotdog.buffers import Buffers
from optbook.hotdog.cache import PictureCache
from optbook.hotdog.coco import Picture
from optbook.hotdog.network import STRIDE
from optbook.hotdog.pixels import Floats, Pixels
from optbook.hotdog.targets import Targets

if TYPE_CHECKING:
    from optbook.hotdog.recipe import Recipe


class Turn(NamedTuple):
    """Which picture is wanted, in which epoch: its random changes depend on both, and on nothing else."""

    epoch: int
    picture: int


class Sample(NamedTuple):
    """One picture (3, S, S), normalised, and what the network shall answer for it."""

    image: Floats | Tensor
    targets: Targets


class Batch(NamedTuple):
    """`images` (B, 3, S, S); `heat` and `close` (B, 1, G, G); `sides` (B, 4, G, G): see `Targets`."""

    images: Tensor
    heat: Tensor
    sides: Tensor
    close: Tensor


class HotdogDataset(Dataset[Sample]):
    """Pictures, ready for the network. It holds the recipe's stages, each a function that pickles by name."""

    def __init__(self, recipe: Recipe, pictures: Sequence[Picture], training: bool) -> None:
        self.pictures = pictures
        self.training = training
        self.seed = recipe.seed
        self.input_size = recipe.input_size
        self.decode = recipe.decode
        self.augment = recipe.augment
        self.resize = recipe.resize
        self.normalise = recipe.normalise
        self.targets = recipe.targets
        self.in_batches = any(map(takes_a_batch, stages_of(recipe)))
        # Each worker process has a copy of this data set, and so a cache of its own.
        budget = recipe.cache_bytes // max(1, recipe.workers)
        self.cache = PictureCache(budget) if recipe.keep_decoded else None

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, turn: Turn) -> Sample:
        if self.in_batches:
            return self.__getitems__([turn])[0]
        image: Any = as_floats(self.decoded_picture(turn.picture))
        boxes = boxes_in(image, self.pictures[turn.picture])
        if self.training:
            image, boxes = self.augment(image, boxes, self.chance_of(turn))
        image, boxes = self.resize(image, boxes, self.input_size)
        return Sample(self.normalise(image), self.targets(boxes, self.input_size // STRIDE))

    def __getitems__(self, turns: Sequence[Turn]) -> list[Sample]:
        """The samples of one batch, each stage in its own way; torch's loader asks for whole batches here."""
        if not self.in_batches:
            return [self[turn] for turn in turns]
        images: Images = [self.decoded_picture(turn.picture) for turn in turns]
        boxes: Sequence[Floats] = [
            boxes_in(image, self.pictures[turn.picture]) for image, turn in zip(images, turns, strict=True)
        ]
        if self.training:
            chances = [self.chance_of(turn) for turn in turns]
            images, boxes = on_all_pairs(self.augment, images, boxes, chances)
        images, boxes = on_all_pairs(self.resize, images, boxes, settings=(self.input_size,))
        ready = on_all(self.normalise, images)
        targets = on_all(self.targets, boxes, settings=(self.input_size // STRIDE,))
        return [Sample(*both) for both in zip(ready, targets, strict=True)]

    def decoded_picture(self, index: int) -> Pixels:
        if self.cache is None:
            return self.decode_again(index)
        return self.cache.get(index, partial(self.decode_again, index))

    def decode_again(self, index: int) -> Pixels:
        image: Pixels = self.decode(self.pictures[index].path, self.input_size)
        return image

    def chance_of(self, turn: Turn) -> np.random.Generator:
        return np.random.default_rng((self.seed, turn.epoch, turn.picture))


def stages_of(recipe: Recipe) -> tuple[Callable[..., Any], ...]:
    """The functions that turn a picture into a sample."""
    return (recipe.decode, recipe.augment, recipe.resize, recipe.normalise, recipe.targets)


def boxes_in(image: Image, picture: Picture) -> Floats:
    """The picture's boxes (n, 4), in pixels of `image`, which may have been decoded at another size."""
    height, width = image.shape[:2]
    shrink_x, shrink_y = width / picture.width, height / picture.height
    boxes: Floats = picture.boxes * np.array([shrink_x, shrink_y, shrink_x, shrink_y])
    return boxes


class EveryPictureOnce(Sampler[Turn]):
    """The turns of one epoch, in an order that follows from seed and epoch; each time, the next epoch."""

    def __init__(self, count: int, seed: int, shuffle: bool) -> None:
        self.count = count
        self.seed = seed
        self.shuffle = shuffle
        self.epoch = 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Turn]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        order = np.arange(self.count)
        if self.shuffle:
            np.random.default_rng((self.seed, epoch)).shuffle(order)
        return (Turn(epoch, int(index)) for index in order)


def collate_arrays(samples: Sequence[Sample], dtype: torch.dtype) -> Batch:
    """Stack samples into a batch of this dtype."""
    images = np.stack([sample.image for sample in samples])
    heat = np.stack([sample.targets.heat for sample in samples])
    sides = np.stack([sample.targets.sides for sample in samples])
    close = np.stack([sample.targets.close for sample in samples])
    return Batch(*(torch.from_numpy(array).to(dtype) for array in (images, heat, sides, close)))


def collate_into_buffers(
    samples: Sequence[Sample], dtype: torch.dtype, buffers: Buffers | None = None
) -> Batch:
    """Copy samples into memory that was taken before: one block for the whole batch, lent by `buffers`.

    The loaders hand over a pool that lives as long as they do. In a worker process it lends shared memory,
    which the training process sees without another copy.
    """
    buffers = buffers or Buffers()
    parts = [
        [_as_tensor(part) for part in same]
        for same in zip(*((sample.image, *sample.targets) for sample in samples), strict=True)
    ]
    sizes = [len(samples) * some[0].numel() * dtype.itemsize for some in parts]
    pieces = torch.split(buffers.take(sum(sizes)), sizes)
    return Batch(*(_stacked(some, piece.view(dtype)) for some, piece in zip(parts, pieces, strict=True)))


def _stacked(parts: Sequence[Tensor], into: Tensor) -> Tensor:
    """Tensors of one shape, side by side in this memory."""
    return torch.stack(list(parts), out=into.view(len(parts), *parts[0].shape))


def _as_tensor(part: Floats | Tensor) -> Tensor:
    """The same numbers as a tensor; copied only where torch can't use the array's memory as it is."""
    if isinstance(part, Tensor):
        return part
    usable = part.flags.c_contiguous and part.flags.writeable
    return torch.from_numpy(part if usable else part.copy())
