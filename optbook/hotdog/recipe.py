"""How the detector is trained and used: every stage a named function, every setting a field.

`Recipe.first()` is where the story starts: it works, and is slow in the ways real code is slow (flaws.py
names each). A cure is tried by putting something else into a field: `recipe.replace(targets=my_targets)`.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from optbook.hotdog.augment import augment_step_by_step
from optbook.hotdog.checkpoints import save_now
from optbook.hotdog.coco import Picture
from optbook.hotdog.cures import CURES
from optbook.hotdog.dataset import Batch, Sample, collate_arrays
from optbook.hotdog.detect import every_hot_cell, suppress_one_by_one
from optbook.hotdog.loaders import torch_loader
from optbook.hotdog.loss import Losses, focal_and_l1
from optbook.hotdog.network import DEEPEST_STRIDE, HotdogNet, Output
from optbook.hotdog.pixels import Source, decode_full_size, normalise, resize_through_bytes
from optbook.hotdog.targets import Targets, draw_cell_by_cell
from optbook.hotdog.training import (
    Learner,
    adamw,
    new_learner,
    print_every_step,
    remember_tensor,
    step_by_step,
)

Array: TypeAlias = Any  # a NumPy array; of which type is up to the stages


class Collate(Protocol):
    def __call__(self, samples: Sequence[Sample], dtype: torch.dtype) -> Batch: ...


class Loader(Protocol):
    def __iter__(self) -> Iterator[Batch]: ...
    def __len__(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All that decides how the detector is trained and used. Boxes are (n, 4): x, y, width, height."""

    # Each picture, each time it is used. An image is (height, width, 3) until `normalise` makes it (3, S, S).
    # A stage marked `@for_a_batch` takes lists instead (batched.py).
    decode: Callable[[Source, int], Array]  # (file or pixels, input size) -> image, of any size
    keep_decoded: bool  # keep in memory what `decode` returned
    cache_bytes: int  # as much of it as fits into this many bytes; the rest is decoded again each time
    augment: Callable[[Array, Array, np.random.Generator], tuple[Array, Array]]  # (image, boxes, chance)
    resize: Callable[[Array, Array, int], tuple[Array, Array]]  # (image, boxes, input size)
    normalise: Callable[[Array], Array]
    targets: Callable[[Array, int], Targets]  # (boxes in input pixels, cells a side)
    input_size: int  # S: pixels a side, a multiple of 16

    # From pictures to batches.
    make_loader: Callable[[Recipe, Sequence[Picture], bool], Loader]  # the bool: for training?
    collate: Collate
    batch_size: int
    workers: int  # processes that prepare pictures; 0: the training process does it itself
    persistent_workers: bool  # keep them from one epoch to the next
    prefetch: int  # batches that each worker, or the thread of `ahead_loader`, prepares ahead
    start_method: str | None  # "fork", "spawn", "forkserver"; None: what Python does by default

    # Learning.
    network: Callable[[int], nn.Module]  # (channels of the first layer) -> a fresh network
    width: int  # channels of the network's first layer
    dtype: torch.dtype  # of the network and of all batches
    autocast: torch.dtype | None  # let torch compute in this type where it is safe; None: all in `dtype`
    channels_last: bool  # keep a pixel's channels side by side in memory
    compile: bool  # torch.compile the network
    optimiser: Callable[[Iterable[nn.Parameter], float], Optimizer]  # (what is learnt, learning rate)
    loss: Callable[[Output, Batch], Losses]
    step: Callable[[Learner, Batch], None]
    remember: Callable[[Losses], Any]  # what `history` keeps of each step
    log: Callable[[Learner, Losses], None]  # called after each step
    checkpoint: Callable[[Learner, Path], None]  # keep the state of learning in this file
    checkpoint_every: int  # epochs from one checkpoint to the next; 0: never
    anomaly_detection: bool  # torch.autograd.set_detect_anomaly around each step
    epochs: int
    lr: float  # the highest learning rate, reached after a short warm-up
    seed: int

    # Finding hot dogs with the trained network.
    inference_batch_size: int
    inference_threads: int  # threads that prepare pictures ahead of the network; 0: none
    inference_mode: bool  # tell torch that no gradients will be needed
    find: Callable[
        [Tensor, Tensor, float], tuple[Tensor, Tensor]
    ]  # (heat, sides, threshold) -> boxes, scores
    suppress: Callable[[Tensor, Tensor, float], list[int]]  # (boxes, scores, overlap) -> which to keep
    threshold: float  # least heat of a hot dog
    overlap: float  # of two boxes whose IoU exceeds this, only the hotter stays

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if str(field.type).startswith(("Callable", "Collate")) and not callable(
                getattr(self, field.name)
            ):
                raise TypeError(f"{field.name} must be a function, not {getattr(self, field.name)!r}")
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)!r}")
        if self.input_size % DEEPEST_STRIDE:
            raise ValueError(f"input_size must be a multiple of {DEEPEST_STRIDE}, not {self.input_size}")
        if not (getattr(self.dtype, "is_floating_point", False)):
            raise TypeError(f"dtype must be a floating-point type such as torch.float32, not {self.dtype!r}")
        if not (self.autocast is None or getattr(self.autocast, "is_floating_point", False)):
            raise TypeError(f"autocast must be None or a type such as torch.bfloat16, not {self.autocast!r}")
        if not self.lr > 0:
            raise ValueError(f"lr must be above 0, not {self.lr!r}")
        for name in ("threshold", "overlap"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name} must lie between 0 and 1, not {getattr(self, name)!r}")

    @classmethod
    def first(cls) -> Recipe:
        """The first version: it gets there, slowly."""
        return cls(
            decode=decode_full_size,
            keep_decoded=False,
            cache_bytes=512 * 2**20,
            augment=augment_step_by_step,
            resize=resize_through_bytes,
            normalise=normalise,
            targets=draw_cell_by_cell,
            input_size=128,
            make_loader=torch_loader,
            collate=collate_arrays,
            batch_size=8,
            workers=0,
            persistent_workers=False,
            prefetch=2,
            start_method=None,
            network=HotdogNet,
            width=12,
            dtype=torch.float64,
            autocast=None,
            channels_last=False,
            compile=False,
            optimiser=adamw,
            loss=focal_and_l1,
            step=step_by_step,
            remember=remember_tensor,
            log=print_every_step,
            checkpoint=save_now,
            checkpoint_every=1,
            anomaly_detection=True,
            epochs=22,
            lr=0.01,
            seed=0,
            inference_batch_size=1,
            inference_threads=0,
            inference_mode=False,
            find=every_hot_cell,
            suppress=suppress_one_by_one,
            threshold=0.45,
            overlap=0.5,
        )

    @classmethod
    def tuned(cls) -> Recipe:
        """The first version with every cure on: as accurate, many times as fast."""
        recipe = cls.first()
        for cure in CURES:
            recipe = recipe.replace(**cure.changes)
        return recipe

    def replace(self, **changes: Any) -> Recipe:
        """The same recipe with some fields changed. Raises TypeError for a field that does not exist."""
        fields = [field.name for field in dataclasses.fields(self)]
        for name in changes:
            if name not in fields:
                similar = difflib.get_close_matches(name, fields, n=1)
                hint = f"did you mean {similar[0]!r}?" if similar else f"it has {', '.join(fields)}"
                raise TypeError(f"a recipe has no field {name!r}: {hint}")
        return dataclasses.replace(self, **changes)

    def loader(self, pictures: Sequence[Picture], training: bool = True) -> Loader:
        """Batches of these pictures: one epoch each time it is iterated, every time the next one.

        Without `training`, the pictures come unchanged and in their own order.
        """
        return self.make_loader(self, pictures, training)

    def learner(self, pictures: Sequence[Picture]) -> Learner:
        """A fresh network with its optimiser, about to learn from these pictures for `epochs` epochs."""
        return new_learner(self, pictures)


_LEAST = {
    "input_size": DEEPEST_STRIDE,
    "cache_bytes": 0,
    "batch_size": 1,
    "workers": 0,
    "prefetch": 1,
    "width": 1,
    "checkpoint_every": 0,
    "epochs": 1,
    "seed": 0,
    "inference_batch_size": 1,
    "inference_threads": 0,
}
