"""What is replaced in this process now, which every measurement has to mention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

MANY = 0.2
"""A share of calls that counts for the time measured."""


class Replaced(Protocol):
    """A component that something else stands in for."""

    @property
    def name(self) -> str:
        """The component's name."""

    @property
    def calls(self) -> int:
        """How often the stand-in was called so far."""

    @property
    def misses(self) -> int:
        """How often the real component was called all the same."""

    @property
    def recorded(self) -> int:
        """How often it was called to record what it returns."""


class _Now:
    """The stand-ins of this process, the oldest first: code that is replaced is replaced for all of it.

    ``marks`` counts what simplified the work for a while only, by name.
    """

    stubs: tuple[Replaced, ...] = ()
    marks: ClassVar[Counter[str]] = Counter()


def now() -> tuple[Replaced, ...]:
    """What is replaced, the oldest first."""
    return _Now.stubs


def add(stub: Replaced) -> None:
    """Tell that something is replaced."""
    _Now.stubs = (*_Now.stubs, stub)


def discard(stub: Replaced) -> None:
    """Tell that it is no more."""
    _Now.stubs = tuple(other for other in _Now.stubs if other is not stub)


def mark(name: str) -> None:
    """Tell that something stands in for ``name`` from here on, in what is measured now and not later."""
    _Now.marks[name] += 1


class Used:
    """What is replaced while something is measured, and which stand-ins were called in that time."""

    def __init__(self) -> None:
        self._before = {id(stub): (stub.calls, stub.misses, stub.recorded) for stub in now()}
        self._stubs = now()
        self._marks = _Now.marks.copy()

    @property
    def names(self) -> list[str]:
        """The names of what was replaced, each once."""
        return list(dict.fromkeys([stub.name for stub in self._stubs] + self._marked))

    @property
    def _marked(self) -> list[str]:
        return list(_Now.marks - self._marks)

    def warnings(self, metrics: Mapping[str, float] | None, given: Sequence[str]) -> tuple[str, ...]:
        """What to keep in mind: stubs that were never called, or missed; metrics that mean nothing."""
        found = []
        for stub in self._stubs:
            calls, misses, recorded = self._before[id(stub)]
            calls, misses, recorded = stub.calls - calls, stub.misses - misses, stub.recorded - recorded
            if not calls:
                found.append(f"the stub of {stub.name} was never called: it changed nothing")
            elif misses:
                found.append(
                    f"{misses} calls of {stub.name} were real: nothing recorded matched their arguments"
                )
            if recorded > MANY * calls:
                found.append(
                    f"{recorded} of {calls} calls of {stub.name} were real, to record what they return: "
                    "run it once before it is measured"
                )
        if metrics and (self._stubs or self._marked or given):
            found.append(f"computed with stubs, so not valid: {', '.join(metrics)}")
        return tuple(found)
