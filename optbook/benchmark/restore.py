"""Keeps what a further execution of a workload would change, and puts it back afterwards.

Kept are: the bindings of the names that the workload's code sees, and the lists, dicts and sets bound to them
(not what these hold); the attributes of objects bound to them that hold a module or an optimizer; the random
state of Python, NumPy and torch; and, wherever they live, the parameters, gradients and buffers of modules,
and the state of optimizers, schedulers and gradient scalers. Iterators, files, arrays, other objects are not.
"""

from __future__ import annotations

import functools
import gc
import random
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

FREE_SHARE = 0.5
_MAPPINGS = (dict, OrderedDict, defaultdict)
_SEQUENCES = (list, deque)


class Kept:
    """What was kept of a workload's surroundings.

    Args:
        function: the workload: a cell, a function, or something that wraps one.
    """

    def __init__(self, function: Callable[..., object]) -> None:
        self._back: list[Callable[[], None]] = []
        self._seen: dict[int, Any] = {}
        self._tensors: list[Any] = []
        self.problems: list[str] = []
        self._stateful, self._holders = _kinds()
        for namespace in namespaces(function):
            self._mapping(namespace, deep=False)
            for value in list(namespace.values()):
                self._bound(value)
        self._bound(getattr(function, "__self__", function))
        for cell in closure(function):
            self._cell(cell)
        self._random()
        self._live_objects()
        self._copy_tensors()

    def put_back(self) -> None:
        """Put everything back; what can't be is added to `problems`."""
        for back in reversed(self._back):
            back()

    def _first_time(self, thing: Any) -> bool:
        if id(thing) in self._seen:
            return False
        self._seen[id(thing)] = thing
        return True

    def _bound(self, value: Any) -> None:
        """Something that a name of the workload is bound to."""
        self._container(value, deep=False)
        self._generator(value)
        attributes = getattr(value, "__dict__", None)
        if type(attributes) is not dict or isinstance(value, (ModuleType, *self._stateful)):
            return
        if any(issubclass(type(held), self._stateful) for held in attributes.values()):
            self._mapping(attributes, deep=False)
            for held in list(attributes.values()):
                self._container(held, deep=False)

    def _container(self, value: Any, *, deep: bool) -> None:
        kind = type(value)
        if kind in _MAPPINGS:
            self._mapping(value, deep=deep)
        elif kind in _SEQUENCES:
            self._sequence(value, deep=deep)
        elif kind is set and self._first_time(value):
            members = set(value)
            self._back.append(lambda: (value.clear(), value.update(members))[0])

    def _mapping(self, mapping: dict[Any, Any], *, deep: bool) -> None:
        if not self._first_time(mapping):
            return
        before = dict(mapping)

        def back() -> None:
            for name in [name for name in mapping if name not in before]:
                del mapping[name]
            for name, value in before.items():
                if name not in mapping or mapping[name] is not value:
                    mapping[name] = value

        self._back.append(back)
        if deep:
            self._inside(before.values())

    def _sequence(self, sequence: Any, *, deep: bool) -> None:
        if not self._first_time(sequence):
            return
        items = list(sequence)

        def back() -> None:
            if not _same(sequence, items):
                sequence.clear()
                sequence.extend(items)

        self._back.append(back)
        if deep:
            self._inside(items)

    def _inside(self, values: Iterable[Any]) -> None:
        torch = sys.modules.get("torch")
        for value in values:
            if torch is not None and isinstance(value, torch.Tensor):
                self._tensor(value)
            else:
                self._container(value, deep=True)

    def _cell(self, cell: Any) -> None:
        try:
            value = cell.cell_contents
        except ValueError:
            return
        self._bound(value)

        def back() -> None:
            cell.cell_contents = value

        self._back.append(back)

    def _random(self) -> None:
        state = random.getstate()
        self._back.append(lambda: random.setstate(state))
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            legacy = numpy.random.get_state()
            self._back.append(lambda: numpy.random.set_state(legacy))
        torch = sys.modules.get("torch")
        if torch is None:
            return
        of_cpu = torch.get_rng_state()
        self._back.append(lambda: torch.set_rng_state(of_cpu))
        for name in ("cuda", "xpu"):
            module = getattr(torch, name)
            if module.is_available() and module.is_initialized():
                of_all = module.get_rng_state_all()
                self._back.append(functools.partial(module.set_rng_state_all, of_all))
        if torch.backends.mps.is_available():
            self._back.append(functools.partial(torch.mps.set_rng_state, torch.mps.get_rng_state()))

    def _generator(self, value: Any) -> None:
        """A generator of random numbers of its own."""
        torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        own: tuple[type, ...] = (random.Random,)
        own += () if numpy is None else (numpy.random.Generator, numpy.random.RandomState)
        own += () if torch is None else (torch.Generator,)
        if type(value) not in own or not self._first_time(value):
            return
        if type(value) is random.Random:
            self._back.append(functools.partial(value.setstate, value.getstate()))
        elif hasattr(value, "bit_generator"):
            bits = value.bit_generator
            self._back.append(functools.partial(setattr, bits, "state", bits.state))
        else:
            self._back.append(functools.partial(value.set_state, value.get_state()))

    def _live_objects(self) -> None:
        """The state of all that learns in this process, and the generators that loaders and others hold."""
        torch = sys.modules.get("torch")
        known: dict[type, int] = {}
        for thing in gc.get_objects():
            kind = type(thing)
            if kind not in known:
                known[kind] = (
                    2 if issubclass(kind, self._stateful) else 1 if issubclass(kind, self._holders) else 0
                )
            if known[kind] == 2:
                self._mapping(vars(thing), deep=True)
                if torch is not None and isinstance(thing, torch.nn.Module):
                    self._inside([*thing.parameters(recurse=False), *thing.buffers(recurse=False)])
            elif known[kind] == 1:
                if torch is not None and isinstance(thing, torch.Tensor):
                    if thing.is_leaf and thing.requires_grad:
                        self._tensor(thing)
                else:
                    for value in list(getattr(thing, "__dict__", {}).values()):
                        self._generator(value)
                    self._generator(thing)

    def _tensor(self, tensor: Any) -> None:
        if tensor.is_meta or hasattr(tensor, "fake_mode") or not self._first_time(tensor):
            return
        self._tensors.append(tensor)
        if tensor.is_leaf:
            gradient = tensor.grad
            self._back.append(lambda: setattr(tensor, "grad", gradient))
            if gradient is not None:
                self._tensor(gradient)

    def _copy_tensors(self) -> None:
        if not self._tensors:
            return
        import psutil
        import torch
        from torch.nn.parameter import is_lazy

        tensors = [tensor for tensor in self._tensors if not is_lazy(tensor)]
        needed = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        free = psutil.virtual_memory().available
        if needed > FREE_SHARE * free:
            self.problems.append(
                f"parameters, buffers and optimizer state ({needed / 2**30:.3g} GiB) were not put back: "
                f"a copy would take more than half of the free memory"
            )
            return
        try:
            with torch.no_grad():
                copies = [tensor.detach().to("cpu", copy=True) for tensor in tensors]
        except (RuntimeError, MemoryError) as error:
            self.problems.append(f"parameters, buffers and optimizer state were not put back: {error}")
            return
        for tensor, copy in zip(tensors, copies, strict=True):
            self._back.append(functools.partial(self._put_back, tensor, copy))

    def _put_back(self, tensor: Any, copy: Any) -> None:
        import torch

        try:
            with torch.inference_mode(tensor.is_inference()), torch.no_grad():
                if tensor.shape != copy.shape or tensor.dtype != copy.dtype:
                    tensor.data = copy.to(tensor.device)
                elif not torch.equal(tensor.detach().cpu(), copy):
                    tensor.copy_(copy)
        except RuntimeError as error:
            self.problems.append(f"a tensor of shape {tuple(copy.shape)} was not put back: {error}")


def namespaces(function: Callable[..., object]) -> list[dict[str, Any]]:
    """The namespaces that a workload's code reads and writes its global names in."""
    own = getattr(function, "namespace", None)
    if isinstance(own, dict):
        return [own]
    inner = unwrapped(function)
    found = getattr(inner, "__globals__", None)
    return [found] if isinstance(found, dict) else []


def closure(function: Callable[..., object]) -> tuple[Any, ...]:
    """The cells of the variables that a function shares with the one it is defined in."""
    return tuple(getattr(unwrapped(function), "__closure__", None) or ())


def unwrapped(function: Any) -> Any:
    """The function inside of partials, methods and callable objects."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif hasattr(function, "__func__"):
            function = function.__func__
        elif hasattr(function, "__code__") or isinstance(function, type):
            return function
        else:
            call = type(function).__call__
            return call if hasattr(call, "__code__") else function


def _same(ours: Iterable[Any], theirs: Iterable[Any]) -> bool:
    """Whether both have the same objects in the same order."""
    ours, theirs = list(ours), list(theirs)
    return len(ours) == len(theirs) and all(a is b for a, b in zip(ours, theirs, strict=True))


def _kinds() -> tuple[tuple[type, ...], tuple[type, ...]]:
    """Classes whose attributes are state, and classes that are or hold something to keep."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    stateful: tuple[type, ...] = ()
    holders: tuple[type, ...] = (random.Random,)
    if numpy is not None:
        holders += (numpy.random.Generator, numpy.random.RandomState)
    if torch is not None:
        stateful = (
            torch.nn.Module,
            torch.optim.Optimizer,
            torch.optim.lr_scheduler.LRScheduler,
            torch.amp.GradScaler,
        )
        holders += (torch.Tensor, torch.utils.data.DataLoader, torch.utils.data.Sampler)
    return stateful, holders
