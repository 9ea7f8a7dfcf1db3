"""When to stop: the rule on made-up standings, and what a made-up log amounts to."""

from __future__ import annotations

import dataclasses
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import optbook
from optbook.experiments.goal import Goal
from optbook.experiments.log import record, record_profile, session
from optbook.experiments.profiles import StoredProfile
from optbook.experiments.record import Experiment
from optbook.repeat.effort import PAUSE, effort
from optbook.repeat.journey import Journey, journey, ordinal
from optbook.repeat.overview import overview as optbook_overview
from optbook.repeat.progress import IN_WORDS, progress_text
from optbook.repeat.stopping import Advice, Outlook, Prospect, Standing, advise
from optbook.simplify.result import Ceiling, Estimate, Part
from tests.logs import frame_of, measured, story

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


def ceiling_of(experiment: Experiment, free: float = 2.0, component: str = "decode") -> StoredProfile:
    """A stored ceiling that promises so much, known to 5 %."""
    part = Part(component, 1.0, 0.1, Estimate(free, free * 0.95, free * 1.05), next="augment")
    broken = Part("log", error="never called")
    found = Ceiling(experiment.label, experiment.unit, 1.0, (part, broken), None)
    return StoredProfile.of(experiment, "ceiling", str(found), found.to_frame())


def way(
    *experiments: Experiment,
    unit: str = "batch",
    target: float | None = None,
    ceilings: tuple[StoredProfile, ...] = (),
) -> Journey:
    goal = None if target is None else Goal(unit=unit, target=target)
    return journey(frame_of(*experiments), unit, goal, ceilings)


def test_an_empty_log_says_nothing_and_keeps_its_goal() -> None:
    assert way().lines() == []
    assert way(target=5).lines() == ["Goal: 5.00 batches/s."]
    assert way().advice.verdict == "measure first"


def test_one_row_has_no_gain_yet() -> None:
    only = way(measured("a", 4.0), target=8)
    assert only.lines() == [
        "Goal: 8.00 batches/s.",
        "Open gap: 50 % to the goal.",
        "Next: Take a %%ceiling: nothing says yet what could be gained beyond 4.00 batches/s; "
        "the target is 2.00× away.",
    ]
    assert only.by_hour == ((1, 1.0),)


def test_only_failed_rows_are_no_figures() -> None:
    failed = [Experiment(label="a", unit="batch", status="failed") for _ in range(3)]
    found = way(*failed, target=5)
    assert found.lines()[1:] == ["Next: Measure first: no experiment counts batches of the real system yet."]
    assert (found.first, found.best, found.improvements, found.by_hour, found.gaps) == (
        None,
        None,
        (),
        (),
        (),
    )


def test_stubbed_rows_never_count() -> None:
    real = measured("real", 4.0)
    stubbed = measured("fast", 400.0, stubs="load")
    found = way(stubbed, real, stubbed, target=100)
    assert found.best is not None
    assert (found.best.value, found.advice.verdict) == (4.0, "look for it")
    assert found.standing.fruitless == 0
    assert way(stubbed, target=100).advice.verdict == "measure first"


def test_a_ceiling_of_a_stubbed_system_or_of_one_that_is_gone_is_not_looked_at() -> None:
    real, stubbed = measured("real", 4.0), measured("stubbed", 40.0, stubs="load")
    ceilings = (ceiling_of(real, 1.5), ceiling_of(stubbed, 9.0), ceiling_of(measured("gone", 1.0), 7.0))
    found = way(real, stubbed, ceilings=ceilings).outlook
    assert found is not None
    assert (found.label, found.prospects[0].ratio) == ("real", 1.5)
    assert way(stubbed, ceilings=ceilings).outlook is None


def test_the_newest_ceiling_is_the_one_that_holds() -> None:
    first, second = measured("first", 4.0), measured("second", 8.0)
    found = way(first, second, ceilings=(ceiling_of(first, 2.0), ceiling_of(second, 1.01, "augment")))
    assert found.advice.verdict == "below the noise"
    assert way(first, second, ceilings=(ceiling_of(first, 2.0),)).advice.verdict == "moved on"


def test_a_ceiling_that_can_not_be_read_is_passed_over() -> None:
    real = measured("real", 4.0)
    broken = dataclasses.replace(ceiling_of(real), table="{}")
    assert way(real, ceilings=(broken,)).outlook is None
    older = way(real, ceilings=(ceiling_of(real), broken)).outlook
    assert older is not None
    assert [each.component for each in older.prospects] == ["decode"]


def test_figures_of_another_machine_do_not_count() -> None:
    there = measured("there", 400.0, machine="big")
    here = [measured("before", 4.0, machine="small"), measured("after", 6.0, machine="small")]
    found = way(there, here[0], there, here[1], target=100, ceilings=(ceiling_of(there, 5.0),))
    assert found.first is not None
    assert found.best is not None
    assert (found.first.value, found.best.value, found.outlook) == (4.0, 6.0, None)
    assert [point.kind for point in found.points] == ["elsewhere", "ok", "elsewhere", "ok"]
    assert math.isnan(found.points[0].ratio)
    assert way(*here, there, target=100).advice.verdict == "target met"


def test_the_waterfall_holds_only_what_is_really_better() -> None:
    labels = ("a", 4.0), ("setback", 3.0), ("hardly", 4.1), ("b", 5.0), ("again", 5.2), ("c", 9.0)
    assert [p.label for p in way(*(measured(*each) for each in labels)).improvements] == ["a", "b", "c"]
    bare = [Experiment(label=str(t), unit="batch", throughput=t) for t in (4.0, 4.1, 4.2)]
    assert [point.value for point in way(*bare).improvements] == [4.0, 4.2]


def test_gains_are_told_by_experiment_and_by_hour_of_effort() -> None:
    frame = frame_of(*(measured(str(t), t) for t in (2.0, 4.0, 8.0, 8.0, 9.0)))
    frame["created"] = [NOON + timedelta(minutes=m) for m in (0, 20, 45, 45 + 20 * 60, 45 + 20 * 60 + 20)]
    found = journey(frame, "batch", None, ())
    assert found.by_hour == ((1, 4.0), (2, 1.125))
    assert found.lines()[0] == (
        "Effort: 65 min 00 s (without pauses over 30 min); 1.46× an experiment on average; "
        "by hour of effort 1st 4.00×, 2nd 1.12×."
    )


def test_a_log_whose_clock_jumped_is_read() -> None:
    frame = frame_of(*(measured(str(t), t) for t in (2.0, 4.0, 8.0)))
    frame["created"] = [NOON, NOON - timedelta(days=400), NOON + timedelta(minutes=5)]
    found = journey(frame, "batch", None, ())
    assert list(found.seconds) == sorted(found.seconds)
    assert found.seconds[-1] < 400 * 86_400


def test_the_gaps_are_to_the_goal_and_to_the_ceiling() -> None:
    real = measured("real", 4.0)
    assert way(real, target=8, ceilings=(ceiling_of(real, 4.0),)).gaps == (
        ("the goal", 0.5),
        ("the ceiling (decode free)", 0.75),
    )
    assert way(real, target=2).gaps == (("the goal", 0.0),)


def test_progress_and_the_overview_say_what_to_do_next() -> None:
    real = measured("real", 4.0)
    for experiment in (*story(), real):
        record(experiment)
    record_profile(ceiling_of(real, 5.0))
    optbook.goal("300 images/s", because="<b>we</b> must end by 8")
    for shown in (optbook.progress(unit="image"), optbook.progress(unit="image", label="real")):
        assert "Next: Go on with decode" in str(shown)
        assert "Goal: 300 images/s, because <b>we</b> must end by 8." in str(shown)
        assert "<b>" not in shown._repr_html_()
        assert "Next: Go on with decode" in shown._repr_html_()
    assert "300" not in str(optbook.progress())


def test_the_goal_is_a_line_in_the_plot() -> None:
    record(measured("a", 4.0))
    assert "goal" not in optbook.progress()._repr_html_()
    optbook.goal("100 batches/s")
    axes = optbook.progress().figure().axes[0]
    assert "goal" in axes.get_legend_handles_labels()[1]
    assert axes.get_ylim()[1] > 100


@pytest.mark.parametrize(
    ("number", "written"), [(1, "1st"), (2, "2nd"), (3, "3rd"), (11, "11th"), (22, "22nd")]
)
def test_ordinals(number: int, written: str) -> None:
    assert ordinal(number) == written


def test_a_new_goal_is_news(log_path: Path) -> None:
    record(measured("a", 4.0))
    before = session().store.revision()
    optbook.goal("100 batches/s")
    assert session().store.revision() == before + 1


def test_a_long_way_is_told_from_its_end() -> None:
    frame = frame_of(*(measured(f"try {n}", 1.0 + n) for n in range(IN_WORDS + 50)))
    lines = progress_text(frame).splitlines()
    assert len(lines) == IN_WORDS + 2
    assert lines[1].endswith("50 earlier ones are in optbook.log()")
    assert "try 50 " in lines[2]
    assert lines[-1].endswith("best so far")


@pytest.mark.filterwarnings("ignore:only what waits")
def test_a_log_that_can_not_be_read_still_shows_what_waits(log_path: Path) -> None:
    log_path.write_text("not a database")
    assert record(measured("waits", 4.0))
    try:
        assert "waits" in str(optbook.progress())
        assert "waits" in str(optbook_overview())
    finally:
        log_path.unlink()
        session().deliver()
