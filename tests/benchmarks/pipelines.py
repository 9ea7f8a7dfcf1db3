"""Pipelines in which one component can really be made faster: what a what-if is held against.

Every pipeline trains on what its component and another stage, `prepare`, made. How much is worked is counted
in turns of loops, chosen once from how long a turn takes here, so that "twice as fast" is half the turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.pool import Pool
from typing import Any, Literal

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from optbook import track

Kind = Literal["python", "numpy", "torch", "waiting"]
Run = Callable[[], object]
Item = np.ndarray[Any, np.dtype[np.int64]]
KINDS: tuple[Kind, ...] = ("python", "numpy", "torch", "waiting")
SPEEDUPS = (1.5, 2.0, 4.0, math.inf)
DIVISIBLE = 12
"""A component's turns are multiples of this, so that all speed-ups leave whole ones."""
BATCH, STEPS, WIDTH = 4, 12, 64
BLOCK_ROWS, BLOCK_WIDTH = 32, 512
VECTOR = np.linspace(0.0, 1.0, 8192)
MATRIX = torch.full((128, 128), 1 / 128)
WAIT_SECONDS = 1e-5
CALIBRATION_SECONDS = 0.01


@dataclass(frozen=True)
class Pipeline:
    """A workload, and ``truth(speedup)``: the same in which the component does 1 ÷ speedup of its work.

    ``component`` is a dotted name and is called ``calls`` times a run.
    """

    name: str
    component: str
    truth: Callable[[float], Run]
    calls: int
    speedups: tuple[float, ...] = SPEEDUPS

    @functools.cached_property
    def workload(self) -> Run:
        """The real system."""
        return self.truth(1.0)


def work(kind: Kind, turns: int) -> None:
    """Be busy, or wait, for so many turns."""
    if kind == "python":
        total = 1
        for i in range(turns):
            total = (total * 31 + i) & 0xFFFF
    elif kind == "numpy":
        out = np.empty_like(VECTOR)
        for _ in range(turns):
            np.sin(VECTOR, out=out)
    elif kind == "torch":
        x = MATRIX
        for _ in range(turns):
            x = x @ MATRIX
    elif turns:
        time.sleep(turns * WAIT_SECONDS)


def result(kind: Kind, item: Item) -> Any:
    """What a component returns: 64 numbers, a tensor if it computed with torch."""
    return torch.from_numpy(item).float() if kind == "torch" else item.astype(np.float32)


def heavy(item: Item, kind: Kind) -> Any:
    """The component under question. What it costs is written in the item, not seen in its shape."""
    work(kind, int(item[0]))
    return result(kind, item)


async def heavy_async(item: Item) -> Any:
    """The component that waits for others to answer, awaited."""
    if item[0]:
        await asyncio.sleep(int(item[0]) * WAIT_SECONDS)
    return result("waiting", item)


def prepare(found: Any, turns: int) -> torch.Tensor:
    """Another stage, next to the component."""
    work("python", turns)
    return torch.as_tensor(found)


@functools.cache
def seconds_a_turn(kind: Kind | Literal["training", "block"]) -> float:
    """How long a turn takes on this machine, the fastest of several: CPU time, whatever else is running."""
    if kind == "waiting":
        return WAIT_SECONDS
    if kind == "training":
        learner, batch = Learner(1), torch.rand(BATCH, WIDTH)
        return _fastest(lambda turns: [learner.step(batch) for _ in range(turns)])
    if kind == "block":
        block, x = Block(1), torch.rand(BLOCK_ROWS, BLOCK_WIDTH, requires_grad=True)
        return _fastest(lambda turns: [block(x).sum().backward() for _ in range(turns)])
    return _fastest(functools.partial(work, kind))


def _fastest(run: Callable[[int], object]) -> float:
    turns, seconds = 1, 0.0
    while seconds < CALIBRATION_SECONDS:
        turns *= 2
        seconds = _cpu_seconds(run, turns)
    return min(seconds, *(_cpu_seconds(run, turns) for _ in range(6))) / turns


def _cpu_seconds(run: Callable[[int], object], turns: int) -> float:
    start = time.process_time()
    run(turns)
    return time.process_time() - start


def turns_for(kind: Kind | Literal["training", "block"], milliseconds: float, multiple: int = 1) -> int:
    """As many turns as take about so long; of a component, a `DIVISIBLE` number."""
    return max(1, round(milliseconds / 1e3 / seconds_a_turn(kind) / multiple)) * multiple


def items(kind: Kind, milliseconds: Sequence[float], count: int, speedup: float) -> list[Item]:
    """``count`` inputs that cost so long in turn, once the component is ``speedup`` times as fast."""
    turns = [round(turns_for(kind, each, DIVISIBLE) / speedup) for each in milliseconds]
    return [np.full(WIDTH, turns[i % len(turns)], np.int64) for i in range(count)]


class Learner:
    """A small network and its optimizer; ``turns`` passes over each batch."""

    def __init__(self, turns: int) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(WIDTH, 256), nn.Tanh(), nn.Linear(256, WIDTH))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-6)
        self.turns = turns

    def step(self, batch: torch.Tensor) -> torch.Tensor:
        batch = batch / (1 + batch.amax())
        for _ in range(self.turns):
            self.optimizer.zero_grad()
            (self.net(batch) - 1).square().mean().backward()
            self.optimizer.step()
        return batch


def load(item: Item, kind: Kind, turns: int) -> torch.Tensor:
    """One sample: the component, then the other stage."""
    return prepare(heavy(item, kind), turns)


def load_batch(chunk: Sequence[Item], kind: Kind, turns: int) -> torch.Tensor:
    return torch.stack([load(item, kind, turns) for item in chunk])


@dataclass(frozen=True)
class Samples(Dataset[torch.Tensor]):
    """The samples of one run, loaded one at a time."""

    items: Sequence[Item]
    kind: Kind
    turns: int
    batch: int = BATCH

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> torch.Tensor:
        return load(self.items[index], self.kind, self.turns)

    def chunks(self) -> list[Sequence[Item]]:
        return [self.items[i : i + self.batch] for i in range(0, len(self.items), self.batch)]

    def batches(self) -> Iterator[torch.Tensor]:
        return (load_batch(chunk, self.kind, self.turns) for chunk in self.chunks())


def prefetched(source: Iterable[Any], depth: int) -> Iterator[Any]:
    """The items of ``source``, fetched by a thread into a queue of this depth; it ends with the loop."""
    waiting: queue.Queue[Any] = queue.Queue(depth)
    end, left = object(), threading.Event()

    def fetch() -> None:
        for item in source:
            if left.is_set():
                return
            waiting.put(item)
        waiting.put(end)

    thread = threading.Thread(target=fetch, name="prefetch", daemon=True)
    thread.start()
    try:
        yield from iter(waiting.get, end)
    finally:
        left.set()
        while thread.is_alive():
            with contextlib.suppress(queue.Empty):
                waiting.get(timeout=0.001)


def serial(samples: Samples, learner: Learner) -> None:
    for batch in track(samples.batches()):
        learner.step(batch)


def threaded(samples: Samples, learner: Learner, depth: int = 4) -> None:
    for batch in track(prefetched(samples.batches(), depth)):
        learner.step(batch)


def loader(samples: Samples, learner: Learner, workers: int) -> None:
    for batch in track(DataLoader(samples, batch_size=samples.batch, num_workers=workers)):
        learner.step(batch)


def pool(samples: Samples, learner: Learner) -> None:
    each = functools.partial(load_batch, kind=samples.kind, turns=samples.turns)
    with Pool(2, initializer=torch.set_num_threads, initargs=(1,)) as workers:
        for batch in track(workers.imap(each, samples.chunks())):
            learner.step(batch)


def two_item_map(samples: Samples, learner: Learner) -> None:
    each = functools.partial(load, kind=samples.kind, turns=samples.turns)
    with ThreadPoolExecutor(2) as threads:
        for chunk in track(samples.chunks()):
            learner.step(torch.stack(list(threads.map(each, chunk))))


def once_a_run(samples: Samples, learner: Learner) -> None:
    """Not tracked: the component is called before the loop."""
    batch = load_batch(samples.items, samples.kind, samples.turns)
    for _ in range(STEPS):
        learner.step(batch)


def asynchronous(samples: Samples, learner: Learner) -> None:
    """A producer that fetches (1 ms a batch) and a consumer that trains, in one event loop."""

    async def produce(ready: asyncio.Queue[torch.Tensor]) -> None:
        for chunk in samples.chunks():
            await asyncio.sleep(1e-3)
            if samples.kind == "waiting":
                found = [prepare(await heavy_async(item), samples.turns) for item in chunk]
                await ready.put(torch.stack(found))
            else:
                await ready.put(load_batch(chunk, samples.kind, samples.turns))

    async def main() -> None:
        ready: asyncio.Queue[torch.Tensor] = asyncio.Queue(2)
        producing = asyncio.create_task(produce(ready))
        for _ in samples.chunks():
            learner.step(await ready.get())
        await producing

    asyncio.run(main())


def gathered(samples: Samples, learner: Learner) -> None:
    """Concurrent waits in one `asyncio.gather` a step."""

    async def main() -> None:
        for chunk in samples.chunks():
            found = await asyncio.gather(*(heavy_async(item) for item in chunk))
            learner.step(torch.stack([prepare(each, samples.turns) for each in found]))

    asyncio.run(main())


class Block(nn.Module):
    """One layer, applied ``turns`` times: half the turns are half of forward and backward."""

    def __init__(self, turns: int) -> None:
        super().__init__()
        self.linear = nn.Linear(BLOCK_WIDTH, BLOCK_WIDTH)
        self.turns = turns

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.turns):
            x = torch.tanh(self.linear(x))
        return x


class FreeBlock(Block):
    """Costs nothing; its parameters have gradients all the same, so that the optimizer works on."""

    def __init__(self) -> None:
        super().__init__(0)
        self.kept = [torch.full_like(p, 1e-3) for p in self.linear.parameters()]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for parameter, gradient in zip(self.linear.parameters(), self.kept, strict=True):
            parameter.grad = gradient
        return x


class Training:
    """A network with a `Block`, and an optimizer that costs."""

    def __init__(self, turns: int) -> None:
        torch.manual_seed(0)
        block = Block(turns) if turns else FreeBlock()
        self.net = nn.Sequential(nn.Linear(BLOCK_WIDTH, BLOCK_WIDTH), block, nn.Linear(BLOCK_WIDTH, 256))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-6)
        self.batch = torch.rand(BLOCK_ROWS, BLOCK_WIDTH)

    def step(self) -> None:
        self.optimizer.zero_grad()
        (self.net(self.batch) - 1).square().mean().backward()
        self.optimizer.step()

    def run(self) -> None:
        for _ in track(range(STEPS)):
            self.step()


def autograd() -> Pipeline:
    turns = turns_for("block", 4.0, 2)

    def truth(speedup: float) -> Run:
        return Training(round(turns / speedup)).run

    return Pipeline("module under autograd", f"{__name__}.Block.forward", truth, STEPS, (2.0, math.inf))


def pipeline(
    name: str,
    run: Callable[[Samples, Learner], None],
    kind: Kind,
    milliseconds: Sequence[float],
    batch: int = BATCH,
    steps: int | None = None,
    training: float = 4.0,
) -> Pipeline:
    """``milliseconds`` are a call's, in turn; ``training`` those of a step; `STEPS` steps if None."""
    samples_a_run = batch * (steps or STEPS)

    def truth(speedup: float) -> Run:
        samples = Samples(
            items(kind, milliseconds, samples_a_run, speedup), kind, turns_for("python", 0.25), batch
        )
        return functools.partial(run, samples, Learner(turns_for("training", training)))

    awaited = run is gathered or (run is asynchronous and kind == "waiting")
    component = f"{__name__}.{'heavy_async' if awaited else 'heavy'}"
    return Pipeline(name, component, truth, samples_a_run)


def grid() -> list[Pipeline]:
    """{serial, thread, DataLoader with 1 and 2 workers, pool, asyncio} × {Python, numpy, torch, waiting}."""
    shapes: tuple[tuple[str, Callable[[Samples, Learner], None], float], ...] = (
        ("serial", serial, 1.5),
        ("thread", threaded, 1.5),
        ("1 worker", functools.partial(loader, workers=1), 1.5),
        ("2 workers", functools.partial(loader, workers=2), 3.0),
        ("pool", pool, 3.0),
        ("asyncio", asynchronous, 1.5),
    )
    found = [pipeline(f"{name}, {kind}", run, kind, (ms,)) for name, run, ms in shapes for kind in KINDS[:-1]]
    found += [pipeline(f"{name}, waiting", run, "waiting", (ms,)) for name, run, ms in shapes[:-1]]
    return [*found, pipeline("asyncio, waiting", asynchronous, "waiting", (12.0,), batch=1)]


def hard() -> list[Pipeline]:
    """Those at which imitations fail."""
    shallow = functools.partial(threaded, depth=1)
    one_worker = functools.partial(loader, workers=1)
    return [
        pipeline("alternating inputs, serial", serial, "python", (0.5, 2.5)),
        pipeline("alternating batches, thread", threaded, "numpy", (2.0, 10.0), batch=1),
        pipeline("concurrent waits in one gather", gathered, "waiting", (6.0,)),
        pipeline("two-item thread map, numpy", two_item_map, "numpy", (4.0,), batch=2),
        pipeline("two-item thread map, waiting", two_item_map, "waiting", (4.0,), batch=2),
        pipeline("queue of depth 1, python", shallow, "python", (6.0,), batch=1),
        pipeline("queue of depth 1, waiting", shallow, "waiting", (2.0, 10.0), batch=1),
        pipeline("once a batch in a worker", one_worker, "numpy", (6.0,), batch=1),
        pipeline("once a run", once_a_run, "numpy", (100.0,), batch=1, steps=1),
        autograd(),
    ]
