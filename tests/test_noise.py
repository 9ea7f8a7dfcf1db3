from __future__ import annotations

import numpy as np
import pytest

from optbook.benchmark import noise
from tests.fakes import FakeClock


@pytest.mark.parametrize("n", [12, 25, 60, 300])
def test_clean_noise_gives_few_warnings(n: int) -> None:
    rng = np.random.default_rng(n)
    warned = 0
    for _ in range(500):
        times = rng.lognormal(np.log(0.01), 0.05, size=n)
        probes = rng.lognormal(np.log(3e-5), 0.1, size=n)
        warned += bool(list(noise.judge(times.tolist(), probes.tolist()).sentences("runs")))
    assert warned <= 15  # 3 %


def test_drift_is_noticed_and_told() -> None:
    rng = np.random.default_rng(0)
    times = np.linspace(1, 1.3, 60) * rng.lognormal(0, 0.03, size=60)
    seen = noise.judge(times.tolist(), [])
    assert seen.drift == pytest.approx(0.2, abs=0.05)
    assert seen.machine is None
    assert next(seen.sentences("runs")).startswith("the runs became 2")


def test_a_machine_that_slowed_down_is_noticed_by_the_probe() -> None:
    rng = np.random.default_rng(0)
    probes = np.where(np.arange(60) < 30, 3e-5, 4e-5) * rng.lognormal(0, 0.05, size=60)
    (sentence,) = noise.judge([0.01] * 60, probes.tolist()).sentences("runs")
    assert sentence.startswith("the machine became 3")
    assert "% slower" in sentence
    (sentence,) = noise.judge([0.01] * 60, probes[::-1].tolist()).sentences("runs")
    assert "% faster" in sentence


@pytest.mark.parametrize("share", [0.15, 0.5, 0.8])
def test_two_kinds_of_times_are_noticed(share: float) -> None:
    rng = np.random.default_rng(1)
    times = np.where(rng.random(80) < share, 0.012, 0.01) * rng.lognormal(0, 0.01, size=80)
    seen = noise.judge(times.tolist(), [])
    assert seen.modes == 2
    assert seen.apart == pytest.approx(1.2, abs=0.02)
    assert "two kinds of steps, the slower 1.2 times as long" in next(seen.sentences("steps"))


def test_single_spikes_and_equal_times_are_one_kind() -> None:
    assert noise.two_kinds([0.01] * 40) == (1, 1.0)
    assert noise.two_kinds([0.01] * 39 + [0.1]) == (1, 1.0)


def test_too_few_times_are_not_judged() -> None:
    assert noise.judge([0.01] * 5, []) == noise.Noise(None, None, None)
    assert noise.two_kinds([0.0] * 30) == (None, 1.0)


def test_the_probe_is_taken_now_and_then_only() -> None:
    fake = FakeClock()
    probe = noise.Probe(lambda: fake.time, every=0.02)
    for _ in range(100):
        probe.take()
        fake.spend(0.005)
    assert 24 <= len(probe.times) <= 26
