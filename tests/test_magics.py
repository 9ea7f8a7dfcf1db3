"""The magics in a real IPython shell: given a notebook, when a cell runs, then this is seen."""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import optbook
from tests.shells import shell_with_optbook

pytestmark = pytest.mark.usefixtures("collected_heap")

Run = Callable[[str], Any]  # IPython leaves its results untyped


@pytest.fixture
def shell() -> Iterator[Any]:
    with shell_with_optbook() as shell:
        yield shell


@pytest.fixture
def run(shell: Any) -> Run:
    def run(cell: str) -> Any:
        return shell.run_cell(cell, store_history=True)

    return run


def latest() -> Any:
    return optbook.log().iloc[-1]


def test_a_cell_is_measured_recorded_and_shown(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    result = run("%%bench baseline --batches 20\nx = sum(range(1000))")
    assert result.success
    assert result.result.label == "baseline"
    assert "throughput" in capsys.readouterr().out
    row = latest()
    assert (row.label, row.unit, row.status, row.stubs) == ("baseline", "batch", "ok", "")
    assert row.throughput == pytest.approx(20 / row.seconds)
    assert row.runs > 6


def test_variables_survive_in_the_users_namespace(run: Run, shell: Any) -> None:
    assert run("start = 5").success
    assert run("%%bench --runs 3 -q\ntotal = start + 1\ndef helper(): return total").success
    assert shell.user_ns["total"] == 6
    assert shell.user_ns["helper"]() == 6


def test_a_tracked_cell_runs_once(run: Run, shell: Any) -> None:
    run("from optbook import track\ncalls = 0")
    result = run("%%bench tracked\ncalls += 1\nfor b in track(range(40)):\n    pass")
    assert shell.user_ns["calls"] == 1
    assert (result.result.steps, result.result.unit) == (36, "batch")


def test_units_metrics_and_setup_are_expressions_in_the_notebook(run: Run, shell: Any) -> None:
    run("loader = [1, 2, 3]\ndef accuracy(a, b): return a / b")
    result = run(
        "%%bench my label --batches len(loader) --unit pixel=len(loader)*100 "
        "--metric acc=accuracy(1, 4) --setup 'data = [1]' --runs 8\ndata.pop()"
    )
    assert result.success
    e = result.result
    assert e.label == "my label"
    assert e.metrics == {"acc": 0.25}
    assert e.units["pixel"] == pytest.approx(100 * e.units["batch"])


def test_numbers_of_options_may_be_expressions_too(run: Run) -> None:
    run("N = 2")
    assert run("%%bench --runs N*3 --warmup N -q -o e\nx = 1").success
    assert (latest().runs, latest().warmup) == (4, 2)


def test_a_stub_made_by_hand_is_marked(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("%%bench --simplified data --simplified loss --runs 3\nx = 1").success
    assert "data,loss replaced by stubs: not a figure of the real system" in capsys.readouterr().out
    assert latest().stubs == "data,loss"


def test_a_named_setup_cell_runs_before_every_run(run: Run) -> None:
    assert run("%%setup fresh\nleft = [1, 2]").success
    assert run("%%bench --setup fresh --runs 5 -q\nleft.pop(); left.pop()").success


def test_the_result_can_be_assigned_and_silenced(
    run: Run, shell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for cell in ("%%bench -q -o kept\n1 + 1", "%%bench -o kept;\n1 + 1", "%%bench -o kept\n1 + 1;"):
        shell.user_ns.pop("kept", None)
        assert run(cell).success
        assert shell.user_ns["kept"].status == "ok"
        assert capsys.readouterr().out == "", cell


def test_the_value_of_the_last_expression_is_shown_once(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run("%%bench --runs 5\nprint('printed')\n'the value'")
    out = capsys.readouterr().out
    assert out.count("the value") == 1
    assert out.count("printed") == 1


def test_what_a_cell_raises_reaches_ipython_once_with_the_cells_own_lines(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run("%%bench broken\nx = 1\n1 / 0")
    assert isinstance(result.error_in_exec, ZeroDivisionError)
    frame = traceback.extract_tb(result.error_in_exec.__traceback__)[-1]
    assert frame.lineno == 3
    assert linecache.getline(frame.filename, 3).strip() == "1 / 0"
    out = capsys.readouterr().out
    assert out.count("ZeroDivisionError: division by zero") == 1
    assert "Cell In[1], line 3" in out
    assert "runner.py" not in out
    row = latest()
    assert (row.label, row.status, row.error) == ("broken", "failed", "ZeroDivisionError: division by zero")
    assert run("after = 1").success


def test_lines_are_right_below_blank_lines_and_a_comment_above(run: Run) -> None:
    result = run("# first a remark\n\n%%bench broken\n\n\nx = 1\nraise KeyError('k')")
    assert isinstance(result.error_in_exec, KeyError)
    assert traceback.extract_tb(result.error_in_exec.__traceback__)[-1].lineno == 7


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_lines_are_right_below_lines_of_spaces_and_with_either_line_end(run: Run, ends: str) -> None:
    result = run(ends.join(["%%bench broken", "  ", "", "if True:", "\tx = 1", "\t1 / 0", ""]))
    assert isinstance(result.error_in_exec, ZeroDivisionError)
    assert traceback.extract_tb(result.error_in_exec.__traceback__)[-1].lineno == 6


@pytest.mark.parametrize("body", ["yield 1", "return 3", "x = (", "await", "if True\n  x"])
def test_code_that_cannot_be_compiled_is_shown_without_our_own_lines(
    run: Run, capsys: pytest.CaptureFixture[str], body: str
) -> None:
    result = run(f"%%bench broken\n{body}")
    assert isinstance(result.error_in_exec, SyntaxError)
    out = capsys.readouterr().out
    assert "optbook" not in out
    assert "Cell In[1], line 2" in out
    assert optbook.log().empty


def test_what_an_awaiting_cell_raises_is_shown_without_the_loops_lines(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    run("import asyncio")
    result = run("%%bench broken\nawait asyncio.sleep(0)\n1 / 0")
    frames = traceback.extract_tb(result.error_in_exec.__traceback__)
    assert not [frame for frame in frames if "asyncio" in frame.filename]
    assert frames[-1].lineno == 3


@pytest.mark.parametrize("raised", ["KeyboardInterrupt", "SystemExit"])
def test_an_interrupt_or_exit_in_a_metric_loses_nothing(run: Run, raised: str) -> None:
    run(f"def metric(): raise {raised}")
    with pytest.warns(UserWarning, match="To exit") if raised.startswith("System") else _nothing():
        assert not run("%%bench kept --metric acc=metric() --runs 3\nx = 1").success
    row = latest()
    assert (row.label, row.status, row.runs) == ("kept", "ok", 2)
    assert f"no metrics: {raised}" in row.warnings


@pytest.mark.parametrize(
    ("raised", "status"), [("KeyboardInterrupt", "interrupted"), ("SystemExit(3)", "failed")]
)
def test_interrupt_and_exit_are_recorded_with_the_finished_runs(run: Run, raised: str, status: str) -> None:
    run("n = 0")
    with pytest.warns(UserWarning, match="To exit") if raised.startswith("System") else _nothing():
        result = run(f"%%bench stopped --budget 60\nn += 1\nif n == 5: raise {raised}")
    assert not result.success
    row = latest()
    assert (row.status, row.runs) == (status, 3)
    assert run("n").result == 5


class _nothing:  # noqa: N801
    def __enter__(self) -> None: ...
    def __exit__(self, *exception: object) -> None: ...


def test_await_runs_in_a_loop_of_its_own(run: Run, shell: Any) -> None:
    run("import asyncio")
    result = run("%%bench waiting --runs 3\nawait asyncio.sleep(0.001)\nr = await asyncio.sleep(0, 7)\nr")
    assert result.success
    assert result.result.seconds >= 0.001
    assert shell.user_ns["r"] == 7


def test_await_works_while_a_loop_is_running(shell: Any) -> None:
    import asyncio

    async def notebook() -> Any:
        return shell.run_cell("%%bench --runs 2\nimport asyncio\nx = await asyncio.sleep(0, 3)")

    assert asyncio.run(notebook()).success
    assert shell.user_ns["x"] == 3


def test_nested_magics_work(run: Run, shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("%%bench --runs 2 -q\n%time y = 3\nfiles = !echo hi").success
    assert shell.user_ns["y"] == 3
    assert run("%%bench --runs 2 -q\n%%capture caught\nprint('inside')").success
    assert "inside" in shell.user_ns["caught"].stdout
    assert run("%%capture outer\n%%bench --runs 2\nprint('x')").success


def test_a_comment_above_the_magic_is_fine(run: Run) -> None:
    assert run("# compare with the first version\n\n%%bench commented\nz = 1").success
    assert latest().label == "commented"


def test_help_says_what_there_is(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    for cell in ("%%bench -h\nx = 1", "%progress -h", "%optbook -h"):
        assert run(cell).success
        assert "options:" in capsys.readouterr().out
    assert run("%%bench?").success
    assert optbook.log().empty


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("%%bench --batchs 3\nx = 1", "unknown option --batchs: did you mean --batches?"),
        ("%%bench --frobnicate\nx = 1", "unknown option --frobnicate: there are --runs"),
        ("%%bench --runs many\nx = 1", "--runs got 'many': NameError"),
        ("%%bench --runs 2.5\nx = 1", "runs is 2.5: give a whole number"),
        ("%%bench --budget ''\nx = 1", "--budget got '': give a number or an expression"),
        ("%%bench --runs 0\nx = 1", "runs is 0: give a whole number from 1 on"),
        ("%%bench --batches 0\nx = 1", "'batch' is 0: give a number above zero"),
        ("%%bench --batches -3\nx = 1", "'batch' is -3: give a number above zero"),
        ("%%bench --batches 'abc'\nx = 1", "the expression for 'batch' raised NameError"),
        ("%%bench --batches None\nx = 1", "'batch' is None: give a number"),
        ("%%bench --batches float('nan')\nx = 1", "'batch' is nan"),
        ("%%bench --batches 1/0\nx = 1", "raised ZeroDivisionError: division by zero"),
        ("%%bench --batches (1\nx = 1", "--batches got '(1': give a number or an expression"),
        ("%%bench --metric acc\nx = 1", "write name=expression, such as acc=accuracy(model)"),
        ("%%bench --metric 2a=1\nx = 1", "write name=expression"),
        ("%%bench -o 2x\nx = 1", "-o got '2x': give the name of a variable"),
        ("%%bench --setup 'x = ('\nx = 1", "--setup got 'x = (': '(' was never closed; give a statement"),
        ("%%bench label\n   \n", "the cell is empty"),
        ("%bench x = 1", "write %%bench on its first line"),
        ("%%setup 3\nx = 1", "%%setup got '3': give a name"),
        ("%optbook nonsense", "invalid choice: 'nonsense'"),
        ("%progress --last zero", "invalid int value: 'zero'"),
    ],
)
def test_bad_options_give_one_line(
    run: Run, capsys: pytest.CaptureFixture[str], cell: str, message: str
) -> None:
    result = run(cell)
    assert not result.success
    err = capsys.readouterr().err.strip()
    assert err.startswith("UsageError: "), err
    assert message in err
    assert "\n" not in err


def test_a_metric_that_raises_loses_nothing(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert not run("%%bench kept --metric acc=missing_name --runs 3\nx = 1").success
    assert "the expression for 'acc' raised NameError" in capsys.readouterr().err
    row = latest()
    assert (row.label, row.status, row.runs) == ("kept", "ok", 2)
    assert "NameError" in row.warnings[-1]


def test_shadowed_builtins_and_deleted_names(run: Run, shell: Any) -> None:
    assert run("%%bench --runs 3 -q\nsum = 0\nlen = 1\nprint = None").success
    assert shell.user_ns["sum"] == 0
    run("del sum, len, print\nmine = 1")
    result = run("%%bench deleting\ndel mine")
    assert isinstance(result.error_in_exec, NameError)
    assert "raised in run 2" in result.error_in_exec.__notes__[0]
    assert latest().status == "failed"


def test_a_generator_used_up_by_the_first_run(run: Run) -> None:
    run("import time\ng = (time.sleep(0.05) for _ in range(4))")
    result = run("%%bench used up --budget 1\nfor _ in g: pass")
    assert result.success
    assert result.result.status == "void"
    assert "seems to use up its input" in result.result.error


@pytest.mark.parametrize(
    "label", ["it's", 'a "quoted" one', "<script>alert(1)</script>", "(odd", "x" * 10_000, "ünïcödé 🌭"]
)
def test_hostile_labels_are_kept_and_escaped(run: Run, label: str) -> None:
    result = run(f"%%bench {label} --runs 2\nx = 1")
    assert result.success
    assert latest().label == result.result.label
    assert "<script>" not in result.result._repr_html_()


def test_settings_are_validated(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    run("%config OptBook.budget = -5")
    assert "give seconds between 0 and 86400" in caplog.text
    assert run("%config OptBook.store_source = False").success
    assert run("%%bench secret --runs 2\nx = 'do not keep'").success
    assert optbook.log().iloc[-1].label == "secret"


def test_unload_undoes_load_and_reload_works(shell: Any) -> None:
    assert shell.run_line_magic("reload_ext", "optbook") is None
    assert shell.run_cell("%%bench --runs 2 -q\nx = 1").success
    shell.run_line_magic("unload_ext", "optbook")
    for kind, name in (("cell", "bench"), ("line", "progress"), ("line", "optbook"), ("cell", "setup")):
        assert shell.find_magic(name, kind) is None
    assert not [c for c in shell.configurables if type(c).__name__ == "OptBook"]
    assert not [t for t in shell.input_transformers_cleanup if "comments_below_magic" in repr(t)]
    shell.run_line_magic("load_ext", "optbook")


def test_the_log_and_the_progress_are_shown(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("%optbook").success  # an empty log
    run("%%bench first --runs 4 -q\nx = 1")
    run("%%bench second --runs 4 -q\nx = 1")
    capsys.readouterr()
    for cell in ("%optbook", "%progress", "%progress --label second --last 1"):
        assert run(cell).success
        assert "second" in capsys.readouterr().out
    assert run("%optbook log").result["label"].tolist() == ["first", "second"]
    assert run("%optbook help").success


def test_what_is_not_in_the_log_is_said_also_where_nothing_is_shown(
    run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPTBOOK_LOG", str(tmp_path))
    assert run("%%bench -q --runs 2\nx = 1").success
    assert "not in the log yet" in capsys.readouterr().out
    monkeypatch.setenv("OPTBOOK_LOG", str(tmp_path / "good.sqlite"))
    assert run("%%bench -q --runs 2\nx = 1").success
    assert capsys.readouterr().out == ""
    assert len(optbook.log()) == 2


def test_a_new_live_view_takes_over_from_the_one_before(run: Run) -> None:
    import asyncio

    async def notebook() -> None:
        first, second = run("%optbook --live").result, run("%optbook --live").result
        assert not first.board.following
        assert second.board.following
        second.close()

    asyncio.run(notebook())
