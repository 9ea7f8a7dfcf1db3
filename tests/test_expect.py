"""Predictions of a ceiling, read at a speed-up, accepted for a measurement, and held against it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import optbook
from optbook.benchmark.profiles.request import Request
from optbook.benchmark.runner import Workload
from optbook.errors import OptionError
from optbook.experiments import log as module
from optbook.experiments.log import Log
from optbook.experiments.profiles import StoredProfile
from optbook.experiments.record import Experiment
from optbook.simplify import expect as expecting
from optbook.simplify.expect import expect, parsed
from optbook.simplify.forecast import Forecast, newest
from optbook.simplify.result import Ceiling, Estimate, Part
from tests.shells import shell_with_optbook

pytestmark = pytest.mark.usefixtures("collected_heap")


@pytest.fixture(autouse=True)
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    fresh = Log()
    monkeypatch.setattr(module, "_SESSION", fresh)
    yield fresh
    fresh.close()


def exactly(ratio: float) -> Estimate:
    return Estimate(ratio, ratio, ratio)


def forecast(*curve: tuple[float, Estimate], busy: float = math.nan) -> Forecast:
    return Forecast("decode", "baseline", "id", 1.0, busy, curve)


def ceiling(
    label: str = "baseline", component: str = "decode", free: float = 2.0, seconds: float = 0.5, **real: Any
) -> Experiment:
    """A measured system, 1 s a step, and its ceiling, in the log; half of a step is the component's."""
    fields = {"unit": "batch", "units": {"batch": 1.0}, "throughput": 1.0, "seconds": 1.0, "steps": 4}
    machine = measured().machine if "machine" not in real else real.pop("machine")
    experiment = Experiment(label=label, times=(1.0,) * 4, machine=machine, **{**fields, **real})
    module.record(experiment)
    part = Part(component, 1.0, seconds, exactly(free), faster={2.0: exactly(4 / 3)})
    frame = Ceiling(label, "batch", 1.0, (part, Part("broken", error="raises")), None).to_frame()
    module.record_profile(StoredProfile.of(experiment, "ceiling", "", frame))
    return experiment


def decode(number: int) -> int:
    return sum(range(number))


def fast_decode(number: int) -> int:
    return number * (number - 1) // 2


def work() -> None:
    for _ in optbook.track(range(12)):
        decode(2_000)


def measured(expected: Any = None, workload: Any = work, **options: Any) -> Experiment:
    return optbook.bench(workload, "now", expect=expected, budget=0.05, **options)


# Reading a curve


def test_between_two_points_time_is_a_straight_line() -> None:
    curve = forecast((2.0, exactly(4 / 3)), (math.inf, exactly(2.0)), busy=0.5)
    assert curve.at(2.0, 1.0).ratio == pytest.approx(4 / 3)
    assert curve.at(4.0, 1.0).ratio == pytest.approx(1 / 0.625)
    assert curve.at(math.inf, 1.0).ratio == pytest.approx(2.0)
    assert curve.at(1.0, 1.0).ratio == pytest.approx(1.0)


def test_the_range_is_interpolated_too() -> None:
    curve = forecast((math.inf, Estimate(2.0, 1.6, 2.5)), busy=0.5)
    found = curve.at(2.0, 1.0)
    assert (found.low, found.high) == pytest.approx((1 / 0.8125, 1 / 0.7))


def test_what_overlaps_may_gain_up_to_what_convexity_allows() -> None:
    """A stage of a pipeline: half as long, it may be hidden by then."""
    found = forecast((math.inf, exactly(2.0)), busy=1.0).at(2.0, 1.0)
    assert (found.ratio, found.low, found.high) == pytest.approx((4 / 3, 4 / 3, 2.0))


def test_what_is_possible_starts_from_the_far_end_of_what_was_measured() -> None:
    found = forecast((math.inf, Estimate(1.28, 1.2, 1.35)), busy=1.0).at(8.0, 1.0)
    assert found.high == pytest.approx(1.35)


def test_measured_neighbours_narrow_what_is_possible() -> None:
    """max(x, 0.5) at 1.25, 2 and inf: in between, prolonged lines meet the truth."""
    curve = forecast((1.25, exactly(1.25)), (2.0, exactly(2.0)), (math.inf, exactly(2.0)), busy=1.0)
    found = curve.at(1.6, 1.0)
    assert found.ratio == found.high == pytest.approx(1.6)
    assert curve.at(10.0, 1.0).high == pytest.approx(2.0)


def test_a_component_that_became_slower() -> None:
    found = forecast((math.inf, exactly(2.0)), busy=0.5).at(0.5, 1.0)
    assert (found.ratio, found.low) == pytest.approx((1 / 1.5, 0.5))


@pytest.mark.parametrize("speedup", [1.1, 1.5, 2.0, 3.0, 8.0, math.inf])
def test_the_range_holds_the_prediction(speedup: float) -> None:
    curve = forecast((2.0, Estimate(1.2, 1.1, 1.3)), (math.inf, Estimate(1.9, 1.5, 2.4)), busy=0.9)
    found = curve.at(speedup, 1.0)
    assert 0 < found.low <= found.ratio <= found.high


# Finding a ceiling


def test_the_newest_ceiling_predicts_and_free_survives_the_log() -> None:
    ceiling(free=3.0)
    last = ceiling(free=2.0)
    found = newest("decode")
    assert (found.experiment, found.calls, found.seconds) == (last.id, 1.0, 0.5)
    assert dict(found.curve)[math.inf].ratio == 2.0


def test_a_label_and_the_last_part_of_a_name_choose() -> None:
    first = ceiling(label="baseline", component="data.decode")
    ceiling(label="later", component="data.decode")
    assert newest("decode", "baseline").experiment == first.id


@pytest.mark.parametrize(
    ("component", "says"),
    [
        ("dekode", "they have decode"),
        ("batch_size", "no callable (a data type, a batch size, a flag) has no ceiling"),
        ("broken", "they have decode"),
    ],
)
def test_what_no_ceiling_has_is_refused_before_anything_runs(component: str, says: str) -> None:
    ceiling()
    with pytest.raises(OptionError) as caught:
        expect(component)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_any_ceiling_it_says_how_to_take_one() -> None:
    with pytest.raises(OptionError, match="write %%ceiling decode first"):
        expect("decode")


@pytest.mark.parametrize("table", ["", "[]", '{"columns": ["component"], "data": [[3]]}', "{}"])
def test_a_ceiling_that_cannot_be_read_is_passed_over(table: str) -> None:
    good = ceiling()
    bad = StoredProfile.of(good, "ceiling", "", Ceiling("x", "batch", 1.0, (), None).to_frame())
    module.record_profile(StoredProfile("other", "baseline", "ceiling", bad.created, "", table))
    assert newest("decode").experiment == good.id


@pytest.mark.parametrize("text", ["", "@x", "decode@", "decode:", "decode:fast", "decode:-1", "decode="])
def test_unreadable_options_are_one_line(text: str) -> None:
    ceiling()
    with pytest.raises(OptionError, match="--expect got"):
        parsed(text, globals())


def test_an_option_names_what_does_the_work_now_the_speedup_and_the_ceiling() -> None:
    first = ceiling(label="the first")
    ceiling()
    found = parsed("decode=fast_decode:4@the first", globals())
    assert (found.forecast.experiment, found.speedup) == (first.id, 4.0)
    named = parsed("decode=fast_decode", globals()).now
    assert named is not None
    assert named.target is fast_decode


@pytest.mark.parametrize("options", [{"speedup": 0}, {"speedup": True}, {"now": "no_such_thing"}])
def test_options_that_cannot_be_used(options: dict[str, Any]) -> None:
    ceiling()
    with pytest.raises(OptionError):
        expect("decode", **options)


def test_bench_refuses_what_is_no_prediction() -> None:
    with pytest.raises(OptionError, match=r"optbook\.expect\('decode'\)"):
        measured("decode")


# Scoring


def test_predicted_and_achieved_stand_in_the_log() -> None:
    real = ceiling()
    found = measured(expect("decode", speedup=2))
    assert (found.expected, found.prediction_of, found.component_speedup) == ("decode", real.id, 2.0)
    assert (found.predicted, found.predicted_low, found.predicted_high) == pytest.approx((4 / 3,) * 3)
    assert found.achieved == pytest.approx(found.units["batch"])
    assert f"predicted         1.33× (1.33 to 1.33), achieved {found.achieved:.2f}×" in str(found)
    row = optbook.log().iloc[-1]
    assert (row["expected"], row["predicted"], row["achieved"]) == ("decode", found.predicted, found.achieved)


def test_the_speedup_alone_is_its_time_a_unit_then_and_now() -> None:
    ceiling(seconds=0.5)
    before = decode.__code__
    found = measured(expect("decode"))
    assert decode.__code__ is before
    assert found.executions == 2
    assert found.component_speedup is not None
    assert found.predicted is not None
    assert found.component_speedup > 100  # microseconds in place of half a second
    assert found.predicted == pytest.approx(2.0, rel=0.02)


@pytest.mark.alone
def test_a_version_that_does_all_at_once_counts_by_its_time_a_unit() -> None:
    """Called once for four batches, as long as four times before: nothing is gained."""

    def batched() -> None:
        for step in optbook.track(range(40)):
            if step % 4 == 0:
                decode(400_000)

    def single() -> None:
        for _ in optbook.track(range(40)):
            decode(100_000)

    ceiling()
    slow = measured(expect("decode"), single).component_speedup
    once = measured(expect("decode"), batched).component_speedup
    assert slow is not None
    assert once is not None
    assert 0.3 < once / slow < 3


def test_what_took_its_place_is_timed() -> None:
    def changed() -> None:
        for _ in optbook.track(range(12)):
            fast_decode(2_000)

    ceiling()
    assert measured(expect("decode", now=fast_decode), changed).predicted is not None
    unknown = measured(expect("decode"), changed)
    assert unknown.predicted is None
    assert any("decode is never called" in line and "decode:inf" in line for line in unknown.warnings)


def test_a_component_that_is_gone_counts_as_free() -> None:
    ceiling(component="old_decode")
    found = measured(expect("old_decode"))
    assert found.component_speedup == math.inf
    assert found.predicted == pytest.approx(2.0)
    assert any("counts as free" in line for line in found.warnings)
    assert "old_decode costs nothing now" in str(found)


def test_the_items_of_an_iterator_are_timed() -> None:
    numbers: Sequence[int] = range(12)

    class Source:
        def __iter__(self) -> Iterator[int]:
            for number in numbers:
                yield decode(2_000 + number)

    def iterated() -> None:
        for _ in source:
            pass

    source = Source()
    ceiling(component="source", unit="run", units={"run": 1.0}, steps=0)
    found = measured(expect("source"), iterated)
    assert found.component_speedup is not None
    assert 1 < found.component_speedup < math.inf


@pytest.mark.parametrize(
    ("real", "says"),
    [
        ({"machine": "elsewhere"}, "another machine"),
        ({"unit": "sample", "units": {"sample": 3.0}}, "the ceiling counts samples, this batches"),
        ({"stubs": "augment"}, "its ceiling was measured with stubs (augment)"),
    ],
)
def test_what_cannot_be_compared_is_not_scored_and_says_why(real: dict[str, Any], says: str) -> None:
    ceiling(**real)
    found = measured(expect("decode"))
    assert (found.expected, found.predicted, found.achieved, found.executions) == ("decode", None, None, 1)
    assert any(line.startswith("not scored: ") and says in line for line in found.warnings)


def test_under_stubs_it_is_not_scored() -> None:
    ceiling()
    with optbook.stub(fast_decode, "value", value=1):
        found = measured(expect("decode"))
    assert found.predicted is None
    assert any("this was measured with stubs" in line for line in found.warnings)


def test_a_failed_measurement_is_recorded_with_what_was_expected() -> None:
    def broken() -> None:
        raise ValueError("no data")

    ceiling()
    with pytest.raises(ValueError, match="no data"):
        measured(expect("decode"), broken)
    row = optbook.log().iloc[-1]
    assert (row["status"], row["expected"]) == ("failed", "decode")
    assert any("not finished" in line for line in row["warnings"])


@pytest.mark.parametrize("status", ["void", "interrupted"])
def test_what_is_not_to_be_trusted_is_not_scored(status: Any) -> None:
    ceiling()
    request = Request(Workload(work), work, Experiment(label="x", status=status, units={"batch": 1.0}))
    fields, raised = expect("decode").judged(request, None)
    assert (raised, "predicted" in fields) == (None, False)
    assert fields["warnings"] == (f"not scored: this measurement is {status}",)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_what_the_further_pass_raises_comes_after_the_experiment_is_kept(error: type[BaseException]) -> None:
    runs: list[int] = []

    def once() -> None:
        runs.append(1)
        if len(runs) > 1:
            raise error
        for _ in optbook.track(range(12)):
            decode(2_000)

    ceiling()
    with pytest.raises(error):
        measured(expect("decode"), once)
    row = optbook.log().iloc[-1]
    assert (row["status"], row["label"]) == ("ok", "now")
    assert math.isnan(row["predicted"])


def test_a_ceiling_whose_measurement_is_gone_is_not_scored() -> None:
    real = ceiling()
    kept = expect("decode")
    gone = expecting.Expected(Forecast("decode", "x", real.id + "0", 1, 1, kept.forecast.curve), kept.now)
    assert any("not in the log any more" in line for line in measured(gone).warnings)


# In a notebook


def test_the_magic_holds_a_cell_against_its_ceiling() -> None:
    ceiling(component="slow")
    with shell_with_optbook() as shell:
        shell.run_cell("import optbook\ndef slow(): return sum(range(2_000))")
        cell = "for _ in optbook.track(range(12)):\n    slow()"
        found = shell.run_cell(f"%%bench faster --expect slow\n{cell}").result
        assert found.predicted == pytest.approx(2.0, rel=0.02)
        typed = shell.run_cell("%optbook predictions").result
        assert [row.label for row in typed.rows] == ["faster"]


def test_the_magic_says_what_is_wrong_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with shell_with_optbook() as shell:
        done = shell.run_cell("%%bench faster --expect nothing\n1 + 1")
    assert not done.success
    assert "write %%ceiling nothing first" in capsys.readouterr().err
