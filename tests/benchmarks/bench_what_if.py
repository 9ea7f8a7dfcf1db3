"""How right what-ifs are: against pipelines whose component really does less, beside stubs made by hand.

The truth is the ratio of throughputs of a pipeline whose component does 1 ÷ speedup of its work and of the
real one, in interleaved pairs, half of them before the ceiling is taken and half after it. What the first
half says of the second is printed beside: nobody can be right by more than that.
`OPTBOOK_BENCH_SCALE=0.1` takes a tenth of the pipelines, `OPTBOOK_BENCH_ONLY=worker` those with such a name.
"""

from __future__ import annotations

import cProfile
import math
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import torch

import optbook
from optbook.benchmark import statistics as intervals
from optbook.benchmark.clock import Clock
from optbook.benchmark.interleave import Interleaved, Side
from optbook.settings import settings
from optbook.simplify.bed import SKIPPED_SHARE
from tests import zoo
from tests.benchmarks import pipelines
from tests.benchmarks.bottlenecks import BOTTLENECKS, Bottleneck
from tests.benchmarks.pipelines import Pipeline
from tests.benchmarks.run import Row

SCALE = float(os.environ.get("OPTBOOK_BENCH_SCALE", "1"))
ONLY = os.environ.get("OPTBOOK_BENCH_ONLY", "")
PAIRS, PAIRS_ASLEEP = 24, 6
BUDGET_SECONDS, NEXT_SECONDS = 22.0, 9.0
WIDE = 0.12
MODULES = 2_000
LOOPS, CALLS = 50, 1_000
Ask = Callable[[Pipeline], pd.DataFrame]


@dataclass(frozen=True)
class Answer:
    """A what-if beside the truth; all are ratios of throughput against the real system."""

    name: str
    speedup: float
    truth: intervals.Estimate
    predicted: float
    low: float
    high: float
    peers: Mapping[str, float]
    again: float = math.nan
    """The truth's second half of pairs ÷ its first."""

    def error(self, predicted: float | None = None) -> float:
        """Relative; infinite where there is no prediction."""
        off = abs((self.predicted if predicted is None else predicted) / self.truth.value - 1)
        return math.inf if math.isnan(off) else off

    @property
    def inside(self) -> bool:
        return self.low <= self.truth.value <= self.high

    @property
    def below_noise(self) -> bool:
        """Whether the truth's own interval holds the prediction."""
        low, high = self.truth.low, self.truth.high
        return low is not None and high is not None and low <= self.predicted <= high

    @property
    def wide(self) -> bool:
        return not self.high / self.low - 1 <= WIDE

    def __str__(self) -> str:
        low, high = self.truth.low or math.nan, self.truth.high or math.nan
        peers = ", ".join(f"{name} {100 * self.error(value):.1f} %" for name, value in self.peers.items())
        return (
            f"{self.name:32} {self.speedup:4g}×  "
            f"said {self.predicted:.3f} ({self.low:.3f} to {self.high:.3f})"
            f"  truth {self.truth.value:.3f} ({low:.3f} to {high:.3f})  error {100 * self.error():5.1f} %"
            f"{'' if self.inside else '  outside'}{'  below noise' if self.below_noise else ''}  [{peers}]"
        )


def asked(pipeline: Pipeline) -> pd.DataFrame:
    """What optbook says."""
    finite = [speedup for speedup in pipeline.speedups if math.isfinite(speedup)]
    found = optbook.ceiling(
        pipeline.workload,
        [pipeline.component],
        speedup=finite,
        steps=pipelines.STEPS,
        budget=BUDGET_SECONDS,
    )
    frame: pd.DataFrame = found.to_frame()
    return frame


def answers(pipeline: Pipeline, ask: Ask = asked, pairs: int = PAIRS) -> list[Answer]:
    """Ask about a pipeline, and measure what is true and what a sleeping stub makes of it."""
    seconds = seconds_a_call(pipeline)
    share = profiled_share(pipeline)
    real = Side(pipeline.workload)
    truths = interleaved([real, *(Side(pipeline.truth(speedup)) for speedup in pipeline.speedups)])
    asleep = [
        Side(pipeline.workload, around=partial(sleeping, pipeline, seconds / speedup))
        for speedup in pipeline.speedups
    ]
    stubbed = interleaved([real, *asleep])
    for index in range(len(truths.sides)):
        truths.sample(index)
    rounds(truths, pairs // 2)
    said = ask(pipeline)
    for problem in filter(None, said.get("error", [])):
        tell(f"{pipeline.name}: {problem}")
    rounds(truths, pairs - pairs // 2)
    rounds(stubbed, PAIRS_ASLEEP)
    found = []
    for i, speedup in enumerate(pipeline.speedups, start=1):
        found.append(
            Answer(
                pipeline.name,
                speedup,
                ratio(truths, i),
                *at(said, speedup),
                {"sleep": ratio(stubbed, i).value, "Amdahl": 1 / (1 - share + share / speedup)},
                again(truths, i),
            )
        )
    return found


def at(said: pd.DataFrame, speedup: float) -> tuple[float, float, float]:
    """What was said of a speed-up, and its range; NaN where nothing was."""
    rows = said[np.isclose(said["speedup"], speedup)]
    if rows.empty:
        return math.nan, math.nan, math.nan
    ratio, low, high = rows[["predicted_ratio", "low", "high"]].iloc[0]
    return float(ratio), float(low), float(high)


def interleaved(sides: Sequence[Side]) -> Interleaved:
    """Throughput as a ceiling means it: of the steps after those in which queues fill."""
    skipped = round(SKIPPED_SHARE * pipelines.STEPS)
    return Interleaved(sides, pipelines.STEPS, Clock(), random.Random(0), skipped)


def rounds(sides: Interleaved, number: int) -> None:
    for _ in range(number):
        sides.round()


def ratio(sides: Interleaved, index: int) -> intervals.Estimate:
    """Of throughputs, against the first side's; with all that was seen as its interval if pairs are few."""
    pairs = np.exp(sides.differences(0, index)).tolist()
    found = intervals.median(pairs)
    return found if found.low is not None else intervals.Estimate(found.value, min(pairs), max(pairs))


def again(sides: Interleaved, index: int) -> float:
    """How far the second half of the rounds is from the first: a ratio of ratios."""
    differences = sides.differences(0, index)
    first, second = np.array_split(differences, 2)
    return float(np.exp(np.median(second) - np.median(first)))


def real_of(pipeline: Pipeline) -> Callable[..., Any]:
    named: Any = pipelines
    for name in pipeline.component.removeprefix(f"{pipelines.__name__}.").split("."):
        named = getattr(named, name)
    return named  # type: ignore[no-any-return]


def replaced(pipeline: Pipeline, function: Callable[..., Any]) -> Any:
    """The component replaced as one does by hand; forked workers see it too."""
    return mock.patch(pipeline.component, function)


def seconds_a_call(pipeline: Pipeline) -> float:
    """The component's mean wall time in one run of the real system, in workers too."""
    real, total, calls = real_of(pipeline), multiprocessing.Value("d", 0.0), multiprocessing.Value("l", 0)

    def note(started: float) -> None:
        ended = time.perf_counter()
        with total, calls:
            total.value += ended - started
            calls.value += 1

    def timed(*args: Any) -> Any:
        started = time.perf_counter()
        result = real(*args)
        note(started)
        return result

    async def awaited(*args: Any) -> Any:
        started = time.perf_counter()
        result = await real(*args)
        note(started)
        return result

    with replaced(pipeline, awaited if real is pipelines.heavy_async else timed):
        pipeline.workload()
    return float(total.value / calls.value)


def sleeping(pipeline: Pipeline, seconds: float) -> Any:
    """A stub that sleeps for so long and returns data of the right form."""

    def heavy(item: pipelines.Item, kind: pipelines.Kind) -> Any:
        pause(seconds)
        return pipelines.result(kind, item)

    async def heavy_async(item: pipelines.Item) -> Any:
        pause(seconds)
        return pipelines.result("waiting", item)

    def forward(self: pipelines.Block, x: torch.Tensor) -> torch.Tensor:
        pause(seconds)
        return x

    kinds: dict[str, Callable[..., Any]] = {"heavy": heavy, "heavy_async": heavy_async, "forward": forward}
    return replaced(pipeline, kinds[pipeline.component.rpartition(".")[2]])


def pause(seconds: float) -> None:
    if seconds:
        time.sleep(seconds)


def profiled_share(pipeline: Pipeline) -> float:
    """The component's share of the time in a cProfile of one run."""
    code = real_of(pipeline).__code__
    profiler = cProfile.Profile()
    started = time.perf_counter()
    with profiler:
        pipeline.workload()
    total = time.perf_counter() - started
    return min(1.0, sum(entry.totaltime for entry in profiler.getstats() if entry.code is code) / total)


def what_ifs(found: Sequence[Answer]) -> list[Row]:
    """How far the answers are off."""
    errors = [answer.error() for answer in found]
    of_peers = {name: [answer.error(answer.peers[name]) for answer in found] for name in found[0].peers}

    def row(what: str, figure: Callable[[Sequence[float]], float], target: float) -> Row:
        peers = {name: percent(figure(theirs)) for name, theirs in of_peers.items()}
        ours = figure(errors)
        return Row(
            f"{what}, {len(found)} cases", percent(ours), f"≤ {percent(target)}", ours <= target, peers
        )

    outside = max((answer.error() for answer in found if not answer.inside), default=0.0)
    worst = {name: percent(max(theirs)) for name, theirs in of_peers.items()}
    wide = sum(answer.wide for answer in found) / len(found)
    spread = [
        (answer.truth.high - answer.truth.low) / answer.truth.value / 2
        for answer in found
        if answer.truth.low is not None and answer.truth.high is not None
    ]
    noise = statistics.median(spread) if spread else math.nan
    halves = [abs(answer.again - 1) for answer in found if math.isfinite(answer.again)] or [math.nan]
    below = sum(answer.below_noise for answer in found) / len(found)
    return [
        row("what-if: median error", statistics.median, 0.02),
        row("what-if: 90 % quantile of the error", quantile_90, 0.06),
        Row("what-if: worst error outside its range", percent(outside), "≤ 12 %", outside <= 0.12, worst),
        Row("what-if: ranges wider than 12 %", percent(wide), "≤ 5 % of the cases", wide <= 0.05),
        Row("the truth's own 95 % interval, median half", percent(noise), "printed", True,
            {"answers inside it": percent(below)}),
        Row("the truth's second half of pairs against its first, median", percent(statistics.median(halves)),
            "printed", True, {"90 %": percent(quantile_90(halves))}),
    ]  # fmt: skip


def quantile_90(errors: Sequence[float]) -> float:
    return sorted(errors)[math.ceil(0.9 * len(errors)) - 1]


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def limits_next(case: Bottleneck) -> bool:
    """Whether a ceiling names the next bottleneck."""
    frame = optbook.ceiling(
        case.workload, list(case.components), steps=pipelines.STEPS, budget=NEXT_SECONDS
    ).to_frame()
    said = str(frame[frame["component"] == case.component]["next"].iloc[0])
    right = said == case.next
    tell(f"{case.name:60} {said.rpartition('.')[2] or 'nothing'} limits next{'' if right else '  WRONG'}")
    return right


def next_bottlenecks(cases: Sequence[Bottleneck]) -> Row:
    right = sum(bool(safely(partial(limits_next, case), case.name)) for case in cases)
    what = f"next bottleneck named correctly, {len(cases)} pipelines"
    return Row(what, percent(right / len(cases)), "≥ 95 %", right >= 0.95 * len(cases))


def add(x: float, y: float) -> float:
    return x + y


def nanoseconds(function: Callable[[float, float], object]) -> float:
    """CPU time of a call, the fastest of many loops; a Mock forgets between them what it was called with."""
    best = math.inf
    for _ in range(LOOPS):
        if isinstance(function, mock.Mock):
            function.reset_mock()
        started = time.thread_time()
        for _ in range(CALLS):
            function(1.0, 2.0)
        best = min(best, time.thread_time() - started)
    return best / CALLS * 1e9


def cost_of_calls() -> list[Row]:
    """Of what replaces a function of two floats."""
    mocked = nanoseconds(mock.Mock(return_value=3.0))
    ours = {}
    options: dict[str, dict[str, Any]] = {"value": {"value": 3.0}, "skip": {}, "dummy": {}, "replay": {}}
    for kind, given in options.items():
        with optbook.stub(add, kind, **given):
            for _ in range(100):
                add(1.0, 2.0)
            ours[kind] = nanoseconds(add)
    replay = ours.pop("replay")
    dearest = max(ours.values())
    shown = {"Mock": f"{mocked:.0f} ns", "plain call": f"{nanoseconds(add):.0f} ns"}
    each = ", ".join(f"{kind} {cost:.0f} ns" for kind, cost in ours.items())
    return [
        Row(
            f"a call of a stub ({each})", f"{dearest:.0f} ns", "≤ ⅒ of Mock's", dearest <= mocked / 10, shown
        ),
        Row("a call of a replay stub", f"{replay:.0f} ns", "printed", True, shown),
    ]


def installing() -> list[Row]:
    """In a process with many modules, each with functions, a class and a table of its own."""
    names = [f"_optbook_bench_{i}" for i in range(max(0, MODULES - len(sys.modules)))]
    for name in names:
        sys.modules[name] = module = ModuleType(name)
        source = "\n".join(f"def f{i}(x): return x + {i}" for i in range(10))
        exec(source + "\nclass C:\n    f = f0\ntable = {'a': f1, 'b': [f2]}", module.__dict__)
    try:
        return [
            installed("Python function", pipelines.heavy),
            installed("built-in", torch.stack),
        ]
    finally:
        for name in names:
            del sys.modules[name]


def installed(what: str, target: Callable[..., Any]) -> Row:
    """CPU time, since others may use the machine."""
    seconds = []
    for _ in range(9):
        stub = optbook.stub(target, "skip")
        started = time.thread_time()
        with stub:
            seconds.append(time.thread_time() - started)
    took = statistics.median(seconds)
    what = f"installing a stub of a {what}, {len(sys.modules)} modules loaded"
    return Row(what, f"{1e3 * took:.1f} ms", "≤ 50 ms", took <= 0.05)


def outcome(make: Callable[[], zoo.Held]) -> str:
    held = make()
    before = held.call()
    with held.stub() as stub:
        replaced = bool(held.call() == zoo.STUB)
        declared = bool(held.declared) and any(held.declared in text for text in stub.declared)
    if not bool(held.call() == before):
        return "not restored"
    return "replaced" if replaced else "declared" if declared else "missed"


def ways_to_hold() -> Row:
    """Of each way to hold a function, what became of it."""
    outcomes = {name: safely(partial(outcome, make), name) for name, make in zoo.WAYS.items()}
    count = Counter(outcomes.values())
    good = count["replaced"] + count["declared"]
    for name, became in outcomes.items():
        if became not in ("replaced", "declared"):
            tell(f"{name}: {became}")
    measured = f"{count['replaced']} replaced, {count['declared']} declared, {len(outcomes) - good} not"
    holds = good == len(outcomes) >= 40
    return Row("ways to hold a function: replaced and restored, or declared", measured, "all of ≥ 40", holds)


def safely(work: Callable[[], Any], name: str) -> Any:
    """What ``work`` returns; None where it fails, which is told, and the other cases go on."""
    try:
        return work()
    except Exception:
        tell(f"{name} FAILED\n{traceback.format_exc()}")
        return None


def unanswered(pipeline: Pipeline) -> list[Answer]:
    nothing = {"sleep": math.nan, "Amdahl": math.nan}
    return [
        Answer(pipeline.name, speedup, intervals.Estimate(1.0), math.nan, math.nan, math.nan, nothing)
        for speedup in pipeline.speedups
    ]


def tell(what: object) -> None:
    print(what, file=sys.stderr, flush=True)


def all_answers(chosen: Iterable[Pipeline], ask: Ask = asked, pairs: int = PAIRS) -> list[Answer]:
    found: list[Answer] = []
    for pipeline in chosen:
        some = safely(partial(answers, pipeline, ask, pairs), pipeline.name) or unanswered(pipeline)
        for answer in some:
            tell(answer)
        found += some
    return found


def chosen(cases: Sequence[Any]) -> list[Any]:
    return [case for case in cases if ONLY in case.name][:: max(1, round(1 / SCALE))]


def measure() -> list[Row]:
    """About 35 minutes."""
    settings().progress_bar = False
    torch.set_num_threads(1)
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, {"OPTBOOK_LOG": os.path.join(folder, "experiments.sqlite")}),
    ):
        rows = [*cost_of_calls(), *installing(), ways_to_hold()]
        for row in rows:
            tell(row)
        found = all_answers(chosen([*pipelines.grid(), *pipelines.hard()]))
        return [*what_ifs(found), next_bottlenecks(chosen(BOTTLENECKS)), *rows]
