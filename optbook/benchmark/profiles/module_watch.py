# mypy: disable-error-code="no-untyped-call"
"""Watches modules, backward passes, optimizers and loaders: who was at work from when to when.

A module's forward pass lies between two hooks. Its backward pass needs no hook on its tensors: autograd
numbers the nodes of a thread as they are made and executes them in the opposite order (only gradients are
added to parameters as soon as they are there). So what one call made is executed in one go, but for what
modules called inside of it made, and the owner changes only where an edge of the graph leads from one call's
nodes to those of another. The nodes at the ends of such edges get a hook each when the backward pass reaches
the model's output.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from optbook.benchmark.profiles.sampler import AWAITING_THREAD
from optbook.benchmark.recorder import active

IN, OUT, MARK, END, ON, OFF = "in", "out", "mark", "end", "on", "off"
DATA, OPTIMIZER, PROFILE = "data", "optimizer", "this profile"
Event = tuple[float, str, Any]
"""When; what happened; and to whom: a module or a name (in, out), a backward pass and its owner (mark)."""
GRADIENT_IS_ADDED = 2**64 - 1
"""The number of the nodes that add a gradient to a parameter's."""
DEEPEST_OUTPUT = 6


@dataclass
class _Thread:
    """A thread's modules at work, and whose nodes autograd numbered from which number on."""

    name: str
    events: list[Event]
    stack: list[Any] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    owners: list[Any] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)

    def owned_from(self, number: int, owner: Any) -> None:
        if self.numbers and self.numbers[-1] == number:
            self.owners[-1] = owner
        else:
            self.numbers.append(number)
            self.owners.append(owner)

    def part(self, number: int) -> int:
        """Which part of the numbers a node lies in; -1 before the first."""
        return bisect_right(self.numbers, number) - 1

    def owner(self, part: int) -> Any:
        return self.owners[part] if part >= 0 else None


class Watch:
    """An instrument that notes events, by thread, while it is `running`.

    Args:
        now: gives the time of an event.
        waits: whether `track`'s waits for data are events too; needs ``now`` to be in its seconds.
    """

    def __init__(self, now: Callable[[], float], waits: bool = False) -> None:
        import torch
        from torch.autograd import Variable

        self._now = now
        self._waits = waits
        self._on = False
        self._mine: list[Event] = []
        self._threads: dict[int, _Thread] = {}
        self._tasks: set[int] = set()
        self._hooks: list[Any] = []
        self._on_nodes: list[Any] = []
        self._tensor = torch.Tensor
        self._number: Callable[[], int] = torch._C._autograd._get_sequence_nr
        self._node: Callable[[], Any] = torch._C._current_autograd_node
        self._task: Callable[[], int] = torch._C._current_graph_task_id
        self._at_end: Callable[[Any], None] = Variable._execution_engine.queue_callback

    def start(self) -> None:
        """As in `Instrument`."""
        self._own = threading.get_ident()

    def stop(self) -> None:
        """As in `Instrument`."""
        self.running(False)
        self._unhook()

    def running(self, on: bool) -> None:
        """As in `Instrument`."""
        if on == self._on:
            return
        if on:
            self._register()
            self._on = True
            self._begun = self._now()
            self._mine.append((self._begun, ON, None))
        else:
            self._mine.append((self._now(), OFF, None))
            self._on = False
            while self._hooks:
                self._hooks.pop()()
            self._note_waits()

    def taken(self) -> list[tuple[str, list[Event]]]:
        """The events since the last time: of the workload's own thread, named "", and of others."""
        others = [(t.name, t.events) for t in self._threads.values() if t.events is not self._mine]
        found = [("", self._mine), *others]
        self._mine, self._threads, self._tasks = [], {}, set()
        self._unhook()
        return found

    def _unhook(self) -> None:
        """Take the hooks off graphs that live on."""
        for handle in self._on_nodes:
            handle.remove()
        self._on_nodes = []

    def _register(self) -> None:
        from torch.nn.modules import module
        from torch.optim import optimizer
        from torch.utils.data import dataloader

        def step(name: str) -> Callable[..., None]:
            return lambda *arguments: self._note(name, OPTIMIZER)

        handles = [
            module.register_module_forward_pre_hook(self._enter),
            module.register_module_forward_hook(self._leave, always_call=True),
            optimizer.register_optimizer_step_pre_hook(step(IN)),
            optimizer.register_optimizer_step_post_hook(step(OUT)),
        ]
        self._hooks = [handle.remove for handle in handles]
        iterator: Any = dataloader._BaseDataLoaderIter
        original = iterator.__next__

        def timed(loader: Any) -> Any:
            self._note(IN, DATA)
            try:
                return original(loader)
            finally:
                self._note(OUT, DATA)

        iterator.__next__ = timed
        self._hooks.append(lambda: setattr(iterator, "__next__", original))

    def _thread(self) -> _Thread:
        ident = threading.get_ident()
        found = self._threads.get(ident)
        if found is None:
            name = threading.current_thread().name
            mine = ident == self._own or name == AWAITING_THREAD or self._task() != -1
            found = _Thread("", self._mine) if mine else _Thread(name, [])
            self._threads[ident] = found
        return found

    def _note(self, kind: str, what: Any) -> None:
        self._thread().events.append((self._now(), kind, what))

    def _enter(self, module: Any, arguments: Any) -> None:
        thread = self._thread()
        thread.stack.append(module)
        thread.owned_from(self._number(), module)
        thread.events.append((self._now(), IN, module))

    def _leave(self, module: Any, arguments: Any, output: Any) -> None:
        thread = self._thread()
        thread.events.append((self._now(), OUT, module))
        while thread.stack and thread.stack.pop() is not module:
            pass
        thread.owned_from(self._number(), thread.stack[-1] if thread.stack else None)
        if thread.stack:
            return
        thread.events.append((self._now(), IN, PROFILE))
        arrived = partial(self._arrived, thread)
        for node in {tensor.grad_fn for tensor in self._tensors(output)} - {None}:
            self._on_nodes.append(node.register_prehook(arrived))
        thread.events.append((self._now(), OUT, PROFILE))

    def _tensors(self, value: Any, depth: int = 0) -> Iterator[Any]:
        """The tensors in an output: containers, data classes and objects with attributes are looked into."""
        if isinstance(value, self._tensor):
            yield value
            return
        inner: Any = ()
        if isinstance(value, dict):
            inner = value.values()
        elif isinstance(value, (list, tuple, set)):
            inner = value
        elif type(getattr(value, "__dict__", None)) is dict and not isinstance(value, type):
            inner = vars(value).values()
        if depth < DEEPEST_OUTPUT:
            for item in inner:
                yield from self._tensors(item, depth + 1)

    def _arrived(self, thread: _Thread, gradients: Any) -> None:
        """The backward pass has reached an output: hook the nodes behind it where the owner changes."""
        if not self._on:
            return
        start = self._node()
        number = start._sequence_nr()
        part = thread.part(number)
        self._mark(thread, thread.owner(part), ())
        if number in thread.seen:
            return
        thread.events.append((self._now(), IN, PROFILE))
        seen = thread.seen
        seen.add(number)
        hooked = set()
        todo = [(start, part)]
        while todo:
            node, part = todo.pop()
            for behind, _ in node.next_functions:
                if behind is None:
                    continue
                number = behind._sequence_nr()
                if number == GRADIENT_IS_ADDED:
                    continue
                other = thread.part(number)
                if other != part and number not in hooked:
                    hooked.add(number)
                    marked = partial(self._mark, thread, thread.owner(other))
                    self._on_nodes.append(behind.register_prehook(marked))
                if number not in seen:
                    seen.add(number)
                    todo.append((behind, other))
        thread.events.append((self._now(), OUT, PROFILE))

    def _mark(self, thread: _Thread, owner: Any, gradients: Any) -> None:
        """From now on, the backward pass executes the owner's nodes."""
        if not self._on:
            return
        task = self._task()
        if task not in self._tasks:
            self._tasks.add(task)
            self._at_end(lambda: self._ended(thread, task))
        thread.events.append((self._now(), MARK, (task, owner)))

    def _ended(self, thread: _Thread, task: int) -> None:
        if self._on:
            thread.events.append((self._now(), END, task))

    def _note_waits(self) -> None:
        """Put the waits of the loop tracked first between the other events."""
        recorder = active()
        if not self._waits or recorder is None:
            return
        waits: list[Event] = []
        for series in list(recorder.series.values())[:1]:
            for asked, ready in zip(series.asked, series.ready, strict=True):
                if self._begun <= asked < ready:
                    waits += [(asked, IN, DATA), (ready, OUT, DATA)]
        if waits:
            self._mine.extend(waits)
            rank = {id(event): 2 if event[1] == IN else 0 for event in waits}
            self._mine.sort(key=lambda event: (event[0], rank.get(id(event), 1)))
