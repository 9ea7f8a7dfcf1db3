"""What measuring costs and how right it is: intervals, overheads, memory, FLOPs, the log, imports.

`OPTBOOK_BENCH_SCALE=0.1` takes a tenth of the repetitions.
"""

from __future__ import annotations

import mmap
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from optbook import span, track
from optbook.benchmark import noise
from optbook.benchmark.clock import Clock
from optbook.benchmark.meters.memory import PeakMemory
from optbook.benchmark.progress import Progress
from optbook.benchmark.recorder import Recorder, recording
from optbook.benchmark.runner import Execution, Plan, Workload
from optbook.benchmark.statistics import median, rate_of_steps
from optbook.experiments.record import Experiment
from optbook.experiments.store import Store
from optbook.settings import settings
from tests.benchmarks.run import Row

SCALE = float(os.environ.get("OPTBOOK_BENCH_SCALE", "1"))
SPIKE = 256 * 2**20


def scaled(n: int) -> int:
    return max(3, round(n * SCALE))


def coverage() -> list[Row]:
    """Synthetic runs and steps of which the true median (or rate) is known."""
    rng = np.random.default_rng(1)
    rows = []
    n, trials = 40, scaled(2000)

    def runs(draw: Callable[[], Any], truth: float) -> tuple[float, float, float]:
        hit, warned, both = [], [], []
        for _ in range(trials):
            times = draw().tolist()
            found = median(times)
            inside = found.low is not None and found.high is not None and found.low <= truth <= found.high
            doubt = bool(list(noise.judge(times, []).sentences("runs")))
            hit.append(inside)
            warned.append(doubt)
            both.append(inside or doubt)
        return float(np.mean(hit)), float(np.mean(warned)), float(np.mean(both))

    for n in (7, 12, 40, 200):
        hit, warned, _ = runs(partial(rng.lognormal, 0, 0.05, n), 1.0)
        rows.append(Row(f"coverage, clean noise, {n} runs", hit, "0.93 to 0.97", 0.93 <= hit <= 0.97))
        rows.append(Row(f"warnings, clean noise, {n} runs", warned, "≤ 0.05", warned <= 0.05))
    drift = np.linspace(0.85, 1.15, 40)
    hit, _, both = runs(lambda: drift * rng.lognormal(0, 0.05, 40), 0.85)
    rows.append(
        Row(
            "drift of 30 %: covers the first run's time, or warns",
            both,
            "≥ 0.93",
            both >= 0.93,
            {"covers": hit},
        )
    )
    hit, _, both = runs(lambda: np.where(rng.random(40) < 0.45, 1.3, 1.0) * rng.lognormal(0, 0.02, 40), 1.0)
    rows.append(
        Row(
            "two kinds of runs: covers, or warns",
            both,
            "≥ 0.93",
            both >= 0.93,
            {"covers": hit},
        )
    )
    for correlation in (0.0, 0.5, 0.8):
        hits, doubts, steps = [], [], 100
        for _ in range(scaled(1000)):
            x = rng.normal(size=steps)
            for i in range(1, steps):
                x[i] = correlation * x[i - 1] + np.sqrt(1 - correlation**2) * x[i]
            found = rate_of_steps((1 + 0.1 * x).tolist())
            assert found.rate.low is not None
            assert found.rate.high is not None
            hits.append(found.rate.low <= 1 <= found.rate.high)
            doubts.append(found.doubtful)
        either = float(np.mean(np.logical_or(hits, doubts)))
        what = f"100 steps, correlation {correlation}: covers, or warns"
        rows.append(Row(what, either, "≥ 0.93", either >= 0.93, {"covers": float(np.mean(hits))}))
    return rows


def bare(work: Callable[[], object], turns: int) -> list[float]:
    times = []
    for _ in range(turns):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return times


def cost_of_bench() -> Row:
    """A 10 ms workload, under the runner and in a bare loop, in turn."""

    def work() -> None:
        end = time.perf_counter() + 0.010
        while time.perf_counter() < end:
            pass

    ratios = []
    for _ in range(scaled(30)):
        start = time.perf_counter()
        without = statistics.median(bare(work, 41))
        alone = time.perf_counter() - start
        progress = Progress("cost", 5.0, shown=False)
        execution = Execution(Workload(work), Plan(runs=41), Clock(), progress)
        start = time.perf_counter()
        outcome = execution.execute()
        under = time.perf_counter() - start
        whole = under - fixed_cost()
        ratios.append((statistics.median(outcome.times) / without, whole / alone))
    measured = statistics.median(ratio for ratio, _ in ratios) - 1
    wall = statistics.median(ratio for _, ratio in ratios) - 1
    peers = {
        "wall time a run": f"{100 * wall:+.2f} %",
        "once, before and after": f"{1e3 * fixed_cost():.0f} ms",
    }
    return Row(
        "cost of measuring a 10 ms cell",
        f"{100 * measured:+.2f} %",
        "≤ 1 %",
        max(measured, wall) <= 0.01,
        peers,
    )


def fixed_cost() -> float:
    """Seconds that a measurement takes once, whatever it measures."""
    if not _FIXED:
        for _ in range(5):
            start = time.perf_counter()
            Execution(Workload(lambda: None), Plan(runs=2), Clock(), Progress("", 5.0, shown=False)).execute()
            _FIXED.append(time.perf_counter() - start)
    return statistics.median(_FIXED)


_FIXED: list[float] = []


def each(loop: Callable[[Iterable[int]], object], turns: int = 100_000) -> float:
    """Seconds a turn that `loop` adds to a bare one; the best of several."""
    best = min(_timed(lambda: loop(range(turns))) for _ in range(7)) / turns
    return best - min(_timed(lambda: consume(range(turns))) for _ in range(7)) / turns


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def consume(items: Iterable[int]) -> None:
    for _ in items:
        pass


def cost_of_track_and_span() -> list[Row]:
    import torch

    def tracked(items: Iterable[int]) -> None:
        with recording(Recorder()):
            consume(track(items))

    def in_span(items: Iterable[int]) -> None:
        with recording(Recorder()):
            for _ in items:
                with span("part"):
                    pass

    def in_record_function(items: Iterable[int]) -> None:
        for _ in items:
            with torch.profiler.record_function("part"):
                pass

    with open(os.devnull, "w") as nowhere:
        ours, peer = each(tracked), each(lambda items: consume(tqdm(items, file=nowhere)))
    entry, recorded = each(in_span), each(in_record_function, 20_000)
    return [
        Row(
            "track, a step",
            f"{1e6 * ours:.2f} µs",
            "≤ 5 × tqdm",
            ours <= 5 * peer,
            {"tqdm": f"{1e6 * peer:.2f} µs"},
        ),
        Row(
            "span, an entry",
            f"{1e6 * entry:.2f} µs",
            "≤ ⅕ record_function",
            entry <= recorded / 5,
            {"record_function": f"{1e6 * recorded:.2f} µs"},
        ),
    ]


def short_spike() -> None:
    """256 MiB that live for some milliseconds."""
    block = mmap.mmap(-1, SPIKE)
    for page in range(0, SPIKE, mmap.PAGESIZE):
        block[page] = 1
    block.close()


def memory() -> list[Row]:
    from memory_profiler import memory_usage

    ours, peers = [], []
    for _ in range(scaled(10)):
        with PeakMemory() as meter:
            short_spike()
        ours.append((meter.result.growth or 0) / SPIKE)
        usage = memory_usage((short_spike, (), {}), interval=0.1, max_usage=True)
        peers.append((usage - memory_usage(-1, interval=0.01, timeout=0.02)[0]) * 2**20 / SPIKE)
    worst = max(abs(share - 1) for share in ours)
    shown = {"%memit saw": f"{100 * min(peers):.0f} to {100 * max(peers):.0f} %"}
    return [
        Row("a short spike of 256 MiB: worst error", f"{100 * worst:.2f} %", "≤ 1 %", worst <= 0.01, shown)
    ]


def memory_of_a_worker() -> Row:
    from tests.spikes import SPIKE as WORKERS_SPIKE
    from tests.test_workers import loader, measured

    errors = [abs((measured(loader()).growth or 0) / WORKERS_SPIKE - 1) for _ in range(scaled(10))]
    what = "the same in a DataLoader's worker: worst error"
    return Row(what, f"{100 * max(errors):.2f} %", "≤ 3 %", max(errors) <= 0.03)


def flops() -> Row:
    from torch.utils.flop_counter import FlopCounterMode

    from tests.test_flops import CASES, counted

    ours, theirs = 0, 0
    for case in CASES.values():
        module = case.build()

        def run(module: Callable[..., Any] = module, inputs: Any = case.inputs) -> None:
            out = module(*inputs)
            (out[0] if isinstance(out, tuple) else out).sum().backward()

        truth = case.forward + case.backward
        ours += counted(run).total == truth
        with FlopCounterMode(display=False) as counter:
            run()
        theirs += counter.get_total_flops() == truth
    what = f"FLOPs of {len(CASES)} reference modules, forward and backward: exact"
    return Row(
        what, f"{ours} of {len(CASES)}", "all", ours == len(CASES), {"torch": f"{theirs} of {len(CASES)}"}
    )


def log(folder: Path) -> list[Row]:
    store, plain = Store(folder / "log.sqlite"), sqlite3.connect(folder / "plain.sqlite")
    plain.execute("pragma journal_mode=wal")
    plain.execute("pragma synchronous=full")
    plain.execute("create table t (id text primary key, label text, seconds real, rest text)")

    def append() -> float:
        experiment = Experiment(label="x", seconds=0.1, throughput=10.0, times=(0.1,) * 20)
        return _timed(lambda: store.append(experiment))

    def insert(i: int) -> float:
        def run() -> None:
            plain.execute("insert into t values (?, ?, ?, ?)", (f"{time.time_ns()}-{i}", "x", 0.1, "y" * 300))
            plain.commit()

        return _timed(run)

    append()
    early, beside = zip(*((append(), insert(i)) for i in range(scaled(300))), strict=True)
    rows = 100_000 if SCALE >= 1 else 5_000
    fill(store, rows)
    late = [append() for _ in range(scaled(300))]
    begun = time.perf_counter()
    frame = store.frame()
    reading = time.perf_counter() - begun
    assert len(frame) > rows
    first, last, peer = (1e3 * statistics.median(times) for times in (early, late, beside))
    plain_reading = min(_timed(lambda: _read_plain(folder / "log.sqlite")) for _ in range(3))
    return [
        Row("log: append, empty", f"{first:.2f} ms", "≤ 2 ms", first <= 2,
            {"plain SQLite": f"{peer:.2f} ms"}),
        Row(f"log: append, {rows} rows", f"{last:.2f} ms", "≤ 2 ms, flat", last <= max(2, 1.3 * first)),
        Row(f"log: {rows} rows to a DataFrame", f"{reading:.2f} s", "≤ 2 s", reading <= 2,
            {"pandas.read_sql": f"{plain_reading:.2f} s"}),
    ]  # fmt: skip


def fill(store: Store, rows: int) -> None:
    """Many rows at once, by copying the one there is."""
    store.close()
    assert store.path is not None
    with sqlite3.connect(store.path) as connection:
        names = [row[1] for row in connection.execute("pragma table_info(experiments)")]
        first = dict(
            zip(names, connection.execute("select * from experiments limit 1").fetchone(), strict=True)
        )
        key = next((n for n in names if n not in first or n in ("seq", "number", "position")), None)
        columns = [n for n in names if n != key]
        values = [[first[n] if n != "id" else f"copy-{i}" for n in columns] for i in range(rows)]
        marks = ",".join("?" * len(columns))
        connection.executemany(f"insert into experiments ({','.join(columns)}) values ({marks})", values)


def _read_plain(path: Path) -> None:
    import pandas as pd

    with sqlite3.connect(path) as connection:
        pd.read_sql("select * from experiments", connection)


WRITER = """
import sys
from optbook.experiments.record import Experiment
from optbook.experiments.store import Store
store = Store(sys.argv[1])
for i in range(int(sys.argv[2])):
    store.append(Experiment(label=f"{sys.argv[3]}-{i}"))
    print(i, flush=True)
"""


def writers(folder: Path) -> list[Row]:
    path, each = folder / "many.sqlite", 500 if SCALE >= 1 else 30
    Store(path).append(Experiment(label="first"))
    command = [sys.executable, "-c", WRITER, str(path), str(each)]
    running = [subprocess.Popen([*command, str(k)], stdout=subprocess.DEVNULL) for k in range(4)]
    codes = [process.wait() for process in running]
    there = len(Store(path).frame()) - 1
    rows = [
        Row(
            f"4 processes × {each} appends, lost", 4 * each - there, "0", there == 4 * each and not any(codes)
        )
    ]
    lost, kills = 0, 200 if SCALE >= 1 else 5
    path = folder / "killed.sqlite"
    for k in tqdm(range(kills), desc="kill -9", leave=False):
        lost += killed(path, k)
    return [*rows, Row(f"{kills} × kill -9 while writing: acknowledged and lost", lost, "0", lost == 0)]


def killed(path: Path, k: int) -> int:
    command = [sys.executable, "-c", WRITER, str(path), "1000000", str(k)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.01 + 0.002 * (k % 20))
        process.send_signal(signal.SIGKILL)
        said = process.stdout.read().split()
    acknowledged = 1 + len([word for word in said if word.isdigit()])
    with sqlite3.connect(path) as connection:
        (kept,) = connection.execute(
            "select count(*) from experiments where label like ?", (f"{k}-%",)
        ).fetchone()
    return max(0, acknowledged - int(kept))


IMPORT = """import sys, time
start = time.perf_counter()
{what}
print(time.perf_counter() - start, *(m for m in ('torch', 'pandas', 'matplotlib') if m in sys.modules))
"""


def imports() -> list[Row]:
    """In a fresh interpreter, and in a fresh IPython shell, which has loaded much of what magics need."""
    python, ipython = [sys.executable, "-c"], [sys.executable, "-m", "IPython", "--colors=nocolor", "-c"]
    load = "get_ipython().run_line_magic('load_ext', 'optbook')"
    return [
        start("import optbook", [*python, IMPORT.format(what="import optbook")]),
        start("%load_ext optbook", [*ipython, IMPORT.format(what=load)]),
    ]


def start(name: str, command: Sequence[str]) -> Row:
    said = [
        subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
        for _ in range(scaled(10))
    ]
    seconds = statistics.median(float(words[0]) for words in said)
    holds = seconds <= 0.1 and not said[0][1:]
    return Row(name, f"{1e3 * seconds:.0f} ms", "≤ 100 ms, nothing heavy", holds)


def measure() -> Sequence[Row]:
    settings().progress_bar = False
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        return [
            *coverage(), cost_of_bench(), *cost_of_track_and_span(), *memory(), memory_of_a_worker(), flops(),
            *log(place), *writers(place), *imports(),
        ]  # fmt: skip
