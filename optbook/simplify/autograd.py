"""Under autograd, a replayed output stands for the component's forward and backward.

Its node in the graph hands recorded gradients to the component's inputs and to the parameters used inside it,
so that what comes before it, and the optimizer after it, keep their cost. The gradients were recorded from a
real backward; until there was one, zeros take their place.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from optbook.simplify import trees
from optbook.simplify.recording import Recording, Wait


def is_on() -> bool:
    """Whether torch is in use and records a graph."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.is_grad_enabled()


@dataclass(eq=False)
class Gradients:
    """What real backwards gave: for the inputs in order, for the parameters by their id."""

    inputs: tuple[Any, ...] = ()
    parameters: dict[int, Any] = field(default_factory=dict)
    seconds: float = 0.0

    def set(self, tensors: tuple[Any, ...], inputs: int, values: tuple[Any, ...], seconds: float) -> None:
        """Keep, for inputs and parameters, the first ones that come."""
        values = tuple(None if value is None else value.detach() for value in values)
        self.inputs = self.inputs or values[:inputs]
        for parameter, value in zip(tensors[inputs:], values[inputs:], strict=True):
            if value is not None:
                self.parameters.setdefault(id(parameter), value)
        self.seconds = self.seconds or seconds

    def of(self, tensors: tuple[Any, ...], inputs: int) -> list[Any]:
        """Gradients for these tensors, of which so many are inputs and the others parameters."""
        import torch

        known = [*self.inputs[:inputs], *[None] * (inputs - len(self.inputs))]
        known += [self.parameters.get(id(parameter)) for parameter in tensors[inputs:]]
        return [
            value if value is not None and value.shape == tensor.shape else torch.zeros_like(tensor)
            for tensor, value in zip(tensors, known, strict=True)
        ]


@dataclass(frozen=True, slots=True, eq=False)
class Graded:
    """An output that was returned with a graph behind it."""

    value: Any
    outputs: tuple[Any, ...]
    parameters: tuple[Any, ...]
    gradients: Gradients
    seconds: float
    copy: bool

    def give(self, args: tuple[Any, ...], kwargs: dict[str, Any], wait: Wait | None) -> Any:
        if wait is not None:
            wait.now(self.seconds)
        if not is_on():
            return trees.copied(self.value) if self.copy else self.value
        inputs = _graded(args, kwargs)
        given = _nodes().replayed.apply(self, wait, len(inputs), *inputs, *self.parameters)
        return _exchanged(self.value, self.outputs, given, self.copy)

    def changed(self, change: Callable[[Any], Any]) -> Graded:
        """The same with another value."""
        value = change(self.value)
        old = {id(output) for output in self.outputs}
        leaves = zip(trees.leaves(value), trees.leaves(self.value), strict=True)
        return replace(self, value=value, outputs=tuple(new for new, before in leaves if id(before) in old))


class Inputs:
    """The tensors with a graph that a call is given."""

    def __init__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self._tensors = _graded(args, kwargs)
        self._versions = [tensor._version for tensor in self._tensors]

    def reaches(self, result: Any) -> bool:
        """Whether there is a graph behind the result."""
        return any(_has_graph(leaf) for leaf in trees.leaves(result))

    def bridged(
        self, result: Any, gradients: Gradients, seconds: float, recording: Recording
    ) -> tuple[Any, Graded, Any] | None:
        """The result with a node of ours before its graph, which records gradients; what to keep of it.

        None where the component changes its inputs in place.
        """
        if [tensor._version for tensor in self._tensors] != self._versions:
            recording.note("it changes its input in place: what is replayed is cut from the graph")
            return None
        outputs = tuple({id(leaf): leaf for leaf in trees.leaves(result) if _has_graph(leaf)}.values())
        parameters = _leaves_behind(outputs, self._tensors)
        value, copy = recording.copied(result)
        value = cut(value)
        kept = tuple(
            mine
            for mine, theirs in zip(trees.leaves(value), trees.leaves(result), strict=True)
            if _has_graph(theirs)
        )
        graded = Graded(value, kept, parameters, gradients, seconds, copy)
        given = _nodes().recorded.apply(outputs, gradients, len(self._tensors), *self._tensors, *parameters)
        return _exchanged(result, outputs, given, False), graded, (value, self._tensors, parameters)


@dataclass(frozen=True, slots=True, eq=False)
class Accumulated:
    """Gradients that a real backward added to parameters."""

    parameters: tuple[Any, ...]
    gradients: tuple[Any, ...]
    seconds: float

    def give(self, args: tuple[Any, ...], kwargs: dict[str, Any], wait: Wait | None) -> None:
        import torch

        if wait is not None:
            wait.now(self.seconds)
        with torch.no_grad():
            for parameter, gradient in zip(self.parameters, self.gradients, strict=True):
                _add(parameter, gradient)


def parameters_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The leaves of the graphs behind the given tensors."""
    return _leaves_behind(tuple(leaf for leaf in trees.leaves((args, dict(kwargs))) if _has_graph(leaf)), ())


def added(parameters: tuple[Any, ...], backward: Callable[[], object]) -> tuple[Any, ...]:
    """Run ``backward`` and return what it added to the gradients of the parameters."""
    import torch

    before = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = None
    try:
        backward()
    finally:
        after = tuple(parameter.grad for parameter in parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, before, strict=True):
                new, parameter.grad = parameter.grad, gradient
                _add(parameter, new)
    return tuple(None if gradient is None else gradient.detach().clone() for gradient in after)


def _add(parameter: Any, gradient: Any) -> None:
    if gradient is None:
        return
    if parameter.grad is None:
        parameter.grad = gradient.clone()
    else:
        parameter.grad.add_(gradient)


def backward_once(args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> None:
    """Run the backward of a call's result, whose graph stays, down to its inputs and parameters."""
    import torch

    outputs = tuple(leaf for leaf in trees.leaves(result) if _has_graph(leaf))
    if outputs:
        inputs = _graded(args, kwargs)
        tensors = (*inputs, *_leaves_behind(outputs, inputs))
        ones = [torch.ones_like(output) for output in outputs]
        torch.autograd.grad(outputs, tensors, ones, retain_graph=True, allow_unused=True)


def cut(value: Any) -> Any:
    """The value with its tensors out of their graphs."""
    if not any(_has_graph(leaf) for leaf in trees.leaves(value)):
        return value
    return trees.mapped(value, lambda leaf: leaf.detach() if _has_graph(leaf) else leaf)


def _has_graph(leaf: Any) -> bool:
    return trees.is_tensor(leaf) and leaf.grad_fn is not None


def _graded(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    found = (leaf for leaf in trees.leaves((args, dict(kwargs))) if trees.is_tensor(leaf))
    return tuple(tensor for tensor in found if tensor.requires_grad)


def _leaves_behind(outputs: tuple[Any, ...], inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The parameters that the outputs were computed from, not looking behind the inputs."""
    from torch.autograd.graph import get_gradient_edge

    seen = {get_gradient_edge(tensor).node for tensor in inputs}
    waiting: list[Any] = [get_gradient_edge(tensor).node for tensor in outputs]
    found: list[Any] = []
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            found.append(variable)
        waiting += [following for following, _ in node.next_functions]
    return tuple(found)


def _exchanged(value: Any, old: tuple[Any, ...], new: tuple[Any, ...], copy: bool) -> Any:
    exchange = {id(before): after for before, after in zip(old, new, strict=True)}

    def change(leaf: Any) -> Any:
        if id(leaf) in exchange:
            return exchange[id(leaf)]
        return trees.copied(leaf) if copy else leaf

    return trees.mapped(value, change)


@dataclass(frozen=True)
class _Nodes:
    recorded: Any
    replayed: Any


@functools.lru_cache(1)
def _nodes() -> _Nodes:
    """The two kinds of nodes; made late, since they are classes of torch's."""
    import torch

    class Recorded(torch.autograd.Function):
        """Stands before the real graph; its backward runs the real one and keeps what it gave."""

        @staticmethod
        def forward(ctx: Any, outputs: Any, gradients: Gradients, inputs: int, *tensors: Any) -> Any:
            ctx.outputs, ctx.gradients, ctx.inputs, ctx.tensors = outputs, gradients, inputs, tensors
            ctx.set_materialize_grads(False)
            return tuple(output.detach() for output in outputs)

        @staticmethod
        def backward(ctx: Any, *given: Any) -> tuple[Any, ...]:
            outputs = [
                output for output, gradient in zip(ctx.outputs, given, strict=True) if gradient is not None
            ]
            given = tuple(gradient for gradient in given if gradient is not None)
            start = time.perf_counter()
            found = torch.autograd.grad(
                outputs,
                ctx.tensors,
                given,
                retain_graph=True,
                create_graph=torch.is_grad_enabled(),
                allow_unused=True,
            )
            ctx.gradients.set(ctx.tensors, ctx.inputs, found, time.perf_counter() - start)
            return None, None, None, *found

    class Replayed(torch.autograd.Function):
        """Stands for a component that is not called; its backward hands on recorded gradients."""

        @staticmethod
        def forward(ctx: Any, graded: Graded, wait: Wait | None, inputs: int, *tensors: Any) -> Any:
            ctx.graded, ctx.wait, ctx.inputs, ctx.tensors = graded, wait, inputs, tensors
            return tuple(output.clone() if graded.copy else output.detach() for output in graded.outputs)

        @staticmethod
        def backward(ctx: Any, *given: Any) -> tuple[Any, ...]:
            gradients = ctx.graded.gradients
            if ctx.wait is not None:
                ctx.wait.now(gradients.seconds)
            return None, None, None, *gradients.of(ctx.tensors, ctx.inputs)

    return _Nodes(Recorded, Replayed)
