"""When to stop: the rule on made-up standings, and what a made-up log amounts to."""

from __future__ import annotations

import dataclasses
import math
from datetime import UTC, datetime, timedelta

import pytest

from optbook.repeat.effort import PAUSE, effort
from optbook.repeat.stopping import Advice, Outlook, Prospect, Standing, advise

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def prospect(component: str, ratio: float, next: str = "") -> Prospect:
    """Known to 5 %."""
    return Prospect(component, ratio, ratio * 0.95, ratio * 1.05, next)


def outlook(*prospects: Prospect, throughput: float = 100) -> Outlook:
    return Outlook("first", throughput, prospects)


DECODE = outlook(prospect("augment", 1.3), prospect("decode", 2.0, "augment"), prospect("log", 1.0))
AT_100 = Standing("sample", best=100, noise=0.02, outlook=DECODE)


def advice(standing: Standing = AT_100, **changes: object) -> Advice:
    return advise(dataclasses.replace(standing, **changes))  # type: ignore[arg-type]


def test_the_part_that_brings_most_is_gone_on_with() -> None:
    found = advice()
    assert (found.verdict, found.stop) == ("go on", False)
    assert found.left == Prospect("decode", 2.0, 1.9, 2.1, "augment")
    assert found.sentence == (
        "Go on with decode, 2.00× to gain: the ceiling of 'first' promises 2.00× (1.90 to 2.10) were it free."
    )


def test_whether_it_suffices_for_the_target_is_said() -> None:
    assert advice(target=150.0).sentence.endswith("; the target is 1.50× away, for which that is enough.")
    assert advice(target=300.0).sentence.endswith("3.00× away, for which that is not enough by itself.")


@pytest.mark.parametrize("target", [100, 99, 1e-9])
def test_a_target_that_is_met_ends_it_whatever_could_still_be_gained(target: float) -> None:
    found = advice(target=target)
    assert (found.verdict, found.stop) == ("target met", True)
    assert found.sentence.startswith("Stop: the target of ")


def test_a_target_that_is_not_quite_met_is_not_met() -> None:
    assert advice(target=100.1).verdict == "go on"


def test_what_was_gained_since_the_ceiling_is_taken_off() -> None:
    found = advice(best=160.0)
    assert found.verdict == "go on"
    assert found.left is not None
    assert found.left.ratio == pytest.approx(1.25)
    assert "promises 2.00× (1.90 to 2.10) were it free, 1.60× of which is gained since" in found.sentence


@pytest.mark.parametrize("best", [196, 200, 500])
def test_once_it_is_all_gained_the_bottleneck_has_moved(best: float) -> None:
    found = advice(best=best)
    assert (found.verdict, found.stop) == ("moved on", False)
    assert found.sentence.startswith("Take a new %%ceiling: the bottleneck is hardly decode any longer")
    assert "augment was to limit next" in found.sentence


def test_what_remains_below_the_noise_is_left() -> None:
    nothing = outlook(prospect("decode", 1.02), prospect("augment", 1.0))
    found = advice(outlook=nothing)
    assert (found.verdict, found.stop) == ("below the noise", True)
    assert (
        "decode would bring most, 1.02× (0.97 to 1.07), and 3.0 % can't be told from chance" in found.sentence
    )
    assert advice(outlook=nothing, target=130.0).sentence.endswith("; the target is 1.30× away.")


def test_the_noise_is_that_of_the_best_and_at_least_three_per_cent() -> None:
    some = outlook(Prospect("decode", 1.08, 1.07, 1.09))
    assert advice(outlook=some, noise=0.0).verdict == "go on"
    assert advice(outlook=some, noise=0.1).verdict == "below the noise"
    little = outlook(Prospect("decode", 1.02, 1.019, 1.021))
    assert advice(outlook=little, noise=0.0).verdict == "below the noise"


def test_a_gain_that_may_be_none_is_no_gain() -> None:
    assert advice(outlook=outlook(Prospect("decode", 1.2, 0.9, 1.5))).verdict == "below the noise"


def test_a_part_that_surely_brings_something_comes_before_one_that_may() -> None:
    found = advice(outlook=outlook(Prospect("decode", 1.5, 0.9, 2.4), Prospect("augment", 1.2, 1.1, 1.3)))
    assert found.left is not None
    assert (found.verdict, found.left.component) == ("go on", "augment")


@pytest.mark.parametrize(
    "nothing_known", [None, outlook(), outlook(Prospect("a", math.nan, math.nan, math.nan))]
)
def test_without_a_ceiling_one_is_to_be_taken(nothing_known: Outlook | None) -> None:
    found = advice(outlook=nothing_known, target=150.0)
    assert (found.verdict, found.left) == ("look for it", None)
    assert found.sentence == (
        "Take a %%ceiling: nothing says yet what could be gained beyond 100 samples/s; "
        "the target is 1.50× away."
    )
    assert "which the last 4 experiments did not beat" in advice(outlook=None, fruitless=4).sentence


@pytest.mark.parametrize("best", [math.nan, 0.0, -1.0])
def test_without_a_figure_one_is_to_be_measured(best: float) -> None:
    found = advice(best=best, target=150.0)
    assert found.verdict == "measure first"
    assert found.sentence == "Measure first: no experiment counts samples of the real system yet."


def test_a_range_that_is_not_known_does_no_harm() -> None:
    found = advice(outlook=outlook(Prospect("decode", 1.5, math.nan, math.nan)))
    assert found.verdict == "go on"
    assert "nan" not in found.sentence
    assert advice(outlook=outlook(Prospect("decode", math.inf, math.inf, math.inf))).verdict == "go on"


def test_names_are_one_line_and_no_longer_than_they_need() -> None:
    hostile = "<script>\n" + "x" * 300
    for found in (
        advice(outlook=outlook(prospect(hostile, 2.0, hostile)), unit=hostile),
        advice(outlook=outlook(prospect(hostile, 2.0, hostile)), unit=hostile, best=200.0),
        advice(outlook=outlook(prospect(hostile, 1.0)), unit=hostile),
        advice(best=math.nan, unit=hostile),
    ):
        assert "\n" not in found.sentence
        assert len(found.sentence) < 500


def hours(*minutes: float) -> list[datetime | None]:
    return [NOON + timedelta(minutes=each) for each in minutes]


def test_effort_is_the_time_between_experiments_without_pauses() -> None:
    created = hours(0, 10, 20, 20 + 24 * 60, 24 * 60 + 35)
    assert effort(created, [60] * 5) == [60, 660, 1260, 1320, 2220]


def test_a_long_measurement_is_no_pause() -> None:
    assert effort(hours(0, 120), [60, 110 * 60]) == [60, 60 + 120 * 60]
    assert effort(hours(0, 120), [60, 60]) == [60, 120]
    assert effort(hours(0, PAUSE / 60 + 1), [0, 60]) == [0, PAUSE + 60]


def test_a_clock_that_jumps_never_takes_effort_away() -> None:
    created = hours(0, 10, -500, -495, 10)
    assert effort(created, [60] * 5) == [60, 660, 720, 1020, 1080]


def test_times_that_are_not_known_count_as_the_measurement_only() -> None:
    created = [*hours(0), None, *hours(10)]
    assert effort(created, [60, 30, math.nan]) == [60, 90, 690]
    assert effort([], []) == []
    assert effort([None], [math.inf]) == [0]
