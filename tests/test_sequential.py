from __future__ import annotations

import numpy as np
import pytest

from optbook.benchmark import sequential


@pytest.mark.parametrize(("looks", "published"), [(1, 1.960), (2, 1.977), (3, 2.004), (4, 2.024), (5, 2.040)])
def test_the_boundary_is_obrien_and_flemings(looks: int, published: float) -> None:
    """Jennison & Turnbull, "Group Sequential Methods" (2000), table 2.3, α = 0.05."""
    values = sequential.boundary(looks, 0.05)
    assert values[-1] == pytest.approx(published, abs=1e-3)
    assert values[0] == pytest.approx(values[-1] * np.sqrt(looks))


@pytest.mark.parametrize(("looks", "alpha"), [(0, 0.05), (3, 0.0), (3, 1.0), (3, float("nan"))])
def test_an_impossible_boundary_is_refused(looks: int, alpha: float) -> None:
    with pytest.raises(ValueError, match="give at least one look"):
        sequential.boundary(looks, alpha)


NOISE = {
    "normal": lambda rng, n: rng.normal(size=n),
    "heavy tails": lambda rng, n: rng.standard_t(2, size=n),
    "bimodal": lambda rng, n: rng.choice([-1, 1], size=n) * rng.lognormal(size=n),
}


@pytest.mark.parametrize("noise", list(NOISE))
def test_five_looks_raise_few_false_alarms(noise: str) -> None:
    rng = np.random.default_rng(5)
    critical = sequential.boundary(5, 0.03)
    alarms = 0
    for _ in range(1000):
        differences = NOISE[noise](rng, 60)
        alarms += any(sequential.look(differences[: 12 * (k + 1)], critical[k]).crossed for k in range(5))
    assert alarms <= 45  # 30 expected, 45 is 2.8 standard deviations above


def test_the_interval_excludes_no_difference_exactly_when_the_boundary_is_crossed() -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        seen = sequential.look(rng.normal(0.4, 1, size=rng.integers(8, 40)), 2.2)
        assert seen.crossed == (not seen.low <= 0 <= seen.high)
        assert seen.low <= seen.center <= seen.high


def test_the_interval_covers() -> None:
    rng = np.random.default_rng(2)
    looks = [sequential.look(rng.normal(0.3, 1, size=25), 1.96) for _ in range(1500)]
    assert 0.94 <= np.mean([seen.low <= 0.3 <= seen.high for seen in looks]) <= 0.97


def test_few_pairs_have_no_interval_and_no_verdict() -> None:
    seen = sequential.look(np.array([0.5, 0.5, 0.5]), 2.2)
    assert not seen.crossed
    assert (seen.low, seen.high) == (-np.inf, np.inf)
    with pytest.raises(ValueError, match="no pairs"):
        sequential.look(np.array([]), 2.2)


def test_equal_times_are_no_difference() -> None:
    seen = sequential.look(np.zeros(40), 2.2)
    assert (seen.statistic, seen.center, seen.low, seen.high) == (0, 0, 0, 0)
