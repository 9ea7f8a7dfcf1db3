"""How stubs get into a process that is started: inherited when it is forked, else pickled."""

from __future__ import annotations

import gc
import importlib
import inspect
import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from types import FunctionType, ModuleType
from typing import Any

import cloudpickle

from optbook.errors import OptionError
from optbook.simplify import processes
from optbook.simplify.components import Component, function_behind
from optbook.simplify.imitate import Filled
from optbook.simplify.processes import Member
from optbook.simplify.trampoline import Choice

_UNCARRIED = (*processes.UNPICKLED, LookupError, OptionError)
_LOOKED_AT = 100_000


@dataclass(frozen=True)
class Sent:
    """A stub, as it is sent. The object whose calls are meant is pickled beside the process's arguments."""

    token: str
    name: str
    kind: str
    path: ObjectPath | None
    by: str
    chosen: object
    attribute: str
    filling: bytes


class Carrier:
    """The ``run`` of a process: has the stubs there, then does what the process is for.

    Args:
        process: the process.
        own: its own ``run``, where it has another than its class's.
        folder: where stubs tell what they do; "" for nowhere.
        members: the stubs.
    """

    def __init__(
        self,
        process: BaseProcess,
        own: Callable[[], object] | None,
        folder: str,
        members: Sequence[Member],
    ) -> None:
        self._process = process
        self._own = own
        self._folder = folder
        self._members = members
        self._sent: Sequence[Sent] = ()
        self._pid: int | None = os.getpid()

    def __getstate__(self) -> dict[str, Any]:
        reached = Reached({**vars(self._process), "run": self._own})
        sent = [_sent(member, reached) for member in self._members]
        return {
            **self.__dict__,
            "_members": (),
            "_sent": [each for each in sent if each is not None],
            "_pid": None,
        }

    def __call__(self) -> None:
        if self._pid is None:
            self._install()
        else:
            self._inherit()
        process, own = self._process, self._own
        vars(process).pop("run", None)
        if own is not None:
            own()
        else:
            process.run()

    def _inherit(self) -> None:
        from optbook.simplify import stubs

        processes.SESSION.lock = threading.RLock()
        stubs.inherited()
        for member in self._members:
            member.tells(self._folder)

    def _install(self) -> None:
        from optbook.simplify import stubs

        processes.SESSION.adopt(self._folder)
        for sent in self._sent:
            try:
                stub = stubs.Stub(_component(sent), Filled(cloudpickle.loads(sent.filling)))
                stub.member.token = sent.token
                stub.install()
            except _UNCARRIED as error:
                processes.Channel(self._folder, sent.token).send(_uncarried(error))
            else:
                stub.member.tells(self._folder)


class Reached:
    """What is reached from some objects, as far as that is looked for."""

    def __init__(self, start: object) -> None:
        self._start = start
        self._found: dict[int, object] = {}

    def __contains__(self, thing: object) -> bool:
        if not self._found:
            ahead: list[object] = [self._start]
            while ahead and len(self._found) < _LOOKED_AT:
                self._found.update((id(each), each) for each in ahead)
                ahead = [
                    each
                    for each in gc.get_referents(*ahead)
                    if id(each) not in self._found and not isinstance(each, (FunctionType, ModuleType, type))
                ]
        return id(thing) in self._found


def _sent(member: Member, reached: Reached) -> Sent | None:
    """What is sent of a stub; None, and a note, where that can't be."""
    component = member.layer.component
    place = component.place
    by: str = component.choice.by if place is None else "place"
    chosen: Any = component.choice.chosen if place is None else place[0]
    try:
        of_object = by == "instance" or (by == "place" and not isinstance(chosen, type))
        if of_object and chosen not in reached:
            by, chosen = ("class" if by == "instance" else by), type(chosen)
            note = f"in workers that are spawned all of {chosen.__qualname__} are meant: the object is a copy"
            member.notes.setdefault(note)
        return Sent(
            token=member.token,
            name=component.name,
            kind=component.kind,
            path=None if place is not None else path_of(component.target, component.name),
            by=by,
            chosen=path_of(chosen, chosen.__qualname__) if isinstance(chosen, type) else chosen,
            attribute="" if place is None else place[1],
            filling=cloudpickle.dumps(member.layer.filling),
        )
    except _UNCARRIED as error:
        member.notes.setdefault(_uncarried(error))
        return None


def _uncarried(error: Exception) -> str:
    return f"in workers that are spawned it is the real one ({error})"


def _component(sent: Sent) -> Component:
    """The component in this process.

    Raises:
        LookupError: it isn't there.
    """
    chosen = sent.chosen.found() if isinstance(sent.chosen, ObjectPath) else sent.chosen
    if sent.path is None:
        return Component(
            sent.name, sent.kind, getattr(chosen, sent.attribute), place=(chosen, sent.attribute)
        )
    return Component(sent.name, sent.kind, sent.path.found(), Choice(sent.by, chosen))  # type: ignore[arg-type]


@dataclass(frozen=True)
class ObjectPath:
    """Where something is found in any process: a module, and a dotted name in it."""

    module: str
    name: str

    def found(self) -> Any:
        """What is there; of a method its function.

        Raises:
            LookupError: nothing is.
        """
        try:
            value: Any = sys.modules.get(self.module) or importlib.import_module(self.module)
            for name in self.name.split("."):
                value = inspect.getattr_static(value, name)
        except (ImportError, AttributeError):
            raise LookupError(f"{self.module} has no {self.name} there") from None
        function, _ = function_behind(value)
        return value if function is None else function


def path_of(thing: Any, name: str) -> ObjectPath:
    """Where the thing is found in any process.

    Raises:
        LookupError: it isn't to be found by name.
    """
    from optbook.simplify import stubs

    own = getattr(thing, "__qualname__", None)
    last = str(own or name).rpartition(".")[2]
    paths = [ObjectPath(str(getattr(thing, "__module__", None)), str(own))]
    paths += [ObjectPath(module, last) for module, held in list(sys.modules.items()) if last in _names(held)]
    for path in paths:
        try:
            found = path.found()
        except (LookupError, ValueError):
            continue
        if found is thing or stubs.stands_for(found, thing):
            return path
    raise LookupError(f"{name} is not found by a name there")


def _names(module: object) -> dict[str, Any]:
    return getattr(module, "__dict__", None) or {}
