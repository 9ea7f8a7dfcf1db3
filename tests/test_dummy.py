"""Made-up data has the form of the sample, and other values."""

from __future__ import annotations

import dataclasses
import random
from collections import OrderedDict, defaultdict
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

from optbook.simplify.dummy import dummy


class Point(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass(frozen=True)
class Batch:
    images: Any
    names: list[str]


@pytest.mark.parametrize(
    "sample",
    [
        torch.arange(12.0).reshape(3, 4),
        torch.arange(12).reshape(3, 4),
        torch.arange(12, dtype=torch.uint8),
        torch.arange(12.0).to(torch.bfloat16),
        torch.tensor([True, False, True]),
        torch.arange(6) + 1j,
        torch.arange(12.0).reshape(3, 4).t(),
        torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last),
        torch.arange(3.0).reshape(3, 1).expand(3, 5),
        torch.arange(20.0)[2::3],
        torch.tensor(3.0),
        torch.empty(0, 3),
        torch.arange(4.0).requires_grad_(),
        torch.nn.Parameter(torch.arange(4.0)),
        torch.eye(4).to_sparse(),
        torch.empty(3, 4, device="meta"),
    ],
    ids=lambda sample: f"{sample.dtype} {tuple(sample.shape)} {sample.layout}",
)
def test_tensors(sample: torch.Tensor) -> None:
    made = dummy(sample)
    assert type(made) is type(sample)
    assert made is not sample
    for attribute in ("shape", "dtype", "device", "layout", "requires_grad"):
        assert getattr(made, attribute) == getattr(sample, attribute)
    if sample.layout is torch.strided:
        assert made.stride() == sample.stride()
    if sample.layout is torch.strided and not sample.is_meta and sample.dtype is not torch.complex64:
        assert sorted(made.flatten().tolist()) == sorted(sample.flatten().tolist())


def test_other_values() -> None:
    sample = torch.arange(1000)
    assert not torch.equal(dummy(sample), sample)
    assert not np.array_equal(dummy(np.arange(1000)), np.arange(1000))


def test_a_dummy_of_a_result_is_a_leaf_of_no_graph() -> None:
    made = dummy((torch.ones(2, requires_grad=True) * 2, 1))[0]
    assert made.is_leaf
    assert made.requires_grad


@pytest.mark.parametrize(
    "sample",
    [
        np.arange(12.0).reshape(3, 4),
        np.asfortranarray(np.arange(12).reshape(3, 4)),
        np.array(3.0),
        np.empty((0, 2), np.int16),
        np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f4")]),
        np.array(["a", None], dtype=object),
    ],
)
def test_arrays(sample: np.ndarray[Any, Any]) -> None:
    made = dummy(sample)
    assert (made.shape, made.dtype, made.strides) == (sample.shape, sample.dtype, sample.strides)
    assert made is not sample


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "1", "I", "F"])
def test_pictures(mode: str) -> None:
    sample = Image.new(mode, (7, 5))
    made = dummy(sample)
    assert (made.size, made.mode) == (sample.size, sample.mode)
    assert made is not sample


def test_containers_keep_their_form() -> None:
    sample = {
        "list": [torch.ones(2), (1, "text")],
        "point": Point(torch.zeros(1), None),
        "batch": Batch(np.ones(2), ["a", "b"]),
        "ordered": OrderedDict(b=1, a=2),
        "default": defaultdict(list, x=[1]),
        "bytes": b"abc",
        "set": {1, 2},
    }
    made = dummy(sample)
    assert list(made) == list(sample)
    assert type(made["point"]) is Point
    assert type(made["batch"]) is Batch
    assert made["batch"].names == ["a", "b"]
    assert made["batch"].images is not sample["batch"].images  # type: ignore[attr-defined]
    assert list(made["ordered"]) == ["b", "a"]
    assert made["default"]["missing"] == []
    assert sample["default"] == {"x": [1]}
    assert len(made["bytes"]) == 3
    assert made["set"] == {1, 2}
    assert made["list"][1] == (1, "text")


def test_random_state_is_left_alone() -> None:
    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)
    expected = torch.rand(1), np.random.rand(), random.random()
    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)
    dummy([torch.arange(9), np.arange(9), Image.new("RGB", (2, 2)), b"abc"])
    assert expected == (torch.rand(1), np.random.rand(), random.random())
