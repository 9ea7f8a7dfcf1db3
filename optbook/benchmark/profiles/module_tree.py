"""The modules of a workload as trees, with the figures of each."""

from __future__ import annotations

import inspect
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from optbook.benchmark.restore import closure, namespaces


@dataclass(frozen=True)
class Figures:
    """Of a step (or run): seconds, FLOPs, and bytes.

    ``activations`` are bytes that autograd kept for the backward pass, parameters and buffers apart;
    ``moved`` bytes that operators read and wrote. ``arithmetic`` and ``memory`` are the seconds that the
    operators would take at the machine's peaks, by the roof that each of them hits.
    """

    calls: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    forward_flops: float = 0.0
    backward_flops: float = 0.0
    activations: float = 0.0
    moved: float = 0.0
    arithmetic: float = 0.0
    memory: float = 0.0

    def __add__(self, other: Figures) -> Figures:
        return Figures(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @property
    def seconds(self) -> float:
        """Forward and backward."""
        return self.forward + self.backward

    @property
    def flops(self) -> float:
        """Forward and backward."""
        return self.forward_flops + self.backward_flops

    @property
    def roof(self) -> str:
        """'arithmetic' or 'memory', whichever limits most of the work; empty if not known."""
        if not self.arithmetic + self.memory:
            return ""
        return "arithmetic" if self.arithmetic >= self.memory else "memory"

    @property
    def share(self) -> float | None:
        """The time at the machine's peaks ÷ the time taken; None if not known."""
        at_peak = self.arithmetic + self.memory
        return at_peak / self.seconds if at_peak and self.seconds else None


@dataclass(frozen=True)
class Module:
    """A module and what lies in it; ``own`` is without that.

    ``path`` begins with the model's name. ``parameters`` and ``trainable`` are its own; what several modules
    share is counted at the first. ``thread`` is "" for the workload's own.
    """

    path: str
    kind: str
    own: Figures
    parameters: int
    trainable: int
    remarks: tuple[str, ...] = ()
    children: tuple[Module, ...] = field(default=(), repr=False)
    depth: int = 0
    thread: str = ""

    @property
    def total(self) -> Figures:
        """The figures with those of all that lies in it, but for ``calls``, which are its own."""
        found = Figures(**{**vars(self.own), "calls": 0.0})
        for child in self.children:
            found += child.total
        return Figures(**{**vars(found), "calls": self.own.calls})

    @property
    def all_parameters(self) -> int:
        """Its own and those of all that lies in it."""
        return self.parameters + sum(child.all_parameters for child in self.children)

    @property
    def all_trainable(self) -> int:
        """The same of those that are not frozen."""
        return self.trainable + sum(child.all_trainable for child in self.children)

    def walk(self) -> Iterator[Module]:
        """Itself, and all that lies in it, as they are written."""
        yield self
        for child in self.children:
            yield from child.walk()


Sums = defaultdict[str, float]
Charges = dict[int, tuple[Any, Sums]]
"""By a module's id: the module, and what is to be added to its figures."""


@dataclass
class _Branch:
    path: str
    kind: str = ""
    parameters: int = 0
    trainable: int = 0
    remarks: tuple[str, ...] = ()
    sums: Sums = field(default_factory=lambda: defaultdict(float))
    children: dict[str, _Branch] = field(default_factory=dict)

    def finished(self, divisors: Mapping[str, float], thread: str, depth: int = 0) -> Module:
        own = {name: value / divisors[name] for name, value in self.sums.items()}
        return Module(
            self.path,
            self.kind,
            Figures(**own),
            self.parameters,
            self.trainable,
            self.remarks,
            tuple(child.finished(divisors, thread, depth + 1) for child in self.children.values()),
            depth,
            thread,
        )


@dataclass
class _Root:
    branch: _Branch
    thread: str
    signature: tuple[tuple[str, str], ...]
    model: weakref.ref[Any]
    runs: set[int] = field(default_factory=set)


class Forest:
    """The trees of all models that a workload calls: the modules called that lie in no other one called.

    A model that each run builds anew, with the same modules in it, is one tree.
    """

    def __init__(self, given: Callable[..., object]) -> None:
        self._given = given
        self._roots: list[_Root] = []
        self._run = 0

    def add(self, threads: Iterable[tuple[str, Charges]]) -> None:
        """Add what the modules did in one run, by thread."""
        self._run += 1
        for thread, charges in threads:
            self._add(thread, charges)

    def _add(self, thread: str, charges: Charges) -> None:
        inside: set[int] = set()
        for module, _ in charges.values():
            if id(module) not in inside:
                inside |= {id(inner) for inner in module.modules() if inner is not module}
        growth = _Growth(charges)
        for key, (module, _) in charges.items():
            if key not in inside:
                root = self._root(module, thread)
                growth.grow(module, root.branch)

    def models(self, divisors: Mapping[str, float]) -> tuple[Module, ...]:
        """The trees, each figure divided by its divisor."""
        return tuple(root.branch.finished(divisors, root.thread) for root in self._roots)

    def _root(self, module: Any, thread: str) -> _Root:
        signature = tuple((path, type(inner).__name__) for path, inner in module.named_modules())
        mine = [root for root in self._roots if root.thread == thread]
        found = next((root for root in mine if root.model() is module), None)
        if found is None:
            alike = (root for root in mine if root.signature == signature and self._run not in root.runs)
            found = next(alike, None)
        if found is None:
            found = _Root(_Branch(self._name(module)), thread, signature, weakref.ref(module))
            self._roots.append(found)
        found.model = weakref.ref(module)
        found.runs.add(self._run)
        return found

    def _name(self, module: Any) -> str:
        taken = {root.branch.path for root in self._roots}
        name = first = named(module, self._given)
        number = 1
        while name in taken:
            number += 1
            name = f"{first} ({number})"
        return name


class _Growth:
    """Grows the trees of one run; what was seen before, in this tree or another, is shared."""

    def __init__(self, charges: Charges) -> None:
        self._charges = charges
        self._places: dict[int, _Branch] = {}
        self._parameters: dict[int, str] = {}

    def grow(self, module: Any, branch: _Branch) -> None:
        self._places[id(module)] = branch
        inner = dict(module._modules.items()).get("_orig_mod")
        if inner is not None:  # what torch.compile puts around a module stands for it
            self._charge(module, branch, calls=False)
            self.grow(inner, branch)
            branch.remarks = ("compiled, run eagerly here", *branch.remarks)
            return
        branch.kind = type(module).__name__
        branch.remarks = (*_kind_remarks(module), *self._own_parameters(module, branch))
        self._charge(module, branch)
        for name, child in module._modules.items():
            if child is None:
                continue
            place = self._places.get(id(child))
            path = f"{branch.path}.{name}"
            if place is not None:
                place.remarks = (*place.remarks, f"also at {path}")
            else:
                self.grow(child, branch.children.setdefault(name, _Branch(path)))

    def _charge(self, module: Any, branch: _Branch, calls: bool = True) -> None:
        _, charged = self._charges.get(id(module), (module, {}))
        for name, value in charged.items():
            if calls or name != "calls":
                branch.sums[name] += value

    def _own_parameters(self, module: Any, branch: _Branch) -> list[str]:
        from torch.nn.parameter import is_lazy

        remarks = []
        branch.parameters = branch.trainable = 0
        own = [(name, p) for name, p in module._parameters.items() if p is not None and not is_lazy(p)]
        for name, parameter in own:
            first = self._parameters.setdefault(id(parameter), f"{branch.path}.{name}")
            if first != f"{branch.path}.{name}":
                remarks.append(f"{name} is {first}")
                continue
            branch.parameters += parameter.numel()
            branch.trainable += parameter.numel() if parameter.requires_grad else 0
        if own and not any(parameter.requires_grad for _, parameter in own):
            remarks.append("frozen")
        return remarks


def _kind_remarks(module: Any) -> list[str]:
    import torch

    remarks = []
    if getattr(module, "_compiled_call_impl", None) is not None:
        remarks.append("compiled, run eagerly here")
    if isinstance(module, torch.jit.ScriptModule):
        remarks.append("TorchScript: what it calls inside is not seen")
    return remarks


def named(module: Any, given: Callable[..., object]) -> str:
    """What the workload's code calls a module: a variable, or a path from one; else its class's name."""
    import torch

    inner = inspect.unwrap(given)
    spaces: list[Mapping[str, Any]] = [*namespaces(inner), _closed_over(inner)]
    held = [(name, value) for space in spaces for name, value in list(space.items()) if name[:1] != "_"]
    for name, value in held:
        if value is module:
            return name
    for name, value in held:
        if isinstance(value, torch.nn.Module):
            for path, part in value.named_modules():
                if part is module:
                    return f"{name}.{path}"
        elif type(getattr(value, "__dict__", None)) is dict and not isinstance(value, type):
            for attribute, part in list(vars(value).items()):
                if part is module:
                    return f"{name}.{attribute}"
    return type(module).__name__


def _closed_over(given: Callable[..., object]) -> dict[str, Any]:
    found = {}
    names = getattr(getattr(given, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, closure(given), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not bound yet
            continue
    return found
