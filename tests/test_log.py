"""The session's log: nothing is lost when the store cannot be reached."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import optbook
from optbook.errors import OptbookError
from optbook.experiments import log as module
from optbook.experiments.errors import LogError
from optbook.experiments.log import Log
from optbook.experiments.record import Experiment
from optbook.experiments.store import Store


@pytest.fixture(autouse=True)
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    fresh = Log()
    monkeypatch.setattr(module, "_SESSION", fresh)
    yield fresh
    fresh.close()


@pytest.fixture
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The log is a folder: nothing can be stored."""
    folder = tmp_path / "away"
    folder.mkdir()
    monkeypatch.setenv("OPTBOOK_LOG", str(folder))
    return folder


def test_what_is_recorded_is_in_the_log_and_on_disk(log_path: Path) -> None:
    assert module.record(Experiment(label="a")) == ""
    assert list(optbook.log()["label"]) == ["a"]
    assert list(Store(log_path).frame()["label"]) == ["a"]


def test_an_empty_log_is_an_empty_frame(log_path: Path) -> None:
    assert len(optbook.log()) == 0
    assert not log_path.exists()


def test_every_column_is_documented() -> None:
    module.record(Experiment(label="a"))
    docs = module.column_docs()
    assert list(docs) == list(optbook.log())
    assert all(docs.values())


def test_what_cannot_be_stored_waits_and_is_shown(session: Log, away: Path) -> None:
    first = module.record(Experiment(label="a"))
    second = module.record(Experiment(label="b"))
    assert "not in the log yet, it waits in memory" in first
    assert "2 experiments wait" in second
    assert "is a folder" in second
    assert "\n" not in first + second
    with pytest.warns(UserWarning, match="only what waits"):
        frame = optbook.log()
    assert list(frame["label"]) == ["a", "b"]
    assert set(frame["note"]) == {"not in the log yet"}
    with pytest.warns(UserWarning, match="only what waits"):
        assert list(optbook.log(hidden=True)["hidden"]) == [False, False]
    assert list(away.iterdir()) == []


def test_what_waits_is_delivered_first(
    session: Log, away: Path, log_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = Experiment(label="a")
    module.record(waiting)
    monkeypatch.setenv("OPTBOOK_LOG", str(log_path))
    assert list(optbook.log()["note"]) == ["not in the log yet"]
    assert session.latest("a") == waiting
    assert session.latest("a", "failed") is None
    assert module.record(Experiment(label="b")) == ""
    frame = optbook.log()
    assert list(frame["label"]) == ["a", "b"]
    assert list(frame["note"]) == ["", ""]
    assert session.pending == ()
    assert session.latest("a") == waiting


def test_what_was_stored_although_interrupted_is_not_stored_twice(session: Log, log_path: Path) -> None:
    experiment = Experiment(label="a")
    Store(log_path).append(experiment)
    assert module.record(experiment) == ""
    assert len(optbook.log()) == 1


def test_a_log_that_cannot_be_read_is_an_error(away: Path) -> None:
    with pytest.raises(LogError, match="is a folder"):
        optbook.log()
    with pytest.raises(OptbookError):
        module.add_note("x", "y")


def test_an_empty_variable_keeps_the_experiment(session: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTBOOK_LOG", "")
    assert "is set, but empty" in module.record(Experiment(label="a"))
    assert len(session.pending) == 1


def test_notes_and_hidden_rows() -> None:
    module.record(Experiment(label="a"))
    module.record(Experiment(label="b"))
    id = optbook.log()["id"][0]
    module.add_note(id, "cold machine")
    assert list(optbook.log()["note"]) == ["cold machine", ""]
    module.hide(id)
    assert list(optbook.log()["label"]) == ["b"]
    module.hide(id, hidden=False)
    assert list(optbook.log()["label"]) == ["a", "b"]


def test_a_forked_child_does_not_deliver_what_its_parent_will(
    session: Log, away: Path, log_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module.record(Experiment(label="parent"))
    monkeypatch.setenv("OPTBOOK_LOG", str(log_path))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if session.pending == () and module.record(Experiment(label="child")) == "" else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert module.record(Experiment(label="later")) == ""
    assert sorted(optbook.log()["label"]) == ["child", "later", "parent"]


AT_EXIT = """
import os, sys
from optbook.experiments.log import record
from optbook.experiments.record import Experiment
os.environ["OPTBOOK_LOG"] = sys.argv[1]
record(Experiment(label="a"))
record(Experiment(label="b"))
os.environ["OPTBOOK_LOG"] = sys.argv[2]
"""


def test_what_waits_is_delivered_when_the_process_ends(away: Path, log_path: Path) -> None:
    def end_with(place: Path) -> str:
        command = [sys.executable, "-c", AT_EXIT, str(away), str(place)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stderr

    assert end_with(log_path) == ""
    assert list(Store(log_path).frame()["label"]) == ["a", "b"]
    lost = end_with(away)
    assert "2 experiments" in lost
    assert lost.count("\n") == 1


def test_importing_the_log_imports_nothing_heavy() -> None:
    code = (
        "import sys, optbook.experiments.log\n"
        "assert not {'pandas', 'sqlalchemy', 'torch', 'matplotlib', 'ipywidgets'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
