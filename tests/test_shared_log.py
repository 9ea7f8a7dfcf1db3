"""One log for a room: a real PostgreSQL server, also while it is away."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

import optbook
from optbook import cli
from optbook.experiments import log as module
from optbook.experiments.errors import AwayError, LogError
from optbook.experiments.log import Log
from optbook.experiments.profiles import StoredProfile
from optbook.experiments.record import Experiment
from optbook.experiments.solved import Solved
from optbook.experiments.store import Store
from tests import postgresql
from tests.postgresql import PASSWORD, Server

WRITE = """
import sys
from optbook.experiments import log
from optbook.experiments.record import Experiment
for i in range(int(sys.argv[2])):
    told = log.record(Experiment(label=f"{sys.argv[1]}-{i}"))
    assert not told, told
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgresql.server() as found:
        yield found


@pytest.fixture
def room(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    """The log of this process in a fresh database of the server, with a folder of its own to fall back on."""
    import sqlalchemy as sa

    admin = sa.create_engine(server.url, isolation_level="AUTOCOMMIT")
    name = f"room_{time.time_ns()}"
    with admin.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    admin.dispose()
    monkeypatch.setenv("OPTBOOK_LOG", server.url.replace("/postgres", f"/{name}"))
    monkeypatch.chdir(tmp_path)
    fresh = Log()
    monkeypatch.setattr(module, "_SESSION", fresh)
    yield fresh
    fresh.close()


@pytest.fixture
def away(room: Log, server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """The server stops; whoever wants it back starts it."""
    module.record(Experiment(label="before"))
    room.close()
    server.stop()
    yield server
    if server.is_down:
        server.start()


def write(processes: int, rows: int) -> None:
    """So many processes at once record so many experiments each."""
    command = [sys.executable, "-c", WRITE]
    running = [subprocess.Popen([*command, f"p{i}", str(rows)]) for i in range(processes)]
    assert [process.wait() for process in running] == [0] * processes


def test_what_is_recorded_comes_back_as_it_was(room: Log) -> None:
    experiment = Experiment(
        label="<b>ä\x00\ud800", units={"batch": 12.5}, times=(0.1, 0.2), seconds=0.1, status="ok"
    )
    assert module.record(experiment) == ""
    stored = room.get(experiment.id)
    assert (stored.units, stored.times, stored.seconds) == (experiment.units, (0.1, 0.2), 0.1)
    assert list(optbook.log()["label"]) == [stored.label]
    module.add_note(experiment.id, "a note")
    module.hide(experiment.id)
    assert len(optbook.log()) == 0
    assert list(optbook.log(hidden=True)["note"]) == ["a note"]


def test_profiles_and_solved_exercises(room: Log) -> None:
    experiment = Experiment(label="a")
    module.record(experiment)
    room.keep(StoredProfile(experiment.id, "a", "calls", datetime.now(UTC), "text", "[]"))
    assert room.solve(Solved.now("04_mine", "<script>")) == ""
    assert [profile.text for profile in room.profiles()] == ["text"]
    assert list(module.solved()["participant"]) == ["<script>"]


def test_many_processes_create_the_tables_once_and_lose_nothing(room: Log) -> None:
    write(processes=6, rows=10)
    labels = list(optbook.log()["label"])
    assert len(labels) == len(set(labels)) == 60


def test_while_it_is_away_rows_go_to_the_local_file_and_are_merged_once(away: Server, tmp_path: Path) -> None:
    told = module.record(Experiment(label="meanwhile"))
    local = tmp_path / "experiments.sqlite"
    assert told.startswith(f"kept in {local}, as the log's server is away")
    assert f'optbook log merge "{local}"' in told
    assert PASSWORD not in told
    with pytest.warns(UserWarning, match="only what is in"):
        assert list(optbook.log()["label"]) == ["meanwhile"]
    away.start()
    for said in ("1 experiment added", "0 experiments added; 1 experiment known already"):
        done = CliRunner().invoke(cli.main, ["log", "merge", str(local)])
        assert done.exit_code == 0, done.output
        assert said in done.output
        assert PASSWORD not in done.output
    assert list(optbook.log()["label"]) == ["before", "meanwhile"]


def test_it_is_not_asked_again_at_once(away: Server, room: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    module.record(Experiment(label="a"))

    def asked(*_: object) -> None:
        raise AssertionError("the server was asked")

    monkeypatch.setattr(room.store, "append", asked)
    assert "did not answer a moment ago" in module.record(Experiment(label="b"))
    monkeypatch.undo()
    room._away_until = 0.0


def test_it_is_asked_again_after_a_while(away: Server, room: Log) -> None:
    assert module.record(Experiment(label="a"))
    away.start()
    room._away_until = time.monotonic()
    assert module.record(Experiment(label="b")) == ""
    assert list(optbook.log()["label"]) == ["before", "b"]


def test_a_server_that_restarts_between_two_rows_loses_none(room: Log, server: Server) -> None:
    module.record(Experiment(label="a"))
    server.stop()
    server.start()
    assert module.record(Experiment(label="b")) == ""
    assert list(optbook.log()["label"]) == ["a", "b"]


@pytest.mark.parametrize(
    "change",
    [
        (PASSWORD, "wrong-S3cret"),
        ("127.0.0.1", "host.invalid"),
        ("/room_", "/no_such_room_"),
        ("optbook:", "nobody:"),
    ],
)
def test_no_error_shows_a_password(room: Log, change: tuple[str, str]) -> None:
    url = os.environ["OPTBOOK_LOG"].replace(*change)
    store = Store(url)
    secret = "wrong-S3cret" if change[0] == PASSWORD else PASSWORD
    assert secret not in repr(store)
    with pytest.raises(AwayError) as caught:
        store.frame()
    told = "".join(traceback.format_exception(caught.value))
    assert secret not in told
    assert len(str(caught.value).splitlines()) == 1


def test_a_driver_that_is_missing_is_named(room: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(LogError, match=r'pip install "optbook\[postgresql\]"'):
        Store(os.environ["OPTBOOK_LOG"]).frame()


def test_a_measurement_goes_to_the_server(room: Log) -> None:
    optbook.bench(lambda: sum(range(1000)), "measured", budget=0.05)
    assert list(Store(os.environ["OPTBOOK_LOG"]).frame()["label"]) == ["measured"]
