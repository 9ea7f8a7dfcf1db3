"""Pipelines of three stages whose next bottleneck follows from how long each stage takes.

`next` is the stage whose removal would bring most once `component` costs nothing. Stages that share a
core's time are given so that two cores are enough, whatever their kind.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.pool import Pool

import torch
from torch.utils.data import DataLoader, Dataset

from optbook import track
from tests.benchmarks.pipelines import STEPS, WAIT_SECONDS, Kind, Run, prefetched, turns_for, work

STAGES = ("first", "second", "third")
Costs = tuple[float, float, float]
"""Milliseconds a step of each stage."""


@dataclass(frozen=True)
class Amount:
    """Work of one call of a stage."""

    kind: Kind
    turns: int


Amounts = tuple[Amount, Amount, Amount]


def first(step: int, amount: Amount) -> int:
    work(amount.kind, amount.turns)
    return step


def second(step: int, amount: Amount) -> int:
    work(amount.kind, amount.turns)
    return step


def third(step: int, amount: Amount) -> int:
    work(amount.kind, amount.turns)
    return step


async def first_async(step: int, amount: Amount) -> int:
    await asyncio.sleep(amount.turns * WAIT_SECONDS)
    return step


async def second_async(step: int, amount: Amount) -> int:
    await asyncio.sleep(amount.turns * WAIT_SECONDS)
    return step


def loaded(step: int, amounts: Amounts) -> int:
    """What a worker does for one step."""
    return second(first(step, amounts[0]), amounts[1])


@dataclass(frozen=True)
class Steps(Dataset[int]):
    amounts: Amounts

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> int:
        return loaded(index, self.amounts)


def serial(amounts: Amounts) -> None:
    for step in track(range(STEPS)):
        third(loaded(step, amounts), amounts[2])


def threads(amounts: Amounts) -> None:
    """Each stage in a thread of its own, the last in the main thread."""

    def firsts() -> Iterator[int]:
        return (first(step, amounts[0]) for step in range(STEPS))

    def seconds(steps: Iterable[int]) -> Iterator[int]:
        return (second(step, amounts[1]) for step in steps)

    for step in track(prefetched(seconds(prefetched(firsts(), 2)), 2)):
        third(step, amounts[2])


def loader(amounts: Amounts, workers: int) -> None:
    for step in track(DataLoader(Steps(amounts), batch_size=None, num_workers=workers)):
        third(step, amounts[2])


def pool(amounts: Amounts) -> None:
    with Pool(2, initializer=torch.set_num_threads, initargs=(1,)) as workers:
        for step in track(workers.imap(functools.partial(loaded, amounts=amounts), range(STEPS))):
            third(step, amounts[2])


def side_by_side(amounts: Amounts) -> None:
    """Two calls at the same time, each in a thread, then the third stage."""
    with ThreadPoolExecutor(2) as executor:
        for step in track(range(STEPS)):
            one = executor.submit(first, step, amounts[0])
            other = executor.submit(second, step, amounts[1])
            third(min(one.result(), other.result()), amounts[2])


def gathered(amounts: Amounts) -> None:
    async def main() -> None:
        for step in range(STEPS):
            await asyncio.gather(first_async(step, amounts[0]), second_async(step, amounts[1]))
            third(step, amounts[2])

    asyncio.run(main())


def of_sum(a: float, b: float, c: float) -> float:
    return a + b + c


def of_slowest(a: float, b: float, c: float) -> float:
    return max(a, b, c)


def of_workers(workers: int, a: float, b: float, c: float) -> float:
    return max((a + b) / workers, c)


def of_parallel(a: float, b: float, c: float) -> float:
    return max(a, b) + c


@dataclass(frozen=True)
class Shape:
    """How stages are put together: what runs them, and what a step then takes, given what each takes."""

    name: str
    run: Callable[[Amounts], None]
    takes: Callable[[float, float, float], float]
    awaited: bool = False


SERIAL = Shape("serial", serial, of_sum)
THREADS = Shape("threads", threads, of_slowest)
ONE_WORKER = Shape("1 worker", functools.partial(loader, workers=1), functools.partial(of_workers, 1))
TWO_WORKERS = Shape("2 workers", functools.partial(loader, workers=2), functools.partial(of_workers, 2))
POOL = Shape("pool", pool, functools.partial(of_workers, 2))
SIDE_BY_SIDE = Shape("thread map", side_by_side, of_parallel)
GATHER = Shape("gather", gathered, of_parallel, awaited=True)


@dataclass(frozen=True)
class Bottleneck:
    """A pipeline, the stage that is freed, and the one that limits then. Names as in `STAGES`."""

    shape: Shape
    kinds: tuple[Kind, Kind, Kind]
    costs: Costs
    freed: str
    limits: str

    @property
    def name(self) -> str:
        stages = ", ".join(f"{kind} {cost:g}" for kind, cost in zip(self.kinds, self.costs, strict=True))
        return f"{self.shape.name}: {stages}; {self.freed} free"

    @functools.cached_property
    def workload(self) -> Run:
        one, two, three = (
            Amount(kind, turns_for(kind, cost)) for kind, cost in zip(self.kinds, self.costs, strict=True)
        )
        return functools.partial(self.shape.run, (one, two, three))

    @property
    def components(self) -> tuple[str, ...]:
        """Dotted names of all three stages."""
        return tuple(self.dotted(stage) for stage in STAGES)

    @property
    def component(self) -> str:
        return self.dotted(self.freed)

    @property
    def next(self) -> str:
        return self.dotted(self.limits)

    def dotted(self, stage: str) -> str:
        awaited = self.shape.awaited and stage != "third"
        return f"{__name__}.{stage}{'_async' if awaited else ''}"

    def takes(self, *free: str) -> float:
        """Milliseconds a step were these stages free."""
        return self.shape.takes(
            *(0.0 if stage in free else cost for stage, cost in zip(STAGES, self.costs, strict=True))
        )


W: Kind = "waiting"
P: Kind = "python"
N: Kind = "numpy"
T: Kind = "torch"

BOTTLENECKS = (
    Bottleneck(SERIAL, (P, N, T), (5, 2.5, 1), "first", "second"),
    Bottleneck(SERIAL, (P, N, T), (5, 2.5, 1), "second", "first"),
    Bottleneck(SERIAL, (W, P, N), (4, 1, 3), "first", "third"),
    Bottleneck(SERIAL, (T, W, P), (1, 3, 6), "third", "second"),
    Bottleneck(THREADS, (W, W, W), (8, 5, 2), "first", "second"),
    Bottleneck(THREADS, (W, W, W), (8, 5, 2), "third", "first"),
    Bottleneck(THREADS, (W, W, W), (3, 8, 5), "second", "third"),
    Bottleneck(THREADS, (W, W, T), (3, 7, 1.5), "second", "first"),
    Bottleneck(THREADS, (N, W, T), (7, 4, 1), "first", "second"),
    Bottleneck(THREADS, (W, N, W), (2, 4, 8), "third", "second"),
    Bottleneck(ONE_WORKER, (P, N, T), (6, 1, 3.5), "first", "third"),
    Bottleneck(ONE_WORKER, (P, N, T), (5, 4, 1.5), "first", "second"),
    Bottleneck(ONE_WORKER, (P, N, T), (5, 4, 1.5), "second", "first"),
    Bottleneck(ONE_WORKER, (W, N, P), (4, 1.5, 9), "third", "first"),
    Bottleneck(ONE_WORKER, (W, W, W), (7, 2, 5), "first", "third"),
    Bottleneck(TWO_WORKERS, (W, W, P), (12, 3, 4), "first", "third"),
    Bottleneck(TWO_WORKERS, (W, W, T), (10, 9, 2), "first", "second"),
    Bottleneck(TWO_WORKERS, (W, P, W), (8, 2, 8), "third", "first"),
    Bottleneck(POOL, (W, N, P), (12, 2, 4), "first", "third"),
    Bottleneck(POOL, (W, W, T), (4, 12, 1), "second", "first"),
    Bottleneck(SIDE_BY_SIDE, (W, N, T), (8, 5, 1.5), "first", "second"),
    Bottleneck(SIDE_BY_SIDE, (W, W, P), (8, 2, 5), "first", "third"),
    Bottleneck(GATHER, (W, W, P), (9, 6, 2), "first", "second"),
    Bottleneck(GATHER, (W, W, P), (9, 2, 5), "first", "third"),
)
