"""The first version that a learner's is held against: as its file has it, whatever a notebook did to it."""

from __future__ import annotations

import functools
import importlib.util
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType, FunctionType
from typing import Any

from optbook.errors import OptionError


def imported(place: str) -> Any:
    """What ``module:name`` is, from a fresh copy of that module: patches of the one in use are not in it.

    Raises:
        OptionError: there is no such module, or no such name in it.
    """
    name, _, path = place.partition(":")
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.loader is None or not path:
        raise OptionError(f"{place!r} can't be imported: write package.module:name")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Any = module
    for part in path.split("."):
        if not hasattr(found, part):
            raise OptionError(f"{place!r} can't be imported: {name} has no {path}")
        found = getattr(found, part)
    return found


def kept(function: Any) -> Any:
    """A Python function as it is now, whatever is put into it later; anything else itself."""
    if not isinstance(function, FunctionType):
        return function
    code, names = function.__code__, function.__globals__
    copy = FunctionType(code, names, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


class Watch:
    """Notices when the code of ``original`` runs, under whatever name or in a copy, while `watching`."""

    def __init__(self, original: object) -> None:
        self._code = code_of(original)
        self._place = None if self._code is None else _place(self._code)
        self._bare = None if self._code is None else _bare(self._code)
        self._known: dict[int, tuple[CodeType, bool]] = {}
        self._original = original
        self.seen = False

    def is_of(self, code: CodeType) -> bool:
        """Whether this is the original's code, be it typed again elsewhere."""
        return self._place == _place(code) or self._bare == _bare(code)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the calls of this thread, and of threads that start now."""
        before, in_threads = sys.getprofile(), threading.getprofile()
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(before)
            threading.setprofile(in_threads)

    def _called(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "c_call":
            self.seen |= argument is self._original
        elif event == "call":
            code = frame.f_code
            if id(code) not in self._known:
                self._known[id(code)] = code, self._code is not None and self.is_of(code)
            self.seen |= self._known[id(code)][1]


def code_of(function: object) -> CodeType | None:
    """The code that a call of this function, method or partial runs; None of what is made of C."""
    while isinstance(function, functools.partial):
        function = function.func
    found = getattr(getattr(function, "__func__", function), "__code__", None)
    return found if isinstance(found, CodeType) else None


def _place(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


@functools.lru_cache(4096)
def _bare(code: CodeType) -> tuple[object, ...]:
    """What the code does, without its names for itself, its lines, its documentation."""
    constants = [_bare(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    if code.co_consts and isinstance(code.co_consts[0], (str, type(None))):
        del constants[0]
    return code.co_code, *constants, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
