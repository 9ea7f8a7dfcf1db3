"""How often verdicts are wrong: false alarms of A against A, and true slowdowns that are found.

Peers decide from the same number of runs, taken as one takes them with them: first all of A, then all
of B. `OPTBOOK_BENCH_SCALE=0.1` takes a tenth of the comparisons,
`OPTBOOK_BENCH_SKIP='0.1 ms;10 ms'` leaves out false alarms of those workloads.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from scipy.stats import binomtest
from tqdm import tqdm

from optbook.optimize.compare import Comparison, compare
from optbook.settings import settings
from tests.benchmarks.run import Row

SCALE = float(os.environ.get("OPTBOOK_BENCH_SCALE", "1"))
PEERS_EVERY = 4
FOUND_BUDGET = 20.0
SLOWED = ("10 ms", "100 ms")
SKIPPED = os.environ.get("OPTBOOK_BENCH_SKIP", "").split(";")
Work = Callable[[], object]
Times = tuple[float, ...]


@dataclass(frozen=True)
class Workload:
    """A kind of work, `size` scales it; `budget` is what one comparison of A with A may take, in seconds."""

    name: str
    make: Callable[[float], Work]
    comparisons: int
    budget: float


def python_loop(turns: int) -> Callable[[float], Work]:
    def make(size: float) -> Work:
        n = round(turns * size)

        def work() -> None:
            total = 0
            for i in range(n):
                total += i

        return work

    return make


def allocating(size: float) -> Work:
    n = round(60_000 * size)
    return lambda: [str(i) for i in range(n)]


def torch_threads(size: float) -> Work:
    x, y = torch.rand(384, 384), torch.rand(384, round(900 * size))
    return lambda: x @ y


WORKLOADS = (
    Workload("0.1 ms", python_loop(2_500), 400, 0.15),
    Workload("10 ms", python_loop(250_000), 400, 0.3),
    Workload("10 ms, allocating", allocating, 400, 0.3),
    Workload("torch, 2 threads", torch_threads, 400, 0.25),
    Workload("100 ms", python_loop(2_500_000), 200, 1.7),
)


def one_after_the_other(first: Work, second: Work, like: Comparison) -> tuple[Times, Times]:
    """As many samples of each as a comparison took, the way one runs `%timeit` twice."""

    def samples(work: Work) -> Iterator[float]:
        for _ in range(like.pairs):
            start = time.perf_counter()
            for _ in range(like.loops):
                work()
            yield (time.perf_counter() - start) / like.loops

    first(), second()
    return tuple(samples(first)), tuple(samples(second))


def timeit_bands(a: Times, b: Times) -> bool:
    """`%timeit` prints mean ± standard deviation of 7 runs: do the bands lie apart?"""
    (ma, sa), (mb, sb) = ((statistics.fmean(t[:7]), statistics.pstdev(t[:7])) for t in (a, b))
    return abs(ma - mb) > sa + sb


def torch_medians(a: Times, b: Times) -> bool:
    """`torch.utils.benchmark` prints median and quartiles: does each median lie outside the other's?"""
    qa, qb = np.quantile(a, (0.25, 0.5, 0.75)), np.quantile(b, (0.25, 0.5, 0.75))
    return bool((qa[1] > qb[2] or qa[1] < qb[0]) and (qb[1] > qa[2] or qb[1] < qa[0]))


def pyperf_test(a: Times, b: Times) -> bool:
    """pyperf's own test: Student's t at 95 %, and a difference of 2 % at least (`pyperf compare_to`)."""
    from pyperf._utils import is_significant

    return len(a) > 1 and bool(is_significant(a, b)[0])


def three_per_cent(a: Times, b: Times) -> bool:
    """A fixed threshold on the means."""
    return abs(statistics.fmean(b) / statistics.fmean(a) - 1) > 0.03


PEERS: dict[str, Callable[[Times, Times], bool]] = {
    "timeit": timeit_bands,
    "torch": torch_medians,
    "pyperf": pyperf_test,
    "3 %": three_per_cent,
}


def share(hits: int, of: int) -> str:
    """A share with its binomial interval (Clopper and Pearson)."""
    interval = binomtest(hits, of).proportion_ci(0.95)
    return (
        f"{100 * hits / of:.1f} % ({100 * interval.low:.1f} to {100 * interval.high:.1f} %, {hits} of {of})"
    )


def false_alarms(workload: Workload) -> Row:
    work = workload.make(1.0)
    n = max(1, round(workload.comparisons * SCALE))
    alarms, peers = 0, dict.fromkeys(PEERS, 0)
    for i in tqdm(range(n), desc=workload.name, leave=False):
        c = compare(work, work, budget=workload.budget, seed=i)
        alarms += not c.verdict.startswith("no difference")
        if i % PEERS_EVERY == 0:
            times = one_after_the_other(work, work, c)
            for name, decide in PEERS.items():
                peers[name] += decide(*times)
    shown = {name: f"{100 * hits / len(range(0, n, PEERS_EVERY)):.0f} %" for name, hits in peers.items()}
    return Row(f"false alarms, {workload.name}", share(alarms, n), "≤ 5 %", alarms / n <= 0.05, shown)


def found(workload: Workload, slower: float, target: float) -> Row:
    first, second = workload.make(1.0), workload.make(1 + slower)
    n = max(1, round(50 * SCALE))
    hits, peers = 0, dict.fromkeys(PEERS, 0)
    for i in tqdm(range(n), desc=f"{workload.name}, {slower:.0%}", leave=False):
        c = compare(first, second, budget=FOUND_BUDGET, seed=i)
        hits += c.verdict == "slower"
        if i % PEERS_EVERY == 0:
            times = one_after_the_other(first, second, c)
            for name, decide in PEERS.items():
                peers[name] += decide(*times) and statistics.fmean(times[1]) > statistics.fmean(times[0])
    shown = {name: f"{100 * hits / len(range(0, n, PEERS_EVERY)):.0f} %" for name, hits in peers.items()}
    what = f"a slowdown of {100 * slower:.0f} % found, {workload.name}"
    return Row(what, share(hits, n), f"≥ {100 * target:.0f} %", hits / n >= target, shown)


def measure() -> list[Row]:
    """About 35 minutes."""
    settings().progress_bar = False
    tasks = [
        partial(found, w, s, t) for w in WORKLOADS if w.name in SLOWED for s, t in ((0.05, 0.98), (0.02, 0.8))
    ]
    tasks += [partial(false_alarms, workload) for workload in WORKLOADS if workload.name not in SKIPPED]
    rows = []
    for task in tasks:
        rows.append(task())
        print(rows[-1], file=sys.stderr, flush=True)
    return rows
