"""`optbook.bench` as a script uses it: measured, recorded, returned."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import optbook
from optbook.benchmark.bench import bench
from optbook.errors import OptionError
from optbook.experiments.log import session
from optbook.settings import OptBook
from tests.fakes import FakeClock

pytestmark = pytest.mark.usefixtures("collected_heap")


@pytest.fixture
def fake() -> FakeClock:
    return FakeClock()


def spend(fake: FakeClock, seconds: float = 0.5) -> Callable[[], None]:
    return lambda: fake.spend(seconds)


def test_what_is_returned_is_what_is_in_the_log(fake: FakeClock) -> None:
    e = bench(
        spend(fake), "half a second", units={"batch": 4}, metrics={"acc": lambda: 0.9}, clock=fake.clock
    )
    assert (e.throughput, e.seconds, e.runs, e.warmup, e.executions) == (8.0, 0.5, 10, 1, 11)
    (row,) = optbook.log().to_dict("records")
    assert (row["id"], row["label"], row["unit"]) == (e.id, "half a second", "batch")
    assert row["throughput"] == e.throughput
    assert row["metrics"] == {"acc": 0.9}
    stored = session().latest("half a second")
    assert stored == e
    assert stored is not None
    assert stored.times == (0.5,) * 10


def test_the_label_is_the_functions_name_if_none_is_given(fake: FakeClock) -> None:
    def augment() -> None:
        fake.spend(1)

    assert bench(augment, clock=fake.clock).label == "augment"
    with pytest.raises(OptionError, match="label is empty"):
        bench(augment, " ", clock=fake.clock)


def test_a_coroutine_function_is_awaited_and_a_generator_function_refused() -> None:
    import asyncio

    async def wait() -> None:
        await asyncio.sleep(0.01)

    def generate() -> Iterator[int]:
        yield 1

    assert (bench(wait, runs=3).seconds or 0) >= 0.01
    with pytest.raises(OptionError, match="generate is a generator function"):
        bench(generate)


@pytest.mark.parametrize("what", [3, None, "code"])
def test_only_functions_can_be_measured(what: object) -> None:
    with pytest.raises(OptionError, match="give a function that takes no arguments"):
        bench(what)  # type: ignore[arg-type]


@pytest.mark.parametrize("amount", [0, -1, float("nan"), float("inf"), "3", None, True, [1], 1 + 2j])
def test_units_must_be_numbers_above_zero(amount: object, fake: FakeClock) -> None:
    calls: list[int] = []
    with pytest.raises(OptionError, match=r"'batch' is .*: give a number"):
        bench(lambda: calls.append(1), units={"batch": amount}, clock=fake.clock)  # type: ignore[dict-item]
    assert not calls
    with pytest.raises(OptionError, match=r"'batch' is .*: give a number"):
        bench(spend(fake), units={"batch": lambda: amount}, clock=fake.clock)  # type: ignore[dict-item,return-value]
    assert optbook.log().iloc[-1].status == "failed"


def test_tensors_of_one_element_count_as_numbers(fake: FakeClock) -> None:
    import torch

    units: Any = {"sample": torch.tensor(6)}
    metrics: Any = {"loss": torch.tensor([-2.5])}
    e = bench(spend(fake), units=units, metrics=metrics, clock=fake.clock)
    assert e.throughput == 12
    assert e.metrics == {"loss": -2.5}


def test_a_failed_experiment_is_recorded_and_the_error_passed_on(fake: FakeClock) -> None:
    def run() -> None:
        fake.spend(1)
        if fake.time > 4:
            raise RuntimeError("<b>bad</b>")

    with pytest.raises(RuntimeError, match="bad"):
        bench(run, "breaks", clock=fake.clock)
    row = optbook.log().iloc[-1]
    assert (row.status, row.error, row.runs) == ("failed", "RuntimeError: <b>bad</b>", 3)
    stored = session().latest("breaks")
    assert stored is not None
    assert "<b>" not in stored._repr_html_()


def test_source_is_kept_unless_switched_off(fake: FakeClock) -> None:
    assert bench(spend(fake), source="x = 1", clock=fake.clock).source == "x = 1"
    OptBook.instance().store_source = False
    assert bench(spend(fake), source="x = 1", clock=fake.clock).source == ""


@pytest.mark.parametrize("kind", ["directory", "text", "foreign"])
def test_a_log_that_cannot_be_used_loses_nothing(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake: FakeClock
) -> None:
    bad = tmp_path / "bad"
    if kind == "directory":
        bad.mkdir()
    elif kind == "text":
        bad.write_text("my thesis")
    else:
        import sqlite3

        with sqlite3.connect(bad) as connection:
            connection.execute("create table customers (name text)")
    before = None if kind == "directory" else bad.read_bytes()
    monkeypatch.setenv("OPTBOOK_LOG", str(bad))
    e = bench(spend(fake), "waits", clock=fake.clock)
    assert e.seconds == 0.5
    assert e.warnings[-1].startswith("not in the log yet, it waits in memory")
    assert before is None or bad.read_bytes() == before
    monkeypatch.setenv("OPTBOOK_LOG", str(tmp_path / "deep" / "er" / "good.sqlite"))
    bench(spend(fake), "next", clock=fake.clock)
    assert optbook.log()["label"].tolist() == ["waits", "next"]


SCRIPT = """
import json, sys, optbook
e = optbook.bench(lambda: sum(range(10_000)), "from a script", runs=20, units={"batch": 2})
heavy = [m for m in ("torch", "matplotlib", "ipywidgets", "IPython.core") if m in sys.modules]
print(json.dumps({"throughput": e.throughput, "heavy": heavy, "text": str(e)}))
"""


def test_a_plain_script_writes_to_the_same_log(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    said = json.loads(done.stdout)
    row = optbook.log().iloc[-1]
    assert (row.label, row.notebook, row.unit) == ("from a script", "train.py", "batch")
    assert row.throughput == said["throughput"]
    assert said["heavy"] == []
    assert "from a script" in said["text"]
    assert done.stderr == ""
