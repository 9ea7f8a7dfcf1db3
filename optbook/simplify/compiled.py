"""Stubs under torch.compile: they are not traced, and the guards of compiled code see the switch."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

from optbook.benchmark.compilation import compiled_frames
from optbook.simplify.trampoline import Choice

GRAPH_BREAK = "code compiled by torch.compile breaks its graph at the stub, and is compiled once more for it"
SCRIPTED = "code compiled by torch.jit holds its own copy of what it calls"
_ROOM = str(Path(__file__).parent)
_DISABLE, _MESSAGE = "_torchdynamo_disable", "_torchdynamo_disable_msg"


def is_loaded() -> bool:
    """Whether torch's compiler has been used, or is about to be."""
    return "torch._dynamo" in sys.modules


def notes() -> tuple[str, ...]:
    """What stubs do to compiled code, where there is any."""
    found = [GRAPH_BREAK] if compiled_frames() else []
    torch = sys.modules.get("torch")
    if torch is not None:
        unit, store = torch.jit._state._python_cu, torch.jit._recursive.concrete_type_store
        if unit.get_functions() or store.type_store:
            found.append(SCRIPTED)
    return tuple(found)


def untraced(codes: Iterable[CodeType]) -> None:
    """Have the compiler leave these, and all of our own code, alone."""
    if not is_loaded():
        return
    from torch._dynamo import trace_rules
    from torch._dynamo.eval_frame import skip_code

    if not any(_ROOM in directory for directory in trace_rules.SKIP_DIRS):
        trace_rules.add(str(__package__))
    for code in codes:
        skip_code(code)


def disabled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A user's function, not traced from inside compiled code."""
    if not is_loaded():
        return function
    import torch

    wrapped: Callable[..., Any] = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
    return wrapped


class Switch:
    """Marks a function as not to be traced while it is stubbed.

    Guards look at the code of plain functions, but of a method only at whether the object has an attribute
    that hides it: so objects get one, which is the method itself.
    """

    def __init__(self, function: FunctionType, choice: Choice, owners: Iterable[type]) -> None:
        self._function = function
        self._owners = list(owners)
        self._choice = choice
        self._marked: list[dict[str, Any]] = []
        self._on = False

    def turn_on(self) -> None:
        """Have compiled code see that the function is another one."""
        if not is_loaded() or self._on:
            return
        self._on = True
        setattr(self._function, _DISABLE, True)
        setattr(self._function, _MESSAGE, "replaced by a stub")
        name = self._function.__name__
        for holder in self._holders(name):
            own = holder.__dict__
            if name not in own:
                own[name] = MethodType(self._function, holder)
                self._marked.append(own)

    def turn_off(self) -> None:
        """Undo it, so that what was compiled before is used again."""
        if not self._on:
            return
        self._on = False
        for attribute in (_DISABLE, _MESSAGE):
            self._function.__dict__.pop(attribute, None)
        name = self._function.__name__
        while self._marked:
            own = self._marked.pop()
            if getattr(own.get(name), "__func__", None) is self._function:
                del own[name]

    def _holders(self, name: str) -> list[Any]:
        """The objects whose method it is."""
        if self._choice.by == "instance":
            found = [self._choice.chosen]
        elif self._owners:
            found = gc.get_referrers(*_with_subclasses(self._owners))
        else:
            found = []
        return [
            thing
            for thing in found
            if type(getattr(thing, "__dict__", None)) is dict
            and any(vars(kind).get(name) is self._function for kind in type(thing).__mro__)
        ]


def _with_subclasses(kinds: Iterable[type]) -> list[type]:
    found = list(kinds)
    for kind in found:
        children: list[type] = type.__subclasses__(kind)
        found += [child for child in children if child not in found]
    return found
