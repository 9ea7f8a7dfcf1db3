"""How many bytes things take."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from typing import Any

from optbook.benchmark.profiles import tensors

HEAP_TYPE = 1 << 9
"""Of a type's flags, that it was made by a class statement (CPython's ``Py_TPFLAGS_HEAPTYPE``)."""
_GC_BYTES = 16


def bytes_of(things: Iterable[Any], counted: Iterable[int]) -> float:
    """The bytes of things, of arrays and strings that they hold, and of tensors with their graphs.

    Args:
        things: each is counted once.
        counted: storages of tensors that are not counted.
    """
    total, seen, storages = 0.0, set[int](), set(counted)
    graphs = []
    for thing in things:
        for part in (thing, *(t for t in gc.get_referents(thing) if not gc.is_tracked(t))):
            if id(part) in seen or isinstance(part, (type, int, float)):
                continue
            seen.add(id(part))
            total += _own_bytes(part, seen)
            if tensors.is_tensor(part):
                graphs += [part] if tensors.has_graph(part) else []
                where, size = tensors.storage(part)
                total += size if where not in storages else 0
                storages.add(where)
    return total + tensors.graph(graphs, storages)[1]


def _own_bytes(thing: Any, seen: set[int]) -> float:
    """Without what it refers to, and without running code of its class."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(thing, numpy.ndarray):
        owner = thing
        while isinstance(owner.base, numpy.ndarray):
            owner = owner.base
        again = owner is not thing and id(owner) in seen
        seen.add(id(owner))
        return 0.0 if again else float(owner.nbytes)
    if type(thing).__flags__ & HEAP_TYPE:
        return float(object.__sizeof__(thing) + _GC_BYTES + 8 * len(gc.get_referents(thing)))
    return float(sys.getsizeof(thing))
