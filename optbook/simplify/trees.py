"""Values as trees: containers, and what lies in them. Their form, their size, and copies of them."""

from __future__ import annotations

import copy
import dataclasses
import enum
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

_DEPTH = 6
_LISTED = 64
_BY_VALUE = frozenset((bool, type(None), type(...)))


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
    if len(args) == 1:
        (first,) = args
        return (_FORMERS[type(first)](first),)
    if len(args) == 2:
        first, second = args
        return _FORMERS[type(first)](first), _FORMERS[type(second)](second)
    return tuple(map(form, args))


def form(value: Any) -> Any:
    """The form of one value."""
    return _FORMERS[type(value)](value)


class _Formers(dict[type, Callable[[Any], Any]]):
    """How the form of values of each type is told; found out when the type is first met."""

    def __missing__(self, kind: type) -> Callable[[Any], Any]:
        self[kind] = former = _former(kind)
        return former


_FORMERS = _Formers()


def _former(kind: type) -> Callable[[Any], Any]:
    torch, image = sys.modules.get("torch"), sys.modules.get("PIL.Image")
    if kind in _BY_VALUE or issubclass(kind, enum.Enum):
        return lambda value: (kind, value)
    if torch is not None and issubclass(kind, torch.Tensor):
        return _former_of_tensors(torch)
    if torch is not None and issubclass(kind, torch.nn.Module):
        return lambda module: (kind, id(module), module.training, torch.is_grad_enabled())
    if image is not None and issubclass(kind, image.Image):
        return lambda picture: (kind, picture.size, picture.mode)
    if issubclass(kind, (tuple, list)):
        return lambda value: _deep(value, lambda: (kind, len(value), *map(form, value[:_LISTED])))
    if issubclass(kind, dict):
        return lambda value: _deep(
            value, lambda: (kind, *((key, form(item)) for key, item in list(value.items())[:_LISTED]))
        )
    if dataclasses.is_dataclass(kind):
        return lambda value: _deep(value, lambda: (kind, *_forms_of_fields(value)))
    if hasattr(kind, "shape"):
        return lambda value: (kind, *_shape(value))
    return type


def _forms_of_fields(value: Any) -> Iterator[Any]:
    """Beside a module or optimizer, lists and dictionaries count by type: they may grow with every step."""
    held = [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    torch = sys.modules.get("torch")
    learns = () if torch is None else (torch.nn.Module, torch.optim.Optimizer)
    growing = (list, dict) if any(isinstance(each, learns) for each in held) else ()
    for each in held:
        yield type(each) if type(each) in growing else form(each)


def _former_of_tensors(torch: Any) -> Callable[[Any], Hashable]:
    enabled = torch.is_grad_enabled

    def of_tensor(tensor: Any) -> Hashable:
        return tensor.shape, tensor.dtype, tensor.device, tensor.requires_grad and enabled()

    return of_tensor


def _shape(value: Any) -> tuple[Hashable, ...]:
    try:
        return tuple(value.shape), str(getattr(value, "dtype", ""))
    except TypeError:
        return ()


def _deep(value: Any, tell: Callable[[], Any]) -> Any:
    """Containers that hold themselves count by type."""
    try:
        return tell()
    except RecursionError:
        return type(value)


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
