"""Gains, and what counts as one."""

from __future__ import annotations

import math

import pytest

from optbook.errors import OptionError
from optbook.experiments.record import Experiment
from optbook.repeat.progress import (
    EMPTY,
    best_so_far,
    default_unit,
    gains,
    known_units,
    points,
    progress_text,
    ratios,
    select,
    summary,
    times,
)
from tests.logs import frame_of, measured, story


def test_the_best_so_far_takes_only_figures_of_the_real_system() -> None:
    best = best_so_far(frame_of(*story()), "batch")
    assert list(best) == [4, 4, 4, 8, 8, 8, 8, 16]


def test_before_the_first_that_counts_there_is_no_best() -> None:
    best = best_so_far(frame_of(measured("a", 9.0, stubs="load"), measured("b", 3.0), measured("c", 2.0)))
    assert math.isnan(best[0])
    assert list(best[1:]) == [3, 3]


def test_gains_are_against_the_first_and_against_the_best_before() -> None:
    found = gains(frame_of(*story()), "batch")
    assert list(found["kind"]) == [
        "ok", "stubbed", "failed", "ok", "ok", "void", "interrupted", "ok"
    ]  # fmt: skip
    assert list(found["counts"]) == [True, False, False, True, True, False, False, True]
    assert list(found["ratio"].fillna(0)) == [1, 39 / 4, 0, 2, 1.5, 7.5, 0, 4]
    assert list(found["gain"].fillna(0)) == [1, 0, 0, 2, 0.75, 0, 0, 2]


def test_another_unit_of_the_same_experiments_gives_the_same_ratios() -> None:
    frame = frame_of(*story())
    batches, images = points(frame, "batch"), points(frame, "image")
    assert [point.ratio for point in images if point.counts] == [p.ratio for p in batches if p.counts]
    assert images[0].value == 64
    assert images[0].low == pytest.approx(64 * 0.95)
    assert images[0].high == pytest.approx(64 * 1.05)


def test_experiments_of_other_units_are_left_out_and_failures_are_not() -> None:
    frame = frame_of(
        measured("a", 2.0),
        Experiment(label="other", unit="token", throughput=9.0, units={"token": 9.0}),
        Experiment(label="failed", status="failed"),
    )
    assert [(point.number, point.row, point.label) for point in points(frame, "batch")] == [
        (1, 0, "a"),
        (2, 2, "failed"),
    ]
    assert list(best_so_far(frame, "batch")) == [2, 2, 2]


def test_a_failed_experiment_with_stubs_has_failed() -> None:
    (point,) = points(frame_of(Experiment(label="x", status="failed", stubs="load")))
    assert point.kind == "failed"


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_odd_figures_never_count(value: float) -> None:
    frame = frame_of(measured("a", 2.0), Experiment(label="odd", unit="batch", throughput=value))
    assert list(best_so_far(frame, "batch")) == [2, 2]
    assert [point.counts for point in points(frame, "batch")] == [True, False]
    progress_text(frame, "batch")


def test_the_default_unit_is_that_of_the_latest_ok_experiment() -> None:
    token = Experiment(label="t", unit="token", throughput=1.0)
    failed = Experiment(label="f", unit="run", status="failed")
    assert default_unit(frame_of()) == "run"
    assert default_unit(frame_of(failed)) == "run"
    assert default_unit(frame_of(measured("a", 1.0), failed)) == "batch"
    assert default_unit(frame_of(measured("a", 1.0), token, failed)) == "token"


def test_an_unknown_unit_names_the_known_ones() -> None:
    frame = frame_of(*story())
    assert known_units(frame) == ["batch", "image", "run"]
    with pytest.raises(OptionError, match="'tokens': use one of batch, image, run"):
        points(frame, "tokens")
    assert points(frame_of(), "tokens") == []


def test_ratios_are_within_the_first_unit_of_each() -> None:
    token = [Experiment(label="t", unit="token", throughput=t) for t in (10.0, 30.0)]
    frame = frame_of(measured("a", 2.0), token[0], measured("b", 5.0), token[1])
    assert ratios(frame) == {0: 1, 1: 1, 2: 2.5, 3: 3}


def test_select_filters_by_label_then_takes_the_last() -> None:
    frame = frame_of(*(measured(label, 1.0) for label in ("Load a", "step", "load b", "load.c")))
    assert list(select(frame, "LOAD")["label"]) == ["Load a", "load b", "load.c"]
    assert list(select(frame, "load", 2)["label"]) == ["load b", "load.c"]
    assert list(select(frame, "load.")["label"]) == ["load.c"]
    assert list(select(frame, last=1)["label"]) == ["load.c"]
    with pytest.raises(OptionError, match="last is 0"):
        select(frame, last=0)


def test_the_summary_is_one_plain_sentence() -> None:
    def of(*experiments: Experiment) -> str:
        return summary(points(frame_of(*experiments), "batch" if experiments else None), "batch")

    assert of() == EMPTY
    assert of(measured("a", 340.0)) == "1 experiment; 340 batches/s so far"
    assert of(measured("a", 340.0, stubs="x")) == (
        "1 experiment (1 stubbed); none gives a figure of the real system yet"
    )
    assert of(*story()) == (
        "8 experiments (1 stubbed, 1 void, 1 interrupted, 1 failed); best 16.0 batches/s, 4.0× the first"
    )


def test_the_text_says_what_the_plot_shows() -> None:
    text = progress_text(frame_of(*story()))
    lines = text.splitlines()
    assert len(lines) == 9
    assert lines[1] == "   1. first version    4.00 batches/s ± 5.0 %  1.0× the first, best so far"
    assert lines[2].endswith("39.0 batches/s ± 5.0 %  stubbed: load, does not count")
    assert lines[3].endswith("more workers     failed")
    assert lines[5].endswith("1.5× the first")
    assert lines[6].endswith("void, does not count")


def test_labels_stay_on_their_line() -> None:
    text = progress_text(frame_of(measured("two\nlines\x1b[31m" + "x" * 10_000, 1.0)))
    assert len(text.splitlines()) == 2
    assert "\x1b" not in text
    assert len(text) < 300


def test_a_ratio_that_is_not_known_is_a_dash() -> None:
    assert [times(4.21), times(123.4), times(math.nan)] == ["4.2×", "123×", "—"]
