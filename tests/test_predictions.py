"""The table of predictions: what it holds, and how it is shown."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

from optbook.experiments import log as module
from optbook.experiments.log import Log
from optbook.experiments.record import Experiment
from optbook.simplify.predictions import HEAD, predictions


@pytest.fixture(autouse=True)
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    fresh = Log()
    monkeypatch.setattr(module, "_SESSION", fresh)
    yield fresh
    fresh.close()


def record(label: str, achieved: float, predicted: float = 2.0, **fields: Any) -> None:
    scored = {
        "component_speedup": 4.0,
        "predicted": predicted,
        "predicted_low": predicted - 0.1,
        "predicted_high": predicted + 0.1,
    }
    values = {**scored, "prediction_of": "real", "expected": "decode", **fields}
    module.record(Experiment(label=label, achieved=achieved, **values))


def test_an_empty_log_says_how_to_get_predictions() -> None:
    assert "--expect" in str(predictions())
    assert "--expect" in predictions()._repr_html_()
    assert predictions().median_error is None
    assert list(predictions().to_frame()["error"]) == []


def test_errors_and_the_median_of_their_sizes() -> None:
    module.record(Experiment(label="not predicted"))
    for label, achieved in (("a", 2.2), ("b", 1.98), ("c", 1.0)):
        record(label, achieved)
    found = predictions()
    assert [row.label for row in found.rows] == ["a", "b", "c"]
    assert list(found.to_frame()["error"]) == pytest.approx([0.1, -0.01, -0.5])
    assert list(found.to_frame()["inside"]) == [False, True, False]
    assert found.median_error == pytest.approx(0.1)
    assert "median error 10 %; 1 of 3 in range" in str(found)


def test_what_was_not_scored_is_listed_with_the_reason() -> None:
    record("a", 2.0)
    why = ("noisy", "not scored: this ran on another machine")
    module.record(Experiment(label="b", expected="decode", prediction_of="real", warnings=why))
    found = predictions()
    assert "1 of 1 in range; 1 not scored" in str(found)
    assert "! b: not scored: this ran on another machine" in str(found)
    assert "noisy" not in str(found)


def test_only_unscored_ones_have_no_median() -> None:
    record("a", math.nan, predicted=math.nan)
    assert predictions().median_error is None
    assert "none could be scored" in str(predictions())


def test_a_component_that_is_gone_has_no_speedup() -> None:
    record("a", 2.0, component_speedup=math.inf)
    assert predictions().rows[0].cells[2] == "gone"


def test_html_is_escaped_and_has_every_column() -> None:
    record("<b>bold</b>", 2.0, expected="<i>")
    html = predictions()._repr_html_()
    assert "<b>bold" not in html
    assert "<i>" not in html
    assert all(f">{name}</th>" in html for name in HEAD)


def test_a_hidden_experiment_is_left_out() -> None:
    record("a", 2.0)
    module.hide(module.log()["id"].iloc[0])
    assert predictions().rows == ()
