"""What the profiles cost on the sample's training step, and how far they move shares, beside their peers.

The step is `Recipe.first()`'s with its data work. Bare and instrumented runs alternate.
"""

from __future__ import annotations

import contextlib
import cProfile
import hashlib
import io
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import torch
from line_profiler import LineProfiler

from optbook.benchmark.profiles.lines import LineInstrument
from optbook.benchmark.profiles.sampler import Sampler
from optbook.benchmark.profiles.targets import named
from optbook.hotdog import targets, training
from optbook.hotdog.coco import load_folder
from optbook.hotdog.recipe import Recipe
from tests.benchmarks import module_zoo, profile_peers
from tests.benchmarks.run import Row

PICTURES = Path(__file__).parent.parent.parent / "data" / "hotdogs"
ROUNDS, TURNS = 6, 60
HOT = (training.step_by_step, targets.draw_cell_by_cell)
DATA = b"x" * 300_000
Work = Callable[[], object]
Instrument = Callable[[Work], contextlib.AbstractContextManager[object]]


def training_step() -> Work:
    """One step of the first recipe, from reading the pictures on."""
    recipe = Recipe.first()
    pictures = load_folder(PICTURES, "train")[: 4 * recipe.batch_size]
    learner = recipe.learner(pictures)
    batches = itertools.chain.from_iterable(recipe.loader(pictures) for _ in itertools.count())

    def step() -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            recipe.step(learner, next(batches))

    return step


@contextlib.contextmanager
def calls(work: Work) -> Iterator[Sampler]:
    sampler = Sampler(None)
    sampler.start()
    sampler.running(True)
    try:
        yield sampler
    finally:
        sampler.stop()


@contextlib.contextmanager
def lines(work: Work) -> Iterator[None]:
    instrument = LineInstrument([named(function, work) for function in HOT], work)
    instrument.start()
    instrument.running(True)
    try:
        yield
    finally:
        instrument.stop()


def lprun(work: Work) -> contextlib.AbstractContextManager[object]:
    """What %lprun does with -f for the same functions."""
    profiler: Any = LineProfiler()
    for function in HOT:
        profiler.add_function(function)
    return cast(contextlib.AbstractContextManager[object], profiler)


def overhead(work: Work, instrument: Instrument) -> float:
    """Median of instrumented ÷ bare time over pairs."""
    ratios = []
    for _ in range(ROUNDS):
        bare = seconds(work)
        with instrument(work):
            ratios.append(seconds(work) / bare)
    return statistics.median(ratios)


def seconds(work: Work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def add_one(n: int) -> int:
    return n + 1


def small_calls() -> None:
    n = 0
    for _ in range(4000):
        n = add_one(n)


def built_ins() -> None:
    found: list[int] = []
    for i in range(6000):
        found.append(i)


def loop() -> None:
    n = 0
    for i in range(20_000):
        n += i * i


def hashing() -> None:
    hashlib.sha256(DATA).digest()


def sleeping() -> None:
    time.sleep(0.001)


KINDS = (small_calls, built_ins, loop, hashing, sleeping)


def mixed() -> None:
    for _ in range(TURNS):
        for kind in KINDS:
            kind()


def true_seconds() -> dict[str, float]:
    found = dict.fromkeys((kind.__name__ for kind in KINDS), 0.0)
    for _ in range(TURNS):
        for kind in KINDS:
            found[kind.__name__] += seconds(kind)
    return found


def of_calls() -> dict[str, float]:
    with calls(mixed) as sampler:
        mixed()
    found = dict.fromkeys((kind.__name__ for kind in KINDS), 0.0)
    for (chain, _, _), spent in sampler.samples.threads[""].seconds.items():
        for name in {sampler.samples.codes[key].co_name for key in chain} & found.keys():
            found[name] += spent
    return found


def of_cprofile() -> dict[str, float]:
    profiler = cProfile.Profile()
    with profiler:
        mixed()
    codes: dict[object, str] = {kind.__code__: kind.__name__ for kind in KINDS}
    return {codes[e.code]: e.totaltime for e in profiler.getstats() if e.code in codes}


def error(found: dict[str, float], true: dict[str, float]) -> float:
    """The largest error of a share, in points."""
    of_found, of_true = sum(found.values()), sum(true.values())
    return 100 * max(abs(found[name] / of_found - true[name] / of_true) for name in true)


def measure() -> list[Row]:
    """The rows of `make bench NAME=profiles`."""
    torch.set_num_threads(1)
    step = training_step()
    step()
    by_calls, by_cprofile = overhead(step, calls), overhead(step, lambda work: cProfile.Profile())
    by_lines, by_lprun = overhead(step, lines), overhead(step, lprun)
    errors = [
        (error(of_calls(), true), error(of_cprofile(), true)) for true in (true_seconds() for _ in range(5))
    ]
    ours, theirs = (statistics.median(side) for side in zip(*errors, strict=True))
    return [
        Row("calls: time ÷ bare, sample's training step", by_calls, "at most cProfile's",
            by_calls <= by_cprofile, {"cProfile": by_cprofile}),
        Row("lines: time ÷ bare, the same", by_lines, "at most 1.1 × %lprun's",
            by_lines <= 1.1 * by_lprun, {"%lprun": by_lprun}),
        Row("calls: largest error of a share (points), five kinds of work", ours, "less than cProfile's",
            ours < theirs, {"cProfile": theirs}),
        *module_zoo.rows(),
        *profile_peers.rows(),
    ]  # fmt: skip
