"""Comparisons in fresh interpreters."""

from __future__ import annotations

import functools
import subprocess
import time

import pytest

import optbook
from optbook.errors import OptionError
from optbook.optimize import isolate
from optbook.optimize.isolate import IsolatedError, Task, compare_isolated, importable
from tests.test_magics import Run, run, shell

__all__ = ["run", "shell"]

SETUP = "import time"
SLOW, FAST = "time.sleep(0.024)", "time.sleep(0.008)"  # so long that a late wake-up is little of it


def test_bodies_run_in_fresh_interpreters_and_the_ratio_is_found() -> None:
    c = compare_isolated(Task(SLOW, SETUP), Task(FAST, SETUP), ("old", "new"), budget=1.0, pairs=8, seed=1)
    assert c.verdict == "faster"
    assert 2 < c.ratio < 3.5
    assert (c.pairs, c.labels) == (8, ("old", "new"))


def test_nothing_of_this_process_is_seen_and_nothing_is_left_running() -> None:
    task = Task("assert 'pytest' not in sys.modules; print('x' * 100000)", "import sys, os")
    with isolate._Process(task) as process:
        assert process.sample(3).seconds > 0
        pid = process._process.pid
    assert subprocess.run(["kill", "-0", str(pid)], capture_output=True).returncode != 0


def test_importable_functions_are_called() -> None:
    assert importable(time.time) == Task(callable="time:time")
    c = optbook.compare(time.time, time.perf_counter, isolate=True, budget=0.2, seed=2)
    assert c.labels == ("time", "perf_counter")


@pytest.mark.parametrize("function", [lambda: None, functools.partial(print)])
def test_what_cannot_be_imported_is_refused(function: object) -> None:
    with pytest.raises(OptionError, match="can't be imported by a fresh interpreter"):
        importable(function)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (Task("1 / 0"), "ZeroDivisionError: division by zero"),
        (Task("pass", "import no_such_module_here"), "ModuleNotFoundError"),
        (Task("import os; os._exit(3)"), "ended with code 3"),
        (Task(callable="time:no_such_name"), "AttributeError"),
        (Task("x = ("), "SyntaxError"),
    ],
)
def test_what_goes_wrong_there_is_told_here(task: Task, message: str) -> None:
    with pytest.raises(IsolatedError, match=message):
        compare_isolated(task, Task("pass"), ("a", "b"), budget=0.1)


def test_too_few_pairs_are_refused() -> None:
    with pytest.raises(OptionError, match="give 8 at least"):
        compare_isolated(Task("pass"), Task("pass"), ("a", "b"), pairs=3)


def test_options_without_meaning_are_refused() -> None:
    with pytest.raises(OptionError, match="have no meaning with isolate"):
        optbook.compare(time.time, time.time, isolate=True, steps=3)


def test_the_magic_gives_each_interpreter_the_setup_cell(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolate, "PROCESS_PAIRS", 8)
    assert run("%%setup tools\nimport time\n%precision 3").success
    result = run(f"%%compare old new --isolate --setup tools --budget 0.5\n{SLOW}\n---\n{FAST}")
    assert not result.success  # a magic has no meaning in a plain interpreter
    assert run("%%setup tools\nimport time").success
    c = run(f"%%compare old new --isolate --setup tools --budget 0.5\n{SLOW}\n---\n{FAST}").result
    assert c.verdict == "faster"
    assert not run("%compare old new --isolate").success
