"""Puts stubs in the place of a component, one on top of the other, and takes any of them away again."""

from __future__ import annotations

import contextlib
import gc
import inspect
import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any, Protocol

from optbook.simplify import compiled, trampoline
from optbook.simplify.components import Component
from optbook.simplify.references import Pair, Swapped, classes_of, swap
from optbook.simplify.trampoline import Flavour, flavour_of

_MARK = "__optbook_real__"


class Counter:
    """Counts calls of any number of threads; `step` costs some 30 ns and loses none.

    ``elsewhere`` are those of other processes, as far as they are known.
    """

    def __init__(self) -> None:
        self._count = itertools.count()
        self._looks = 0
        self._lock = threading.Lock()
        self.elsewhere = 0
        self.step: Callable[[], object] = self._count.__next__

    @property
    def here(self) -> int:
        """Steps so far in this process."""
        with self._lock:
            value = next(self._count) - self._looks
            self._looks += 1
        return value

    @property
    def value(self) -> int:
        """Steps so far, in all processes."""
        return self.here + self.elsewhere


@dataclass(frozen=True, slots=True)
class Constant:
    """What a stub always returns."""

    value: object


@dataclass(frozen=True, slots=True, eq=False)
class Real:
    """The component beneath a stub.

    Attributes:
        call: calls it; what it returns is what the component's `flavour` says.
        flavour: whether it is a function, generator, coroutine or async generator.
        name: its name.
        refill: asks the filling again for what it does.
    """

    call: FunctionType
    flavour: Flavour
    name: str
    refill: Callable[[], None]


class Filling(Protocol):
    """What a kind of stub does."""

    def fill(self, real: Real) -> Constant | Callable[..., Any]:
        """What is done in a call, instead of ``real``: see `trampoline.calling`."""


@dataclass(eq=False)
class Layer:
    """One stub on a component."""

    component: Component
    filling: Filling
    counter: Counter = field(default_factory=Counter)
    hole: Constant | Callable[..., Any] = Constant(None)
    real: Real | None = None


class Patch:
    """All stubs on one Python function: its code, and that of functions with the same code and variables."""

    def __init__(self, function: FunctionType, *, fresh: bool = False) -> None:
        twins, self._owners = ([], []) if fresh else _holders(function)
        self._functions = [function, *twins]
        self._code = function.__code__
        self._layers: list[Layer] = []
        self._switches: dict[int, compiled.Switch] = {}
        self._top = self._code
        self._lock = threading.RLock()

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The stubs, the oldest first."""
        return tuple(self._layers)

    @property
    def holds(self) -> tuple[object, ...]:
        """What stands for the component, by any of which it is found again."""
        return (self._functions[0],)

    @property
    def intact(self) -> bool:
        """Whether the function still has the code that we gave it."""
        return self._functions[0].__code__ is self._top

    @property
    def code(self) -> CodeType:
        """The function's own code."""
        return self._code

    def add(self, layer: Layer) -> None:
        """Put a stub on top."""
        function = self._functions[0]
        real = FunctionType(
            self._code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
        )
        real.__kwdefaults__ = function.__kwdefaults__
        setattr(real, _MARK, True)
        real.__qualname__, real.__module__ = function.__qualname__, function.__module__
        with self._lock:
            flavour = flavour_of(self._code)
            layer.real = Real(real, flavour, layer.component.name, lambda: self.refill(layer))
            layer.hole = layer.filling.fill(layer.real)
            self._layers.append(layer)
            try:
                self._rebuild()
                switch = compiled.Switch(function, layer.component.choice, self._owners)
                self._switches[id(layer)] = switch
                switch.turn_on()
            except BaseException:
                self.remove(layer)
                raise

    def remove(self, layer: Layer) -> None:
        """Take a stub away, wherever it is; those above and below stay."""
        with self._lock:
            if layer in self._layers:
                self._layers.remove(layer)
            self._rebuild()
            switch = self._switches.pop(id(layer), None)
            if switch is not None:
                switch.turn_off()
            for other in self._switches.values():
                other.turn_on()

    def refill(self, layer: Layer) -> None:
        """Ask the stub again for what it does."""
        with self._lock:
            if layer in self._layers and layer.real is not None:
                layer.hole = layer.filling.fill(layer.real)
                self._rebuild()

    def inherited(self) -> None:
        """In a forked process: the lock is free, whichever thread held it."""
        self._lock = threading.RLock()

    def _rebuild(self) -> None:
        code = self._code
        for layer in self._layers:
            assert layer.real is not None
            layer.real.call.__code__ = code
            code = self._covered(layer, layer.real)
        compiled.untraced([code] if self._layers else [])
        if self.intact:
            for function in self._functions:
                function.__code__ = code
            self._top = code

    def _covered(self, layer: Layer, real: Real) -> CodeType:
        choice, count, hole = layer.component.choice, layer.counter.step, layer.hole
        if isinstance(hole, Constant):
            return trampoline.returning(self._code, count, hole.value, real.call, choice)
        return trampoline.calling(self._code, count, hole, real.call, choice)


class Replacement(Patch):
    """All stubs on something that has no Python code: a function of ours is held in its place."""

    def __init__(self, component: Component) -> None:
        original = component.target
        name = str(getattr(original, "__name__", type(original).__name__))
        function = trampoline.forwarding(original, name)
        super().__init__(function, fresh=True)
        self._pair = Pair(original, _dressed(function, original))
        self._place = component.place
        self._before: Any = _NOTHING
        self._swapped: Swapped | None = None

    @property
    def holds(self) -> tuple[object, ...]:
        return (self._pair.old, self._pair.new, *super().holds)

    @property
    def declared(self) -> tuple[str, ...]:
        """What still refers to the original."""
        return () if self._swapped is None else self._swapped.declared

    def add(self, layer: Layer) -> None:
        super().add(layer)
        if self._swapped is None:
            try:
                self._swapped = self._put()
            except BaseException:
                swap(Pair(self._pair.new, self._pair.old), binding=False)
                super().remove(layer)
                raise

    def remove(self, layer: Layer) -> None:
        super().remove(layer)
        if not self._layers and self._swapped is not None:
            swapped, self._swapped = self._swapped, None
            self._take(swapped)

    def _put(self) -> Swapped:
        if self._place is not None:
            holder, name = self._place
            self._before = vars(holder).get(name, _NOTHING)
            setattr(holder, name, self._pair.new)
            return Swapped((), ())
        swapped = swap(self._pair)
        if gc.is_tracked(self._pair.old):
            return swapped
        unseen = "tuples and dictionaries that hold nothing else than such objects can't be seen"
        return Swapped(swapped.pairs, (*swapped.declared, unseen))

    def _take(self, swapped: Swapped) -> None:
        if self._place is None:
            swapped.back()
            return
        holder, name = self._place
        if vars(holder).get(name) is not self._pair.new:
            return
        if self._before is _NOTHING:
            delattr(holder, name)
        else:
            setattr(holder, name, self._before)


_NOTHING = object()


def _dressed(function: FunctionType, original: Any) -> Any:
    """What is held in place of ``original``: the function, with its attributes; for a class, a class."""
    if isinstance(original, type):
        return _class_in_place(function, original)
    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        value = getattr(original, name, None)
        if isinstance(value, str):
            setattr(function, name, value)
    for name in dir(original):
        if not name.startswith("__"):
            function.__dict__[name] = getattr(original, name)
    with contextlib.suppress(TypeError, ValueError):  # many built-ins tell no signature
        function.__dict__["__signature__"] = inspect.signature(original)
    return function


def _class_in_place(function: FunctionType, original: type) -> type:
    """A class whose calls are the function's; instances of the original are its instances."""
    kept = Pair(original, None)

    class Kind(type(original)):  # type: ignore[misc]
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        def __instancecheck__(cls, thing: object) -> bool:
            return isinstance(thing, kept.old)

        def __subclasscheck__(cls, other: type) -> bool:
            return issubclass(other, kept.old)

        def __getattr__(cls, name: str) -> Any:
            return getattr(kept.old, name)

    own = {"__module__": original.__module__, "__doc__": original.__doc__}
    return type.__new__(Kind, original.__name__, (), own)


def _holders(function: FunctionType) -> tuple[list[FunctionType], list[type]]:
    """Copies of the function (the same code, globals, closure and defaults), and classes that have it."""
    referrers = gc.get_referrers(function.__code__, function)
    twins = [
        other
        for other in referrers
        if type(other) is FunctionType
        and other is not function
        and not hasattr(other, _MARK)
        and other.__code__ is function.__code__
        and other.__globals__ is function.__globals__
        and _same(other.__closure__, function.__closure__)
        and _same(other.__defaults__, function.__defaults__)
    ]
    return twins, list(classes_of([d for d in referrers if type(d) is dict]).values())


def _same(ours: tuple[Any, ...] | None, theirs: tuple[Any, ...] | None) -> bool:
    ours, theirs = ours or (), theirs or ()
    return len(ours) == len(theirs) and all(a is b for a, b in zip(ours, theirs, strict=True))
