"""Profiles in the log: kept beside their experiment, read with suspicion, never lost when the log is away."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest

import optbook
from optbook.experiments import log as module
from optbook.experiments.errors import LogError
from optbook.experiments.log import Log
from optbook.experiments.profiles import MOST_ROWS, StoredProfile
from optbook.experiments.record import Experiment
from optbook.experiments.store import Store
from optbook.settings import settings
from tests.shells import shell_with_optbook


@pytest.fixture(autouse=True)
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    fresh = Log()
    monkeypatch.setattr(module, "_SESSION", fresh)
    yield fresh
    fresh.close()


@pytest.fixture
def no_tracer() -> Iterator[None]:
    """Without the tracer by which coverage is measured."""
    tracer = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(tracer)


def stored(label: str = "a", text: str = "text", table: str | None = None) -> StoredProfile:
    frame = pd.DataFrame({"function": ["f"], "own": [0.5]})
    made = StoredProfile.of(Experiment(label=label), "calls", text, frame)
    if table is None:
        return made
    return StoredProfile(made.experiment, label, "calls", datetime(2026, 1, 1, tzinfo=UTC), text, table)


def work() -> None:
    sum(range(20_000))


def test_a_profile_is_kept_with_its_experiment(log_path: Path) -> None:
    profile = optbook.profile(work, "calls", "sums", budget=0.1)
    [kept] = Store(log_path).profiles()
    assert (kept.experiment, kept.label, kept.kind) == (profile.experiment.id, "sums", "calls")
    assert str(kept) == str(profile)
    pd.testing.assert_frame_equal(kept.to_frame(), profile.to_frame(), check_dtype=False)
    assert list(optbook.log()["id"]) == [kept.experiment]


def test_the_magic_shows_those_of_a_label() -> None:
    with shell_with_optbook() as shell:
        for label in ("one", "two words"):
            assert shell.run_cell(f"%%profile calls {label} --budget 0.1\nsum(range(20_000))").success
        assert [p.label for p in shell.run_cell("%optbook profiles").result] == ["one", "two words"]
        [found] = shell.run_cell("%optbook profiles two words").result
    assert found.label == "two words"


def test_source_is_not_stored_where_it_must_not_be(monkeypatch: pytest.MonkeyPatch, no_tracer: None) -> None:
    monkeypatch.setattr(settings(), "store_source", False)
    profile = optbook.profile(work, "lines", functions=[work], budget=0.1)
    [kept] = module.profiles()
    assert "sum(range" in str(profile)
    assert "sum(range" not in str(kept) + kept.table
    assert "text not stored" in str(kept)


def test_a_profile_waits_while_the_log_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "away").mkdir()
    monkeypatch.setenv("OPTBOOK_LOG", str(tmp_path / "away"))
    optbook.profile(work, "calls", "sums", budget=0.1)
    with pytest.raises(LogError):
        module.profiles()
    monkeypatch.setenv("OPTBOOK_LOG", str(tmp_path / "back.sqlite"))
    assert [p.label for p in module.profiles()] == ["sums"]
    module.record(Experiment(label="next"))
    assert [p.label for p in Store(tmp_path / "back.sqlite").profiles()] == ["sums"]
    assert len(module.profiles()) == 1


def test_an_older_log_gets_its_table_when_it_is_written(log_path: Path) -> None:
    store = Store(log_path)
    store.append(Experiment(label="old"))
    store.close()
    with sqlite3.connect(log_path) as connection:
        connection.execute("DROP TABLE experiment_profiles")
    older = Store(log_path)
    assert older.profiles() == []
    older.keep(stored())
    assert [p.label for p in older.profiles()] == ["a"]


def test_no_log_has_no_profiles_and_is_not_made(log_path: Path) -> None:
    assert module.profiles() == []
    assert not log_path.exists()


def test_nothing_read_is_trusted(log_path: Path) -> None:
    store = Store(log_path)
    store.keep(stored("<script>", "<script>alert(1)</script>\x00"))
    [kept] = store.profiles()
    assert "<script>" not in kept._repr_html_()
    assert "&lt;script&gt;" in kept._repr_html_()


@pytest.mark.parametrize("table", ["", "3", "{", '"/etc/passwd"', "null", '{"columns": 1}', "[[1]]"])
def test_a_table_that_is_none_is_one_line(log_path: Path, table: str) -> None:
    with pytest.raises(LogError, match="calls profile of 'a' has no readable table"):
        stored(table=table).to_frame()


def test_rows_of_wrong_types_do_not_hide_the_others(log_path: Path) -> None:
    store = Store(log_path)
    store.keep(stored("good"))
    with sqlite3.connect(log_path) as connection:
        connection.execute("INSERT INTO experiment_profiles (id, label, created) VALUES (7, NULL, 'noon')")
    assert [p.label for p in store.profiles()] == ["good", ""]


def test_large_tables_are_cut() -> None:
    frame = pd.DataFrame({"n": range(MOST_ROWS + 5), "odd": [object()] * (MOST_ROWS + 5)})
    kept = StoredProfile.of(Experiment(label="a"), "calls", "x" * 10**6, frame)
    assert len(kept.to_frame()) == MOST_ROWS
    assert len(kept.text) < 10**6
