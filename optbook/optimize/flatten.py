"""A result taken apart: its containers and values in their order, by where they are found in it."""

from __future__ import annotations

import dataclasses
import enum
import sys
import types
from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from optbook.benchmark.quantities import short
from optbook.errors import OptionError
from optbook.experiments.render import one_line

_WIDER = ("bfloat16", "float8")
"""Data types of torch that NumPy lacks; float32 holds their values exactly."""


@dataclass(frozen=True)
class Leaf:
    """A value, or what a container is without its contents.

    ``kind`` is 'tensor', 'array', 'number', or the type of anything else. Of the first three, ``dtype`` names
    the data type and ``value`` is an array or a number; ``parts`` are a container's keys, or its length.
    """

    kind: str
    value: Any = None
    dtype: str = ""
    parts: Hashable = None

    @property
    def numeric(self) -> bool:
        """Whether it is a tensor, an array or a number."""
        return bool(self.dtype)


def flattened(value: object, *, copy: bool = False) -> dict[str, Leaf]:
    """The leaves of ``value`` by their place in it, such as ``[0]['boxes']``.

    Args:
        value: tensors, arrays, numbers, texts, pictures; containers, tables of pandas, dataclasses and plain
            objects with such; modules of torch, which count as their state.
        copy: keep the values as they are now, though tensors and arrays change in place later.

    Raises:
        OptionError: something in it can't be compared.
    """
    return _Flattening(copy).of(value)


class _Flattening:
    def __init__(self, copy: bool) -> None:
        self._copy = copy
        self._open: set[int] = set()
        self._leaves: dict[str, Leaf] = {}

    def of(self, value: object) -> dict[str, Leaf]:
        try:
            self._add("", value)
        except RecursionError:
            raise OptionError("the result is nested too deeply to be compared: give a part of it") from None
        return self._leaves

    def _add(self, place: str, value: Any) -> None:
        leaf = self._plain(place, value)
        if leaf is not None:
            self._leaves[place] = leaf
            return
        if id(value) in self._open:
            self._leaves[place] = Leaf("a container inside itself")
            return
        self._open.add(id(value))
        leaf, inside = _container(place, value)
        self._leaves[place] = leaf
        for further, item in inside.items():
            self._add(place + further, item)
        self._open.discard(id(value))

    def _plain(self, place: str, value: Any) -> Leaf | None:
        """The leaf of a value that is no container; None for a container."""
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            return self._tensor(place, value)
        if isinstance(value, np.generic) and value.dtype.kind in "biufc":
            return Leaf("number", value.item(), str(value.dtype))
        if isinstance(value, enum.Enum) or value is None:
            return Leaf(type(value).__qualname__, value)
        for kind, dtype in ((bool, "bool"), (int, "int64"), (float, "float64"), (complex, "complex128")):
            if isinstance(value, kind):
                return Leaf("number", value, dtype)
        if not isinstance(value, np.ndarray) and hasattr(value, "__array_interface__"):
            value = np.asarray(value)  # a picture
        if isinstance(value, np.ndarray) and value.dtype.kind != "O" and value.dtype.names is None:
            return Leaf("array", value.copy() if self._copy else value, str(value.dtype))
        if isinstance(value, (str, bytes, bytearray, range)):
            return Leaf(type(value).__qualname__, bytes(value) if isinstance(value, bytearray) else value)
        if isinstance(value, (set, frozenset)):
            return Leaf(type(value).__qualname__, frozenset(value))
        return None

    def _tensor(self, place: str, value: Any) -> Leaf:
        dtype = str(value.dtype).removeprefix("torch.")
        if value.is_meta:
            raise OptionError(
                f"{named(place)} is a tensor on 'meta', without values: compare one with values"
            )
        tensor = value.detach()
        if tensor.layout != sys.modules["torch"].strided:
            tensor = tensor.to_dense()
        if tensor.is_quantized:
            tensor = tensor.dequantize()
        tensor = tensor.cpu().resolve_conj().resolve_neg()
        array = (tensor.float() if dtype.startswith(_WIDER) else tensor).numpy()
        return Leaf("tensor", array.copy() if self._copy else array, dtype)


def _container(place: str, value: Any) -> tuple[Leaf, dict[str, Any]]:
    """What the container is, and what lies in it."""
    torch = sys.modules.get("torch")
    made_by: Any = type(value)
    kind = str(made_by.__qualname__)
    if torch is not None and isinstance(value, torch.nn.Module):
        value = value.state_dict()
    if isinstance(value, np.ndarray):
        if value.dtype.names is None:
            value = value.tolist()
        else:
            value = {name: value[name] for name in value.dtype.names}
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(value, pandas.DataFrame):
        columns = {name: value.iloc[:, i].to_numpy() for i, name in enumerate(value.columns)}
        value = {**columns, "index": value.index.to_numpy()}
    elif pandas is not None and isinstance(value, (pandas.Series, pandas.Index)):
        index = {"index": value.index.to_numpy()} if isinstance(value, pandas.Series) else {}
        value = {"values": value.to_numpy(), **index}
    if isinstance(value, Mapping):
        keys = {f"[{key!r}]": item for key, item in value.items()}
        return Leaf(kind, parts=frozenset(keys)), keys
    if isinstance(value, (list, tuple, deque)):
        return Leaf(kind, parts=len(value)), {f"[{i}]": item for i, item in enumerate(value)}
    if hasattr(value, "__next__"):
        raise OptionError(f"{named(place)} is a {kind}, used up by looking at it: give list(…) of it")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f".{f.name}": getattr(value, f.name) for f in dataclasses.fields(value) if f.compare}
        return Leaf(kind, parts=frozenset(fields)), fields
    if made_by.__eq__ is not object.__eq__ and not isinstance(value, type):
        return Leaf(kind, value), {}
    if hasattr(value, "__dict__") and not callable(value) and not isinstance(value, types.ModuleType):
        attributes = {f".{name}": item for name, item in vars(value).items()}
        return Leaf(kind, parts=frozenset(attributes)), attributes
    raise OptionError(
        f"{named(place)} is {one_line(short(value))}, which has no values to compare: "
        "give what it computes, such as its outputs"
    )


def named(place: str) -> str:
    """A place as a sentence names it."""
    return f"the result's {place}" if place else "the result"


def array(leaf: Leaf) -> Any:
    """The values of a numeric leaf as an array."""
    large = isinstance(leaf.value, int) and not -(2**63) <= leaf.value < 2**63
    return np.asarray(leaf.value, dtype=object if large else None)
