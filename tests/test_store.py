"""The store: durable, shared, hard to break, and careful with what it reads."""

from __future__ import annotations

import hashlib
import math
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import sqlalchemy as sa

from optbook.experiments import schema, sqlite
from optbook.experiments.columns import clean, kinds, read_many_numbers
from optbook.experiments.errors import AlreadyLoggedError, LogError
from optbook.experiments.record import Experiment, column_fields
from optbook.experiments.store import Store

FULL = Experiment(
    label="first version",
    unit="batch",
    throughput=12.5,
    throughput_low=12.0,
    throughput_high=13.0,
    units={"batch": 12.5, "image": 200.0},
    seconds=0.08,
    metrics={"accuracy": 0.91},
    runs=20,
    steps=3,
    parts={"load": 1.5},
    git_dirty=True,
    versions={"python": "3.11"},
    flags={"threads": "2"},
    seed=2**64 - 1,
    warnings=("few runs", "drift"),
    times=(0.1, 0.2, 1 / 3),
    waits=(0.01, 0.02, 0.0),
    source="x = 1\n",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log" / "experiments.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    store = Store(path)
    yield store
    store.close()


def execute(path: Path, *statements: str, parameters: tuple[Any, ...] = ()) -> None:
    connection = sqlite3.connect(path)
    with connection:
        for statement in statements:
            connection.execute(statement, parameters)
    connection.close()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_an_experiment_comes_back_as_it_was(store: Store) -> None:
    store.append(FULL)
    assert store.get(FULL.id) == FULL


def test_a_bare_experiment_comes_back_as_it_was(store: Store) -> None:
    bare = Experiment(label="")
    store.append(bare)
    assert store.get(bare.id) == bare


def test_the_frame_has_the_columns_of_the_record_in_its_order(store: Store) -> None:
    store.append(FULL)
    assert list(store.frame()) == [*(field.name for field in column_fields()), "note"]


def test_the_frame_is_typed(store: Store) -> None:
    store.append(FULL)
    store.append(Experiment(label="bare"))
    frame = store.frame()
    assert list(frame.index) == [0, 1]
    assert isinstance(frame["created"].dtype, pd.DatetimeTZDtype)
    assert str(frame["created"].dt.tz) == "UTC"
    assert frame["throughput"].dtype == "float64"
    assert frame["runs"].dtype == "int64"
    assert frame["git_dirty"].dtype == "boolean"
    assert pd.api.types.is_string_dtype(frame["label"])
    first, bare = frame.to_dict("records")
    assert first["created"].to_pydatetime() == FULL.created
    assert first["units"] == {"batch": 12.5, "image": 200.0}
    assert first["warnings"] == ("few runs", "drift")
    assert first["seed"] == 2**64 - 1
    assert bare["units"] == bare["versions"] == {}
    assert bare["warnings"] == ()
    assert math.isnan(bare["throughput"])
    assert bare["git_dirty"] is pd.NA or bare["git_dirty"] is None
    assert bare["seed"] is None


def test_empty_frames_have_the_same_dtypes(store: Store) -> None:
    empty = store.frame().dtypes
    store.append(FULL)
    filled = store.frame().dtypes
    assert {name: str(empty[name]) for name in empty.index} == {
        name: str(filled[name]) for name in filled.index
    }


def test_rows_do_not_share_their_dicts(store: Store) -> None:
    for number in range(3):
        store.append(Experiment(label=str(number), versions={"python": "3.11"}, units={"run": 1.0}))
    frame = store.frame()
    frame["versions"][0]["python"] = "changed"
    frame["units"][0]["run"] = 2.0
    assert frame["versions"][1] == {"python": "3.11"}
    assert frame["units"][1] == {"run": 1.0}


def test_reading_creates_nothing(store: Store, path: Path) -> None:
    assert len(store.frame()) == 0
    assert store.revision() == 0
    assert store.latest("x") is None
    with pytest.raises(LogError, match="no experiment 'x'"):
        store.get("x")
    with pytest.raises(LogError, match="no experiment 'x'"):
        store.note("x", "hello")
    assert not path.parent.exists()


def test_the_oldest_comes_first_whenever_it_arrived(store: Store) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    for label, days in (("b", 1), ("c", 2), ("a", 0)):
        store.append(Experiment(label=label, created=now + timedelta(days=days)))
    frame = store.frame()
    assert list(frame["label"]) == ["a", "b", "c"]
    assert list(frame.index) == [0, 1, 2]


def test_an_id_is_stored_once(store: Store) -> None:
    store.append(FULL)
    with pytest.raises(AlreadyLoggedError, match=FULL.id):
        store.append(FULL.replace(label="other"))
    assert list(store.frame()["label"]) == ["first version"]


def test_the_latest_of_a_label(store: Store) -> None:
    store.append(Experiment(label="a", runs=1))
    store.append(Experiment(label="a", runs=2, times=(0.5,)))
    store.append(Experiment(label="a", runs=3, status="failed"))
    store.append(Experiment(label="b", runs=4))
    latest = store.latest("a")
    assert latest is not None
    assert latest.runs == 3
    ok = store.latest("a", status="ok")
    assert ok is not None
    assert (ok.runs, ok.times) == (2, (0.5,))
    store.hide(ok.id)
    older = store.latest("a", status="ok")
    assert older is not None
    assert older.runs == 1
    assert store.latest("A") is None


def test_notes_and_hidden_flags_are_rows_of_their_own(store: Store, path: Path) -> None:
    store.append(FULL)
    store.append(Experiment(label="other"))
    before = _rows(path, "SELECT * FROM experiments")
    store.note(FULL.id, "warm machine")
    store.note(FULL.id, "again <b>")
    store.hide(FULL.id)
    assert list(store.frame()["label"]) == ["other"]
    everything = store.frame(hidden=True)
    assert list(everything["hidden"]) == [True, False]
    assert list(everything["note"]) == ["warm machine\nagain <b>", ""]
    store.hide(FULL.id, hidden=False)
    assert list(store.frame()["label"]) == ["first version", "other"]
    assert store.get(FULL.id) == FULL
    assert _rows(path, "SELECT * FROM experiments") == before


def _rows(path: Path, query: str) -> list[Any]:
    connection = sqlite3.connect(path)
    found = connection.execute(query).fetchall()
    connection.close()
    return found


def test_the_revision_grows_with_every_addition_by_anyone(store: Store, path: Path) -> None:
    seen = [store.revision()]
    store.append(FULL)
    seen.append(store.revision())
    other = Store(path)
    other.append(Experiment(label="other"))
    seen.append(store.revision())
    other.note(FULL.id, "x")
    seen.append(store.revision())
    other.hide(FULL.id)
    seen.append(store.revision())
    other.close()
    assert seen == sorted(set(seen))


def test_the_database_waits_for_nobody_and_flushes_every_commit(store: Store, path: Path) -> None:
    store.append(FULL)
    assert _rows(path, "PRAGMA journal_mode") == [("wal",)]
    assert _rows(path, "PRAGMA application_id") == [(sqlite.APPLICATION_ID,)]
    with store._database.connect(write=True) as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL


# --- hostile values --------------------------------------------------------------------------

LABELS = [
    'it\'s "quoted"; DROP TABLE experiments; --',
    "<script>alert(1)</script>",
    "two\nlines\r\n\ttab",
    "x" * 10_000,
    "🌭 ñ 汉",
    "%s {} \\u0041 $x$",
]


@pytest.mark.parametrize("label", LABELS)
def test_any_label_is_kept_as_it_is(store: Store, label: str) -> None:
    experiment = Experiment(label=label, versions={label: label}, warnings=(label,), source=label)
    store.append(experiment)
    assert store.get(experiment.id) == experiment
    assert store.frame()["label"][0] == label
    assert store.latest(label) == experiment


@pytest.mark.parametrize(("label", "kept"), [("a\x00b", "a\\x00b"), ("a\udc80b", "a\\udc80b")])
def test_what_no_database_can_hold_is_escaped(store: Store, label: str, kept: str) -> None:
    store.append(Experiment(label=label, warnings=(label,), versions={label: label}, source=label))
    latest = store.latest(label)
    assert latest is not None
    assert (latest.label, latest.warnings, latest.versions, latest.source) == (
        kept,
        (kept,),
        {kept: kept},
        kept,
    )
    kept.encode()


def test_infinity_is_kept_and_nan_is_not_known(store: Store) -> None:
    odd = Experiment(
        label="x", throughput=math.nan, seconds=math.inf, metrics={"a": math.nan, "b": -math.inf}
    )
    store.append(odd)
    row = store.frame().iloc[0]
    assert math.isnan(row["throughput"])
    assert row["seconds"] == math.inf
    assert math.isnan(row["metrics"]["a"])
    assert row["metrics"]["b"] == -math.inf


def test_values_of_a_wrong_type_are_left_out_and_named(store: Store) -> None:
    wrong: Any = {"throughput": "fast", "runs": 1.5, "units": [1], "metrics": {"a": "b"}, "times": ("x",)}
    experiment = Experiment(label="x", warnings=("drift",), **wrong)
    store.append(experiment)
    kept = store.get(experiment.id)
    assert (kept.throughput, kept.runs, kept.units, kept.metrics, kept.times) == (None, 0, {}, {}, ())
    assert kept.warnings[0] == "drift"
    assert "throughput was 'fast' and could not be stored" in kept.warnings
    assert len(kept.warnings) == 6


def test_numbers_of_numpy_are_numbers(store: Store) -> None:
    import numpy as np

    odd: Any = {"throughput": np.float32(1.5), "runs": np.int64(3), "metrics": {"a": np.float64(0.5)}}
    experiment = Experiment(label="x", **odd)
    store.append(experiment)
    kept = store.get(experiment.id)
    assert (kept.throughput, kept.runs, kept.metrics, kept.warnings) == (1.5, 3, {"a": 0.5}, ())


@pytest.mark.parametrize(
    ("column", "value", "shown"),
    [
        ("status", "exploded", "void"),
        ("throughput", "fast", None),
        ("throughput", b"\x00\xff", None),
        ("runs", "many", 0),
        ("runs", 1.5, 0),
        ("git_dirty", "maybe", None),
        ("git_dirty", 7, None),
        ("seed", "0x1", None),
        ("seed", "9" * 5_000, None),
        ("created", "yesterday", None),
        ("created", 5, None),
        ("units", "{not json", {}),
        ("units", "[1, 2]", {}),
        ("units", '{"a": "b"}', {}),
        ("units", '{"a": 1},{"b": 2}', {}),
        ("units", "[" * 100_000, {}),
        ("versions", '{"a": 1}', {}),
        ("versions", b"\x80\x04N.", {}),
        ("warnings", '"text"', ()),
        ("warnings", "[1]", ()),
        ("label", b"\x80\x04", ""),
    ],
)
def test_a_bad_value_does_not_hide_the_rest(
    store: Store, path: Path, column: str, value: Any, shown: Any
) -> None:
    good, bad = Experiment(label="good", units={"run": 1.0}), FULL
    store.append(good)
    store.append(bad)
    execute(path, f"UPDATE experiments SET {column} = ? WHERE id = '{bad.id}'", parameters=(value,))
    frame = store.frame()
    row = frame[frame["id"] == bad.id].iloc[0]
    other = frame[frame["id"] == good.id].iloc[0]
    assert len(frame) == 2
    if column != "warnings":  # there the reading itself leaves a line
        assert pd.isna(row[column]) if shown is None else row[column] == shown
    (warning,) = [line for line in row["warnings"] if line.startswith(column)]
    assert "\n" not in warning
    assert len(warning) < 130
    assert other["units"] == {"run": 1.0}
    assert other["warnings"] == ()
    experiment = store.get(bad.id)
    assert warning in experiment.warnings
    assert experiment.times == FULL.times


def test_the_same_bad_value_is_named_in_every_row(store: Store, path: Path) -> None:
    for number in range(3):
        store.append(Experiment(label=str(number)))
    execute(path, "UPDATE experiments SET versions = '[]'")
    assert [len(lines) for lines in store.frame()["warnings"]] == [1, 1, 1]


def test_text_that_is_not_utf8_is_read_with_replacements(store: Store, path: Path) -> None:
    store.append(FULL)
    store.append(Experiment(label="good"))
    execute(path, f"UPDATE experiments SET label = CAST(x'61ff62' AS TEXT) WHERE id = '{FULL.id}'")
    assert list(store.frame()["label"]) == ["a\ufffdb", "good"]


def test_a_damaged_payload_is_named(store: Store, path: Path) -> None:
    store.append(FULL)
    execute(path, "UPDATE payloads SET times = x'00'")
    kept = store.get(FULL.id)
    assert kept.times == ()
    assert any("times could not be read" in line for line in kept.warnings)


def test_texts_read_together_cannot_shift_their_neighbours() -> None:
    assert read_many_numbers(['{"a": 1.0}', "{}"]) == [{"a": 1.0}, {}]
    assert read_many_numbers([]) is None
    assert read_many_numbers(["{}", '{"a": 1.0},0,{"b": 2.0}', '{"a": [1', "2]}"]) is None
    assert read_many_numbers(['{"a": 1.0},"x",{}', "{}"]) is None
    assert read_many_numbers(['{"a": 1}', "{}"]) is None
    assert read_many_numbers(["{}", None]) is None


def test_clean_leaves_ordinary_text_alone() -> None:
    assert clean("naïve 🌭\n") == "naïve 🌭\n"


# --- files that are not ours, and files that are broken ----------------------------------------


def _foreign(path: Path) -> None:
    execute(path, "CREATE TABLE experiments (id TEXT)", "INSERT INTO experiments VALUES ('theirs')")


def _other_application(path: Path) -> None:
    execute(path, "PRAGMA application_id = 1234", "CREATE TABLE t (a)")


def _foreign_in_wal_mode(path: Path) -> None:
    execute(path, "PRAGMA journal_mode = WAL")
    _foreign(path)


def _text(path: Path) -> None:
    path.write_text("label,throughput\n" * 50)


def _short(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\x00")


def _not_our_schema(path: Path) -> None:
    execute(path, f"PRAGMA application_id = {sqlite.APPLICATION_ID}", "CREATE TABLE meta (a)")


def _newer(path: Path) -> None:
    store = Store(path)
    store.append(FULL)
    store.close()
    execute(path, "UPDATE meta SET value = '99' WHERE key = 'schema_version'")


def _version_of_words(path: Path) -> None:
    _newer(path)
    execute(path, "UPDATE meta SET value = 'new' WHERE key = 'schema_version'")


def _cut_off(path: Path) -> None:
    _many(path)
    path.write_bytes(path.read_bytes()[:-9000])


def _overwritten(path: Path) -> None:
    _many(path)
    content = bytearray(path.read_bytes())
    content[4096 * 2 : 4096 * 6] = b"\xa5" * (4096 * 4)
    path.write_bytes(content)


def _many(path: Path) -> None:
    store = Store(path)
    for number in range(20):
        store.append(Experiment(label=str(number), source="x" * 3000))
    store.close()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_foreign, "a database of another program"),
        (_other_application, "a database of another program"),
        (_foreign_in_wal_mode, "a database of another program"),
        (_text, "not a database"),
        (_short, "not a database"),
        (_not_our_schema, "not optbook's"),
        (_newer, "newer optbook"),
        (_version_of_words, "unknown schema version"),
        (_cut_off, "damaged"),
        (_overwritten, "damaged"),
    ],
)
def test_what_is_not_a_sound_log_of_ours_is_left_as_it_is(tmp_path: Path, make: Any, words: str) -> None:
    path = tmp_path / "it.sqlite"
    make(path)
    before = digest(path)
    store = Store(path)
    for action in (
        lambda: store.append(Experiment(label="x")),
        store.frame,
        store.revision,
        lambda: store.get("x"),
        lambda: store.hide("x"),
    ):
        with pytest.raises(LogError, match=words) as caught:
            action()
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
    store.close()
    assert digest(path) == before


def test_a_folder_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="is a folder"):
        Store(tmp_path).append(FULL)
    with pytest.raises(LogError, match="is a folder"):
        Store(tmp_path).frame()
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_becomes_a_log(tmp_path: Path) -> None:
    path = tmp_path / "empty.sqlite"
    path.touch()
    store = Store(path)
    assert len(store.frame()) == 0
    store.append(FULL)
    store.close()
    assert len(Store(path).frame()) == 1


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(LogError, match="cannot be created"):
        Store(tmp_path / "file" / "log.sqlite").append(FULL)


@pytest.mark.parametrize(
    "place", ["", "   ", ":memory:", "sqlite://", "sqlite:///:memory:", "nodb://x/y", "a\x00b"]
)
def test_places_that_are_none(place: str) -> None:
    with pytest.raises(LogError):
        Store(place)


def test_a_url_of_sqlite_is_a_path(path: Path) -> None:
    store = Store(f"sqlite:///{path}")
    store.append(FULL)
    store.close()
    assert len(Store(path).frame()) == 1


def test_a_path_may_hold_what_urls_do_not(tmp_path: Path) -> None:
    path = tmp_path / "my #1 log? 100%.sqlite"
    store = Store(path)
    store.append(FULL)
    assert len(store.frame()) == 1
    store.close()
    assert path.exists()


def test_a_log_that_was_removed_is_begun_again(store: Store, path: Path) -> None:
    store.append(FULL)
    assert store.revision() == 1
    for file in path.parent.iterdir():
        file.unlink()
    assert len(store.frame()) == 0
    store.append(Experiment(label="new"))
    assert list(Store(path).frame()["label"]) == ["new"]


READ_ONLY = """
import os, sys
from pathlib import Path
from optbook.experiments.errors import LogError
from optbook.experiments.record import Experiment
from optbook.experiments.store import Store
import pandas, sqlalchemy.dialects.sqlite
pandas.DataFrame({"a": ["b"]})
if os.geteuid() == 0:
    os.setegid(65534)
    os.seteuid(65534)
store = Store(sys.argv[1])
try:
    store.append(Experiment(label="x"))
    print("written")
except LogError as error:
    print(error)
try:
    print(len(store.frame()))
except LogError as error:
    print(error)
"""


@pytest.mark.parametrize("read_only", ["file", "folder", "both"])
def test_what_is_read_only_can_be_read_and_says_so(read_only: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = Path(folder) / "logs" / "it.sqlite"
        store = Store(path)
        store.append(FULL)
        store.close()
        path.parent.chmod(0o777 if read_only == "file" else 0o555)
        path.chmod(0o666 if read_only == "folder" else 0o444)
        before = digest(path)
        result = subprocess.run(
            [sys.executable, "-c", READ_ONLY, str(path)], capture_output=True, text=True, check=True
        )
        path.parent.chmod(0o755)
        message, rows = result.stdout.splitlines()
        assert "read-only" in message or "cannot be opened" in message
        assert "OPTBOOK_LOG" in message
        assert rows == "1"
        assert digest(path) == before


def test_where_it_can_be_written_it_is_never_read_as_if_it_stood_still(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is opened as immutable never shows what others add."""
    store.append(FULL)
    store.close()
    real, tries = sqlite3.connect, []

    def connect(url: str, *args: Any, **options: Any) -> sqlite3.Connection:
        if "isolation_level" in options:  # not only a look at the header
            tries.append(url)
        if len(tries) in (1, 2) and "isolation_level" in options:
            error = sqlite3.OperationalError("unable to open database file")
            error.sqlite_errorname = "SQLITE_CANTOPEN"
            raise error
        found: sqlite3.Connection = real(url, *args, **options)
        return found

    monkeypatch.setattr(sqlite3, "connect", connect)
    reader = Store(path)
    assert len(reader.frame()) == 1
    monkeypatch.undo()
    assert not any("immutable" in url for url in tries)
    store.append(FULL.replace(id="another"))
    assert len(reader.frame()) == 2


OTHER = """
import sys
from optbook.experiments.record import Experiment
from optbook.experiments.store import Store

store = Store(sys.argv[1])
for line in sys.stdin:
    word = line.strip()
    if word == "close":
        store.close()
    elif word == "count":
        print(len(store.frame()), flush=True)
        continue
    else:
        store.append(Experiment(label=word))
    print("done", flush=True)
"""


class Other:
    """A process with its own store on the file, that does as it is told."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", OTHER, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, word: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(word, file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        self.process.communicate()


@pytest.fixture
def others(path: Path) -> Iterator[tuple[Other, Other]]:
    path.parent.mkdir(parents=True, exist_ok=True)
    both = Other(path), Other(path)
    yield both
    for other in both:
        other.end()


def look(store: Store, path: Path) -> None:
    """Everything that looks at a file without reading its rows."""
    assert store.exists()
    assert Store(path).exists()
    assert sqlite.inspect_file(path, "the log")


def test_a_look_at_the_file_does_not_make_others_delete_the_log_that_is_in_use(
    path: Path, others: tuple[Other, Other]
) -> None:
    """Closing a plain descriptor of the file would drop this process's locks on it: another process that
    closes its connection would then delete the write-ahead log, and rows would be lost from there on."""
    first, second = others
    assert first.tell("a") == "done"
    store = Store(path)
    assert len(store.frame()) == 1
    look(store, path)
    assert first.tell("b") == "done"
    assert first.tell("close") == "done"
    assert path.with_name(path.name + "-wal").exists(), "deleted while it is in use here"
    assert second.tell("c") == "done"
    assert len(store.frame()) == 3
    look(store, path)
    store.append(Experiment(label="d"))
    look(store, path)
    assert first.tell("close") == second.tell("close") == "done"
    store.append(Experiment(label="e"))
    assert second.tell("f") == "done"
    store.append(Experiment(label="g"))
    assert first.tell("count") == second.tell("count") == "7"
    assert sorted(store.frame()["label"]) == ["a", "b", "c", "d", "e", "f", "g"]


def test_a_full_disk_loses_nothing_that_was_there(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append(FULL)
    with store._database.connect(write=True) as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")  # SQLite then reports a full disk
    with pytest.raises(LogError, match="the disk is full") as caught:
        store.append(Experiment(label="big", source="x" * 100_000))
    assert "\n" not in str(caught.value)
    assert list(store.frame()["label"]) == ["first version"]
    store.close()
    store.append(Experiment(label="later"))
    assert list(store.frame()["label"]) == ["first version", "later"]


def test_a_locked_log_says_so(store: Store, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.01)
    store.append(FULL)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    fresh = Store(path)
    with pytest.raises(LogError, match="locked by another program"):
        fresh.append(Experiment(label="x"))
    assert len(fresh.frame()) == 1
    other.execute("ROLLBACK")
    other.close()
    fresh.append(Experiment(label="x"))
    fresh.close()


def test_every_meaning_of_an_error_is_one_line() -> None:
    for text in ("database or disk is full", "disk I/O error", "something else\nand more", ""):
        error = sqlite.explain(sqlite3.OperationalError(text), "the.sqlite")
        assert "the.sqlite" in str(error)
        assert "\n" not in str(error)


# --- several at once -------------------------------------------------------------------------

APPENDER = """
import sys
from optbook.experiments.record import Experiment
from optbook.experiments.store import Store
store = Store(sys.argv[1])
for number in range(int(sys.argv[3])):
    experiment = Experiment(label=f"{sys.argv[2]}-{number}", source="x" * 2000)
    store.append(experiment)
    print(experiment.id, flush=True)
"""


def test_four_processes_append_at_once(path: Path) -> None:
    command = [sys.executable, "-c", APPENDER, str(path)]
    processes = [
        subprocess.Popen([*command, str(n), "25"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for n in range(4)
    ]
    results = [process.communicate() for process in processes]
    assert [errors for _, errors in results] == [""] * 4
    frame = Store(path).frame()
    assert len(frame) == 100
    assert set(frame["id"]) == {line for output, _ in results for line in output.split()}
    for n in range(4):
        mine = [label for label in frame["label"] if label.startswith(f"{n}-")]
        assert mine == [f"{n}-{number}" for number in range(25)]


def test_threads_share_a_store(store: Store) -> None:
    def append(name: int) -> None:
        for number in range(20):
            store.append(Experiment(label=f"{name}-{number}"))
            store.revision()

    threads = [threading.Thread(target=append, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(store.frame()["label"])) == 80


def test_a_forked_child_shares_a_store(store: Store) -> None:
    store.append(Experiment(label="parent"))
    store.frame()
    children = []
    for number in range(3):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                store.append(Experiment(label=f"child {number}"))
                code = 0 if "parent" in set(store.frame()["label"]) else 2
            finally:
                os._exit(code)
        children.append(child)
        store.append(Experiment(label=f"parent {number}"))
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    store.append(Experiment(label="after"))
    assert len(store.frame()) == 8
    assert len(Store(store.path or "").frame()) == 8


def test_a_killed_writer_loses_nothing_it_acknowledged(path: Path) -> None:
    for _ in range(2):
        command = [sys.executable, "-c", APPENDER, str(path), "k", "100000"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            seen = [process.stdout.readline() for _ in range(30)]
            process.send_signal(signal.SIGKILL)
            rest = process.stdout.read().splitlines()
        acknowledged = {line.strip() for line in seen} | {line for line in rest if len(line) == 32}
        store = Store(path)
        frame = store.frame()
        assert acknowledged <= set(frame["id"])
        assert all(len(store.get(id).source) == 2000 for id in frame["id"][-3:])
        store.append(Experiment(label="after"))
        assert _rows(path, "PRAGMA integrity_check") == [("ok",)]
        store.close()


# --- schema ----------------------------------------------------------------------------------


def test_steps_bring_an_older_log_up_to_date(store: Store, path: Path) -> None:
    store.append(FULL)
    store.close()
    taken: list[int] = []

    def step_1(connection: sa.Connection) -> None:
        taken.append(1)
        connection.exec_driver_sql("UPDATE experiments SET machine = 'unknown' WHERE machine = ''")

    def step_2(connection: sa.Connection) -> None:
        taken.append(2)
        connection.exec_driver_sql("CREATE TABLE more (a TEXT)")

    engine = sa.create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        schema.prepare(connection, "it", 3, {1: step_1, 2: step_2})
    with engine.begin() as connection:
        schema.prepare(connection, "it", 3, {1: step_1, 2: step_2})
        assert schema.version_of(connection, "it", 3) == 3
    engine.dispose()
    assert taken == [1, 2]
    assert _rows(path, "SELECT machine FROM experiments") == [("unknown",)]
    with pytest.raises(LogError, match="newer optbook"):
        Store(path).frame()


def test_there_is_a_step_from_every_older_version() -> None:
    assert set(schema.STEPS) == set(range(1, schema.VERSION))


def test_a_column_that_is_new_in_the_record_is_added(store: Store, path: Path) -> None:
    store.append(Experiment(label="old"))
    store.close()
    execute(
        path,
        "ALTER TABLE experiments DROP COLUMN runs",
        "ALTER TABLE experiments DROP COLUMN flags",
        "ALTER TABLE payloads DROP COLUMN waits",
    )
    old = Store(path)
    frame = old.frame()
    assert (frame["runs"][0], frame["flags"][0]) == (0, {})
    assert old.get(frame["id"][0]).waits == ()
    old.append(FULL)
    assert old.get(FULL.id) == FULL
    assert sorted(old.frame()["runs"]) == [0, 20]
    old.close()


def test_a_column_of_a_newer_record_is_ignored(store: Store, path: Path) -> None:
    store.append(FULL)
    execute(path, "ALTER TABLE experiments ADD COLUMN from_the_future TEXT")
    store.append(Experiment(label="x"))
    assert list(store.frame()) == [*kinds(), "note"]


def test_every_field_of_the_record_has_a_column_type() -> None:
    assert {*kinds(), *kinds(payload=True)} == set(Experiment.__dataclass_fields__)
