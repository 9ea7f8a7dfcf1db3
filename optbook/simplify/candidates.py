"""Which components a ceiling looks at when none are named: where a call profile saw the time go."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any

from optbook.benchmark.profiles.places import is_measuring, is_yours, of_call
from optbook.benchmark.profiles.sampler import Samples
from optbook.errors import OptionError
from optbook.simplify.components import Component, find

LEAST_SHARE = 0.05
ENOUGH, MOST = 4, 6
COVERED = 0.5
"""A component is taken apart only if its own parts account for at least so much of it."""
Key = Any
"""The id of a function's code; or the dotted name of a call into C, and the id of its caller's code."""


@dataclass(frozen=True)
class Found:
    """The candidates, largest first; by name, what was left out and why; what was taken apart into them."""

    components: tuple[Component, ...]
    left_out: Mapping[str, str]
    inside: tuple[str, ...] = ()


@dataclass
class _Node:
    """A component as the stacks show it: seconds below it, and below each component called from it."""

    seconds: float = 0.0
    children: dict[Key, _Node] = field(default_factory=dict)


def candidates(
    samples: Samples, workload: Callable[..., object], within: Sequence[Component] | None = None
) -> Found:
    """The components worth looking at: your functions, and the library calls that these make directly.

    No two of them lie inside each other: the largest are taken apart until there are enough of them.

    Args:
        samples: what a sampler saw of the workload, in all threads.
        workload: the function or cell, which is no candidate itself.
        within: look for parts of these components, in place of the workload's.
    """
    opened = {id(getattr(component.target, "__code__", None)) for component in within or ()}
    root = _tree(samples, {id(code) for code in _own_codes(workload)}, opened)
    left_out: dict[str, str] = {}
    taken_apart: list[str] = []
    parts: dict[Key, _Node] = {}
    resolved: dict[Key, Component] = {}
    refused: set[Key] = set()

    def below(node: _Node) -> Iterable[tuple[Key, _Node]]:
        """The components next below a node; what can't be one gives way to what is below it."""
        for key, child in node.children.items():
            if child.seconds < LEAST_SHARE * root.seconds:
                continue
            if key not in resolved and key not in refused:
                try:
                    resolved[key] = find_component(samples, key)
                except OptionError as error:
                    refused.add(key)
                    left_out[_written(samples, key)] = str(error)
            if key in refused:
                yield from below(child)
            else:
                yield key, child

    def add(node: _Node) -> None:
        for key, child in below(node):
            known = parts.setdefault(key, _Node())
            known.seconds += child.seconds
            known.children |= child.children

    def is_dividable(node: _Node) -> bool:
        return sum(child.seconds for _, child in below(node)) >= max(COVERED * node.seconds, 1e-9)

    if within is None:
        add(root)
    for component in within or ():
        taken_apart.append(component.name)
        for node in _nodes(root, samples, component):
            add(node)
    while len(parts) < ENOUGH:
        dividable = {key: node for key, node in parts.items() if is_dividable(node)}
        if not dividable:
            break
        largest = max(dividable, key=lambda key: dividable[key].seconds)
        taken_apart.append(resolved[largest].name)
        add(parts.pop(largest))
    ordered = sorted(parts, key=lambda key: -parts[key].seconds)
    components = [resolved[key] for key in ordered]
    for component in components[MOST:]:
        left_out[component.name] = f"only the {MOST} largest are looked at; name it to see it"
    return Found(tuple(components[:MOST]), left_out, tuple(taken_apart))


def _nodes(node: _Node, samples: Samples, component: Component) -> Iterable[_Node]:
    """The outermost nodes that stand for a component."""
    code = getattr(component.target, "__code__", None)
    for key, child in node.children.items():
        if not isinstance(key, tuple) and samples.codes[key] is code:
            yield child
        else:
            yield from _nodes(child, samples, component)


def _tree(samples: Samples, own: set[int], opened: set[int]) -> _Node:
    root = _Node()
    for stacks in samples.threads.values():
        for (chain, offset, _), spent in stacks.seconds.items():
            root.seconds += spent
            node, seen = root, set[Key]()
            for key in _keys(samples, chain, offset, own, opened):
                if key in seen:  # it called itself
                    continue
                seen.add(key)
                node = node.children.setdefault(key, _Node())
                node.seconds += spent
    return root


def _own_codes(workload: Callable[..., object]) -> Iterable[CodeType]:
    codes = getattr(workload, "code", None)
    if isinstance(codes, tuple):
        return codes
    code = getattr(workload, "__code__", None)
    return (code,) if isinstance(code, CodeType) else ()


def _keys(
    samples: Samples, chain: tuple[int, ...], offset: int, own: set[int], opened: set[int]
) -> Iterable[Key]:
    """The candidates on one stack, from the outermost on; library code that is opened counts as yours."""
    direct = False
    for key in chain:
        code = samples.codes[key]
        if key in own or key in opened or is_yours(code.co_filename):
            direct = True
            if key not in own and code.co_name[0] != "<":
                yield key
        elif direct and _is_named(code):
            direct = False
            yield key
    if direct and (chain[-1] in own | opened or is_yours(samples.codes[chain[-1]].co_filename)):
        call = of_call(samples.codes[chain[-1]], offset, samples.namespaces[chain[-1]], "your code")
        if call is not None and call.kind == "library":
            yield call.name.removesuffix("()"), chain[-1]


def _is_named(code: CodeType) -> bool:
    """Whether a library's function does the work itself: wrappers that stand for many are passed over."""
    return not ("<" in code.co_qualname or is_measuring(code.co_filename) or code in _torch_wrappers())


def find_component(samples: Samples, key: Key) -> Component:
    """The component that a key of the tree stands for.

    Raises:
        OptionError: it can't be found or replaced.
    """
    if isinstance(key, tuple):
        return find(key[0], samples.namespaces[key[1]])
    code = samples.codes[key]
    functions = [thing for thing in gc.get_referrers(code) if type(thing) is FunctionType]
    if not functions:
        raise OptionError("no function with this code is alive outside of the workload")
    return find(functions[0])


def _written(samples: Samples, key: Key) -> str:
    if isinstance(key, tuple):
        return str(key[0])
    code = samples.codes[key]
    module = samples.namespaces[key].get("__name__", "")
    name = code.co_qualname.replace("<locals>.", "")
    return name if module in ("", "__main__") else f"{module}.{name}"


def _torch_wrappers() -> tuple[CodeType, ...]:
    """The code through which torch calls a module's forward, whichever module it is."""
    torch = sys.modules.get("torch")
    if torch is None:
        return ()
    module = torch.nn.Module
    return tuple(function.__code__ for function in (module._wrapped_call_impl, module._call_impl))
