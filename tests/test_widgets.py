"""The live view."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from optbook.errors import OptbookError
from optbook.experiments.log import Log
from optbook.experiments.record import Experiment
from optbook.repeat import widgets
from optbook.repeat.widgets import Dashboard, dashboard
from tests.logs import measured, store_at, story


@pytest.fixture
def log(log_path: Path) -> Iterator[Log]:
    store_at(log_path, *story())
    log = Log()
    yield log
    log.close()


def test_it_shows_the_log_and_the_plot(log: Log) -> None:
    board = Dashboard(log)
    assert "8 of 8 experiments" in board.status.value
    assert "first version" in board.table.value
    assert "<svg" in board.plot.value
    assert not board.following
    board.widget.close()


def test_the_filter_filters_table_and_plot(log: Log) -> None:
    board = Dashboard(log)
    board.filter.value = "WORKERS"
    assert "2 of 8 experiments" in board.status.value
    assert "first version" not in board.table.value + board.plot.value
    assert "two workers" in board.table.value
    board.filter.value = "nothing is called so"
    assert "0 of 8 experiments" in board.status.value
    assert board.table.value == ""
    assert "No experiments" in board.plot.value
    board.filter.value = ""
    assert "first version" in board.table.value
    board.widget.close()


def test_the_unit_changes_the_plot(log: Log) -> None:
    board = Dashboard(log)
    assert [name for name, _ in board.unit.options] == ["latest", "batch", "image", "run"]
    assert board.unit.index == 0
    assert "batches/s" in board.plot.value
    board.unit.value = "image"
    assert "images/s" in board.plot.value
    board.widget.close()


def test_a_unit_that_the_chosen_experiments_lack_is_named(log: Log) -> None:
    log.record(Experiment(label="tokens", unit="token", throughput=3.0, units={"token": 3.0}))
    board = Dashboard(log)
    board.unit.value = "token"
    board.filter.value = "first"
    assert "no experiment counts the unit" in board.plot.value
    board.widget.close()


def test_controls_have_a_description(log: Log) -> None:
    board = Dashboard(log)
    assert board.filter.description == "Label"
    assert board.unit.description == "Unit"
    board.widget.close()


OTHER_NOTEBOOK = """
import sys
from pathlib import Path
from tests.logs import measured, store_at
store_at(Path(sys.argv[1]), measured("from elsewhere", 20.0))
"""


def test_it_follows_what_another_process_records_until_it_is_closed(
    log: Log, log_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(widgets, "PERIOD", 0.01)

    async def until(words: str, board: Dashboard) -> None:
        while words not in board.table.value:
            await asyncio.sleep(0.01)

    async def session() -> None:
        box = dashboard(log)
        board: Dashboard = box.board
        assert board.following
        board.filter.value = "e"
        subprocess.run([sys.executable, "-c", OTHER_NOTEBOOK, str(log_path)], check=True)
        await asyncio.wait_for(until("from elsewhere", board), 30)
        assert board.filter.value == "e"
        box.close()
        await asyncio.sleep(0)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert all(task.done() or task.cancelling() for task in others)

    asyncio.run(session())


def test_it_reads_the_log_only_when_something_was_added(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    board = Dashboard(log)
    reads: list[bool] = []

    def frame() -> pd.DataFrame:
        reads.append(True)
        return Log.frame(log)

    monkeypatch.setattr(log, "frame", frame)
    board.refresh()
    assert reads == []
    log.record(measured("new", 3.0))
    board.refresh()
    board.refresh()
    assert reads == [True]
    assert "9 of 9" in board.status.value
    board.widget.close()


def test_a_unit_that_is_chosen_stays_when_others_come(log: Log) -> None:
    board = Dashboard(log)
    board.unit.value = "image"
    log.record(Experiment(label="t", unit="token", throughput=3.0))
    board.refresh()
    assert board.unit.value == "image"
    assert "token" in [name for name, _ in board.unit.options]
    board.widget.close()


def test_a_log_that_cannot_be_read_is_named_and_comes_back(log: Log, log_path: Path) -> None:
    board = Dashboard(log)
    log.close()
    content = log_path.read_bytes()
    log_path.write_bytes(b"not a database" * 100)
    board.refresh()
    assert "is not a database" in board.status.value
    board.filter.value = "first"
    log_path.write_bytes(content)
    board.refresh()
    assert "1 of 8 experiments" in board.status.value
    board.widget.close()


def test_labels_are_escaped(log: Log) -> None:
    log.record(measured("<img src=x onerror=alert(1)>", 3.0))
    board = Dashboard(log)
    assert "<img" not in board.table.value + board.plot.value
    board.filter.value = "<img"
    assert "1 of 9" in board.status.value
    board.widget.close()


def test_without_ipywidgets_the_error_names_the_extra(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    with pytest.raises(OptbookError, match=r"optbook\[workbook\]") as caught:
        dashboard(log)
    assert "\n" not in str(caught.value)
