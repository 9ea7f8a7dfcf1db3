"""Finds the code that a line profile looks at, and puts other code in its place and back."""

from __future__ import annotations

import builtins
import functools
import gc
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from optbook.benchmark.profiles.places import cell_name, of_code
from optbook.benchmark.restore import namespaces, unwrapped
from optbook.errors import OptionError

_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
_COMPILED = ("_torchdynamo_orig_callable", "_orig_mod")


@dataclass(frozen=True)
class Target:
    """Code to look at line by line: a function's, or the parts of a cell."""

    name: str
    codes: tuple[CodeType, ...]
    notes: tuple[str, ...] = ()


def of_workload(function: Callable[..., object]) -> list[Target]:
    """The workload's own lines."""
    codes = getattr(function, "code", None)
    if isinstance(codes, tuple) and codes:
        file = codes[0].co_filename
        return [Target(f"cell {cell_name(file) or file}", codes)]
    inner = unwrapped(function)
    return [_target(inner.__code__, ())] if isinstance(inner, FunctionType) else []


def of_hot(codes: Iterable[CodeType], known: Iterable[Target]) -> list[Target]:
    """The functions with the given code, but for those that are known.

    Code that torch.compile wrote in place of a function's counts as that function's, and a comprehension's
    as that of the function around it, whose lines hold it.
    """
    codes, known = list(codes), list(known)
    files = {code.co_filename for code in codes}
    functions = (thing.__code__ for thing in gc.get_objects() if type(thing) is FunctionType)
    live = [code for code in functions if code.co_filename in files]
    exact = {id(code) for code in live}
    by_place = {_place(code): code for code in live}
    own = [code for target in known for code in target.codes]
    seen = {id(code) for code in own}
    found = []
    for given in codes:
        code = given if id(given) in exact else by_place.get(_place(given), given)
        if code.co_name in _COMPREHENSIONS:
            around = (other for other in [*live, *own] if any(c is code for c in inner_codes([other])))
            code = next(around, code)
        if id(code) not in seen and code.co_name != "<module>":
            seen.add(id(code))
            found.append(_target(code, ()))
    return found


def _place(code: CodeType) -> tuple[str, int, str]:
    return code.co_filename, code.co_firstlineno, code.co_qualname


def named(given: object, function: Callable[..., object]) -> Target:
    """A function, or what a name means where the workload runs, then in ``__main__``, then as a dotted path.

    A name may also be that of a function defined inside a function, or by the cell itself: ``outer.inner``.

    Raises:
        OptionError: there is no such function, or it has no lines.
    """
    if not isinstance(given, str):
        return _of(given, _name(given))
    found = _looked_up(given, function)
    if found is not None:
        return _of(found[0], given)
    inside = [code for code in _codes_inside(function) if _ends_with(code, given)]
    if inside:
        return _target(inside[0], ())
    raise OptionError(
        f"there is no function {given!r} here: give a name that the cell sees, or a path such as os.path.join"
    )


def _name(thing: object) -> str:
    return str(
        getattr(thing, "__qualname__", None) or getattr(thing, "__name__", None) or type(thing).__name__
    )


def _looked_up(path: str, function: Callable[..., object]) -> tuple[Any] | None:
    first, *rest = path.split(".")
    places = [*namespaces(function), vars(sys.modules["__main__"]), vars(builtins)]
    for place in places:
        if first in place:
            return _attribute(place[first], rest)
    for cut in range(len(rest), 0, -1):
        module = ".".join([first, *rest[: cut - 1]])
        try:
            start = importlib.import_module(module)
        except ImportError:
            continue
        return _attribute(start, rest[cut - 1 :])
    return None


def _attribute(value: Any, names: list[str]) -> tuple[Any] | None:
    for name in names:
        try:
            value = inspect.getattr_static(value, name) if isinstance(value, type) else getattr(value, name)
        except AttributeError:
            return None
    return (value,)


def _of(thing: Any, name: str) -> Target:
    """The code behind decorators, partials, methods, properties and torch.compile.

    Raises:
        OptionError: it has none, or another line profiler wraps it.
    """
    notes: list[str] = []
    for _ in range(100):
        if hasattr(thing, "__line_profiler_id__"):
            raise OptionError(f"{name} is profiled by line_profiler already: take its @profile off")
        held = getattr(thing, "__dict__", {})
        orig = next((held[key] for key in _COMPILED if key in held), None)
        modules = held.get("_modules", {}) if orig is None else {}
        orig = modules.get("_orig_mod") if orig is None else orig
        if orig is not None:
            thing = orig
        elif isinstance(thing, property) and thing.fget is not None:
            thing = thing.fget
        elif isinstance(thing, functools.cached_property):
            thing = thing.func
        elif isinstance(thing, (staticmethod, classmethod)) or hasattr(thing, "__wrapped__"):
            thing = thing.__wrapped__
        elif isinstance(thing, type):
            own = inspect.getattr_static(thing, "__init__", None)
            if not isinstance(own, FunctionType):
                break
            thing = own
        elif hasattr(thing, "forward") and not isinstance(thing, FunctionType):
            thing = thing.forward
        else:
            inner = unwrapped(thing)
            if inner is thing:
                break
            thing = inner
    code = getattr(thing, "__code__", None)
    if not isinstance(code, CodeType):
        what = "is a builtin or compiled code, with" if callable(thing) else "is no function and has"
        raise OptionError(f"{name} {what} no Python lines to look at: name the function that calls it")
    return _target(code, tuple(notes))


def _target(code: CodeType, notes: tuple[str, ...]) -> Target:
    place = of_code(code)
    found = list(notes)
    if code.co_name in (*code.co_names, *code.co_freevars):
        found.append(f"{place.name} calls itself: a line that does holds part of the inner calls' time only")
    if code.co_flags & inspect.CO_ASYNC_GENERATOR or code.co_flags & inspect.CO_COROUTINE:
        found.append(f"{place.name} is async: the time in which it awaits what others do is not in its lines")
    elif code.co_flags & inspect.CO_GENERATOR:
        found.append(f"{place.name} is a generator: the time of whoever loops over it is not in its lines")
    return Target(place.name, (code,), tuple(found))


def _codes_inside(function: Callable[..., object]) -> Iterable[CodeType]:
    """All code that the workload and the functions around it define."""
    inner = unwrapped(function)
    started = [*getattr(function, "code", ()), *([inner.__code__] if isinstance(inner, FunctionType) else [])]
    for namespace in namespaces(function):
        for value in list(namespace.values()):
            own = list(vars(value).values()) if isinstance(value, type) else [value]
            functions = [inspect.unwrap(thing) for thing in own if isinstance(thing, FunctionType)]
            started += [f.__code__ for f in functions if getattr(f, "__globals__", None) is namespace]
    yield from inner_codes(started)


def inner_codes(codes: Iterable[CodeType]) -> Iterable[CodeType]:
    """The code objects that lie in the given ones, to any depth."""
    for code in codes:
        inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        yield from inner
        yield from inner_codes(inner)


def _ends_with(code: CodeType, name: str) -> bool:
    written = code.co_qualname.replace("<locals>.", "")
    return written == name or written.endswith(f".{name}")


class Swap:
    """Puts code in the place of other code, in all functions and in the functions that define them."""

    def __init__(self, instead: dict[int, CodeType]) -> None:
        self._instead = instead
        self._files = {code.co_filename for code in instead.values()}
        self._back: list[tuple[FunctionType, CodeType]] = []

    def code(self, code: CodeType) -> CodeType:
        """``code`` with the replacements in it, or itself."""
        if id(code) in self._instead:
            code = self._instead[id(code)]
        constants = tuple(self.code(c) if isinstance(c, CodeType) else c for c in code.co_consts)
        if all(a is b for a, b in zip(constants, code.co_consts, strict=True)):
            return code
        return code.replace(co_consts=constants)

    def put(self) -> None:
        """Put the replacements in place."""
        for thing in gc.get_objects():
            if type(thing) is FunctionType and thing.__code__.co_filename in self._files:
                before = thing.__code__
                after = self.code(before)
                if after is not before:
                    thing.__code__ = after
                    self._back.append((thing, before))

    def put_back(self) -> None:
        """Put back what was there."""
        while self._back:
            function, code = self._back.pop()
            function.__code__ = code
