"""Who holds an object: the shortest chain of references down from where Python starts, in words.

One walk down from all roots finds the chains of all objects; in a heap of 300 000 objects it took about as
long as objgraph's search upwards took for six of them, and it can name the edges. objgraph names them only in
the pictures that it draws.
"""

from __future__ import annotations

import collections
import functools
import gc
import logging
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import (
    CellType,
    CodeType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

from optbook.benchmark.profiles.places import is_measuring
from optbook.benchmark.restore import closure, namespaces, unwrapped

MEASURING = "optbook.benchmark"
CACHES = type(functools.lru_cache(len))
LEAVES = frozenset({str, int, float, complex, bool, bytes, bytearray, type(None), CodeType, range})
"""What holds nothing else."""
_SAID_BY_NAME = (FunctionType, type, ModuleType, MethodType, CACHES)
_MODULE_DICTS = ("_modules", "_parameters", "_buffers")
LONGEST_KEY = 40


@dataclass(frozen=True)
class Hop:
    """From one holder to what it holds: the holder's type (empty where the name before says it), the edge."""

    holder: str
    edge: str


@dataclass(frozen=True)
class Chain:
    """A chain of references from ``root`` (a module, a thread's frame) to an object of type ``end``."""

    root: str
    hops: tuple[Hop, ...]
    end: str

    def __str__(self) -> str:
        text = self.root
        for hop in self.hops:
            text += f" -> {hop.holder}{hop.edge}" if hop.holder else hop.edge
        return f"{text} -> {self.end}"

    @property
    def path(self) -> str:
        """As code would write it: ``model.layers[0].weight``."""
        edges = "".join(hop.edge for hop in self.hops)
        return edges.removeprefix(".") if self.root == "__main__" else f"{self.root}{edges}"


class References:
    """All that can be reached from the roots, and by which shortest way; roots named first go first.

    Args:
        roots: of each, its name and a dict whose keys are names.
        hidden: ids of what is not looked into.
    """

    def __init__(self, roots: Iterable[tuple[str, dict[str, Any]]], hidden: frozenset[int]) -> None:
        self._kept = list(roots)
        self._roots = {id(start): name for name, start in reversed(self._kept)}
        self._parents: dict[int, Any] = dict.fromkeys(hidden)
        self._walk([start for _, start in self._kept if id(start) not in hidden], self._parents)

    def _walk(self, level: list[Any], parents: dict[int, Any]) -> None:
        parents |= dict.fromkeys(map(id, level))
        children = _children()
        while level:
            below = []
            for thing in level:
                for child in children(thing):
                    key = id(child)
                    if key not in parents and type(child) not in LEAVES:
                        parents[key] = thing
                        below.append(child)
            level = below

    def further(self, starts: list[Any]) -> set[int]:
        """The ids of what can be reached from ``starts`` as well, or from there only."""
        parents = dict(self._parents)
        self._walk(starts, parents)
        return set(parents)

    def __contains__(self, thing: object) -> bool:
        return id(thing) in self._parents

    def parent(self, thing: object) -> Any:
        """What holds it; None for a root and for what was not reached."""
        return self._parents.get(id(thing))

    def is_root(self, thing: object) -> bool:
        """Whether it is one of the roots."""
        return id(thing) in self._roots

    def chain(self, thing: object) -> Chain | None:
        """The way to a thing; None if it was not reached."""
        if thing not in self:
            return None
        nodes = [thing]
        while not self.is_root(nodes[0]) and self.parent(nodes[0]) is not None:
            nodes.insert(0, self.parent(nodes[0]))
        return Chain(self._roots.get(id(nodes[0]), "?"), tuple(_hops(nodes)), kind(thing))


def kind(thing: object) -> str:
    """The name of a thing's type."""
    return type(thing).__name__


def roots(given: Callable[..., object]) -> list[tuple[str, dict[str, Any]]]:
    """Where Python starts: the workload's names, modules, and the local names of all running functions."""
    found: list[tuple[str, dict[str, Any]]] = []
    for namespace in namespaces(given):
        found.append((str(namespace.get("__name__", "__main__")), namespace))
    inner = unwrapped(given)
    name = str(getattr(inner, "__name__", "the workload"))
    names = getattr(getattr(inner, "__code__", None), "co_freevars", ())
    found.append((f"{name}: closure variable", _contents(names, closure(given))))
    found.append((f"{name}:", {"the workload": given}))
    found.append(("logging.getLogger", logging.root.manager.loggerDict))
    loaded: list[tuple[str, object]] = list(sys.modules.items())
    modules = [(key, module) for key, module in loaded if isinstance(module, ModuleType)]
    modules.sort(key=lambda item: item[0] != "__main__")
    found += [(key, vars(module)) for key, module in modules if not key.startswith(MEASURING)]
    return [*found, *_locals()]


def hidden() -> frozenset[int]:
    """The ids of the namespaces that belong to the instrument."""
    return frozenset(map(id, _namespaces_of_ours()))


def measuring() -> list[Any]:
    """Where what belongs to the instrument can be reached from."""
    return [*_namespaces_of_ours(), *(names for ours, _, names in _frames() if ours)]


def with_last(chain: Chain, holder: Any, child: Any) -> Chain:
    """The chain to a container, made longer by its entry ``child``, which Python's collector doesn't know."""
    where = (*chain.hops, Hop(kind(holder), _edge(holder, [child])[0]))
    return Chain(chain.root, where, kind(child))


def ring(things: list[Any]) -> str:
    """Things that refer to each other, the last to the first."""
    hops, i = [], 0
    nodes = [*things, things[0]]
    while i < len(nodes) - 1:
        edge, taken = _edge(nodes[i], nodes[i + 1 :])
        hops.append(f"{kind(nodes[i])}{edge}")
        i += taken
    return " -> ".join([*hops, kind(things[0])])


def _namespaces_of_ours() -> list[dict[str, Any]]:
    return [vars(module) for key, module in list(sys.modules.items()) if key.startswith(MEASURING)]


def _contents(names: Sequence[str], cells: Sequence[Any]) -> dict[str, Any]:
    found = {}
    for name, cell in zip(names, cells, strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not bound
            continue
    return found


def _locals() -> Iterable[tuple[str, dict[str, Any]]]:
    """The local names of the functions that run, in all threads, but for the instrument's."""
    return ((f"{name}: local variable", names) for ours, name, names in _frames() if not ours)


def _frames() -> Iterable[tuple[bool, str, dict[str, Any]]]:
    """Of all functions that run: whether they are the instrument's, their name, and their local names."""
    threads = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, top in sys._current_frames().items():
        own = "" if ident == threading.get_ident() else f"thread {threads.get(ident, ident)}, "
        frame: FrameType | None = top
        while frame is not None:
            code = frame.f_code
            if frame.f_locals is not frame.f_globals:
                name = code.co_qualname.replace("<locals>.", "")
                yield is_measuring(code.co_filename), f"{own}{name}", dict(frame.f_locals)
            frame = frame.f_back


def _children() -> Callable[[Any], Iterable[Any]]:
    """What a thing refers to: of torch modules first their parts, of tensors their gradients.

    The former are several dicts away, the latter where Python's collector can't look.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return gc.get_referents
    kinds: dict[type, int] = {}

    def children(thing: Any) -> Iterable[Any]:
        found = gc.get_referents(thing)
        own = type(thing)
        if own not in kinds:
            kinds[own] = 2 if issubclass(own, torch.nn.Module) else int(issubclass(own, torch.Tensor))
        if kinds[own] == 1 and thing.is_leaf and thing.grad is not None:
            found.append(thing.grad)
        if kinds[own] == 2:
            found[:0] = [part for _, part in _parts(thing)]
        return found

    return children


def _parts(module: Any) -> list[tuple[str, Any]]:
    """What a torch module calls by name: its parameters, buffers and modules."""
    held = _attributes(module) or {}
    dicts = [held[name] for name in _MODULE_DICTS if isinstance(held.get(name), dict)]
    return [pair for found in dicts for pair in found.items()]


def _hops(nodes: list[Any]) -> Iterable[Hop]:
    """The edges between the nodes, where several that a reader sees as one are one."""
    first, i = _key(nodes[0], nodes[1]) if len(nodes) > 1 else None, 1
    if nodes[0] is logging.root.manager.loggerDict:
        yield Hop("", f"({first!r})")
    else:
        yield Hop("", f"{'.' if '__name__' in nodes[0] else ' '}{first}")
    while i < len(nodes) - 1:
        edge, taken = _edge(nodes[i], nodes[i + 1 :])
        yield Hop("" if i == 1 and isinstance(nodes[i], _SAID_BY_NAME) else kind(nodes[i]), edge)
        i += taken


def _edge(holder: Any, rest: list[Any]) -> tuple[str, int]:
    """How ``holder`` holds the first of ``rest`` (or one further down), and how many edges that takes."""
    child = rest[0]
    if isinstance(holder, FunctionType) and child is not holder.__dict__:
        return _of_function(holder, rest)
    if isinstance(holder, CACHES):
        return " (its cache)", 2 if type(child) is dict and len(rest) > 1 else 1
    if isinstance(holder, dict):
        return _of_dict(holder, child), 1
    if isinstance(holder, (list, tuple, collections.deque)):
        return f"[{next((i for i, item in enumerate(holder) if item is child), '?')}]", 1
    if isinstance(holder, (set, frozenset)):
        return " (a member)", 1
    if isinstance(holder, MethodType):
        return (".__self__" if holder.__self__ is child else ".__func__"), 1
    if isinstance(holder, CellType):
        return " (closure variable)", 1
    if isinstance(holder, (GeneratorType, CoroutineType)):
        frame = holder.gi_frame if isinstance(holder, GeneratorType) else holder.cr_frame
        name = None if frame is None else _key(frame.f_locals, child)
        return f" (local variable {name})" if name else " (suspended)", 1
    return _of_instance(holder, rest)


def _of_dict(holder: dict[Any, Any], child: Any) -> str:
    key = _key(holder, child)
    if key is None:
        return " (a key)"
    if isinstance(key, str) and "__name__" in holder:
        return f".{key}"
    written = f"{key!r}" if isinstance(key, (str, int, float, bytes, bool)) else f"<{kind(key)}>"
    return f"[{written if len(written) <= LONGEST_KEY else written[: LONGEST_KEY - 1] + '…'}]"


def _of_function(holder: FunctionType, rest: list[Any]) -> tuple[str, int]:
    if holder.__closure__ is not None and rest[0] is holder.__closure__ and len(rest) > 1:
        index = next((i for i, cell in enumerate(holder.__closure__) if cell is rest[1]), 0)
        return f" (closure variable {holder.__code__.co_freevars[index]})", 3 if len(rest) > 2 else 2
    if rest[0] is holder.__defaults__:
        return " (default argument)", 2 if len(rest) > 1 else 1
    return " (function)", 1


def _of_instance(holder: Any, rest: list[Any]) -> tuple[str, int]:
    """The name of an attribute; of a torch module's the part, parameter or buffer of this name."""
    attributes, child = _attributes(holder), rest[0]
    part = next((key for key, held in _parts(holder) if held is child), None) if attributes else None
    if isinstance(part, str):
        return f"[{part}]" if part.isdigit() else f".{part}", 1
    by_dict = attributes is child and len(rest) > 1
    name, taken = (_key(child, rest[1]), 2) if by_dict else (_key(attributes or {}, child), 1)
    if name is None:
        name = next((key for key, slot in _slots(holder) if slot is child), None)
    torch = sys.modules.get("torch")
    if name is None and torch is not None and isinstance(holder, torch.Tensor) and holder.is_leaf:
        name = "grad" if holder.grad is child else None
    return " (inside)" if name is None else f".{name}", taken


def _slots(holder: Any) -> Iterable[tuple[str, Any]]:
    for owner in type(holder).__mro__:
        for name, slot in owner.__dict__.items():
            if isinstance(slot, MemberDescriptorType):
                try:
                    yield name, slot.__get__(holder)
                except AttributeError:  # not set
                    continue


def _attributes(thing: Any) -> Any:
    """The dict of a thing's attributes itself, without running code of the thing's."""
    if isinstance(thing, type):
        return next((held for held in gc.get_referents(thing) if type(held) is dict), None)
    try:
        return object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return None


def _key(mapping: Any, value: Any) -> Any:
    return next((key for key, held in list(mapping.items()) if held is value), None)
