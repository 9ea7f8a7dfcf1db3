"""Finds everything in this process that refers to an object, and makes it refer to another one.

For what has no Python code of its own to replace: built-ins, C functions, classes. What can be changed in
place is: dictionaries, attributes, slots, lists, deques, sets, closures, partials, properties, static and
class methods. Tuples, frozen sets, bound methods and the like are made anew and replaced where they are held
in turn. What can't be changed or seen from Python is told: local variables of functions that run, iterators,
objects of C libraries.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import sys
import weakref
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import (
    AsyncGeneratorType,
    CellType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

_DEPTH = 6
_SUSPENDED = (GeneratorType, CoroutineType, AsyncGeneratorType)
_OURS, _SAMPLE = "optbook.", "optbook.hotdog"
_HERE = str(Path(__file__).parent)


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """An object and what is to stand in its place."""

    old: Any
    new: Any


@dataclass(frozen=True, slots=True, eq=False)
class Swapped:
    """What was replaced, the immutable objects made anew among it, and what could not be."""

    pairs: tuple[Pair, ...]
    declared: tuple[str, ...]

    def back(self) -> tuple[str, ...]:
        """Put the old objects where the new ones are now, also where they came later; tell what can't be."""
        return swap(*(Pair(pair.new, pair.old) for pair in self.pairs), binding=False).declared


def swap(*pairs: Pair, binding: bool = True) -> Swapped:
    """Replace each pair's old object by its new one wherever Python objects refer to it.

    Args:
        pairs: the objects.
        binding: keep functions that do not bind as methods from doing so where classes hold them.
    """
    work = _Swap(pairs, binding)
    level = list(pairs)
    for _ in range(_DEPTH):
        if not level:
            break
        level = work.round(level)
    if level:
        work.declared.append(f"tuples that lie in each other more than {_DEPTH} deep")
    work.note_unseen(pairs)
    return Swapped((*work.pairs.values(), *work.wrapped), tuple(dict.fromkeys(work.declared)))


class _Swap:
    """One replacement in progress."""

    def __init__(self, pairs: Iterable[Pair], binding: bool) -> None:
        self.pairs = {id(pair.old): pair for pair in pairs}
        self.wrapped: list[Pair] = []
        self.declared: list[str] = []
        self._binding = binding
        self._level: list[Pair] = []

    def round(self, level: list[Pair]) -> list[Pair]:
        """Replace one level of references; return the immutable holders that were made anew."""
        self._level = []
        referrers = gc.get_referrers(*[pair.old for pair in level])
        dictionaries = [holder for holder in referrers if isinstance(holder, dict)]
        ours = {id(referrers), id(dictionaries), id(self.pairs)}
        classes = classes_of(dictionaries)
        for holder in referrers:
            if id(holder) in ours or id(holder) in self.pairs or _is_ours(str(type(holder).__module__)):
                continue
            if id(holder) in classes:
                self._class(classes[id(holder)])
            else:
                self._replace(holder)
        return self._level

    def note_unseen(self, pairs: Iterable[Pair]) -> None:
        """Tell of weak references, and which functions that run hold an object in a local variable."""
        if any(weakref.getweakrefcount(pair.old) for pair in pairs):
            self.declared.append("weak references to it lead to the original")
        for frame in _frames():
            local = [name for name, value in frame.f_locals.items() if id(value) in self.pairs]
            if local:
                self.declared.append(
                    f"{local[0]}, a local variable of {frame.f_code.co_qualname}(), which runs"
                )

    def _new(self, value: object) -> Pair | None:
        pair = self.pairs.get(id(value))
        return pair if pair is not None and pair.old is value else None

    def _replace(self, holder: Any) -> None:
        kind = type(holder)
        if isinstance(holder, dict):
            self._mapping(holder)
        elif isinstance(holder, (list, deque)):
            self._items(holder)
        elif isinstance(holder, (set, frozenset, tuple)):
            self._collection(holder)
        elif isinstance(holder, CellType):
            self._cell(holder)
        elif isinstance(holder, functools.partial):
            self._partial(holder)
        elif isinstance(holder, staticmethod):
            staticmethod.__init__(holder, self._value(holder.__func__))
        elif isinstance(holder, classmethod):
            classmethod.__init__(holder, self._value(holder.__func__))
        elif isinstance(holder, property):
            get, set_, delete = map(self._value, (holder.fget, holder.fset, holder.fdel))
            property.__init__(holder, get, set_, delete, holder.__doc__)
        elif isinstance(holder, MethodType):
            self._anew(holder, MethodType(self._value(holder.__func__), self._value(holder.__self__)))
        elif isinstance(holder, FunctionType):
            if pair := self._new(holder.__defaults__):
                holder.__defaults__ = pair.new
            self._attributes(holder)
        elif isinstance(holder, (type, ModuleType)) or inspect.isbuiltin(holder):
            return  # a subclass, a bound method of the object itself: no call of it
        elif isinstance(holder, _SUSPENDED):
            self._suspended(holder)
        elif isinstance(holder, FrameType):
            return
        elif not self._attributes(holder):
            self.declared.append(
                f"held by {_article(kind.__qualname__)} of {kind.__module__}, which can't be changed"
            )

    def _value(self, value: Any) -> Any:
        pair = self._new(value)
        return value if pair is None else pair.new

    def _anew(self, old: object, new: object) -> None:
        pair = Pair(old, new)
        self.pairs[id(old)] = pair
        self._level.append(pair)

    def _mapping(self, mapping: dict[Any, Any]) -> None:
        name = mapping.get("__name__") if "__spec__" in mapping else None
        if isinstance(name, str) and _is_ours(name):
            return
        for key, value in list(mapping.items()):
            if pair := self._new(value):
                dict.__setitem__(mapping, key, pair.new)
        if isinstance(mapping, defaultdict) and (pair := self._new(mapping.default_factory)):
            mapping.default_factory = pair.new

    def _items(self, items: Any) -> None:
        for index, value in enumerate(list(items)):
            if pair := self._new(value):
                items[index] = pair.new

    def _collection(self, items: Any) -> None:
        members = [self._value(item) for item in items]
        if isinstance(items, set):
            items.clear()
            items.update(members)
        elif isinstance(items, tuple):
            self._anew(items, tuple.__new__(type(items), members))
        else:
            self._anew(items, type(items)(members))

    def _cell(self, cell: CellType) -> None:
        with contextlib.suppress(ValueError):
            if pair := self._new(cell.cell_contents):
                cell.cell_contents = pair.new

    def _partial(self, partial: Any) -> None:
        _, _, (function, arguments, keywords, own) = partial.__reduce__()
        partial.__setstate__((self._value(function), self._value(arguments), keywords, own))

    def _class(self, owner: type) -> None:
        for name, value in list(vars(owner).items()):
            pair = self._new(value)
            if pair is None:
                continue
            new = pair.new
            if self._binding and hasattr(type(new), "__get__") and not hasattr(type(value), "__get__"):
                new = staticmethod(new)
                self.wrapped.append(Pair(value, new))
            try:
                type.__setattr__(owner, name, new)
            except TypeError:
                self.declared.append(f"{owner.__qualname__}.{name}, of a class that can't be changed")

    def _attributes(self, holder: Any) -> bool:
        """Replace it in an object's attributes and slots; whether it was there."""
        found = False
        own = getattr(holder, "__dict__", None)
        if type(own) is dict:
            for name, value in list(own.items()):
                if pair := self._new(value):
                    own[name], found = pair.new, True
        for kind in type(holder).__mro__:
            for slot in list(vars(kind).values()):
                if isinstance(slot, MemberDescriptorType):
                    found |= self._slot(slot, holder)
        return found

    def _slot(self, slot: MemberDescriptorType, holder: Any) -> bool:
        try:
            pair = self._new(slot.__get__(holder))
            if pair is not None:
                slot.__set__(holder, pair.new)
        except (AttributeError, TypeError):
            return False
        return pair is not None

    def _suspended(self, holder: Any) -> None:
        code = getattr(holder, "gi_code", None) or getattr(holder, "cr_code", None) or holder.ag_code
        if not code.co_filename.startswith(_HERE):
            self.declared.append(f"a local variable of {code.co_qualname}(), which has been started")


def classes_of(dictionaries: list[dict[Any, Any]]) -> dict[int, type]:
    """Which of the dictionaries are those of classes, by id: these must be changed through the class."""
    suspects = [d for d in dictionaries if "__module__" in d and "__doc__" in d and "__spec__" not in d]
    if not suspects:
        return {}
    found = {id(d): owner for d in suspects if (owner := _owner(d)) is not None}
    lost = {id(d): d for d in suspects if id(d) not in found}
    if lost:
        for thing in gc.get_referrers(*lost.values()):
            if isinstance(thing, type):
                found.update({id(d): thing for d in gc.get_referents(thing) if id(d) in lost})
    return found


def _owner(dictionary: dict[Any, Any]) -> type | None:
    """The class whose dictionary it is, as its own descriptors tell; most have one."""
    for name in ("__dict__", "__weakref__"):
        owner = getattr(dictionary.get(name), "__objclass__", None)
        if isinstance(owner, type) and any(d is dictionary for d in gc.get_referents(owner)):
            return owner
    return None


def _frames() -> Iterator[FrameType]:
    """The frames of all threads that run functions other than ours."""
    for top in sys._current_frames().values():
        frame: FrameType | None = top
        while frame is not None:
            code = frame.f_code
            if code.co_flags & inspect.CO_OPTIMIZED and not code.co_filename.startswith(_HERE):
                yield frame
            frame = frame.f_back


def _is_ours(module: str) -> bool:
    return module.startswith(_OURS) and not module.startswith(_SAMPLE)


def _article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"
