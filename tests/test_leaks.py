"""Leaks: what grows is found, with the chain that keeps it; what doesn't is not."""

from __future__ import annotations

import gc
import re
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import optbook
from optbook.benchmark.bench import runnable
from optbook.benchmark.cell import Cell
from optbook.benchmark.profiles.leaks import Census, Growth, Leak
from optbook.benchmark.profiles.leaks_pass import LeakSearch
from optbook.benchmark.profiles.references import References, hidden, roots
from optbook.benchmark.profiles.request import Request
from optbook.benchmark.profiles.tensors import held
from optbook.benchmark.runner import Workload
from optbook.experiments.record import Experiment
from tests.shells import shell_with_optbook

RUNS = Experiment(label="", executions=5, runs=4)
STEPS = Experiment(label="", executions=1, runs=1, steps=12, warmup=1, seconds=0.01)
SETUP = """
import atexit, collections, functools, logging
import numpy as np
import torch
class Thing:
    registry = []
    def __init__(self):
        self.data = bytearray(3000)
    def __call__(self):
        pass
class Node:
    def __init__(self):
        self.links = [self]
        self.data = bytearray(9000)
    def __del__(self):
        pass
def counter():
    seen = []
    def count():
        seen.append(Thing())
    return count
count = counter()
@functools.cache
def cached(n):
    return np.ones(n)
@functools.lru_cache(maxsize=99)
def bounded(n):
    return Thing()
history, arrays, named, ring, numbers = [], [], {}, collections.deque(maxlen=50), [5]
head, last = None, None
class Agent:
    def __init__(self):
        self.memory = {"old": []}
agent = Agent()
model = torch.nn.Sequential(torch.nn.Linear(20, 20))
losses, floats = [], []
total = torch.zeros(())
optimizer = torch.optim.Adam(model.parameters())
def forward():
    return (model(torch.ones(8, 20)) ** 2).mean()
"""
LEAKING = """
numbers[0] += 1
history.append(Thing())
arrays.append(np.ones(500))
named[numbers[0]] = np.ones(500)
count()
cached(numbers[0] * 100)
bounded(numbers[0])
Thing.registry.append(Thing())
logging.getLogger("a").addHandler(logging.StreamHandler())
atexit.register(Thing())
head = (head, Thing())
agent.memory["old"].append(Thing())
ring.append(Thing())
last = [Thing() for _ in range(20)]
losses.append(forward())
"""
KNOWN = {
    "__main__.history -> list[N] -> Thing": "Thing",
    "__main__.arrays -> list[N] -> ndarray": "ndarray",
    "__main__.named -> dict[N] -> ndarray": "ndarray",
    "__main__.count (closure variable seen) -> list[N] -> Thing": "Thing",
    "__main__.cached (its cache) -> ndarray": "ndarray",
    "__main__.bounded (its cache) -> Thing": "Thing",
    "__main__.Thing.registry -> list[N] -> Thing": "Thing",
    "logging.getLogger('a') -> Logger.handlers -> list[N] -> StreamHandler": "StreamHandler",
    "code in C, which Python's collector can't look into -> Thing": "Thing",
    "__main__.head -> tuple": "tuple, Thing",
    "__main__.agent -> Agent.memory -> dict['old'] -> list[N] -> Thing": "Thing",
    "__main__.ring -> deque[N] -> Thing": "Thing",
    "__main__.losses -> list[N] -> Tensor.grad_fn -> MeanBackward0 -> …": "Tensor",
}


@pytest.fixture(scope="module")
def shell() -> Iterator[Any]:
    with shell_with_optbook() as shell:
        assert shell.run_cell(SETUP).success
        yield shell
        shell.run_cell(
            "import atexit, logging; atexit.unregister(Thing); logging.getLogger('a').handlers.clear()"
        )


def search(given: Callable[[], object], experiment: Experiment = RUNS) -> Growth:
    """What grows, with the collector and tracemalloc as they were."""
    found = LeakSearch(Request(Workload(runnable(given)), given, experiment))
    before = gc.isenabled(), gc.get_debug(), gc.get_freeze_count(), tracemalloc.is_tracing()
    found.start()
    try:
        found.workload().run()
    finally:
        found.stop()
    assert before == (gc.isenabled(), gc.get_debug(), gc.get_freeze_count(), tracemalloc.is_tracing())
    assert found.growth is not None
    return found.growth


def written(leak: Leak) -> str:
    """The chain, without the indices of what came last."""
    return re.sub(r"\[\d+\]", "[N]", leak.chain)


@pytest.fixture(scope="module")
def growth(shell: Any) -> Growth:
    return search(Cell(LEAKING, shell))


@pytest.fixture(scope="module")
def leaks(growth: Growth) -> dict[str, Leak]:
    return {written(leak): leak for leak in growth.leaks}


@pytest.mark.parametrize("chain", KNOWN)
def test_what_grows_is_named_with_what_keeps_it(leaks: dict[str, Leak], chain: str) -> None:
    assert chain in leaks
    assert leaks[chain].what == KNOWN[chain]
    assert leaks[chain].count == (2 if chain.endswith("tuple") else 1)


def test_nothing_else_is_reported(leaks: dict[str, Leak]) -> None:
    assert set(leaks) - set(KNOWN) == set()


def test_sizes_lines_and_bounds(leaks: dict[str, Leak]) -> None:
    array = leaks["__main__.arrays -> list[N] -> ndarray"]
    assert array.size == pytest.approx(4000, rel=0.1)
    assert array.line is not None
    assert array.line[1] == 5  # below the line of the magic
    assert leaks["__main__.history -> list[N] -> Thing"].size == pytest.approx(3100, rel=0.1)
    bounds = {chain: leak.bound for chain, leak in leaks.items() if leak.bound is not None}
    assert bounds == {
        "__main__.bounded (its cache) -> Thing": 99,
        "__main__.ring -> deque[N] -> Thing": 50,
    }


def test_a_sum_that_drags_its_graph_along(shell: Any) -> None:
    found = search(Cell("total = total + forward()", shell))
    [leak] = found.leaks
    assert leak.chain == "__main__.total -> Tensor.grad_fn -> AddBackward0 -> …"
    assert leak.count > 3
    assert leak.size >= 8 * 20 * 4  # the squared output is saved


CLEAN = """
optimizer.zero_grad()
loss = forward()
loss.backward()
optimizer.step()
floats.append(loss.item())
last = {n: [Thing(), np.ones(100)] for n in range(50)}
agent.memory["latest"] = Thing()
"""


def test_a_clean_training_step_has_no_leak(shell: Any) -> None:
    found = search(Cell(CLEAN, shell))
    assert found.leaks == ()
    assert found.left is None or not found.left.finalizer
    assert abs(found.resident) < 2**24


def test_rings_are_told_apart_from_leaks(shell: Any) -> None:
    found = search(Cell("Node()", shell))
    assert found.leaks == ()
    assert found.left is not None
    assert (found.left.ring, found.left.finalizer) == ("Node.links -> list[0] -> Node", True)
    assert found.left.size == pytest.approx(9200, rel=0.1)
    assert gc.garbage == []


def test_a_finalizer_that_revives_its_object_is_a_leak(shell: Any) -> None:
    shell.run_cell("revived = []\nclass Revived(Node):\n    def __del__(self):\n        revived.append(self)")
    [leak] = search(Cell("Revived()", shell)).leaks
    assert written(leak) == "__main__.revived -> list[N] -> Revived"


def test_steps_of_a_tracked_loop_are_compared(shell: Any) -> None:
    def train() -> None:
        kept = []
        for i in optbook.track(range(13)):
            kept.append(torch.ones(1_000_000))  # large, so that they are among the tensors shown
            latest = [torch.ones(10), i]
        del latest

    found = search(train, STEPS)
    assert found.per == "step"
    [leak] = found.leaks
    name = "test_steps_of_a_tracked_loop_are_compared.train: local variable kept"
    assert written(leak) == f"{name} -> list[N] -> Tensor"
    assert (leak.count, leak.what) == (1, "Tensor")
    assert leak.size == pytest.approx(4e6, rel=0.1)
    assert name in {tensor.holder.partition("[")[0] for tensor in found.held}


def test_a_clean_tracked_loop_has_no_leak() -> None:
    network = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)

    def train() -> None:
        losses = []
        for x in optbook.track(torch.ones(13, 2, 4)):
            optimizer.zero_grad()
            loss = network(x).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())

    assert search(train, STEPS).leaks == ()


@pytest.mark.parametrize(
    ("experiment", "possible"),
    [
        (RUNS, True),
        (STEPS, True),
        (Experiment(label="", executions=1, runs=1), False),
        (Experiment(label="", executions=1, runs=1, steps=2, warmup=1, seconds=0.01), False),
    ],
)
def test_too_few_runs_or_steps_are_not_judged(experiment: Experiment, possible: bool) -> None:
    assert LeakSearch(Request(Workload(dir), dir, experiment)).possible is possible


def test_what_the_workload_raises_leaves_nothing_behind() -> None:
    calls = []

    def third() -> None:
        calls.append(1)
        if len(calls) == 4:
            raise ValueError("late")

    with pytest.raises(ValueError, match="late"):
        search(third)
    assert not tracemalloc.is_tracing()
    assert gc.get_freeze_count() == 0


def test_tracemalloc_and_frozen_objects_of_the_user_stay() -> None:
    tracemalloc.start()
    gc.freeze()
    try:
        census = Census(dir, "run", 1)
        census.trace()
        census.close()
        assert tracemalloc.is_tracing()
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
        tracemalloc.stop()


def test_tensors_are_named_by_their_holders_and_storage_counts_once() -> None:
    network = torch.nn.Sequential(torch.nn.Linear(300, 400))
    network[0].weight.grad = torch.ones(400, 300)
    names: dict[str, Any] = {"__name__": "__main__", "network": network}
    names["views"] = [(base := torch.ones(640, 640)), base[1], base.T]
    names["loss"] = network(torch.ones(5, 300)).sum()
    there = References([("__main__", names)], hidden())
    found, totals = held(there, set())
    mine = {tensor.holder: tensor for tensor in found if tensor.size in (1638400, 480000)}
    assert mine["views[0]"].sharing == 2
    assert mine["views[0]"].shape == (640, 640)
    assert {"network[0].weight", "network[0].weight.grad"} <= set(mine)
    assert totals["cpu"] >= 1638400 + 2 * 480000


def test_names_of_threads_and_odd_holders() -> None:
    class Slotted:
        __slots__ = ("inside",)

    def generator() -> Any:
        local = [Slotted()]
        yield
        del local

    def default(thing: Any = Slotted()) -> Any:  # noqa: B008
        return thing

    def waits(thing: Any) -> None:
        started.set()
        ended.wait()

    things = [*(Slotted() for _ in range(4)), default()]
    outer = Slotted()
    outer.inside = things[0]  # type: ignore[attr-defined]
    running = generator()
    next(running)
    started, ended = threading.Event(), threading.Event()
    thread = threading.Thread(target=waits, args=(things[1],), name="worker")
    thread.start()
    started.wait()
    names = {
        "__name__": "__main__",
        "outer": outer,
        "running": running,
        "members": {things[2]},
        "keys": {things[3]: 1},
        "default": default,
    }
    del thread
    try:
        there = References([("__main__", names)], hidden())
        local = running.gi_frame.f_locals["local"][0]
        assert [
            str(there.chain(thing)).split("__main__")[-1] for thing in (things[0], *things[2:], local)
        ] == [
            ".outer -> Slotted.inside -> Slotted",
            ".members -> set (a member) -> Slotted",
            ".keys -> dict (a key) -> Slotted",
            ".default (default argument) -> Slotted",
            ".running -> generator (local variable local) -> list[0] -> Slotted",
        ]
        running_there = dict(pair for pair in roots(dir) if "worker" in pair[0])
        name = "thread worker, test_names_of_threads_and_odd_holders.waits: local variable"
        assert running_there[name]["thing"] is things[1]
    finally:
        ended.set()
