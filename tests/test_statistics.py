from __future__ import annotations

import numpy as np
import pytest

from optbook.benchmark import statistics


def test_five_times_have_no_interval_six_have() -> None:
    assert statistics.median([1, 2, 3, 4, 5]) == statistics.Estimate(3)
    six = statistics.median([1, 2, 3, 4, 5, 6])
    assert six.value == 3.5
    assert six.low is not None
    assert six.low == pytest.approx(1 + 0.5 / 1.4)  # n = 6, k = 1: I = 0.1, λ = 5·0.1 ÷ (1 + 4·0.1)
    assert six.high == pytest.approx(7 - six.low)


@pytest.mark.parametrize("n", [6, 7, 10, 25, 60])
def test_median_interval_covers_95_percent_of_clean_noise(n: int) -> None:
    rng = np.random.default_rng(n)
    samples = rng.lognormal(sigma=0.3, size=(4000, n))
    estimates = [statistics.median(list(sample)) for sample in samples]
    covered = np.mean([e.low <= 1.0 <= e.high for e in estimates if e.low is not None and e.high is not None])
    assert 0.938 <= covered <= 0.965


def test_median_interval_of_many_times_is_found_quickly_and_is_narrow() -> None:
    estimate = statistics.median([float(i) for i in range(10_001)])
    assert estimate.value == 5000
    assert estimate.low == pytest.approx(5000 - 98, abs=1.5)  # 1.96 · √n ÷ 2
    assert estimate.high == pytest.approx(5000 + 98, abs=1.5)


def test_equal_times_give_an_interval_without_width() -> None:
    assert statistics.median([2.0] * 12) == statistics.Estimate(2.0, 2.0, 2.0)


def test_no_times_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one run"):
        statistics.median([])
    with pytest.raises(ValueError, match="nothing to compute"):
        statistics.rate_of_steps([])
    with pytest.raises(ValueError, match="nothing to compute"):
        statistics.rate_of_steps([0.0, 0.0])


def test_inverse_swaps_the_ends() -> None:
    assert statistics.Estimate(2.0, 1.0, 4.0).inverse(8) == statistics.Estimate(4.0, 2.0, 8.0)
    assert statistics.Estimate(2.0).inverse() == statistics.Estimate(0.5)


def test_rate_is_steps_over_time_not_the_median_step() -> None:
    assert statistics.rate_of_steps([0.1] * 9 + [1.1]).rate.value == pytest.approx(5.0)


@pytest.mark.parametrize("n", [45, 100, 300])
@pytest.mark.parametrize("correlation", [0.0, 0.6, 0.8])
def test_rate_interval_covers_dependent_steps_or_says_so(n: int, correlation: float) -> None:
    rng = np.random.default_rng(1)
    hits, doubts = [], []
    for _ in range(800):
        noise = rng.normal(size=n)
        for i in range(1, n):
            noise[i] = correlation * noise[i - 1] + np.sqrt(1 - correlation**2) * noise[i]
        found = statistics.rate_of_steps((1 + 0.1 * noise).tolist())
        assert found.rate.low is not None
        assert found.rate.high is not None
        hits.append(found.rate.low <= 1.0 <= found.rate.high)
        doubts.append(found.doubtful)
    assert np.mean(np.logical_or(hits, doubts)) >= 0.925
    if correlation == 0:
        assert np.mean(hits) <= 0.98
        assert np.mean(doubts) <= 0.01


def test_equal_steps_have_an_interval_without_width() -> None:
    assert statistics.rate_of_steps([0.5] * 10) == statistics.StepRate(statistics.Estimate(2.0, 2.0, 2.0))
