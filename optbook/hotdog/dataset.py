"""Pictures as a torch data set: one picture after the other becomes a sample, samples become batches."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

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

    image: Floats
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
        self.decoded: dict[int, Pixels] | None = {} if recipe.keep_decoded else None

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, turn: Turn) -> Sample:
        image = self.decoded_picture(turn.picture)
        boxes = boxes_in(image, self.pictures[turn.picture])
        if self.training:
            rng = np.random.default_rng((self.seed, turn.epoch, turn.picture))
            image, boxes = self.augment(image, boxes, rng)
        image, boxes = self.resize(image, boxes, self.input_size)
        return Sample(self.normalise(image), self.targets(boxes, self.input_size // STRIDE))

    def decoded_picture(self, index: int) -> Pixels:
        if self.decoded is None:
            image: Pixels = self.decode(self.pictures[index].path, self.input_size)
            return image
        if index not in self.decoded:
            self.decoded[index] = self.decode(self.pictures[index].path, self.input_size)
        return self.decoded[index]


def boxes_in(image: Pixels, picture: Picture) -> Floats:
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


def torch_loader(recipe: Recipe, pictures: Sequence[Picture], training: bool) -> DataLoader[Batch]:
    """Batches of these pictures, through torch's own loader; iterated again, it gives the next epoch.

    Raises ValueError when there are no pictures, and when stages written in a notebook would have to travel
    to freshly started worker processes, which can't see them.
    """
    if not pictures:
        raise ValueError("no pictures to load: check the folder and the split given to load_folder")
    workers = recipe.workers
    if workers:
        _check_travel(recipe)
    return DataLoader(
        HotdogDataset(recipe, pictures, training),  # type: ignore[arg-type]  # batches come from collate_fn
        batch_size=recipe.batch_size,
        sampler=EveryPictureOnce(len(pictures), recipe.seed, shuffle=training),
        num_workers=workers,
        collate_fn=partial(recipe.collate, dtype=recipe.dtype),
        persistent_workers=recipe.persistent_workers and workers > 0,
        prefetch_factor=recipe.prefetch if workers else None,
        multiprocessing_context=recipe.start_method if workers else None,
        generator=torch.Generator().manual_seed(recipe.seed),  # else it draws from torch's global chance
    )


def _check_travel(recipe: Recipe) -> None:
    method = recipe.start_method or multiprocessing.get_start_method()
    if method == "fork":
        return
    travelling = (
        recipe.decode,
        recipe.augment,
        recipe.resize,
        recipe.normalise,
        recipe.targets,
        recipe.collate,
    )
    for stage in travelling:
        if getattr(stage, "__module__", None) == "__main__":
            name = getattr(stage, "__name__", repr(stage))
            raise ValueError(
                f"worker processes ({method}) can't see {name}, which is defined in the notebook or script: "
                "move it to a module and import it, or use workers=0"
            )
