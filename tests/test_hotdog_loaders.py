"""The cache of decoded pictures, the memory of batches, and the loaders."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import threading
from collections import namedtuple
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from optbook.hotdog import pixels
from optbook.hotdog.batched import for_a_batch
from optbook.hotdog.buffers import MOST_SPARE, Buffers
from optbook.hotdog.cache import PictureCache
from optbook.hotdog.coco import Picture
from optbook.hotdog.dataset import Batch, HotdogDataset, Turn
from optbook.hotdog.loaders import SHARED_MEMORY, ahead_loader, torch_loader
from optbook.hotdog.recipe import Recipe
from optbook.hotdog.targets import Targets, draw_together
from tests.test_hotdog_stages import paint


@pytest.fixture
def pictures(tmp_path: Path) -> list[Picture]:
    return paint(tmp_path, 3) * 2


def small(**changes: Any) -> Recipe:
    return Recipe.tuned().replace(**{"input_size": 32, "batch_size": 2, **changes})


def assert_same(some: list[Batch], others: list[Batch]) -> None:
    assert len(some) == len(others) > 0
    for one, other in zip(some, others, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def picture_of(bytes_: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.zeros(bytes_, np.uint8)


def test_a_cache_keeps_what_fits_and_makes_the_rest_again() -> None:
    made: list[int] = []

    def make(index: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
        made.append(index)
        return picture_of(40)

    kept = PictureCache(budget=100)
    assert kept.hit_rate == 0
    for _ in range(3):
        for index in range(4):
            kept.get(index, partial(make, index))
    assert made == [0, 1, 2, 3, 2, 3, 2, 3]
    assert (len(kept), kept.bytes, kept.hits, kept.misses) == (2, 80, 4, 8)
    assert kept.hit_rate == pytest.approx(1 / 3)
    assert repr(kept) == "2 pictures in 0.0 of 0 MiB, 33% found"


def test_a_picture_too_large_does_not_keep_smaller_ones_out() -> None:
    kept = PictureCache(budget=100)
    kept.get(0, lambda: picture_of(101))
    kept.get(1, lambda: picture_of(100))
    assert (len(kept), kept.bytes) == (1, 100)


def test_a_data_set_beyond_the_budget_trains_with_the_same_batches(pictures: list[Picture]) -> None:
    one_picture = 32 * 32 * 3
    for budget, expected in ((0, 0.0), (2 * one_picture, 1 / 3), (100 * one_picture, 0.75)):
        loader: Any = small(cache_bytes=budget, make_loader=torch_loader).loader(pictures)
        batches = [batch for _ in range(4) for batch in loader]
        whole: Any = small(keep_decoded=False, make_loader=torch_loader).loader(pictures)
        assert_same(batches, [batch for _ in range(4) for batch in whole])
        assert loader.dataset.cache.bytes <= budget
        assert loader.dataset.cache.hit_rate == pytest.approx(expected, abs=0.1)
        assert whole.dataset.cache is None


def test_workers_share_the_budget(pictures: list[Picture]) -> None:
    dataset = HotdogDataset(small(workers=2, cache_bytes=1000), pictures, training=True)
    assert dataset.cache is not None
    assert dataset.cache.budget == 500


def test_a_buffer_comes_back_when_the_last_tensor_that_looks_into_it_is_gone() -> None:
    buffers = Buffers()
    block = buffers.take(64)
    place = block.data_ptr()
    view = block.view(torch.float32)[3:4]
    del block
    assert buffers.take(64).data_ptr() != place
    view.fill_(7.0)
    elsewhere = [buffers.take(64).zero_() for _ in range(3)]
    assert view.item() == 7.0
    del view, elsewhere
    assert place in {part.data_ptr() for part in [buffers.take(64) for _ in range(MOST_SPARE)]}


def test_spare_buffers_are_few_and_smaller_ones_go_when_a_larger_one_is_needed() -> None:
    buffers = Buffers()
    held = [buffers.take(64) for _ in range(10)]
    del held
    assert len(buffers._spare) == MOST_SPARE
    late = buffers.take(64)
    assert buffers.take(32).shape == (32,)
    large = buffers.take(128)
    assert large.shape == (128,)
    del late, large
    assert [block.nbytes for block in buffers._spare] == [128]


@pytest.mark.parametrize("make_loader", [torch_loader, ahead_loader])
def test_a_batch_that_someone_keeps_is_never_overwritten(pictures: list[Picture], make_loader: Any) -> None:
    loader = small(make_loader=make_loader).loader(pictures)
    kept = [[(tensor, tensor.clone()) for tensor in batch] for _ in range(4) for batch in loader]
    assert len(kept) == 12
    for batch in kept:
        assert all(torch.equal(tensor, copy) for tensor, copy in batch)
    places = {batch[0][0].data_ptr() for batch in kept}
    assert len(places) == 12


def test_a_loop_that_lets_go_uses_few_buffers(pictures: list[Picture]) -> None:
    loader = small(prefetch=2).loader(pictures)
    places = [batch.images.data_ptr() for _ in range(8) for batch in loader]
    assert len(places) == 24
    assert len(set(places)) <= 2 + MOST_SPARE + 1


def test_a_batch_kept_by_autograd_is_not_overwritten(pictures: list[Picture]) -> None:
    """The network is differentiated only after the next batches came: what it needs must still be there."""
    recipe = small()
    weight = torch.ones(1, requires_grad=True)
    squares, expected = [], []
    for batch in recipe.loader(pictures):
        squares.append((batch.images * weight).sum())
        expected.append(batch.images.sum().item())
        del batch
    for square, wanted in zip(squares, expected, strict=True):
        (gradient,) = torch.autograd.grad(square, weight)
        assert gradient.item() == pytest.approx(wanted, rel=1e-4, abs=1e-2)


@pytest.mark.parametrize("ahead", [1, 2, 5])
def test_the_loader_ahead_gives_the_same_batches(pictures: list[Picture], ahead: int) -> None:
    one = small(make_loader=torch_loader).loader(pictures)
    other = small(prefetch=ahead).loader(pictures)
    assert len(one) == len(other) == 3
    for _ in range(2):
        assert_same(list(one), list(other))
    assert_same(list(one), list(other))


def loader_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "ahead_loader"]


def test_the_loader_is_ahead_but_no_further_than_it_may(pictures: list[Picture]) -> None:
    drawn: list[int] = []
    reached = threading.Event()

    @for_a_batch
    def draw(boxes: Any, grid: int) -> list[Targets]:
        drawn.append(len(boxes))
        if len(drawn) == 3:
            reached.set()
        return draw_together(boxes, grid)

    many = pictures * 4
    batches = iter(small(targets=draw, prefetch=1).loader(many))
    assert not drawn  # nothing happens before the first batch is asked for
    next(batches)
    assert reached.wait(10)  # one was given, one lies ready, one is being prepared
    assert len(drawn) == 3
    del batches
    gc.collect()
    assert not loader_threads()


def test_a_loop_that_is_left_early_ends_the_thread(pictures: list[Picture]) -> None:
    loader = small().loader(pictures * 10)
    for _ in loader:
        break
    gc.collect()
    assert not loader_threads()
    with contextlib.suppress(KeyError):
        for _ in loader:
            raise KeyError
    gc.collect()
    assert not loader_threads()
    assert len(list(loader)) == 30
    assert not loader_threads()


def test_an_error_comes_once_after_the_batches_before_it(pictures: list[Picture]) -> None:
    @for_a_batch
    def broken(boxes: Any, grid: int) -> list[Targets]:
        calls.append(1)
        if len(calls) == 2:
            raise ZeroDivisionError("the second batch")
        return draw_together(boxes, grid)

    calls: list[int] = []
    batches = iter(small(targets=broken).loader(pictures))
    next(batches)
    with pytest.raises(ZeroDivisionError, match="the second batch"):
        next(batches)
    assert next(batches, None) is None
    assert not loader_threads()


def test_a_picture_that_is_gone_is_named_by_either_loader(pictures: list[Picture]) -> None:
    pictures[0].path.unlink()
    for make_loader in (torch_loader, ahead_loader):
        with pytest.raises(FileNotFoundError, match=r"no picture .*0\.png"):
            list(small(make_loader=make_loader).loader(pictures))
    with pytest.raises(ValueError, match="no pictures to load"):
        small().loader([])


def test_the_thread_ahead_takes_one_core_and_leaves_the_others_theirs(pictures: list[Picture]) -> None:
    seen: list[int] = []

    @for_a_batch
    def draw(boxes: Any, grid: int) -> list[Targets]:
        seen.append(torch.get_num_threads())
        return draw_together(boxes, grid)

    after: list[int] = []
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        during = {torch.get_num_threads() for _ in small(targets=draw).loader(pictures)}
        later = threading.Thread(target=lambda: after.append(torch.get_num_threads()))
        later.start()
        later.join()
        after.append(torch.get_num_threads())
    finally:
        torch.set_num_threads(before)
    assert seen == [1, 1, 1]
    assert during == {2}
    assert after == [3, 3]


def test_loops_ahead_that_overlap_give_all_cores_back(pictures: list[Picture]) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        first, second = (iter(small().loader(pictures)) for _ in range(2))
        next(first)
        next(second)
        assert torch.get_num_threads() == 2
        list(first)
        assert torch.get_num_threads() == 3
        del second
        assert torch.get_num_threads() == 4
        torch.set_num_threads(1)
        assert {torch.get_num_threads() for _ in small().loader(pictures)} == {1}
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_one_core_is_enough_for_the_loader_ahead(pictures: list[Picture]) -> None:
    cores = os.sched_getaffinity(0)
    expected = list(small(make_loader=torch_loader).loader(pictures))
    os.sched_setaffinity(0, {min(cores)})
    try:
        assert_same(list(small().loader(pictures)), expected)
    finally:
        os.sched_setaffinity(0, cores)


@pytest.mark.parametrize(
    ("make_loader", "method"), [(torch_loader, "fork"), (torch_loader, "spawn"), (ahead_loader, "spawn")]
)
def test_workers_prepare_the_same_batches_with_batched_stages(
    pictures: list[Picture], make_loader: Any, method: str
) -> None:
    here = small(make_loader=torch_loader).loader(pictures)
    recipe = small(make_loader=make_loader, workers=1, start_method=method, persistent_workers=True)
    loader = recipe.loader(pictures)
    for _ in range(2):
        batches = list(loader)
        assert_same(list(here), batches)
    assert all(tensor.untyped_storage().is_shared() for tensor in batches[0])
    assert batches[0].images.untyped_storage().nbytes() > batches[0].images.nbytes  # one block for all four


def test_little_shared_memory_is_told_before_workers_start(
    pictures: list[Picture], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(64, 0, 5 * 2**20))
    recipe = small(workers=2, prefetch=16, batch_size=32, input_size=128)
    said = r"2 workers with prefetch=16 need 216 MiB of .*, which has 5 MiB left: use fewer"
    with pytest.raises(ValueError, match=said) as caught:
        recipe.loader(pictures)
    assert "\n" not in str(caught.value)
    assert SHARED_MEMORY.name in str(caught.value)
    assert len(recipe.replace(workers=0).loader(pictures)) == 1
    assert len(recipe.replace(batch_size=1, prefetch=1).loader(pictures)) == 6


@for_a_batch
def die(boxes: Any, grid: int) -> list[Targets]:
    """Whoever prepares the fourth batch is killed by the system, as when memory runs out."""
    if any(len(some) == 2 for some in boxes):
        os.kill(os.getpid(), signal.SIGKILL)
    return draw_together(boxes, grid)


@pytest.mark.parametrize("make_loader", [torch_loader, ahead_loader])
def test_a_worker_that_is_killed_is_told_and_nothing_hangs(pictures: list[Picture], make_loader: Any) -> None:
    recipe = small(
        targets=die, workers=1, start_method="spawn", make_loader=make_loader, batch_size=1, augment=same
    )
    with pytest.raises(RuntimeError, match="worker"):
        list(recipe.loader(pictures))
    assert not loader_threads()


def same(image: Any, boxes: Any, rng: Any) -> tuple[Any, Any]:
    return image, boxes


def test_epochs_repeat_with_the_seed_in_any_loader(pictures: list[Picture]) -> None:
    first = list(small().loader(pictures))
    assert_same(first, list(small().loader(pictures)))
    other = list(small(seed=1).loader(pictures))
    assert not all(torch.equal(a.images, b.images) for a, b in zip(first, other, strict=True))
    dataset = HotdogDataset(small(), pictures, training=True)
    assert torch.equal(torch.as_tensor(dataset[Turn(0, 1)].image), torch.as_tensor(dataset[Turn(0, 1)].image))
    assert isinstance(dataset.decoded_picture(0), np.ndarray)
    assert dataset.decoded_picture(0).dtype == pixels.decode_small(pictures[0].path, 32).dtype
