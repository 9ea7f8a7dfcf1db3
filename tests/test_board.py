"""`optbook board`: a room of logs, with empty, damaged and newer ones among them."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner, Result

from optbook import cli
from optbook.experiments.goal import Goal
from optbook.experiments.profiles import StoredProfile
from optbook.experiments.record import Experiment
from optbook.experiments.solved import Solved
from optbook.experiments.store import Store
from optbook.workshop.board import NOBODY, Standing, board
from optbook.workshop.exercises import exercises
from optbook.workshop.room import Room, RoomLog, read_room
from tests import postgresql
from tests.logs import frame_of, measured, store_at, story
from tests.postgresql import PASSWORD

TABLE = pd.DataFrame(
    {
        "component": ["load", "load"],
        "speedup": [math.inf, 1.0],
        "predicted_ratio": [4.0, 1.0],
        "low": [3.9, 1.0],
        "high": [4.1, 1.0],
        "alone_ratio": [math.nan, 1.0],
    }
)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.main, ["board", *arguments], prog_name="optbook")


def log_of(*experiments: Experiment, shared: bool = False, **more: object) -> RoomLog:
    return RoomLog(frame_of(*experiments), shared=shared, **more)  # type: ignore[arg-type]


def by_name(*logs: RoomLog) -> dict[str, Standing]:
    return {each.name: each for each in board(Room(logs), exercises()).standings}


def only(*logs: RoomLog) -> Standing:
    (found,) = board(Room(logs), exercises()).standings
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ann's and Ben's logs; and one that is empty, one damaged, one of a newer optbook."""
    room = tmp_path / "room"
    room.mkdir()
    store_at(
        room / "ann.sqlite",
        measured("a", 2.0, participant="ann", notebook="01_benchmark.ipynb"),
        measured("b", 6.0, participant="ann", notebook="03_simplify.ipynb"),
    )
    ben = (each.replace(participant="<script>", notebook="02_profile.ipynb") for each in story())
    store_at(room / "ben.sqlite", *ben)
    store = Store(room / "ben.sqlite")
    for name in ("00_guess", "00_guess", "02_suspect", "99_unheard_of"):
        store.solve(Solved.now(name, "<script>"))
    store.close()
    (room / "empty.sqlite").touch()
    (room / "damaged.sqlite").write_bytes((room / "ann.sqlite").read_bytes()[:5000])
    (room / "foreign.sqlite").write_text("a shopping list")
    store_at(room / "newer.sqlite", measured("a", 2.0))
    with sqlite3.connect(room / "newer.sqlite") as connection:
        connection.execute("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    connection.close()
    return room


# --- a folder -------------------------------------------------------------------------------


def test_a_folder_shows_who_is_where_and_tells_what_is_left_out(folder: Path) -> None:
    done = run(str(folder))
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert len(lines) == 7
    script, ann = lines[1:3]
    total = len(exercises())
    assert script.split() == f"<script> 02 Profile 2 of {total} 8 4.00× (batches) —".split()
    assert ann.startswith("ann ")
    assert "03 Simplify" in ann
    assert "3.00× (batches)" in ann
    names = ("damaged.sqlite", "empty.sqlite", "foreign.sqlite", "newer.sqlite")
    told = {name: line for name, line in zip(names, lines[3:], strict=True) if name in line}
    assert len(told) == 4
    assert "is empty: no experiment, no exercise yet" in told["empty.sqlite"]
    assert "was written by a newer optbook" in told["newer.sqlite"]
    assert "is damaged" in told["damaged.sqlite"]
    assert "is not a database" in told["foreign.sqlite"]


def test_no_speed_is_shown(folder: Path) -> None:
    shown = run(str(folder)).output
    assert "/s" not in shown.replace(str(folder), "")


def test_the_page_is_escaped_and_static(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "board.html"
    assert run(str(folder), "-o", str(page)).exit_code == 0
    written = page.read_text(encoding="utf-8")
    assert "&lt;script&gt;" in written
    assert "<script" not in written
    assert "newer optbook" in written
    again = run(str(folder), "-o", str(page))
    assert again.exit_code == 1
    assert "is there already" in again.output
    assert run(str(folder), "-o", str(page), "--force").exit_code == 0


def test_one_file_is_a_room_too(folder: Path) -> None:
    assert "ann" in run(str(folder / "ann.sqlite")).output


def test_logs_are_left_as_they_are(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.glob("*.sqlite")}
    run(str(folder))
    assert {path.name: path.read_bytes() for path in folder.glob("*.sqlite")} == before


def test_only_unreadable_logs(tmp_path: Path) -> None:
    (tmp_path / "foreign.sqlite").write_text("a shopping list")
    done = run(str(tmp_path / "foreign.sqlite"))
    assert done.output.splitlines()[0] == NOBODY
    assert NOBODY in board(read_room(str(tmp_path / "foreign.sqlite")), ())._repr_html_()


# --- bad input ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("nowhere", "there is no folder 'nowhere'"),
        (".", "no log in '.'"),
        ("nosuch+thing://ann:s3cret@host/name", "nosuch+thing://… is no URL"),
        ("postgresql:/ann:s3cret@host/name", "there is no folder '…@host/name'"),
        ("postgresql+psycopg://ann:s3cret@127.0.0.1:1/name", "ann:***@127.0.0.1:1/name"),
        ("postgresql+psycopg://ann@127.0.0.1:1/name?password=s3cret", "ann@127.0.0.1:1/name cannot"),
    ],
)
def test_bad_places_in_one_line(
    place: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(place)
    assert done.exit_code == 1
    assert told in done.output
    assert "s3cret" not in done.output
    assert len(done.output.splitlines()) == 1


# --- ratios and gaps ------------------------------------------------------------------------


def test_only_figures_of_one_machine_and_unit_are_held_together() -> None:
    found = only(
        log_of(
            measured("slow laptop", 1.0, machine="a", participant="ann"),
            measured("fast laptop", 100.0, machine="b", participant="ann"),
            measured("better", 2.0, machine="a", participant="ann"),
            Experiment(label="cell", throughput=9e9, machine="b", participant="ann"),
            Experiment(label="cell", throughput=1.0, machine="c", participant="ann"),
        )
    )
    assert (found.ratio, found.unit) == (2.0, "batch")


def test_only_real_figures_count() -> None:
    found = only(log_of(*story()))
    assert (found.ratio, found.experiments) == (4.0, 8)
    assert math.isnan(only(log_of(*story()[1:3])).ratio)


def test_the_gap_to_ones_own_goal() -> None:
    goal = Goal(unit="image", target=16 * 14.0)
    found = only(log_of(measured("a", 4.0), measured("b", 9.0), goals=(goal,)))
    assert (found.unit, found.aim) == ("image", "goal")
    assert found.closed == pytest.approx(0.5)
    met = only(log_of(measured("a", 4.0), goals=(Goal(unit="batch", target=3.0),)))
    assert met.closed == 1.0


def test_the_gap_to_ones_own_ceiling() -> None:
    first = measured("a", 4.0)
    ceilings = (StoredProfile.of(first, "ceiling", "", TABLE),)
    found = only(log_of(first, measured("b", 7.0), ceilings=ceilings))
    assert found.aim == "ceiling"
    assert found.closed == pytest.approx(0.25)


def test_in_a_shared_log_a_goal_is_nobodys_and_a_ceiling_is_whose_experiment_it_is() -> None:
    ann, ben = (measured("a", 4.0, participant=name) for name in ("ann", "ben"))
    ceilings = (StoredProfile.of(ann, "ceiling", "", TABLE),)
    goals = (Goal(unit="batch", target=8.0),)
    found = by_name(log_of(ann, ben, ceilings=ceilings, goals=goals))
    assert (found["ann"].aim, found["ben"].aim) == ("ceiling", "")


# --- who and where --------------------------------------------------------------------------


def test_where_is_the_latest_chapter_with_an_experiment_or_exercise() -> None:
    later = datetime(2026, 1, 2, tzinfo=UTC)
    at = measured("a", 4.0, notebook="03_simplify-Copy1.ipynb")
    own = measured("b", 4.0, notebook="mine.ipynb")
    log = log_of(at, own, solved=(Solved("1", later, "02_suspect", ""),))
    chapter = only(log).chapter
    assert chapter is not None
    assert chapter.name == "02_profile"
    earlier = (Solved("1", later - timedelta(days=9), "02_suspect", ""),)
    chapter = only(log_of(at, own, solved=earlier)).chapter
    assert chapter is not None
    assert chapter.name == "03_simplify"
    assert only(log_of(own)).chapter is None


def test_rows_without_a_nickname_are_those_of_the_one_whose_log_it_is() -> None:
    assert only(log_of(measured("a", 2.0), measured("b", 6.0, participant="ann"))).ratio == 3.0


def test_a_guest_has_a_pseudonym_that_is_the_same_on_any_machine() -> None:
    row = measured("a", 2.0, machine="desk")
    frame = frame_of(row)
    elsewhere = frame.assign(machine="lap")
    names = {only(RoomLog(each)).name for each in (frame, elsewhere)}
    assert len(names) == 1
    assert names.pop().startswith("guest ")
    text = str(board(Room((RoomLog(frame),)), exercises()))
    assert "OptBook.participant" in text
    assert "desk" not in text


def test_guests_of_a_shared_log_are_told_apart_by_their_machines() -> None:
    rows = [measured("a", 2.0, machine=name) for name in ("x", "y", "x")]
    log = log_of(*rows, shared=True, solved=(Solved.now("00_guess", ""),))
    found = board(Room((log,)), exercises())
    assert sorted(each.experiments for each in found.standings) == [1, 2]
    assert "1 solved without a nickname in a shared log: nobody knows by whom" in found.notes


def test_a_log_that_is_there_twice_counts_once() -> None:
    log = log_of(measured("a", 2.0), measured("b", 4.0), solved=(Solved.now("00_guess", ""),))
    found = only(log, log)
    assert (found.experiments, found.solved, found.ratio) == (2, 1, 2.0)


def test_one_nickname_in_two_logs_is_one_participant() -> None:
    logs = [log_of(measured("a", value, participant=" ann\n")) for value in (2.0, 4.0)]
    assert only(*logs).experiments == 2


# --- rank -----------------------------------------------------------------------------------


def test_only_rank_ranks() -> None:
    def pair(name: str, gain: float) -> tuple[Experiment, ...]:
        return tuple(measured("a", value, participant=name, machine=name) for value in (2.0, 2.0 * gain))

    rows = [*pair("ann", 2.0), *pair("ben", 5.0), *pair("cy", 5.0), *pair("dee", 1.5)]
    rows.append(Experiment(label="a", participant="abe", status="failed"))
    room = Room((log_of(*rows),))
    plain, ranked = (board(room, exercises(), rank=rank) for rank in (False, True))
    assert [each.name for each in plain.standings] == ["abe", "ann", "ben", "cy", "dee"]
    lines = str(ranked).splitlines()[1:]
    assert [line.split()[:2] for line in lines[:4]] == [
        ["1.", "ben"],
        ["1.", "cy"],
        ["3.", "ann"],
        ["4.", "dee"],
    ]
    assert lines[4].split()[0] == "abe"
    assert "1." not in str(plain).splitlines()[1]


# --- a server -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[postgresql.Server]:
    with postgresql.server() as found:
        yield found


def test_a_shared_log(server: postgresql.Server) -> None:
    store = Store(server.url)
    for name, last in (("ann", 6.0), ("<script>", 4.0)):
        for value in (2.0, last):
            store.append(measured("a", value, participant=name, notebook="04_computation.ipynb"))
    store.solve(Solved.now("04_cells", "ann"))
    store.close()
    done = run(server.url, "--rank")
    assert done.exit_code == 0, done.output
    first, second = done.output.splitlines()[1:]
    assert first.startswith("1.  ann")
    assert "04 Compute" in first
    assert f"1 of {len(exercises())}" in first
    assert "3.00×" in first
    assert second.startswith("2.  <script>")
    wrong = run(server.url.replace(PASSWORD, "wrong-S3cret"))
    assert wrong.exit_code == 1
    assert "S3cret" not in wrong.output
    assert len(wrong.output.splitlines()) == 1
