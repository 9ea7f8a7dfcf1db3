"""``%compare a b`` after names were redefined: each cell runs with the bindings it had."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import optbook
from optbook.experiments import log
from optbook.experiments.record import Experiment
from tests.test_magics import Run, run, shell

pytestmark = pytest.mark.usefixtures("collected_heap")

__all__ = ["run", "shell"]

SLOW = "import time\ndef augment(): time.sleep(0.004)"
FAST = "def augment(): time.sleep(0.001)"


def test_a_redefined_function_is_compared_with_the_old_one(run: Run) -> None:
    run(SLOW)
    run("%%bench old -q --runs 3\naugment()")
    run(FAST)
    run("%%bench new -q --runs 3\naugment()")
    c = run("%compare old new --budget 0.5").result
    assert c.verdict == "faster"
    assert c.ratio > 1.5
    assert "new is faster than old" in optbook.log().iloc[-1]["note"]
    assert run("%compare new old --budget 0.5").result.verdict == "slower"


def test_also_where_another_function_of_the_notebook_calls_it(run: Run) -> None:
    run(SLOW + "\ndef step(): augment()\nargs = (1, 2)")
    run("%%bench old -q --runs 3\nstep()")
    run(FAST)
    run("%%bench new -q --runs 3\nstep()")
    assert run("%compare old new --budget 0.5").result.verdict == "faster"


def test_what_runs_again_leaves_the_notebooks_variables_alone(run: Run, shell: object) -> None:
    run("x = 1")
    run("%%bench a -q --runs 3\nx = 2")
    run("%%bench b -q --runs 3\nx = 3")
    run("x = 'mine'")
    assert run("%compare a b --budget 0.05 -q").success
    assert run("x").result == "mine"


@pytest.mark.parametrize(
    ("before", "cell", "after", "message"),
    [
        ("data = [1, 2]", "sum(data)", "data.append(3)", "data changed in place since"),
        ("data = {'a': [1]}", "data['a']", "data['a'].append(3)", "data changed in place since"),
        ("import numpy as np\ndata = np.zeros(4)", "data.sum()", "data += 1", "data changed in place since"),
        (
            "import torch\nm = torch.nn.Linear(2, 2)",
            "m(torch.zeros(1, 2))",
            "torch.nn.init.zeros_(m.weight)",
            "m changed in place since",
        ),
        (
            "def inner(): return 1\nclass A:\n    def go(self): return inner()\na = A()",
            "a.go()",
            "def inner(): return 2",
            "inner has a new value and is used in a class or a decorated function",
        ),
        (
            "import functools\ndef deco(f):\n    @functools.wraps(f)\n    def w(): return f()\n    return w\n"
            "def inner(): return 1\n@deco\ndef f(): return inner()",
            "f()",
            "def inner(): return 2",
            "inner has a new value",
        ),
    ],
)
def test_what_cannot_be_brought_back_is_named(
    run: Run, capsys: pytest.CaptureFixture[str], before: str, cell: str, after: str, message: str
) -> None:
    run(before)
    assert run(f"%%bench old -q --runs 3\n{cell}").success
    run(after)
    assert run("%%bench new -q --runs 3\n1 + 1").success
    assert not run("%compare old new --budget 0.05").success
    assert message in capsys.readouterr().err


def test_what_a_cell_itself_changes_is_no_obstacle(run: Run) -> None:
    run("log = []")
    run("%%bench a -q --runs 3\nlog.append(1)")
    run("log = []")
    run("%%bench b -q --runs 3\nlog.append(2)")
    assert run("%compare a b --budget 0.05 -q").success
    assert run("%compare a b --budget 0.05 -q").success


def test_tracked_cells_are_compared_by_their_steps(run: Run) -> None:
    run("import time\nfrom optbook import track")
    run("%%bench a -q --steps 5\nfor _ in track(range(99)): time.sleep(0.004)")
    run("%%bench b -q --steps 5\nfor _ in track(range(99)): time.sleep(0.001)")
    c = run("%compare a b --budget 0.5").result
    assert c.verdict == "faster"
    assert c.seconds[0] >= 0.004


def measured_elsewhere(label: str, seconds: float, machine: str = "m") -> None:
    rng = random.Random(label)
    times = tuple(seconds * rng.lognormvariate(0, 0.02) for _ in range(30))
    log.record(Experiment(label=label, seconds=seconds, throughput=1 / seconds, times=times, machine=machine))


def test_experiments_of_other_kernels_are_compared_by_stored_times(run: Run) -> None:
    measured_elsewhere("theirs", 0.3)
    measured_elsewhere("ours", 0.1)
    measured_elsewhere("the same", 0.3)
    c = run("%compare theirs ours").result
    assert c.verdict == "faster"
    assert c.ratio == pytest.approx(3, rel=0.05)
    assert "were not run in turn" in c.warnings[0]
    assert run("%compare theirs 'the same'").result.verdict.startswith("no difference seen")


def test_other_machines_are_compared_only_when_forced(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    measured_elsewhere("here", 0.3)
    measured_elsewhere("there", 0.1, machine="other")
    assert not run("%compare here there").success
    assert "from different machines: give --force" in capsys.readouterr().err
    assert "they are from different machines" in run("%compare here there --force").result.warnings


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%compare mine mime", "no experiment 'mime': did you mean 'mine'?"),
        ("%compare mine broken", "'broken' failed: ZeroDivisionError: division by zero; measure it again"),
        ("%compare mine", "%compare takes two labels"),
        ("%compare mine few --stored", "'few' has only 2 times"),
        ("%compare mine mine --budget 0", "budget is 0"),
        ("%%compare a b\nx = 1", "found 0 lines '---'"),
        ("%%compare a b\n---\nx = 1\n---\n", "found 2 lines '---'"),
        ("%%compare a b c\nx = 1\n---\nx = 2", "got 3 labels"),
        ("%%compare\n\n---\nx = 1", "the cell is empty"),
    ],
)
def test_bad_comparisons_give_one_line(
    run: Run, capsys: pytest.CaptureFixture[str], line: str, message: str
) -> None:
    run("%%bench mine -q --runs 12\nx = 1")
    run("%%bench few -q --runs 3\nx = 1")
    run("%%bench broken\n1 / 0")
    capsys.readouterr()
    assert not run(line).success
    err = capsys.readouterr().err.strip()
    assert message in err
    assert "\n" not in err


def test_a_cell_against_itself(run: Run) -> None:
    run("%%bench mine -q --runs 12\nsum(range(5000))")
    c = run("%compare mine mine --budget 0.3").result
    assert c.labels == ("mine", "mine")
    assert c.pairs >= 8
    assert c.low <= c.ratio <= c.high


def test_a_verdict_that_cannot_be_noted_is_shown_all_the_same(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("%%bench mine -q --runs 12\nsum(range(5000))")
    monkeypatch.setenv("OPTBOOK_LOG", str(tmp_path))
    c = run("%compare mine mine --budget 0.3").result
    assert c.warnings[-1].startswith("the verdict is not in the log: ")


def test_two_bodies_in_one_cell(run: Run, shell: object) -> None:
    run("import time\nready = 0")
    c = run(
        "%%compare old new --budget 0.5 --setup 'ready = 1' -o kept\n"
        "assert ready\ntime.sleep(0.004)\n---\nassert ready\ntime.sleep(0.001)"
    ).result
    assert c.verdict == "faster"
    assert c.labels == ("old", "new")
    assert run("kept").result is c


def test_a_body_that_raises_reaches_ipython_with_its_line(run: Run) -> None:
    import traceback

    result = run("%%compare\nx = 1\n---\ny = 2\nraise KeyError('k')")
    assert isinstance(result.error_in_exec, KeyError)
    assert traceback.extract_tb(result.error_in_exec.__traceback__)[-1].lineno == 5
