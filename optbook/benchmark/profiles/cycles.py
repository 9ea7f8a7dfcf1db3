"""What a run leaves to the garbage collector: objects that refer to each other in a ring."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from optbook.benchmark.profiles.references import ring


@dataclass(frozen=True)
class Cycles:
    """Objects that only the collector could free: how many, their ``size`` in bytes, and one ring of them.

    ``finalizer`` says whether one has a ``__del__``.
    """

    count: float
    size: float
    ring: str
    finalizer: bool


def left(size_of: Callable[[list[Any]], float], turns: int) -> Cycles | None:
    """Collect garbage, and say what it was, for one of ``turns`` runs or steps; None without a ring."""
    before, flags = len(gc.garbage), gc.get_debug()
    gc.set_debug(flags | gc.DEBUG_SAVEALL)
    try:
        gc.collect()
    finally:
        gc.set_debug(flags)
    found = gc.garbage[before:]
    del gc.garbage[before:]
    if not found:
        return None
    with_del = [thing for thing in found if hasattr(type(thing), "__del__")]
    things = [thing for thing in found if type(thing).__module__ not in ("builtins", "types")]
    for start in [*with_del, *things, *found][:200]:
        way = _back_to(start, {id(thing) for thing in found})
        if way:
            return Cycles(len(found) / turns, size_of(found) / turns, ring(way), bool(with_del))
    return None


def _back_to(start: Any, among: set[int]) -> list[Any]:
    """The shortest way from an object to itself over ``among``; empty if there is none."""
    parents: dict[int, Any] = {}
    level = [start]
    while level:
        below = []
        for thing in level:
            for child in gc.get_referents(thing):
                if child is start:
                    way = [thing]
                    while way[0] is not start:
                        way.insert(0, parents[id(way[0])])
                    return way
                if id(child) in among and id(child) not in parents:
                    parents[id(child)] = thing
                    below.append(child)
        level = below
    return []
