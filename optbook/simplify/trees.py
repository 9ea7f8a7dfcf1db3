"""Values as trees: containers, and what lies in them. Their form, their size, and copies of them."""

from __future__ import annotations

import copy
import dataclasses
import enum
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

_DEPTH = 6
_LISTED = 64
_BY_TYPE = frozenset((int, float, complex, str, bytes, bytearray, memoryview))
_BY_VALUE = frozenset((bool, type(None), type(...)))
_MAPPINGS = (dict, OrderedDict, defaultdict)


def mapped(value: Any, change: Callable[[Any], Any], depth: int = _DEPTH) -> Any:
    """The same containers with everything in them changed.

    Containers are tuples, named tuples, lists, sets, dictionaries and dataclasses.
    """
    kind = type(value)
    if depth == 0:
        return change(value)
    if isinstance(value, tuple):
        return tuple.__new__(kind, [mapped(item, change, depth - 1) for item in value])
    if kind in (list, set, frozenset):
        return kind(mapped(item, change, depth - 1) for item in value)
    if isinstance(value, dict):
        same = copy.copy(value)
        for key, item in value.items():
            same[key] = mapped(item, change, depth - 1)
        return same
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        other: Any = copy.copy(value)
        for field in dataclasses.fields(value):
            if hasattr(value, field.name):
                object.__setattr__(other, field.name, mapped(getattr(value, field.name), change, depth - 1))
        return other
    return change(value)


def leaves(value: Any, depth: int = _DEPTH) -> Iterator[Any]:
    """What lies in the containers, in the order in which `mapped` meets it."""
    if depth and isinstance(value, (tuple, list, set, frozenset)):
        for item in value:
            yield from leaves(item, depth - 1)
    elif depth and isinstance(value, dict):
        for item in value.values():
            yield from leaves(item, depth - 1)
    elif depth and dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            if hasattr(value, field.name):
                yield from leaves(getattr(value, field.name), depth - 1)
    else:
        yield value


def is_tensor(value: object) -> bool:
    """Whether it is a tensor of torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_array(value: object) -> bool:
    """Whether it is an array of NumPy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def is_picture(value: object) -> bool:
    """Whether it is a picture of Pillow."""
    image = sys.modules.get("PIL.Image")
    return image is not None and isinstance(value, image.Image)


# Form: what two calls must share to be exchanged


def form_of_call(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Hashable:
    """The form of a call's arguments: shapes, data types and devices, lengths, types; not their values.

    Modules of torch count as themselves; flags and None by value; numbers, texts and other objects by type.
    """
    if kwargs:
        return (*map(form, args), None, *((name, form(value)) for name, value in sorted(kwargs.items())))
    return tuple(map(form, args))


def form(value: Any, depth: int = 4) -> Any:
    """The form of one value."""
    kind = type(value)
    if kind in _BY_TYPE:
        return kind
    if kind in _BY_VALUE:
        return kind, value
    shape = getattr(value, "shape", None)
    if shape is not None:
        return _form_of_array(value, shape)
    if depth and kind in (list, tuple):
        return (kind, len(value), *(form(item, depth - 1) for item in value[:_LISTED]))
    if depth and kind in _MAPPINGS:
        return (kind, *((key, form(item, depth - 1)) for key, item in list(value.items())[:_LISTED]))
    if isinstance(value, (tuple, list)):
        return kind, len(value), *(form(item, depth - 1) for item in value[:_LISTED] if depth)
    return _form_of_object(value, kind, depth)


def _form_of_array(value: Any, shape: Any) -> Any:
    if is_tensor(value):
        import torch

        graded = value.requires_grad and torch.is_grad_enabled()
        return torch.Tensor, shape, value.dtype, value.device, graded
    try:
        return type(value), tuple(shape), str(getattr(value, "dtype", ""))
    except TypeError:
        return type(value)


def _form_of_object(value: Any, kind: type, depth: int) -> Any:
    if is_picture(value):
        return kind, value.size, value.mode
    if isinstance(value, enum.Enum):
        return value
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.nn.Module):
        return kind, id(value), value.training, torch.is_grad_enabled()
    if depth and dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]
        return kind, *(form(getattr(value, name), depth - 1) for name in fields)
    return kind


# Size and copies


def size(value: Any) -> int:
    """About how many bytes the value keeps; memory that several tensors share counts once."""
    storages: dict[Any, int] = {}
    total = 0
    for leaf in leaves(value):
        if is_tensor(leaf):
            storages[_storage(leaf)] = leaf.numel() * leaf.element_size()
        elif is_array(leaf):
            total += int(leaf.nbytes)
        elif is_picture(leaf):
            total += leaf.width * leaf.height * len(leaf.getbands()) * (4 if leaf.mode in "IF" else 1)
        else:
            total += sys.getsizeof(leaf, 64)
    return total + sum(storages.values())


def _storage(tensor: Any) -> Any:
    try:
        return tensor.device, tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tensor.shape
    except (RuntimeError, NotImplementedError):  # sparse and fake tensors have no storage to point at
        return id(tensor)


class NotCopiedError(Exception):
    """A value that can't be copied."""


def copied(value: Any) -> Any:
    """A deep copy; tensors are copied on their device, out of any graph.

    Raises:
        NotCopiedError: something in it can't be copied.
    """
    return mapped(value, _copied)


def _copied(value: Any) -> Any:
    if is_tensor(value):
        return value.detach().clone().requires_grad_(value.requires_grad)
    try:
        return copy.deepcopy(value)
    except Exception as error:
        raise NotCopiedError(f"a {type(value).__qualname__} can't be copied ({error})") from error
