"""The benchmark's pipelines do the work they claim. No time is looked at."""

from __future__ import annotations

import dataclasses
import functools
import math
import multiprocessing
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from optbook.benchmark.statistics import Estimate
from tests.benchmarks import bench_what_if, bottlenecks, pipelines
from tests.benchmarks.bottlenecks import BOTTLENECKS, STAGES, Bottleneck, Shape
from tests.benchmarks.pipelines import KINDS, FreeBlock, Learner, Pipeline, Samples, Training

STEPS = 3
TURN_SECONDS = {"python": 1e-5, "numpy": 1e-4, "torch": 1e-4, "waiting": 1e-5, "training": 0.1, "block": 2e-3}


def make_small(patched: pytest.MonkeyPatch) -> None:
    """Few steps, and turns as if they took long."""
    patched.setattr(pipelines, "seconds_a_turn", TURN_SECONDS.__getitem__)
    patched.setattr(pipelines, "STEPS", STEPS)
    patched.setattr(bottlenecks, "STEPS", STEPS)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    make_small(monkeypatch)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def every() -> list[Pipeline]:
    with pytest.MonkeyPatch.context() as patched:
        make_small(patched)
        return [*pipelines.grid(), *pipelines.hard()]


@pytest.fixture
def turns_worked(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], list[int]]:
    """Runs a workload and returns the turns of every call of a component, in workers too."""
    calls, total = multiprocessing.Value("l", 0), multiprocessing.Value("l", 0)

    def noted(turns: int) -> None:
        with calls, total:
            calls.value += 1
            total.value += turns

    def heavy(item: pipelines.Item, kind: pipelines.Kind) -> Any:
        noted(int(item[0]))
        return pipelines.result(kind, item)

    async def heavy_async(item: pipelines.Item) -> Any:
        noted(int(item[0]))
        return pipelines.result("waiting", item)

    def forward(self: pipelines.Block, x: torch.Tensor) -> torch.Tensor:
        noted(self.turns)
        return x * self.linear.bias

    monkeypatch.setattr(pipelines, "heavy", heavy)
    monkeypatch.setattr(pipelines, "heavy_async", heavy_async)
    monkeypatch.setattr(pipelines.Block, "forward", forward)

    def count(workload: Callable[[], object]) -> list[int]:
        calls.value = total.value = 0
        workload()
        return [calls.value, total.value]

    return count


def test_the_grid_and_the_hard_ones_are_all_there() -> None:
    names = [pipeline.name for pipeline in every()]
    assert len(names) == len(set(names)) == 24 + 10
    assert {f"{shape}, {kind}" for shape in ("serial", "2 workers", "pool") for kind in KINDS} < set(names)


ONE_OF_A_SHAPE = [p for p in every() if ", " not in p.name or p.name.endswith((", python", ", waiting"))]


@pytest.mark.parametrize("pipeline", ONE_OF_A_SHAPE, ids=lambda pipeline: pipeline.name)
def test_a_component_twice_as_fast_does_half_the_work_in_as_many_calls(
    pipeline: Pipeline, turns_worked: Callable[[Callable[[], object]], list[int]]
) -> None:
    calls, turns = turns_worked(pipeline.workload)
    assert calls == pipeline.calls
    assert turns > 0
    assert turns_worked(pipeline.truth(2)) == [calls, turns / 2]
    assert turns_worked(pipeline.truth(math.inf)) in ([calls, 0], [0, 0])  # a free block is another class


@pytest.mark.parametrize("kind", KINDS)
def test_a_free_component_returns_what_the_real_one_does(kind: pipelines.Kind) -> None:
    real, free = (pipelines.heavy(np.full(pipelines.WIDTH, n, np.int64), kind) for n in (12, 0))
    assert type(real) is type(free)
    assert real.shape == free.shape
    assert real.dtype == free.dtype


@pytest.mark.parametrize("speedup", [1, 2, math.inf])
def test_the_optimizer_works_on_all_parameters_also_with_a_free_block(speedup: float) -> None:
    truth = pipelines.autograd().truth(speedup)
    training = truth.__self__  # type: ignore[attr-defined]
    assert isinstance(training, Training)
    before = [p.detach().clone() for p in training.net.parameters()]
    training.step()
    assert all((p != old).any() for p, old in zip(training.net.parameters(), before, strict=True))
    assert isinstance(training.net[1], FreeBlock) == math.isinf(speedup)


def test_alternating_inputs_differ_in_cost_and_not_in_shape() -> None:
    cheap, dear = pipelines.items("python", (0.5, 2.5), 2, 1.0)
    assert cheap.shape == dear.shape
    assert dear[0] > 2 * cheap[0]


def test_what_is_prefetched_arrives_in_order() -> None:
    assert list(pipelines.prefetched(range(20), 1)) == list(range(20))


def test_calibration_counts_turns() -> None:
    turns = pipelines._fastest(functools.partial(pipelines.work, "python"))
    assert 0 < turns < 1e-3


def test_training_goes_through_the_batch_as_often_as_it_says() -> None:
    samples = Samples(pipelines.items("torch", (0.1,), 8, 1.0), "torch", 1)
    learner = Learner(2)
    pipelines.serial(samples, learner)
    assert [batch.shape for batch in samples.batches()] == [(4, pipelines.WIDTH)] * 2


def test_the_next_bottleneck_is_clear_by_construction() -> None:
    assert len(BOTTLENECKS) >= 20
    for case in BOTTLENECKS:
        freed = case.takes(case.freed)
        gains = {s: freed / max(case.takes(case.freed, s), 0.1) for s in STAGES if s != case.freed}
        others = [gain for stage, gain in gains.items() if stage != case.limits]
        assert gains[case.limits] > 1.25 * max(others), case.name


@pytest.mark.parametrize(
    "case",
    list({case.shape.name: case for case in BOTTLENECKS}.values()),
    ids=lambda case: case.shape.name,
)
def test_every_stage_runs_in_every_step(case: Bottleneck, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = {name: multiprocessing.Value("l", 0) for name in case.components}

    def counting(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def stage(step: int, amount: bottlenecks.Amount) -> Any:
            with counted[name]:
                counted[name].value += 1
            return original(step, dataclasses.replace(amount, turns=0))

        return stage

    for name in case.components:
        stage = name.rpartition(".")[2]
        monkeypatch.setattr(bottlenecks, stage, counting(name, getattr(bottlenecks, stage)))
    case.workload()
    assert {name: value.value for name, value in counted.items()} == dict.fromkeys(case.components, STEPS)


def test_names_are_those_of_functions() -> None:
    for case in BOTTLENECKS:
        assert case.component in case.components
        assert case.next in case.components
        for name in case.components:
            assert callable(getattr(bottlenecks, name.rpartition(".")[2]))
    assert {type(case.shape) for case in BOTTLENECKS} == {Shape}


@pytest.mark.parametrize(
    "name", ["serial, numpy", "1 worker, python", "asyncio, waiting", "module under autograd"]
)
def test_answers_are_held_against_truth_and_peers(name: str) -> None:
    def said(pipeline: Pipeline) -> pd.DataFrame:
        return pd.DataFrame({"speedup": pipeline.speedups}).assign(predicted_ratio=1.5, low=1.2, high=1.8)

    chosen = next(pipeline for pipeline in every() if pipeline.name == name)
    answers = bench_what_if.answers(chosen, said, pairs=2)
    assert [answer.speedup for answer in answers] == list(chosen.speedups)
    for answer in answers:
        assert answer.truth.value > 0
        assert answer.wide
        assert answer.error() == pytest.approx(abs(1.5 / answer.truth.value - 1))
        assert all(value > 0 for value in answer.peers.values())


def answer(predicted: float, low: float, high: float) -> bench_what_if.Answer:
    truth = Estimate(2.0, 1.9, 2.1)
    return bench_what_if.Answer("a", 2.0, truth, predicted, low, high, {"sleep": 3.0})


def test_errors_become_rows() -> None:
    right, ranged, wrong = answer(2.0, 1.95, 2.05), answer(2.6, 1.9, 2.8), answer(2.6, 2.5, 2.7)
    assert (right.error(), right.inside, right.below_noise, right.wide) == (0, True, True, False)
    assert ranged.error() == pytest.approx(0.3)
    assert ranged.inside
    assert ranged.wide
    rows = {row.what.partition(",")[0]: row for row in bench_what_if.what_ifs([right, ranged])}
    assert rows["what-if: worst error outside its range"].holds
    assert rows["what-if: worst error outside its range"].peers == {"sleep": "50.0 %"}
    assert not rows["what-if: 90 % quantile of the error"].holds
    assert not rows["what-if: ranges wider than 12 %"].holds
    worst = {row.what: row for row in bench_what_if.what_ifs([right, wrong])}[
        "what-if: worst error outside its range"
    ]
    assert (worst.measured, worst.holds) == ("30.0 %", False)


def test_no_answer_is_an_infinite_error() -> None:
    missing = bench_what_if.unanswered(pipelines.autograd())
    assert [answer.error() for answer in missing] == [math.inf, math.inf]
    assert not any(answer.inside or answer.below_noise for answer in missing)
    assert not any(row.holds for row in bench_what_if.what_ifs(missing)[:4])
