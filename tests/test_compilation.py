"""Runs and steps in which torch.compile compiled are void."""

from __future__ import annotations

import sys
import types
from collections import Counter, defaultdict

import pytest

from optbook import track
from optbook.benchmark.bench import bench
from tests.fakes import FakeClock


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """torch's counter of compiled frames, as its own module keeps it."""
    counters: defaultdict[str, Counter[str]] = defaultdict(Counter)
    utils = types.SimpleNamespace(counters=counters)
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", utils)
    return counters["frames"]


def test_a_run_that_compiled_is_not_counted(frames: Counter[str]) -> None:
    fake = FakeClock()
    runs = []

    def run() -> None:
        runs.append(1)
        fake.spend(1)
        if len(runs) in (3, 5):
            frames["total"] += 1
            fake.spend(50)

    e = bench(run, runs=9, clock=fake.clock)
    assert e.times == (1.0,) * 6
    assert (e.noise_compiled, e.noise_few) == (2, False)
    assert any("compiled in 2 of the runs: those are not counted" in w for w in e.warnings)


def test_a_step_that_compiled_is_not_counted_and_neither_is_what_it_did(frames: Counter[str]) -> None:
    fake = FakeClock()

    def run() -> None:
        for step in track(range(20), sample=2):
            fake.spend(1)
            if step == 10:
                frames["total"] += 1
                fake.spend(50)
                for _ in track(range(7), unit="token"):
                    pass

    e = bench(run, clock=fake.clock)
    assert e.steps == 17
    assert e.throughput == pytest.approx(1.0)
    assert e.units == pytest.approx({"batch": 1.0, "sample": 2.0, "token": 0.0})
    assert any("compiled in 1 of the steps" in w for w in e.warnings)


def test_the_real_counter_moves_when_torch_compiles() -> None:
    import torch

    from optbook.benchmark.compilation import compiled_frames

    before = compiled_frames()
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    compiled(torch.zeros(2))
    assert compiled_frames() > before
