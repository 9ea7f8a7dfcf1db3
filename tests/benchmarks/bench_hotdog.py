"""The tuned recipe against the first: training, counting, memory, time to accuracy, and what brought it.

On two quiet cores it takes some 20 minutes. `OPTBOOK_BENCH_SCALE=0.05` is a short run, whose figures mean
little. `OPTBOOK_BENCH_PRICE=0.90` is what an hour of the machine costs; with `OPTBOOK_BENCH_FULL=1` the first
version's way to 95 % is measured as it is, which takes its 20 minutes more.

Besides its rows it leaves the waterfalls in the folder of results, as pictures and tables.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from unittest import mock

import torch
from torch import nn

import optbook
from optbook import track
from optbook.benchmark.clock import Clock
from optbook.benchmark.interleave import Interleaved, Side
from optbook.errors import OptbookError
from optbook.hotdog.coco import Picture, load_folder
from optbook.hotdog.cures import CURES, Cure
from optbook.hotdog.detect import detect, hot_cells_together
from optbook.hotdog.recipe import Recipe
from optbook.hotdog.suppress import suppress_together
from optbook.hotdog.targets import draw_together
from optbook.hotdog.train import HOTDOGS
from optbook.hotdog.training import print_nothing, remember_detached
from optbook.hotdog.weights import load_weights
from optbook.optimize.accuracy import same_accuracy
from optbook.optimize.compare import Comparison
from optbook.settings import settings
from tests.benchmarks import waterfall
from tests.benchmarks.run import RESULTS, Row
from tests.benchmarks.waterfall import Bar, Run

SCALE = float(os.environ.get("OPTBOOK_BENCH_SCALE", "1"))
PRICE = float(os.environ.get("OPTBOOK_BENCH_PRICE", "0.90"))
FULL = bool(os.environ.get("OPTBOOK_BENCH_FULL"))
GOAL = 0.95
"""Share of validation pictures whose hot dogs must be counted right."""
FEW, MANY = 32, 512
"""Pictures of one timed run, of a slow system and of a fast one."""
SECONDS_OF_A_RUN = 1.0
ROUNDS = 3
MiB = 2**20


def scaled(n: float, least: int = 1) -> int:
    return max(least, round(n * SCALE))


def tell(what: object) -> None:
    print(what, file=sys.stderr, flush=True)


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """What is printed goes nowhere, at the price of writing it."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


class Training:
    """Epochs over some pictures, each by a fresh learner; the loader and its cache stay."""

    def __init__(self, recipe: Recipe, pictures: Sequence[Picture]) -> None:
        self.recipe = recipe
        self.pictures = pictures
        self.loader = recipe.loader(pictures)
        self.fresh()

    def fresh(self) -> None:
        """A learner that has not learnt yet."""
        self.learner = self.recipe.learner(self.pictures)

    def run(self) -> None:
        """An epoch."""
        with unheard():
            for batch in self.loader:
                self.recipe.step(self.learner, batch)
            self.learner.finish()

    def tracked(self) -> None:
        """An epoch whose steps are tracked."""
        with unheard():
            for batch in track(self.loader, unit="batch"):
                self.recipe.step(self.learner, batch)
            self.learner.finish()

    @property
    def side(self) -> Side:
        return Side(self.run, self.fresh)


@dataclass(frozen=True)
class Counting:
    """Finding and counting the hot dogs in some pictures."""

    recipe: Recipe
    network: nn.Module
    pictures: Sequence[Picture]

    def run(self) -> None:
        detect(self.network, self.recipe, self.pictures)

    @property
    def side(self) -> Side:
        return Side(self.run)


@dataclass(frozen=True)
class Course:
    """How learning went: after each epoch, the seconds of training so far and the share counted right."""

    seconds: tuple[float, ...]
    exact: tuple[float, ...]
    right: tuple[bool, ...]
    network: nn.Module

    def reached(self, goal: float) -> int | None:
        """The epoch after which the goal was reached first, from 1 on."""
        return next((i for i, exact in enumerate(self.exact, start=1) if exact >= goal), None)


def course(
    recipe: Recipe,
    counting: Recipe,
    pictures: Sequence[Picture],
    validation: Sequence[Picture],
    stop_at: float = 2.0,
) -> Course:
    """Train, and count after every epoch; only training is timed. It ends once ``stop_at`` is reached."""
    seconds, exact, right = 0.0, [], [False]
    times: list[float] = []
    begun = time.perf_counter()
    loader, learner = recipe.loader(pictures), recipe.learner(pictures)
    seconds += time.perf_counter() - begun
    for epoch in range(1, recipe.epochs + 1):
        begun = time.perf_counter()
        with unheard():
            for batch in loader:
                recipe.step(learner, batch)
            learner.finish()
        seconds += time.perf_counter() - begun
        right = counted_right(learner.network, counting, validation)
        times.append(seconds)
        exact.append(sum(right) / len(right))
        tell(f"epoch {epoch}: {seconds:.1f} s of training, {exact[-1]:.1%} exact")
        if exact[-1] >= stop_at:
            break
    return Course(tuple(times), tuple(exact), tuple(right), learner.network)


def counted_right(network: nn.Module, recipe: Recipe, pictures: Sequence[Picture]) -> list[bool]:
    """Whether each picture's hot dogs were counted right."""
    found = detect(network, recipe, pictures)
    return [one.count == picture.count for one, picture in zip(found, pictures, strict=True)]


def quick_at_the_same(first: Recipe) -> Recipe:
    """The first version without what costs time and changes no number but by rounding; two processes load."""
    return first.replace(
        dtype=torch.float32,
        targets=draw_together,
        anomaly_detection=False,
        remember=remember_detached,
        log=print_nothing,
        workers=2,
        persistent_workers=True,
    )


def quick_to_count(recipe: Recipe) -> Recipe:
    """The same detections in less time."""
    return recipe.replace(
        inference_batch_size=32, inference_mode=True, find=hot_cells_together, suppress=suppress_together
    )


def times_as_fast(result: Comparison) -> str:
    return f"{result.ratio:.3g}×, {result.low:.3g} to {result.high:.3g}"


def per_second(result: Comparison, pictures: int) -> dict[str, float | str]:
    first, second = (pictures / seconds for seconds in result.seconds)
    return {"first": f"{first:.1f}/s", "tuned": f"{second:.0f}/s", "pairs": result.pairs}


def against(first: Training | Counting, second: Training | Counting, budget: float) -> Comparison:
    return optbook.compare(
        first.run,
        second.run,
        ("first", "tuned"),
        setup=(first.side.setup, second.side.setup),
        budget=max(0.5, budget * SCALE),
    )


def training(pictures: Sequence[Picture]) -> tuple[Row, Comparison, int]:
    """Tuned against first; also the comparison, and over how many pictures it was."""
    some = pictures[: scaled(256, 16)]
    result = against(Training(Recipe.first(), some), Training(Recipe.tuned(), some), 120)
    workers = Training(Recipe.first().replace(workers=2, persistent_workers=True), some)
    workers.run()
    shown = per_second(result, len(some))
    shown["first, with torch's two workers"] = f"{len(some) / timed(workers.run):.1f}/s"
    what = "training, pictures/s: tuned ÷ first"
    return Row(what, times_as_fast(result), "≥ 20×", result.ratio >= 20, shown), result, len(some)


def counting(first: nn.Module, tuned: nn.Module, pictures: Sequence[Picture]) -> Row:
    some = pictures[: scaled(len(pictures), 8)]
    result = against(Counting(Recipe.first(), first, some), Counting(Recipe.tuned(), tuned, some), 60)
    what = "finding and counting, pictures/s: tuned ÷ first"
    return Row(what, times_as_fast(result), "≥ 20×", result.ratio >= 20, per_second(result, len(some)))


def memory(pictures: int) -> Row:
    """Each in a fresh process, one epoch over all pictures."""
    found = {which: trained_apart(which, pictures) for which in ("first", "tuned")}
    return memory_row(found, pictures)


def trained_apart(which: str, pictures: int) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.benchmarks.train_once", which, str(pictures)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def memory_row(found: dict[str, dict[str, float]], pictures: int) -> Row:
    """What training adds to the memory that the process holds before it; the whole is shown beside it."""
    added = {which: figures["peak"] - figures["before"] for which, figures in found.items()}
    ratio = added["tuned"] / added["first"]
    shown: dict[str, float | str] = {
        which: f"{added[which] / MiB:.0f} MiB of {found[which]['peak'] / MiB:.0f} MiB" for which in found
    }
    what = f"memory that training on {pictures} pictures adds: tuned ÷ first"
    return Row(what, f"{ratio:.2f}", "≤ ½", ratio <= 0.5, shown)


def against_free_data(pictures: Sequence[Picture]) -> list[Row]:
    """The tuned system, and the same without any work on data: batches that are there already."""
    some = pictures[: scaled(MANY, 32)]
    real, free = Training(Recipe.tuned(), some), Training(Recipe.tuned(), some)
    free.loader = optbook.dummy_loader(free.loader)
    result = optbook.compare(
        free.run,
        real.run,
        ("all data work free", "tuned"),
        setup=(free.fresh, real.fresh),
        budget=max(0.5, 40 * SCALE),
    )
    share = f"{100 * result.ratio:.0f} %, {100 * result.low:.0f} to {100 * result.high:.0f}"
    rates = [f"{len(some) / seconds:.0f}/s" for seconds in result.seconds]
    what = "tuned training against itself with all data work free"
    row = Row(what, share, "≥ 90 %", result.ratio >= 0.9, {"free": rates[0], "tuned": rates[1]})
    free.fresh()
    step = optbook.bench(free.tracked, "all data work free", budget=max(0.5, 10 * SCALE), flops=True)
    if step.flops is None or step.flops_share is None:
        return [row, Row("that ceiling against the machine's peak", "not known", "a figure", False)]
    shown = {
        "FLOP/s": f"{step.flops:.3g} of {step.flops_peak or 0:.3g}",
        "peak of": step.flops_peak_of,
        "counted": f"{100 * (step.flops_coverage or 0):.0f} % of operator time",
        "limit": step.diagnosis or "not clear",
        "because": step.diagnosis_note,
    }
    what = f"that ceiling against the machine's measured peak ({step.flops_dtype})"
    return [row, Row(what, f"{100 * step.flops_share:.0f} %", "a figure, and what limits it", True, shown)]


def compiled(pictures: Sequence[Picture]) -> Row:
    """What `torch.compile` brings to the tuned system, and what it costs before."""
    some = pictures[: scaled(MANY, 32)]
    eager, compiled = (Training(Recipe.tuned().replace(compile=on), some) for on in (False, True))
    first = timed(compiled.run)
    result = optbook.compare(eager.run, compiled.run, ("as it is", "compiled"), budget=max(0.5, 40 * SCALE))
    rates = [f"{len(some) / seconds:.0f}/s" for seconds in result.seconds]
    shown: dict[str, float | str] = {
        "as it is": rates[0],
        "compiled": rates[1],
        "first epoch, compiling": f"{first:.0f} s",
    }
    return Row("tuned training, torch.compile ÷ without", times_as_fast(result), "a figure", True, shown)


def time_to_goal(first: Course, tuned: Course, first_throughput: float, pictures: int, how: str) -> Row:
    """``first_throughput`` is in pictures a second; 0 where the first course was measured as it is."""
    what = f"time to {GOAL:.0%} exact counts on validation: first ÷ tuned"
    epochs = first.reached(GOAL), tuned.reached(GOAL)
    if epochs[0] is None or epochs[1] is None:
        best = [f"{100 * max(each.exact):.1f} %" for each in (first, tuned)]
        shown: dict[str, float | str] = {"first's best": best[0], "tuned's best": best[1]}
        return Row(what, "not reached", "≥ 20×", False, shown)
    by_rate = epochs[0] * pictures / first_throughput if first_throughput else first.seconds[epochs[0] - 1]
    then = tuned.seconds[epochs[1] - 1]
    shown = {
        "first": f"{by_rate:.0f} s, epoch {epochs[0]} ({how})",
        "tuned": f"{then:.1f} s, epoch {epochs[1]} (measured)",
    }
    return Row(what, f"{by_rate / then:.1f}×", "≥ 20×", by_rate / then >= 20, shown)


def accuracy(first: Sequence[bool], tuned: Sequence[bool], how: str) -> Row:
    """Worse by more than chance would be a failure; better is none."""
    found = same_accuracy(list(first), list(tuned), labels=("first", "tuned"))
    rates = [f"{100 * rate:.1f} %" for rate in found.rates]
    holds = bool(found) or found.difference > 0
    shown = {
        f"first ({how})": rates[0],
        "interval": f"{100 * found.low:+.1f} to {100 * found.high:+.1f} points",
    }
    return Row("exact counts on validation at the end, tuned", rates[1], "as first", holds, shown)


def throughputs(make: Callable[[Recipe, Sequence[Picture]], Training | Counting],
                pictures: Sequence[Picture]) -> Callable[[Sequence[Recipe]], list[float]]:  # fmt: skip
    """Measures recipes, in turn and in random order in each round; slow ones over fewer pictures."""

    def measured(recipes: Sequence[Recipe]) -> list[float]:
        few = pictures[: scaled(FEW, 8)]
        systems = []
        for recipe in recipes:
            system = make(recipe, few)
            system.run()
            seconds = timed(system.run)
            count = size_of_run(len(few) / seconds, len(few), min(MANY, len(pictures)), recipe.batch_size)
            systems.append(make(recipe, pictures[:count]))
        rounds = Interleaved([each.side for each in systems], None, Clock(), random.Random(0))
        for done in range(scaled(ROUNDS, 1) + 1):  # the first warms up
            rounds.round()
            tell(f"waterfall: round {done} of {scaled(ROUNDS, 1)}")
        return [
            len(each.pictures) / statistics.median(times[1:])
            for each, times in zip(systems, rounds.times, strict=True)
        ]

    return measured


def size_of_run(rate: float, least: int, most: int, batch: int) -> int:
    """How many pictures a timed run takes, in whole batches."""
    wanted = int(rate * SECONDS_OF_A_RUN * min(1.0, SCALE)) // batch * batch
    return max(least, min(most, wanted))


def timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


@dataclass(frozen=True)
class Prediction:
    """What a ceiling said of a cure, read at the speed-up that its component got alone; what came of it."""

    name: str
    speedup: float
    predicted: float
    achieved: float

    @property
    def error(self) -> float:
        return abs(self.predicted / self.achieved - 1)

    def __str__(self) -> str:
        return f"{self.name}: {self.predicted:.3g}× predicted, {self.achieved:.3g}× achieved"


def predictions(cures: Sequence[Cure], found: Sequence[Bar], pictures: Sequence[Picture]) -> list[Prediction]:
    """For each cure that replaces a callable, on the system just before it."""
    recipes = waterfall.in_order(Recipe.first(), cures)
    kept = []
    for cure, bar, before, after in zip(cures, found, recipes, recipes[1:], strict=False):
        if cure.component is None or before == after:
            continue
        count = size_of_run(bar.before, scaled(3 * FEW, 16), min(MANY, len(pictures)), before.batch_size)
        figures = predicted(cure, Training(before, pictures[:count]), Training(after, pictures[:count]))
        if figures is not None:
            kept.append(Prediction(cure.name, *figures, bar.gain))
            tell(kept[-1])
    return kept


def predicted(cure: Cure, before: Training, after: Training) -> tuple[float, float] | None:
    """The component's own speed-up, and the system's that a ceiling of ``before`` predicts at it."""
    assert cure.component is not None
    label = f"before: {cure.name}"
    try:
        optbook.ceiling(
            before.tracked,
            [cure.component],
            label,
            setup=before.fresh,
            budget=max(0.5, 10 * SCALE),
            namespace={"recipe": before.recipe},
            seed=0,
        )
        expected = optbook.expect(cure.component, label, namespace={"recipe": after.recipe})
        with_it = optbook.bench(
            after.tracked, cure.name, budget=max(0.5, 5 * SCALE), setup=after.fresh, expect=expected
        )
    except OptbookError as error:
        tell(f"{cure.name} is not predicted: {error}")
        return None
    if with_it.predicted is None or with_it.component_speedup is None:
        tell(f"{cure.name} is not predicted: {'; '.join(with_it.warnings)}")
        return None
    return with_it.component_speedup, with_it.predicted


def prediction_row(found: Sequence[Prediction], cures: Sequence[Cure]) -> Row:
    what = "predicted against achieved, cures that replace a callable: median error"
    others = [cure.name for cure in cures if cure.component is None]
    shown: dict[str, float | str] = {each.name: f"{100 * each.error:.1f} %" for each in found}
    shown["not predictable"] = "; ".join(others)
    if not found:
        return Row(what, "none was predicted", "≤ 5 %", False, shown)
    median = statistics.median(each.error for each in found)
    return Row(what, f"{100 * median:.1f} %", "≤ 5 %", median <= 0.05, shown)


def waterfall_row(found: Sequence[Bar], run: Run, name: str, unit: str) -> Row:
    """Draw it, keep its table, and say in a row what all cures together bring."""
    picture, text = RESULTS / f"hotdog_{name}.png", RESULTS / f"hotdog_{name}.md"
    waterfall.draw(found, run, picture, f"{unit}: one cure after the other")
    shown = waterfall.table(found, run)
    waterfall.keep(shown, text)
    tell(shown)
    steps: dict[str, float | str] = {bar.name: f"{bar.gain:.2f}× ({bar.alone:.2f}× alone)" for bar in found}
    ends = (found[0].before, found[-1].throughput)
    became = " → ".join(f"{run.seconds(rate):.0f} s, {run.cost(rate):.3f}" for rate in ends)
    what = f"waterfall of {name}: seconds, and cost at {run.price:.2f} an hour"
    return Row(what, became, "picture and table", picture.exists() and text.exists(), steps)


def measure() -> list[Row]:
    settings().progress_bar = False
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, {"OPTBOOK_LOG": os.path.join(folder, "experiments.sqlite")}),
    ):
        rows = []
        for row in _rows():
            tell(row)
            rows.append(row)
        return rows


def _rows() -> Iterator[Row]:
    first, tuned = Recipe.first(), Recipe.tuned()
    pictures, validation = (load_folder(HOTDOGS, split, "hot dog") for split in ("train", "val"))
    pictures, validation = pictures[: scaled(len(pictures), 32)], validation[: scaled(len(validation), 16)]
    epochs = scaled(first.epochs, 2)
    yield memory(len(pictures))
    row, compared, some = training(pictures)
    yield row
    yield from against_free_data(pictures)
    yield compiled(pictures)
    fast = course(tuned.replace(epochs=epochs), tuned, pictures, validation)
    stored = load_weights()
    is_first = type(stored.network) is first.network
    slow = first if FULL else quick_at_the_same(first)
    stop = GOAL if is_first and not FULL else 2.0
    steady = course(slow.replace(epochs=epochs), quick_to_count(slow), pictures, validation, stop)
    how = (
        "measured"
        if FULL
        else "its epochs from a run in float32 with two loaders, its pace as measured above"
    )
    pace = 0.0 if FULL else some / compared.seconds[0]
    yield time_to_goal(steady, fast, pace, len(pictures), how)
    if is_first and not FULL:
        right = counted_right(stored.network, quick_to_count(first), validation)
        yield accuracy(right, fast.right, "stored weights")
    else:
        yield accuracy(steady.right, fast.right, "trained here")
    yield counting(steady.network, fast.network, validation)

    cures = waterfall.for_training(waterfall.with_effect(CURES, first))
    run = Run(first.epochs * len(pictures), PRICE)
    found = waterfall.bars(first, cures, throughputs(Training, pictures))
    yield waterfall_row(found, run, "training", "Training")
    yield prediction_row(predictions(cures, found, pictures), cures)
    networks = {first.network: steady.network, tuned.network: fast.network}

    def counting_with(recipe: Recipe, some: Sequence[Picture]) -> Counting:
        return Counting(recipe, copy.deepcopy(networks[recipe.network]), some)

    found = waterfall.bars(
        first,
        waterfall.for_counting(waterfall.with_effect(CURES, first)),
        throughputs(counting_with, validation),
    )
    yield waterfall_row(found, Run(100_000, PRICE), "counting", "Counting 100 000 pictures")
