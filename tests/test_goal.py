"""A goal: what may be written, what the log keeps, and what holds."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import optbook
from optbook.errors import OptionError
from optbook.experiments.goal import Goal
from optbook.experiments.log import session
from optbook.repeat.goal import goal_for, in_force, money, parse_price, parse_target, sentence
from tests.logs import measured, store_at
from tests.shells import shell_with_optbook


@pytest.fixture
def shell() -> Iterator[Any]:
    with shell_with_optbook() as shell:
        yield shell


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("500 samples/s", (500, "sample")),
        ("500samples/s", (500, "sample")),
        (" 1.5e3 batches / s ", (1500, "batch")),
        ("2 env steps/s", (2, "env_step")),
        ("2 env_steps/sec", (2, "env_step")),
        ("7 tokens/second", (7, "token")),
    ],
)
def test_a_target_is_a_number_of_units_per_second(written: str, expected: tuple[float, str]) -> None:
    assert parse_target(written) == expected


@pytest.mark.parametrize(
    "written",
    ["", "500", "samples/s", "fast", "500 samples", "500 samples/h", "0 samples/s", "-5 samples/s",
     "nan samples/s", "inf samples/s", "1e999 samples/s", "1,000 samples/s", "5 /s", "1.2.3 samples/s",
     "5 a\x00b/s", "5 <script>/s", "5 " + "x" * 200 + "/s"],
)  # fmt: skip
def test_a_bad_target_is_one_line_with_an_example(written: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_target(written)
    message = str(caught.value)
    assert "samples" in message
    assert message.isprintable()
    assert len(message) < 200


def test_a_unit_is_held_against_those_of_the_log() -> None:
    assert parse_target("5 image/s", ["image"]) == (5, "image")
    assert parse_target("5 env steps/s", ["batch", "env_step"]) == (5, "env_step")
    assert parse_target("5 tokens/s", ["image"]) == (5, "token")
    with pytest.raises(OptionError, match="'imagse': did you mean images/s"):
        parse_target("5 imagse/s", ["image"])


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("0.90/h", (0.9, "")),
        ("$0.90/h", (0.9, "$")),
        ("0.90 €/h", (0.9, "€")),
        ("2 EUR", (2, "EUR")),
        (0.9, (0.9, "")),
        (None, (None, "")),
    ],
)
def test_a_price_is_an_amount_per_hour(written: Any, expected: tuple[float | None, str]) -> None:
    assert parse_price(written) == expected


@pytest.mark.parametrize(
    "written",
    ["free", "-1/h", "0/h", "1/min", "1,5/h", "$1€/h", "inf/h", "", True, float("nan"), -1, "1 dollars/h"],
)
def test_a_bad_price_is_one_line_with_an_example(written: Any) -> None:
    with pytest.raises(OptionError, match=r"the price is .*: write an amount per hour, such as 0\.90/h"):
        parse_price(written)


def test_amounts_keep_their_cents_and_small_ones_their_figures() -> None:
    assert [money(*each) for each in ((0.9, "€"), (12.404, ""), (0.00312, "$"), (0.0, ""))] == [
        "0.90 €", "12.40", "0.0031 $", "0.00"
    ]  # fmt: skip


def test_the_latest_for_a_unit_holds() -> None:
    assert str(optbook.goal()).startswith("No goal yet")
    optbook.goal("100 samples/s", because="a guess")
    optbook.goal("5 batches/s")
    optbook.goal("500 samples/s", because="it must end by 8", price="0.90/h", training=26_400)
    assert [(goal.unit, goal.target) for goal in optbook.goal().goals] == [("batch", 5), ("sample", 500)]
    held = goal_for("sample")
    assert held is not None
    assert (held.because, held.price, held.training) == ("it must end by 8", 0.9, 26_400)
    assert goal_for("token") is None
    assert str(optbook.goal()).splitlines()[1] == (
        "Goal: 500 samples/s, because it must end by 8, 0.90 an hour, "
        "a training run takes 26\u202f400 samples."
    )


@pytest.mark.parametrize("training", [0, -1, float("nan"), float("inf"), "many", True])
def test_a_bad_length_of_a_training_run_is_refused_and_nothing_is_stored(training: Any) -> None:
    with pytest.raises(OptionError, match=r"training is .*: give a number of units above 0"):
        optbook.goal("5 batches/s", training=training)
    assert optbook.goal().goals == ()


def test_a_reason_without_a_target_is_refused() -> None:
    with pytest.raises(OptionError, match="the target is missing: write %goal 500 samples/s"):
        optbook.goal(because="it matters")


def test_a_unit_that_nothing_counts_is_said(log_path: Path) -> None:
    store_at(log_path, measured("a", 1.0))
    assert "No experiment counts tokens yet; the log has: batch, image" in str(optbook.goal("5 tokens/s"))
    assert "No experiment" not in str(optbook.goal("5 images/s"))


def test_a_goal_is_no_experiment_and_survives_the_session(log_path: Path) -> None:
    optbook.goal("5 batches/s")
    session().close()
    assert len(optbook.log()) == 0
    assert [goal.target for goal in session().store.goals()] == [5]


def test_an_older_log_gets_the_table_with_the_first_goal(log_path: Path) -> None:
    store_at(log_path, measured("a", 1.0))
    with sqlite3.connect(log_path) as connection:
        connection.execute("DROP TABLE throughput_goals")
    connection.close()
    assert optbook.goal().goals == ()
    optbook.goal("5 batches/s")
    assert len(optbook.goal().goals) == len(optbook.log()) == 1


def test_goals_that_make_no_sense_are_left_out(log_path: Path) -> None:
    for target in ("1 batches/s", "2 images/s", "3 tokens/s"):
        optbook.goal(target, price="1/h")
    session().close()
    with sqlite3.connect(log_path) as connection:
        connection.execute("UPDATE throughput_goals SET target = 'high' WHERE unit = 'batch'")
        connection.execute("UPDATE throughput_goals SET price = x'ff', created = 'soon' WHERE unit = 'image'")
        connection.execute("UPDATE throughput_goals SET target = -3.0 WHERE unit = 'token'")
    connection.close()
    (held,) = optbook.goal().goals
    assert (held.unit, held.target, held.price) == ("image", 2, None)


def test_a_foreign_file_is_one_line_and_left_alone(log_path: Path) -> None:
    log_path.write_text("not a database")
    with pytest.raises(optbook.errors.OptbookError, match="not a database"):
        optbook.goal("5 batches/s")
    assert log_path.read_text() == "not a database"


def test_nothing_in_a_goal_is_trusted_as_html() -> None:
    page = optbook.goal("5 batches/s", because="<script>alert(1)</script>\n\x1b[31m")._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "\x1b" not in page


def test_only_the_latest_of_each_unit_is_in_force() -> None:
    goals = [Goal(unit="a", target=1), Goal(unit="b", target=2), Goal(unit="a", target=3)]
    assert in_force(goals) == (goals[1], goals[2])
    assert sentence(goals[1]) == "Goal: 2.00 bs/s."


def test_the_magic_sets_and_shows(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shell.user_ns["epochs"] = 22
    done = shell.run_cell(
        '%goal 500 samples/s --because "we meet at 8" --price 0.90/h --training 1200*epochs'
    )
    assert done.success
    (held,) = shell.run_cell("%goal").result.goals
    assert (held.unit, held.target, held.because) == ("sample", 500, "we meet at 8")
    assert (held.price, held.training) == (0.9, 26_400)
    capsys.readouterr()
    assert shell.run_cell("%goal -h").success
    assert "--because" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("%goal 500", "write a number and a unit per second"),
        ("%goal -5 samples/s", "above 0"),
        ("%goal 5 samples/s --price free", "write an amount per hour"),
        ("%goal 5 samples/s --training nothing_here", "--training"),
        ("%goal 5 samples/s --becuase x", "did you mean --because?"),
        ("%goal --because x", "the target is missing"),
    ],
)
def test_what_the_magic_refuses_is_one_line(
    shell: Any, capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    assert not shell.run_cell(line).success
    captured = capsys.readouterr()
    shown = (captured.out + captured.err).strip()
    assert said in shown
    assert "Traceback" not in shown
    assert shell.run_cell("%goal").result.goals == ()
