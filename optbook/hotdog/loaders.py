"""Who prepares the batches: the training process itself, worker processes, or a thread that is ahead."""

from __future__ import annotations

import contextlib
import inspect
import multiprocessing
import queue
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.utils.data import DataLoader

from optbook.hotdog.buffers import Buffers
from optbook.hotdog.coco import Picture
from optbook.hotdog.cores import cores_left_by, stay_on_one_core
from optbook.hotdog.dataset import Batch, EveryPictureOnce, HotdogDataset, Sample, stages_of
from optbook.hotdog.network import STRIDE

if TYPE_CHECKING:
    from optbook.hotdog.recipe import Recipe

SHARED_MEMORY = Path("/dev/shm")


def torch_loader(recipe: Recipe, pictures: Sequence[Picture], training: bool) -> DataLoader[Batch]:
    """Batches of these pictures, through torch's own loader; iterated again, it gives the next epoch.

    Raises ValueError when there are no pictures; when stages written in a notebook would have to travel to
    freshly started worker processes, which can't see them; and when the memory that processes share is too
    small for the batches on their way.
    """
    if not pictures:
        raise ValueError("no pictures to load: check the folder and the split given to load_folder")
    workers = recipe.workers
    if workers:
        _check_travel(recipe)
        _check_shared_memory(recipe)
    return DataLoader(
        HotdogDataset(recipe, pictures, training),  # type: ignore[arg-type]  # batches come from collate_fn
        batch_size=recipe.batch_size,
        sampler=EveryPictureOnce(len(pictures), recipe.seed, shuffle=training),
        num_workers=workers,
        collate_fn=_collate_of(recipe),
        persistent_workers=recipe.persistent_workers and workers > 0,
        prefetch_factor=recipe.prefetch if workers else None,
        multiprocessing_context=recipe.start_method if workers else None,
        generator=torch.Generator().manual_seed(recipe.seed),  # else it draws from torch's global chance
    )


def ahead_loader(recipe: Recipe, pictures: Sequence[Picture], training: bool) -> AheadLoader:
    """The same batches, prepared by a thread while the training process computes: `prefetch` are ready ahead.

    The batches need not travel between processes. Threads do gain time here, since NumPy, torch and Pillow
    let go of Python's lock while they compute; stages written in plain Python would not. The thread gets a
    core of its own: as long as the loop goes on, torch computes on the others.
    """
    return AheadLoader(torch_loader(recipe, pictures, training), recipe.prefetch)


class AheadLoader:
    """Batches of another loader, prepared by a thread up to `ahead` batches before they are asked for."""

    def __init__(self, loader: DataLoader[Batch], ahead: int) -> None:
        self.loader = loader
        self.ahead = ahead
        self.dataset = loader.dataset

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Batch]:
        """One epoch. An error in the thread is raised here, when its batch would have been due.

        The thread ends with the loop, however that ends: at the last batch, by `break`, or by an error.
        """
        ready: queue.Queue[Batch | _Over] = queue.Queue(maxsize=self.ahead)
        started, left = threading.Event(), threading.Event()
        parts = (self.loader, ready, started, left)
        thread = threading.Thread(target=_prepare, args=parts, name="ahead_loader", daemon=True)
        try:
            with cores_left_by(1) as left_over:
                thread.start()
                started.wait()
                torch.set_num_threads(left_over)  # the thread has set it for all
                while not isinstance(batch := ready.get(), _Over):
                    yield batch
            if batch.error is not None:
                raise batch.error
        finally:
            left.set()
            while thread.is_alive():
                with contextlib.suppress(queue.Empty):
                    ready.get(timeout=0.01)  # it may be waiting for a free place
            thread.join()


class _Over:
    """What comes after the last batch: the error that ended it, if any."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def _prepare(
    loader: DataLoader[Batch],
    ready: queue.Queue[Batch | _Over],
    started: threading.Event,
    left: threading.Event,
) -> None:
    stay_on_one_core()
    started.set()
    try:
        for batch in loader:
            ready.put(batch)
            if left.is_set():
                return
    except BaseException as error:
        ready.put(_Over(error))
    else:
        ready.put(_Over())


def _collate_of(recipe: Recipe) -> Callable[[Sequence[Sample]], Batch]:
    """The recipe's collate, with the dtype; one that wants buffers gets a pool that lives with the loader."""
    collate = partial(recipe.collate, dtype=recipe.dtype)
    if "buffers" in inspect.signature(recipe.collate).parameters:
        return partial(collate, buffers=Buffers())
    return collate


def _check_travel(recipe: Recipe) -> None:
    method = recipe.start_method or multiprocessing.get_start_method()
    if method == "fork":
        return
    for stage in (*stages_of(recipe), recipe.collate):
        if getattr(stage, "__module__", None) == "__main__":
            name = getattr(stage, "__name__", repr(stage))
            raise ValueError(
                f"worker processes ({method}) can't see {name}, which is defined in the notebook or script: "
                "move it to a module and import it, or use workers=0"
            )


def _check_shared_memory(recipe: Recipe) -> None:
    """Batches come from workers through shared memory; where it is full, workers die without a word."""
    if not SHARED_MEMORY.is_dir():
        return
    maps = 6 * (recipe.input_size // STRIDE) ** 2
    numbers = recipe.batch_size * (3 * recipe.input_size**2 + maps)
    needed = recipe.workers * recipe.prefetch * numbers * recipe.dtype.itemsize
    free = shutil.disk_usage(SHARED_MEMORY).free
    if needed > free:
        raise ValueError(
            f"{recipe.workers} workers with prefetch={recipe.prefetch} need {needed / 2**20:.0f} MiB of "
            f"{SHARED_MEMORY}, which has {free / 2**20:.0f} MiB left: use fewer, a smaller batch_size, or "
            "make_loader=ahead_loader with workers=0"
        )
