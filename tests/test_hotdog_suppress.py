"""Suppression: each way keeps the same boxes as the first one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from optbook.hotdog import suppress
from optbook.hotdog.detect import suppress_one_by_one
from optbook.hotdog.suppress import suppress_in_cpp, suppress_together


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def boxes(count: int, dtype: torch.dtype, seed: int) -> tuple[Tensor, Tensor]:
    """Many that overlap, some that are the same; scores of which many are equal."""
    chance = torch.Generator().manual_seed(seed)
    corner = torch.randint(0, 20, (count, 2), generator=chance).to(dtype)
    size = torch.randint(1, 12, (count, 2), generator=chance).to(dtype)
    scores = torch.randint(0, 6, (count,), generator=chance).to(dtype) / 6
    return torch.cat([corner, corner + size], dim=1), scores


WAYS: list[Callable[..., list[int]]] = [suppress_together]
if shutil.which("g++") and shutil.which("ninja"):
    WAYS.append(suppress_in_cpp)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_way_keeps_the_same_boxes(way: Callable[..., list[int]], dtype: torch.dtype) -> None:
    for seed, count in enumerate((0, 1, 2, 30, 30, 30)):
        corners, scores = boxes(count, dtype, seed)
        for overlap in (0.1, 1 / 3, 0.5):  # 1/3 and 1/2 are hit exactly
            assert way(corners, scores, overlap) == suppress_one_by_one(corners, scores, overlap)


@pytest.mark.parametrize("way", WAYS)
def test_boxes_without_area_and_boxes_inside_out(way: Callable[..., list[int]]) -> None:
    corners = torch.tensor([[5.0, 5, 5, 5], [5, 5, 5, 5], [9, 9, 2, 2], [0, 0, 10, 10]])
    scores = torch.tensor([0.5, 0.5, 0.6, 0.5])
    assert way(corners, scores, 0.5) == suppress_one_by_one(corners, scores, 0.5)


def test_what_belongs_to_a_graph_can_be_suppressed() -> None:
    corners, scores = boxes(8, torch.float32, 0)
    assert suppress_together(corners.requires_grad_(), scores.requires_grad_(), 0.5)


@pytest.fixture
def nothing_built() -> Iterator[None]:
    suppress.built.cache_clear()
    yield
    suppress.built.cache_clear()


@pytest.mark.usefixtures("nothing_built")
def test_without_a_compiler_or_ninja_one_line_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    corners, scores = boxes(3, torch.float32, 0)
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(
        RuntimeError, match=r"needs a C.. compiler, and there is no no-such-compiler"
    ) as caught:
        suppress_in_cpp(corners, scores, 0.5)
    assert "take suppress_together" in str(caught.value)

    monkeypatch.setenv("CXX", sys.executable)  # something that can be run
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "ninja" else name)
    with pytest.raises(RuntimeError, match=r"built with ninja: `pip install ninja`, or") as caught:
        suppress_in_cpp(corners, scores, 0.5)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("nothing_built")
def test_a_build_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(**_: object) -> None:
        raise RuntimeError("Error building extension\nmany\nlines") from subprocess.CalledProcessError(
            1, "ninja"
        )

    monkeypatch.setattr(shutil, "which", lambda name: name)
    monkeypatch.setattr("torch.utils.cpp_extension.load", failing)
    with pytest.raises(
        RuntimeError, match=r"could not be built \(Error building extension\): take"
    ) as caught:
        suppress_in_cpp(*boxes(3, torch.float32, 0), 0.5)
    assert "\n" not in str(caught.value)
