"""The log keeps who solved what, beside the experiments."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import optbook
from optbook.benchmark.bench import bench
from optbook.experiments.log import Log, record_solved, session, solved
from optbook.experiments.solved import Solved
from optbook.settings import settings
from optbook.workshop import exercises


def test_who_solved_what_is_listed_once_at_its_first_time() -> None:
    assert solved().columns.tolist() == ["participant", "exercise", "solved"]
    assert len(solved()) == 0
    first = Solved.now("00_guess", "ann")
    for each in (first, Solved.now("00_guess", "ann"), Solved.now("00_guess", "<b>'; --")):
        assert record_solved(each) == ""
    found = solved()
    assert found["participant"].tolist() == ["ann", "<b>'; --"]
    assert found["solved"].iloc[0] == first.created
    assert str(found["solved"].dtype).endswith("UTC]")


def test_a_solved_exercise_is_no_experiment() -> None:
    settings().participant = "ben"
    assert exercises.check("00_guess", {"guess": "b"}).solved
    assert not exercises.check("00_guess", {"guess": "a"}).solved
    assert len(optbook.log()) == 0
    assert exercises.solved()[["participant", "exercise"]].values.tolist() == [["ben", "00_guess"]]


def test_an_older_log_gets_the_table_with_the_first_that_is_solved(log_path: Path) -> None:
    bench(lambda: None, label="before", budget=0.01)
    session().close()
    with sqlite3.connect(log_path) as connection:
        connection.execute("DROP TABLE exercises_solved")
    connection.close()
    assert len(solved()) == 0
    assert record_solved(Solved.now("00_guess", "")) == ""
    assert len(solved()) == len(optbook.log()) == 1


def test_times_that_make_no_sense_are_read(log_path: Path) -> None:
    record_solved(Solved.now("00_guess", "ann"))
    session().close()
    with sqlite3.connect(log_path) as connection:
        connection.execute("UPDATE exercises_solved SET created = 'soon', participant = x'ff'")
    connection.close()
    assert solved()["participant"].tolist() == [""]


def test_what_can_not_be_stored_waits_and_is_said(log_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    log_path.write_text("not a database, and somebody's")
    assert "is not in the log yet, it will be stored later" in log.solve(Solved.now("00_guess", "ann"))
    assert "not in the log yet" in exercises.check("00_guess", {"guess": "b"}).advice
    log_path.unlink()
    assert log.solve(Solved.now("01_units", "ann")) == ""
    assert [each.exercise for each in log.solved()] == ["00_guess", "01_units"]
    assert len(solved()) == 3
