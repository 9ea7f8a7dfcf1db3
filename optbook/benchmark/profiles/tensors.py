"""The tensors that are alive, by size and by who holds them."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from optbook.benchmark.profiles.references import References

MOST_TENSORS = 15
MOST_NODES = 100_000


@dataclass(frozen=True)
class HeldTensor:
    """A tensor that is alive after the run.

    ``size`` are the bytes of its storage, which ``sharing`` further tensors share with it. ``holder`` is the
    shortest way to it, as code would write it. ``new`` says whether it was not there before the pass,
    ``graph`` the bytes that the graph of computations behind it keeps beside it.
    """

    holder: str
    size: int
    dtype: str
    shape: tuple[int, ...]
    device: str
    sharing: int
    new: bool
    graph: int


def living() -> list[Any]:
    """All tensors that Python's collector knows, and their gradients; none without torch."""
    tensors = among(gc.get_objects())
    gradients = [t.grad for t in tensors if t.is_leaf and t.grad is not None]
    known = set(map(id, tensors))
    return [*tensors, *(g for g in gradients if id(g) not in known)]


def among(things: list[Any]) -> list[Any]:
    """The tensors among things."""
    torch = sys.modules.get("torch")
    if torch is None:
        return []
    kinds = {kind for kind in set(map(type, things)) if issubclass(kind, torch.Tensor)}
    return [thing for thing in things if type(thing) in kinds]


def storage(tensor: Any) -> tuple[int, int]:
    """Where a tensor's bytes lie and how many they are; (0, 0) where it has none of its own."""
    try:
        kept = tensor.untyped_storage()
        return (kept.data_ptr(), kept.nbytes()) if tensor.device.type != "meta" else (0, 0)
    except (RuntimeError, NotImplementedError):  # sparse, and wrappers of other tensors
        return 0, 0


def storages(tensors: Iterable[Any]) -> set[int]:
    """Where the bytes of these lie."""
    return {storage(tensor)[0] for tensor in tensors}


def held(references: References, before: set[int]) -> tuple[tuple[HeldTensor, ...], dict[str, int]]:
    """The largest tensors that something of the workload holds, and of all how many bytes lie on each device.

    Args:
        references: who holds what.
        before: the storages that were there before the pass.
    """
    groups: dict[int, list[Any]] = {}
    totals: dict[str, int] = {}
    for tensor in living():
        where, size = storage(tensor)
        if size and tensor in references:
            if where not in groups:
                totals[str(tensor.device)] = totals.get(str(tensor.device), 0) + size
            groups.setdefault(where, []).append(tensor)
    largest = sorted(groups.values(), key=lambda group: -storage(group[0])[1])[:MOST_TENSORS]
    return tuple(_described(references, group, before) for group in largest), totals


def _described(references: References, group: list[Any], before: set[int]) -> HeldTensor:
    chains = [(chain, tensor) for tensor in group if (chain := references.chain(tensor)) is not None]
    chain, tensor = min(chains, key=lambda pair: (-pair[1].numel(), len(pair[0].hops), len(pair[0].path)))
    where, size = storage(tensor)
    return HeldTensor(
        holder=chain.path,
        size=size,
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(tensor.shape),
        device=str(tensor.device),
        sharing=len(group) - 1,
        new=where not in before,
        graph=graph([tensor], before | {where})[1],
    )


def is_tensor(thing: Any) -> bool:
    """Whether it is a tensor of torch's."""
    torch = sys.modules.get("torch")
    return torch is not None and issubclass(type(thing), torch.Tensor)


def has_graph(thing: Any) -> bool:
    """Whether it is a tensor that keeps the graph of computations behind it."""
    return is_tensor(thing) and thing.grad_fn is not None


def graph(tensors: Iterable[Any], counted: Iterable[int]) -> tuple[int, int]:
    """How many nodes the graphs behind tensors have, and the bytes that these keep for a backward pass.

    Args:
        tensors: any; nodes and storages that several have in common are counted once.
        counted: storages that are not counted, such as the parameters'.
    """
    seen, total = set(counted), 0
    known: set[Any] = set()
    waiting = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    while waiting and len(known) < MOST_NODES:
        node = waiting.pop()
        if node in known:
            continue
        known.add(node)
        waiting += [further for further, _ in node.next_functions if further is not None]
        for kept in _saved(node):
            where, size = storage(kept)
            if where not in seen:
                seen.add(where)
                total += size
    return len(known), total


def _saved(node: Any) -> Iterable[Any]:
    import torch

    for name in dir(node):
        if not name.startswith("_saved_") and name != "saved_tensors":
            continue
        try:
            value = getattr(node, name)
        except RuntimeError:  # freed by a backward pass
            continue
        for kept in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(kept, torch.Tensor):
                yield kept
