"""`optbook log`: show, export, merge, prune; and merging as such."""

from __future__ import annotations

import json
import math
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner, Result

import optbook
from optbook import cli
from optbook.errors import OptbookError, OptionError
from optbook.experiments import log
from optbook.experiments.export import export
from optbook.experiments.goal import Goal
from optbook.experiments.merge import merge
from optbook.experiments.profiles import StoredProfile
from optbook.experiments.record import Experiment
from optbook.experiments.solved import Solved
from optbook.experiments.store import Store
from tests.logs import in_order, measured, store_at, story


def run(*arguments: str, input: str | None = None) -> Result:
    return CliRunner().invoke(cli.main, ["log", *arguments], prog_name="optbook", input=input)


def labels(path: Path) -> list[str]:
    return list(Store(path).frame(hidden=True)["label"])


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Another log, with a row of every kind."""
    path = tmp_path / "other.sqlite"
    first, second = in_order(
        [measured("there", 4.0, times=(0.1, 0.2)), measured("failed", 1.0, status="failed")]
    )
    store = Store(path)
    for experiment in (first, second):
        store.append(experiment)
    store.note(first.id, "a note")
    store.hide(second.id)
    store.keep(StoredProfile.of(first, "calls", "text", pd.DataFrame({"a": [1]})))
    store.solve(Solved.now("00_guess", "ann"))
    store.aim(Goal(unit="batch", target=5))
    store.close()
    return path


# --- show -----------------------------------------------------------------------------------


def test_log_alone_shows_the_last_rows(log_path: Path) -> None:
    store_at(log_path, *story())
    for arguments in (["-n", "2"], ["show", "-n", "2"], ["show", "--rows", "2"]):
        result = run(*arguments)
        assert result.exit_code == 0, result.output
        assert [line.split()[2:4] for line in result.output.splitlines()[1:]] == [
            ["too", "long"],
            ["two", "workers"],
        ]


def test_show_filters_and_finds_what_is_hidden(log_path: Path) -> None:
    store_at(log_path, *story())
    log.hide(str(optbook.log()["id"].iloc[0]))
    assert "first version" not in run("show").output
    assert "first version" in run("show", "--hidden").output
    assert "decode once" in run("show", "--label", "DECODE").output
    assert (
        run("show", "--label", "nothing").output
        == f"No experiment in {log_path} has 'nothing' in its label.\n"
    )


def test_nothing_in_a_log_reaches_the_terminals_controls(log_path: Path) -> None:
    store_at(log_path, measured("\x1b[31mred\nline", 1.0))
    shown = run("show").output
    assert "\x1b" not in shown
    assert shown.count("\n") == 2


# --- export ---------------------------------------------------------------------------------


def test_what_is_exported_can_be_read_again(log_path: Path, tmp_path: Path) -> None:
    store_at(log_path, *story(), measured('µ, "quoted"', 3.0, seed=2**63, metrics={"acc": 0.5}))
    files = {suffix: tmp_path / f"out{suffix}" for suffix in (".csv", ".json", ".parquet")}
    for path in files.values():
        result = run("export", str(path))
        assert (result.exit_code, result.output) == (0, f"9 experiments written to {path}.\n")
    whole = optbook.log()
    frames = pd.read_csv(files[".csv"]), pd.read_parquet(files[".parquet"])
    for frame in frames:
        assert list(frame.columns) == list(whole.columns)
        assert list(frame["label"]) == list(whole["label"])
        assert json.loads(frame["metrics"].iloc[-1]) == {"acc": 0.5}
        assert str(frame["seed"].iloc[-1]) == str(2**63)
    assert list(frames[1]["throughput"].fillna(-1)) == list(whole["throughput"].fillna(-1))
    assert str(frames[1]["created"].dtype) == str(whole["created"].dtype)
    rows = json.loads(files[".json"].read_text(encoding="utf-8"))
    assert rows[0]["units"] == {"batch": 4.0, "image": 64.0}
    assert rows[2]["throughput"] is None
    assert rows[-1]["label"] == 'µ, "quoted"'
    assert rows[0]["created"].startswith("2026-01-01T00:00:00")


def test_an_empty_log_gives_a_file_with_the_columns(tmp_path: Path) -> None:
    for suffix, read in ((".csv", pd.read_csv), (".parquet", pd.read_parquet)):
        assert run("export", str(tmp_path / f"out{suffix}")).exit_code == 0
        assert list(read(tmp_path / f"out{suffix}").columns) == list(optbook.log().columns)
    assert run("export", str(tmp_path / "out.json")).exit_code == 0
    assert json.loads((tmp_path / "out.json").read_text()) == []


def test_hidden_ones_are_exported_when_asked(log_path: Path, tmp_path: Path) -> None:
    store_at(log_path, *story())
    log.hide(str(optbook.log()["id"].iloc[0]))
    assert run("export", str(tmp_path / "a.json")).output.startswith("7 experiments")
    assert run("export", "--hidden", str(tmp_path / "b.json")).output.startswith("8 experiments")
    assert json.loads((tmp_path / "b.json").read_text())[0]["hidden"] is True


def test_a_spreadsheet_finds_no_formula(log_path: Path, tmp_path: Path) -> None:
    store_at(log_path, *(measured(start + "HYPERLINK(1)", 2.0) for start in "=+-@"))
    run("export", str(tmp_path / "a.csv"))
    assert [label[:2] for label in pd.read_csv(tmp_path / "a.csv")["label"]] == ["'=", "'+", "'-", "'@"]


@pytest.mark.parametrize("name", ["out.xlsx", "out", "nowhere/out.csv", "there.csv"])
def test_where_it_can_not_be_exported_to_is_one_line(log_path: Path, tmp_path: Path, name: str) -> None:
    store_at(log_path, *story())
    (tmp_path / "there.csv").write_text("mine")
    result = run("export", str(tmp_path / name))
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")
    assert result.output.count("\n") == 1
    assert (tmp_path / "there.csv").read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()


def test_a_file_is_replaced_when_asked(log_path: Path, tmp_path: Path) -> None:
    store_at(log_path, *story())
    (tmp_path / "there.csv").write_text("mine")
    assert run("export", "--force", str(tmp_path / "there.csv")).exit_code == 0
    assert len(pd.read_csv(tmp_path / "there.csv")) == 8


def test_without_pyarrow_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame({"label": pd.Series(["a"], dtype="object")})

    def missing(*args: object, **kwargs: object) -> None:
        raise ImportError("no pyarrow")

    monkeypatch.setattr(pd.DataFrame, "to_parquet", missing)
    with pytest.raises(OptbookError, match=r"`, or export to \.csv or \.json") as caught:
        export(frame, tmp_path / "a.parquet")
    assert "optbook[parquet]" in str(caught.value)
    assert list(tmp_path.glob("*a*.parquet")) == []


def test_a_half_written_file_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(frame: pd.DataFrame, path: Path, **options: object) -> None:
        path.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pd.DataFrame, "to_csv", full)
    with pytest.raises(OptionError, match="No space left on device"):
        export(pd.DataFrame({"a": [1.0]}), tmp_path / "a.csv")
    assert list(tmp_path.iterdir()) == []


# --- merge ----------------------------------------------------------------------------------


def test_everything_comes_over_once(log_path: Path, other: Path) -> None:
    store_at(log_path, measured("here", 2.0))
    result = run("merge", str(other))
    assert result.exit_code == 0, result.output
    assert result.output == (
        f"{other} into {log_path}: 2 experiments, 2 notes, 1 profile, 1 solved exercise, 1 goal added; "
        "0 experiments known already.\n"
    )
    again = run("merge", str(other), str(other))
    assert again.output == 2 * f"{other} into {log_path}: 0 experiments added; 2 experiments known already.\n"
    store = Store(log_path)
    assert sorted(labels(log_path)) == ["failed", "here", "there"]
    frame = optbook.log()
    assert sorted(frame["label"]) == ["here", "there"]
    there = frame[frame["label"] == "there"].iloc[0]
    assert there["note"] == "a note"
    assert store.get(there["id"]).times == (0.1, 0.2)
    assert [profile.kind for profile in store.profiles()] == ["calls"]
    assert [solved.participant for solved in store.solved()] == ["ann"]
    assert [goal.target for goal in store.goals()] == [5]


def test_both_ways_makes_both_the_same(log_path: Path, other: Path) -> None:
    store_at(log_path, measured("here", 2.0))
    merge(str(log_path), str(other))
    assert merge(str(other), str(log_path)).experiments == 1
    assert sorted(labels(other)) == sorted(labels(log_path))


def test_ones_own_goal_holds(log_path: Path, other: Path) -> None:
    optbook.goal("900 batches/s")
    assert merge(str(log_path), str(other)).goals == 0
    assert [goal.target for goal in optbook.goal().goals] == [900]


def test_a_merge_makes_the_log_where_there_is_none(log_path: Path, other: Path) -> None:
    assert run("merge", str(other)).exit_code == 0
    assert sorted(labels(log_path)) == ["failed", "there"]


def test_many_rows_come_in_their_order(log_path: Path, tmp_path: Path) -> None:
    store_at(tmp_path / "many.sqlite", *(measured(f"try {n}", 1.0 + n) for n in range(450)))
    store_at(log_path, measured("here", 2.0))
    assert merge(str(log_path), str(tmp_path / "many.sqlite")).experiments == 450
    with sqlite3.connect(log_path) as connection:
        found = [label for (label,) in connection.execute("SELECT label FROM experiments ORDER BY seq")]
    connection.close()
    assert found == ["here", *(f"try {n}" for n in range(450))]


def test_an_older_log_and_odd_values_come_over(log_path: Path, other: Path) -> None:
    with sqlite3.connect(other) as connection:
        connection.execute("DROP TABLE throughput_goals")
        connection.execute("ALTER TABLE experiments DROP COLUMN gpu_clock")
        connection.execute(
            "UPDATE experiments SET git_dirty = 'perhaps', throughput = 'fast' WHERE label = 'there'"
        )
    connection.close()
    assert merge(str(log_path), str(other)).experiments == 2
    row = optbook.log().iloc[0]
    assert math.isnan(row["gpu_clock"])
    assert math.isnan(row["throughput"])
    assert pd.isna(row["git_dirty"])


def missing(path: Path) -> str:
    return str(path / "nothing.sqlite")


def foreign(path: Path) -> str:
    (path / "foreign.sqlite").write_text("not a database")
    return str(path / "foreign.sqlite")


def newer(path: Path) -> str:
    store_at(path / "newer.sqlite", measured("a", 1.0))
    with sqlite3.connect(path / "newer.sqlite") as connection:
        connection.execute("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    connection.close()
    return str(path / "newer.sqlite")


def itself(path: Path) -> str:
    return str(path / "experiments.sqlite")


def secret(path: Path) -> str:
    return "nosuch+driver://ann:secret@127.0.0.1/room"


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (missing, "there is no log in"),
        (foreign, "is not a database"),
        (newer, "was written by a newer optbook"),
        (itself, "is the log to merge into"),
        (secret, "is no URL that SQLAlchemy knows"),
    ],
)
def test_what_can_not_be_merged_is_one_line(
    log_path: Path, tmp_path: Path, place: Callable[[Path], str], said: str
) -> None:
    store_at(log_path, measured("here", 2.0))
    result = run("merge", place(tmp_path))
    assert result.exit_code == 1
    assert said in result.output
    assert result.output.count("\n") == 1
    assert "secret" not in result.output
    assert labels(log_path) == ["here"]
    assert not (tmp_path / "nothing.sqlite").exists()


def test_merging_nothing_is_a_usage_error() -> None:
    assert run("merge").exit_code == 2


# --- prune ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (["--status", "failed", "--status", "interrupted"], 6),
        (["--stubbed"], 7),
        (["--label", "WORKERS"], 6),
        (["--label", "workers", "--status", "failed"], 7),
        (["--before", "2026-01-01"], 8),
        (["--before", "2026-01-02"], 0),
        (["--hidden"], 7),
    ],
)
def test_what_fits_all_options_is_deleted(log_path: Path, options: list[str], left: int) -> None:
    store_at(log_path, *story())
    log.hide(str(optbook.log()["id"].iloc[0]))
    result = run("prune", *options, "--yes")
    assert result.exit_code == 0, result.output
    assert len(labels(log_path)) == left


def test_it_shows_and_asks_first(log_path: Path) -> None:
    store_at(log_path, *story())
    for answer in ("n\n", "\n", ""):
        result = run("prune", "--stubbed", input=answer)
        assert result.exit_code == 1
        assert "reuse one batch" in result.output
        assert f"Delete 1 experiment of 8 in {log_path} for good? [y/N]" in result.output
        assert len(labels(log_path)) == 8
    result = run("prune", "--stubbed", input="y\n")
    assert result.exit_code == 0
    assert result.output.endswith("1 experiment deleted.\n")
    assert "reuse one batch" not in labels(log_path)


def test_a_dry_run_deletes_nothing(log_path: Path) -> None:
    store_at(log_path, *story())
    result = run("prune", "--before", "2030-01-01", "--dry-run", "--yes")
    assert result.exit_code == 0
    assert result.output.endswith(f"8 experiments of 8 in {log_path} would be deleted.\n")
    assert len(labels(log_path)) == 8


def test_everything_that_belongs_to_an_experiment_goes_with_it(
    other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPTBOOK_LOG", str(other))
    assert run("prune", "--label", "there", "-y").exit_code == 0
    with sqlite3.connect(other) as connection:
        count = {
            table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("experiments", "payloads", "notes", "experiment_profiles", "exercises_solved")
        }
    connection.close()
    assert count == {
        "experiments": 1, "payloads": 1, "notes": 1, "experiment_profiles": 0, "exercises_solved": 1
    }  # fmt: skip


def test_a_new_row_after_pruning_is_seen(log_path: Path) -> None:
    store_at(log_path, *story())
    before = Store(log_path).revision()
    run("prune", "--label", "two workers", "--yes")
    Store(log_path).append(measured("next", 1.0))
    assert Store(log_path).revision() == before + 1


@pytest.mark.parametrize(
    "options", [[], ["--yes"], ["--status", "bad"], ["--before", "soon"], ["--label", ""], ["--all"]]
)
def test_a_prune_that_does_not_say_which_is_a_usage_error(log_path: Path, options: list[str]) -> None:
    store_at(log_path, *story())
    assert run("prune", *options).exit_code == 2
    assert len(labels(log_path)) == 8


def test_pruning_what_is_not_there_says_so(log_path: Path) -> None:
    assert run("prune", "--stubbed").output == f"No experiment in {log_path} fits: nothing is deleted.\n"
    assert not log_path.exists()


def test_a_read_only_log_is_one_line(log_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store_at(log_path, Experiment(label="a", status="failed"))

    def refuse(*args: object, **options: object) -> sqlite3.Connection:
        raise sqlite3.OperationalError("attempt to write a readonly database")

    monkeypatch.setattr(sys.modules["optbook.experiments.sqlite"], "use_wal", refuse)
    result = run("prune", "--status", "failed", "--yes")
    assert result.exit_code == 1
    assert "read-only" in result.output
    assert labels(log_path) == ["a"]
