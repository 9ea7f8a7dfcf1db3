"""Sees the real calls of a component: their inputs, so that they can be made again, and their time."""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from optbook.benchmark import coroutines
from optbook.benchmark.clock import Clock
from optbook.simplify import autograd, trees
from optbook.simplify.patching import Real
from optbook.simplify.recording import Recording

_PLAIN = (int, float, complex, str, bytes, bool, type(None), type(...), range, slice, type)


@dataclass(frozen=True, eq=False)
class Call:
    """A call as it was made.

    ``grad`` is whether autograd was on (None without torch), ``autocast`` the device types and data types
    for which autocast was. ``parameters`` are what a backward reaches, None where there is no graph;
    ``items`` is how many items of an iterator were taken, None where none was returned.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    grad: bool | None
    autocast: tuple[tuple[str, Any], ...] = ()
    parameters: tuple[Any, ...] | None = None
    items: int | None = None

    def copied(self) -> Call:
        """The same with copies of its inputs."""
        return replace(self, args=copied(self.args), kwargs=copied(self.kwargs))

    def make(self, target: Callable[..., Any]) -> None:
        """Call ``target`` with these inputs; run what it returns to where it was run, and its backward."""
        with contextlib.ExitStack() as stack:
            if self.grad is not None:
                import torch

                stack.enter_context(torch.set_grad_enabled(self.grad))
                for device, dtype in self.autocast:
                    stack.enter_context(torch.autocast(device, dtype))
            result = target(*self.args, **self.kwargs)
            if isinstance(result, Iterator):
                for _ in itertools.islice(result, self.items):
                    pass
            elif isinstance(result, (AsyncIterator, Awaitable)) and not hasattr(result, "done"):
                coroutines.run(lambda: self._finished(result))
            elif self.parameters is not None:
                _backward(result, (*_requiring(self.args, self.kwargs), *self.parameters))

    async def _finished(self, result: Any) -> None:
        if isinstance(result, Awaitable):
            await result
            return
        left = sys.maxsize if self.items is None else self.items
        async for _ in result:
            left -= 1
            if not left:
                break


def _backward(result: Any, tensors: tuple[Any, ...]) -> None:
    import torch

    outputs = [leaf for leaf in trees.leaves(result) if trees.is_tensor(leaf) and leaf.grad_fn is not None]
    if outputs and tensors:
        torch.autograd.grad(outputs, tensors, [torch.ones_like(out) for out in outputs], allow_unused=True)


def _requiring(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    leaves = trees.leaves((args, kwargs))
    return [leaf for leaf in leaves if trees.is_tensor(leaf) and leaf.requires_grad]


@dataclass(eq=False)
class _Seen:
    """A call that was seen: its seconds, and those of its backward, which are known later."""

    seconds: float = 0.0
    gradients: autograd.Gradients | None = None

    @property
    def total(self) -> float:
        return self.seconds + (self.gradients.seconds if self.gradients is not None else 0.0)


@dataclass(eq=False)
class Witness:
    """A filling that calls the component for real, times the calls, and keeps copies of their inputs.

    Calls that the component makes of itself belong to the outer one.

    Args:
        clock: times the calls.
        limit: bytes that kept inputs may take; 0 keeps none.

    Attributes:
        bytes: what their inputs take.
        full: whether the limit was reached.
        changes: whether the component changes its inputs.
        shared: types of inputs that are no data: the very objects are kept.
        notes: what else to know.
    """

    clock: Clock
    limit: float = 0
    bytes: int = 0
    full: bool = False
    changes: bool = False
    shared: set[str] = field(default_factory=set)
    notes: dict[str, None] = field(default_factory=dict)
    _kept: list[Call] = field(default_factory=list)
    _ended: set[int] = field(default_factory=set)
    _seen: list[_Seen] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._thread = threading.local()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """One for another process has seen nothing, and keeps nothing there."""
        return Witness, (self.clock,)

    @property
    def calls(self) -> list[Call]:
        """The calls that were kept, in their order; without those that raised."""
        with self._lock:
            return [self._kept[index] for index in sorted(self._ended)]

    @property
    def seconds(self) -> list[float]:
        """Of each call so far, backward included."""
        return [seen.total for seen in self._seen]

    def fill(self, real: Real) -> Callable[..., Any]:
        """See `patching.Filling`."""
        call = real.call

        def witnessed(*args: Any, **kwargs: Any) -> Any:
            if getattr(self._thread, "busy", False):
                return call(*args, **kwargs)
            index, given = self._begin(args, kwargs), (args, kwargs)
            graph = autograd.Inputs(args, kwargs) if autograd.is_on() else None
            seen = _Seen()
            with self._timing(seen):
                result = call(*args, **kwargs)
            if isinstance(result, Iterator):
                return self._items(result, index, seen, given)
            if isinstance(result, AsyncIterator):
                return self._later_items(result, index, seen, given)
            if isinstance(result, Awaitable) and not hasattr(result, "done"):
                return self._awaited(result, index, seen, given)
            parameters = None
            if graph is not None and graph.reaches(result):
                seen.gradients = autograd.Gradients()
                bridged = graph.bridged(result, seen.gradients, seen.seconds, Recording())
                if bridged is None:
                    self.notes.setdefault("it changes its input in place: its backward is left out")
                else:
                    result, graded, _ = bridged
                    parameters = graded.parameters
            self._end(index, seen, given, parameters=parameters)
            return result

        return witnessed

    @contextlib.contextmanager
    def _timing(self, seen: _Seen) -> Iterator[None]:
        self._thread.busy = True
        start = self._now()
        try:
            yield
            seen.seconds += self._now() - start
        finally:
            self._thread.busy = False

    def _now(self) -> float:
        if "torch" in sys.modules:
            self.clock.synchronize()
        return self.clock.now()

    def _begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
        """Keep the inputs as they are before the call; where they were put, None if they are not kept."""
        needed = trees.size((args, kwargs))
        with self._lock:
            if self.full or self.bytes + needed > self.limit:
                self.full = True
                return None
            self.bytes += needed
            self._kept.append(Call(copied(args), copied(kwargs), *_modes()))
            return len(self._kept) - 1

    def _end(self, index: int | None, seen: _Seen, given: Any, **known: Any) -> None:
        with self._lock:
            self._seen.append(seen)
            if index is None:
                return
            kept = self._kept[index]
            self._kept[index] = replace(kept, **known)
            self._ended.add(index)
        for mine, theirs in itertools.zip_longest(
            trees.leaves((kept.args, kept.kwargs)), trees.leaves(given), fillvalue=self
        ):
            if not _same(mine, theirs):
                self.changes = True
            elif mine is theirs and not _is_constant(mine):
                self.shared.add(type(mine).__name__)

    def _items(self, iterator: Any, index: int | None, seen: _Seen, given: Any) -> Generator[Any, Any, Any]:
        number = 0
        try:
            while True:
                with self._timing(seen):
                    try:
                        item = next(iterator)
                    except StopIteration as stop:
                        return stop.value
                number += 1
                yield item
        finally:
            self._end(index, seen, given, items=number)

    async def _later_items(self, iterator: Any, index: int | None, seen: _Seen, given: Any) -> Any:
        number = 0
        try:
            while True:
                start = self._now()
                try:
                    item = await anext(iterator)
                except StopAsyncIteration:
                    return
                seen.seconds += self._now() - start
                number += 1
                yield item
        finally:
            self._end(index, seen, given, items=number)

    async def _awaited(self, awaitable: Awaitable[Any], index: int | None, seen: _Seen, given: Any) -> Any:
        start = self._now()
        try:
            return await awaitable
        finally:
            seen.seconds += self._now() - start
            self._end(index, seen, given)


def _modes() -> tuple[bool | None, tuple[tuple[str, Any], ...]]:
    torch = sys.modules.get("torch")
    if torch is None:
        return None, ()
    current = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    devices = ("cpu",) if current is None else ("cpu", current.type)
    on = tuple((d, torch.get_autocast_dtype(d)) for d in devices if torch.is_autocast_enabled(d))
    return torch.is_grad_enabled(), on


# Inputs


def copied(value: Any) -> Any:
    """Copies of containers, tensors, arrays, pictures, byte arrays; parameters and other objects shared."""
    return trees.mapped(value, _copied)


def _copied(leaf: Any) -> Any:
    if trees.is_tensor(leaf):
        return leaf if _is_parameter(leaf) else leaf.detach().clone().requires_grad_(leaf.requires_grad)
    if trees.is_array(leaf) or trees.is_picture(leaf) or isinstance(leaf, bytearray):
        return leaf.copy()
    return leaf


def _is_parameter(leaf: Any) -> bool:
    torch = sys.modules["torch"]
    return isinstance(leaf, torch.nn.Parameter)


def _is_constant(leaf: Any) -> bool:
    return isinstance(leaf, _PLAIN) or callable(leaf) or trees.is_tensor(leaf)


def _same(mine: Any, theirs: Any) -> bool:
    """Whether a copy still equals what it was made of."""
    if mine is theirs:
        return True
    if trees.is_tensor(mine) and trees.is_tensor(theirs):
        torch = sys.modules["torch"]
        return bool(mine.shape == theirs.shape and torch.equal(mine.detach(), theirs.detach()))
    if trees.is_array(mine) and trees.is_array(theirs):
        return mine.shape == theirs.shape and bool((mine == theirs).all())
    return type(mine) is type(theirs) and bool(mine == theirs)
