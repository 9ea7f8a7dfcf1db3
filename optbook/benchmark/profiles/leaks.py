"""What grows from run to run (or over the steps of a tracked loop), and the shortest chain that keeps it.

The objects that Python's collector knows are counted between runs, after a collection. What came in each
interval and is there at the end has grown; what only the last interval made, or the first runs (caches that
fill), has not. Things that the collector does not know (arrays, strings, numbers) are seen as a container
that got longer in each interval.
"""

from __future__ import annotations

import collections
import gc
import itertools
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import CellType
from typing import Any
from weakref import ReferenceType

from optbook.benchmark.meters import memory
from optbook.benchmark.profiles import cycles, references, tensors
from optbook.benchmark.profiles.memory_meters import FRAMES, calling_line
from optbook.benchmark.profiles.places import is_yours
from optbook.benchmark.profiles.references import References, kind
from optbook.benchmark.profiles.sizes import HEAP_TYPE, bytes_of

LEAST_BYTES = 128
"""Growth of less than this a run or step is not listed, unless tensors with a graph are part of it."""
MOST_LEAKS, MOST_TYPES = 20, 3
CONTAINERS = frozenset({list, dict, set, collections.deque, collections.OrderedDict, collections.defaultdict})
_HOLDERS = frozenset({dict, CellType, references.CACHES})


@dataclass(frozen=True)
class Leak:
    """Something that grew in each interval.

    ``what`` are the types that came; ``count`` (objects, or entries of the container) and ``size`` (bytes)
    are those of a run, or of a step. ``chain`` says who keeps it; ``line`` where the last of it was
    allocated, if known. ``bound`` is the number of entries at which it stops to grow, if it does.
    """

    chain: str
    what: str
    count: float
    size: float
    line: tuple[str, int] | None = None
    bound: int | None = None


@dataclass(frozen=True)
class Growth:
    """What grew, for one run or step (``per``): in all ``resident`` bytes, and by ``leaks``.

    ``held`` are the largest tensors at the end, ``totals`` the bytes of all tensors on each device.
    """

    leaks: tuple[Leak, ...]
    left: cycles.Cycles | None
    resident: float
    per: str
    held: tuple[tensors.HeldTensor, ...]
    totals: dict[str, int]


@dataclass
class _Group:
    """What came below one holder, or below one attribute of it, and in which intervals.

    ``longer`` is the container in it that got longer in each interval.
    """

    holder: Any
    longer: Any = None
    things: list[Any] = field(default_factory=list)
    children: dict[int, Any] = field(default_factory=dict)
    births: set[int] = field(default_factory=set)
    of_children: set[int] = field(default_factory=set)


class Census:
    """Counts what is alive at the edges of the intervals; `finish` says what grew.

    Args:
        given: the workload, whose names are looked at first.
        per: 'run' or 'step', which the growth is given for.
        every: how many of these an interval has.
    """

    def __init__(self, given: Callable[..., object], per: str, every: int) -> None:
        self._given = given
        self._per, self.every = per, every
        self._storages = tensors.storages(tensors.living())
        self._frozen = gc.get_freeze_count() > 0
        self._births: dict[int, int] = {}
        self._longer: dict[int, int] = {}
        self._first: dict[int, int] = {}
        self._grew: list[Any] = []
        self._totals: list[tuple[float, float, float]] = []
        self._left: cycles.Cycles | None = None
        self._mine = False
        self._lines: dict[int, tuple[str, int]] = {}

    def trace(self) -> None:
        """Begin to trace where things are allocated, before the last interval.

        To count under tracemalloc would take a hundred times as long, so that nothing else is traced.
        """
        self._mine = not tracemalloc.is_tracing()
        if self._mine:
            tracemalloc.start(FRAMES)

    def _stop_tracing(self) -> None:
        if self._mine:
            tracemalloc.stop()
        self._mine = False

    def close(self) -> None:
        """Leave the collector and tracemalloc as they were; what was frozen before is frozen again."""
        self._stop_tracing()
        gc.unfreeze()
        if self._frozen:
            gc.freeze()

    def take(self, *, last: bool = False) -> None:
        """Count, at the start and at the end of each interval."""
        if last:
            self._left = cycles.left(lambda things: bytes_of(things, self._storages), self.every)
        gc.collect()
        number = len(self._totals)
        fresh = gc.get_objects()
        if last:
            self._note_lines(fresh)
        if number:
            self._births |= {id(thing): number for thing in fresh}
            gc.unfreeze()
        things, births, longer = gc.get_objects(), self._births, self._longer
        self._births = {i: births[i] for i in map(id, things) if i in births}
        nodes, kept = tensors.graph(tensors.among(things), self._storages)
        self._totals.append((memory.resident() or 0.0, float(nodes), float(kept)))
        if not number:
            self._first = self._longer = {id(thing): len(thing) for thing in _containers(things)}
        else:
            self._grew = [t for t in _containers(things) if len(t) > longer.get(id(t), len(t))]
            self._longer = {id(thing): len(thing) for thing in self._grew}
        del things, fresh
        if not last:
            gc.freeze()

    def _note_lines(self, things: list[Any]) -> None:
        """Note where what came in this interval was allocated, and stop tracing."""
        ends = [_entries(container)[-1:] for container in self._grew]
        for thing in [*things, *itertools.chain(*ends)]:
            # Before Python 3.12 an instance is not found itself, but its attributes are.
            for part in (thing, *(gc.get_referents(thing) if type(thing).__flags__ & HEAP_TYPE else ())):
                place = calling_line(tracemalloc.get_object_traceback(part))
                if place is not None:
                    self._lines[id(thing)] = place
                    break
        self._stop_tracing()

    @property
    def intervals(self) -> int:
        """How many were counted."""
        return len(self._totals) - 1

    def finish(self) -> Growth:
        """Say what grew and who holds it, and which tensors are there."""
        holders = References(references.roots(self._given), references.hidden() | {id(self)})
        held, totals = tensors.held(holders, self._storages)
        leaks = [*self._grown(holders)]
        turns = self.every * self.intervals
        resident, nodes, kept = (
            (last - first) / turns for first, last in zip(self._totals[0], self._totals[-1], strict=True)
        )
        steady = all(a[1] < b[1] for a, b in itertools.pairwise(self._totals))
        graphs = any(".grad_fn" in leak.chain for leak in leaks)
        if steady and not graphs:
            leaks += self._graph(holders, nodes, kept)
        lost = self._out_of_sight(holders)
        leaks += lost if not graphs and not steady else [leak for leak in lost if "Tensor" not in leak.what]
        leaks.sort(key=lambda leak: (leak.bound is not None, -leak.size))
        return Growth(tuple(leaks[:MOST_LEAKS]), self._left, resident, self._per, held, totals)

    def _grown(self, holders: References) -> Iterable[Leak]:
        groups: dict[tuple[int, int], _Group] = {}
        for thing in self._grew:
            if thing in holders:
                holder = _owner(thing, holders)
                groups.setdefault((id(holder), 0), _Group(holder)).longer = thing
        for thing in gc.get_objects():
            birth = self._births.get(id(thing))
            if birth is None or thing not in holders or type(thing) is ReferenceType:
                continue
            child, holder = thing, holders.parent(thing)
            while holder is not None and (id(holder) in self._births or not gc.is_tracked(holder)):
                child, holder = holder, holders.parent(holder)
            if holder is None:
                continue
            holder = _owner(holder, holders)
            group = groups.setdefault(self._key(holder, child, holders), _Group(holder))
            group.things.append(thing)
            group.births.add(birth)
            group.children[id(child)] = child
            group.of_children.add(self._births.get(id(child), birth))
        for group in groups.values():
            if group.longer is not None or len(group.births) == self.intervals:
                yield from self._leak(group, holders)

    def _key(self, holder: Any, child: Any, holders: References) -> tuple[int, int]:
        """What a thing is grouped by: a container, else an attribute or a name."""
        contains = type(holder) in CONTAINERS | {references.CACHES} and not holders.is_root(holder)
        return id(holder), 0 if contains or id(holder) in self._longer else id(child)

    def _leak(self, group: _Group, holders: References) -> Iterable[Leak]:
        holder, turns = group.holder, self.every * self.intervals
        entries: list[Any] = []
        if group.longer is not None:
            added = _entries(group.longer)[self._first[id(group.longer)] :]
            entries = [entry for entry in added if type(entry) is not ReferenceType]
        loose = [entry for entry in entries if id(entry) not in self._births]
        size = bytes_of([*group.things, *loose], self._storages) / turns
        if size < LEAST_BYTES and not any(tensors.has_graph(thing) for thing in group.things):
            return
        named = [*(group.children.values() if entries else group.things), *loose]
        kinds = Counter(kind(thing) for thing in named if not kind(thing).startswith("_lru"))
        latest = [
            c for i, c in group.children.items() if self._births.get(i, self.intervals) == self.intervals
        ]
        child = ([*group.children.values(), *entries, *latest] or [holder])[-1]
        yield Leak(
            chain=_written(holders, holder, child),
            what=", ".join(name for name, _ in kinds.most_common(MOST_TYPES)),
            count=(len(entries) or len(group.things)) / turns,
            size=size,
            line=self._lines.get(id(child)),
            bound=_bound(group),
        )

    def _graph(self, holders: References, nodes: float, kept: float) -> Iterable[Leak]:
        """The tensor whose graph of computations got longer and longer."""
        graphs = [t for t in tensors.living() if tensors.has_graph(t) and t in holders]
        if graphs:
            longest = max(graphs, key=lambda t: tensors.graph([t], ())[0])
            yield Leak(_written(holders, holders.parent(longest), longest), "graph nodes", nodes, kept, None)

    def _out_of_sight(self, holders: References) -> Iterable[Leak]:
        """What grew and is held neither by a name nor by the instrument: by code in C."""
        births = self._births
        candidates = {id(t) for t in gc.get_objects() if id(t) in births and t not in holders}
        if len({births[i] for i in candidates}) < self.intervals:
            return
        candidates -= holders.further(references.measuring())
        lost = [thing for thing in gc.get_objects() if id(thing) in candidates]
        held = {id(child) for thing in lost for child in gc.get_referents(thing)}
        turns = self.every * self.intervals
        for name in sorted({kind(thing) for thing in lost if id(thing) not in held}):
            tops = [thing for thing in lost if id(thing) not in held and kind(thing) == name]
            below = [*tops, *(t for top in tops for t in gc.get_referents(top) if id(t) in self._births)]
            size = bytes_of(below, self._storages) / turns
            if {self._births[id(t)] for t in tops} >= set(
                range(1, self.intervals + 1)
            ) and size >= LEAST_BYTES:
                chain = f"code in C, which Python's collector can't look into -> {name}"
                yield Leak(chain, name, len(tops) / turns, size, self._lines.get(id(tops[-1])))


def _containers(things: list[Any]) -> Iterable[Any]:
    """The containers among things, and the dicts that they hold and the collector does not look at.

    It leaves out dicts in which nothing can refer to anything, such as those of arrays.
    """
    looked_into = {kind for kind in set(map(type, things)) if kind in _HOLDERS or _is_yours(kind)}
    for thing in things:
        if type(thing) in CONTAINERS:
            yield thing
        if type(thing) in looked_into:
            for held in thing.values() if type(thing) is dict else gc.get_referents(thing):
                if type(held) is dict and not gc.is_tracked(held):
                    yield held


def _is_yours(kind: type) -> bool:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return bool(kind.__flags__ & HEAP_TYPE) and (file is None or is_yours(file))


def _owner(holder: Any, holders: References) -> Any:
    """A function's cache for the dict in it."""
    parent = holders.parent(holder)
    return parent if type(holder) is dict and isinstance(parent, references.CACHES) else holder


def _entries(container: Any) -> list[Any]:
    return list(container.values() if isinstance(container, dict) else container)


def _written(holders: References, holder: Any, child: Any) -> str:
    """The chain to a child of ``holder``, with the graph of computations that it keeps if it is a tensor."""
    chain = holders.chain(child)
    if chain is None:  # nothing that the collector knows: an array, a string
        above = holders.chain(holder)
        return "?" if above is None else str(references.with_last(above, holder, child))
    graph = f".grad_fn -> {child.grad_fn.name()} -> …" if tensors.has_graph(child) else ""
    return f"{chain}{graph}"


def _bound(group: _Group) -> int | None:
    """How many entries there can be, where that is bounded."""
    holder = group.holder
    if isinstance(holder, references.CACHES):
        size: int | None = holder.cache_parameters()["maxsize"]
        return size
    if isinstance(holder, collections.deque):
        return holder.maxlen
    turned_over = type(holder) in (list, dict) and group.longer is None and len(group.of_children) > 1
    return len(holder) if turned_over else None
