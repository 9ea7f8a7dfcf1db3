"""The line profile: hits and lines are exact, whatever kind of function they are in."""

from __future__ import annotations

import functools
import gc
import importlib
import math
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

import optbook
from optbook.benchmark.profiles.lines import Line, LineProfile, Listing
from optbook.benchmark.profiles.passes import Pass
from optbook.benchmark.profiles.targets import of_hot
from optbook.errors import OptbookError, OptionError
from optbook.experiments.record import Experiment
from tests.shells import shell_with_optbook

Run = Callable[[str], Any]
HELPERS = """
import functools
def logged(f):
    @functools.wraps(f)
    def wrapper(*a):
        return f(*a)
    return wrapper
@logged
def decorated(n):
    return n + 1
class Model:
    def forward(self, n):
        def inside(k):
            return k
        return inside(n)
    @property
    def size(self):
        return 3
    @staticmethod
    def make():
        return Model()
def numbers(n):
    for i in range(n):
        yield i
def factorial(n):
    return 1 if n < 2 else n * factorial(n - 1)
async def later(n):
    return n
"""


@pytest.fixture(autouse=True)
def _no_tracer() -> Iterator[None]:
    """Without the tracer by which coverage is measured."""
    tracer, of_threads = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    yield
    sys.settrace(tracer)
    threading.settrace(of_threads)


@pytest.fixture
def shell() -> Iterator[Any]:
    with shell_with_optbook() as shell:
        shell.run_cell(HELPERS, store_history=True)
        yield shell


@pytest.fixture
def run(shell: Any) -> Run:
    return lambda cell: shell.run_cell(cell, store_history=True)


def add(n: int) -> int:
    total = 0
    for i in range(n):
        total += i
    return total


def hits(profile: LineProfile, name: str) -> dict[str, int]:
    """Hits by source of the lines that ran."""
    listing = next(listing for listing in profile.listings if listing.name == name)
    return {line.source.strip(): line.hits for line in listing.lines if line.hits}


def test_lines_of_a_cell_and_of_a_function_of_its_own_are_exact(run: Run) -> None:
    result = run(
        "%%profile lines --runs 1 -f own\n\ndef own(n):\n    for i in range(n):\n        pass\nown(7)\nown(3)"
    )
    assert result.success
    assert hits(result.result, "own") == {"for i in range(n):": 12, "pass": 10}
    assert [line.number for line in result.result.listings[0].lines] == [3, 4, 5]


def test_the_cells_own_lines_and_the_hot_function_come_first(run: Run) -> None:
    run("def hot(n):\n    s = 0\n    for i in range(n):\n        s += i\n    return s")
    result = run("%%profile lines --runs 1\nx = 1\nhot(600_000)\nx + 1")
    assert result.success
    profile = result.result
    assert [listing.name for listing in profile.listings] == ["cell In[3]", "hot"]
    assert hits(profile, "cell In[3]") == {"x = 1": 1, "hot(600_000)": 1, "x + 1": 1}
    assert hits(profile, "hot")["s += i"] == 600_000
    assert profile.executions == 3


@pytest.mark.parametrize(
    ("name", "call", "expected"),
    [
        ("decorated", "decorated(1)", {"return n + 1": 1}),
        ("Model.forward", "Model().forward(2)", {"def inside(k):": 1, "return inside(n)": 1}),
        ("Model.forward.inside", "Model().forward(2)", {"return k": 1}),
        ("Model.size", "Model().size", {"return 3": 1}),
        ("Model.make", "Model.make()", {"return Model()": 1}),
        ("numbers", "list(numbers(4))", {"for i in range(n):": 5, "yield i": 4}),
        ("factorial", "factorial(5)", {"return 1 if n < 2 else n * factorial(n - 1)": 5}),
        ("later", "await later(1)", {"return n": 1}),
    ],
)
def test_functions_of_every_kind(run: Run, name: str, call: str, expected: dict[str, int]) -> None:
    result = run(f"%%profile lines --runs 1 -f {name}\nx = {call}")
    assert result.success
    assert hits(result.result, name) == expected


@pytest.mark.parametrize(
    ("name", "call", "note"),
    [
        ("factorial", "factorial(3)", "factorial calls itself"),
        ("numbers", "list(numbers(3))", "numbers is a generator"),
        ("later", "await later(1)", "later is async"),
        ("decorated", "x = 1", "decorated was not called"),
    ],
)
def test_what_lines_cannot_tell_is_said(run: Run, name: str, call: str, note: str) -> None:
    result = run(f"%%profile lines --runs 1 -f {name}\n{call}")
    assert result.success
    assert note in str(result.result)


def around_a_comprehension(n: int) -> int:
    return sum(i * i for i in range(n))


def test_a_hot_comprehension_stands_for_the_function_around_it() -> None:
    [inner] = [c for c in around_a_comprehension.__code__.co_consts if isinstance(c, CodeType)]
    [target] = of_hot([inner], [])
    assert target.codes == (around_a_comprehension.__code__,)
    assert of_hot([inner], [target]) == []


def test_code_objects_and_hooks_are_put_back(run: Run, shell: Any) -> None:
    function = shell.user_ns["decorated"].__wrapped__
    code, tracer = function.__code__, sys.gettrace()
    assert run("%%profile lines --runs 1 -f decorated\ndecorated(1)").success
    assert function.__code__ is code
    assert sys.gettrace() is tracer
    assert threading.gettrace() is None
    left = [
        f
        for f in gc.get_objects()
        if type(f) is FunctionType and f.__code__.co_code == code.co_code + b"\t\0"
    ]
    assert left == []


def test_what_is_raised_under_the_instrument_leaves_nothing_behind(run: Run, shell: Any) -> None:
    run("calls = []\ndef often(n):\n    calls.append(n)\n    if len(calls) == 2: raise KeyError('second')")
    code = shell.user_ns["often"].__code__
    result = run("%%profile lines --runs 1 -f often\noften(1)")
    assert isinstance(result.error_in_exec, KeyError)
    assert any("raised in the line profile pass" in note for note in result.error_in_exec.__notes__)
    assert shell.user_ns["often"].__code__ is code
    assert shell.user_ns["calls"] == [1]
    assert sys.gettrace() is None


def test_threads_of_the_workload_are_included(run: Run) -> None:
    run("import threading\ndef part(n):\n    return n")
    result = run(
        "%%profile lines --runs 1 -f part\n"
        "t = threading.Thread(target=part, args=(1,))\nt.start()\nt.join()\npart(2)"
    )
    assert hits(result.result, "part") == {"return n": 2}


def test_a_tracked_cell_runs_once_more_and_counts_the_steps_seen(run: Run, shell: Any) -> None:
    run("from optbook import track\ncalls = 0")
    result = run("%%profile lines -f decorated\ncalls += 1\nfor b in track(range(20)):\n    decorated(b)")
    assert shell.user_ns["calls"] == 1
    assert (result.result.executions, result.result.run.steps) == (2, 20)
    assert hits(result.result, "decorated") == {"return n + 1": 20}


def test_a_function_is_profiled_in_a_script() -> None:
    profile = optbook.profile(lambda: add(5), "lines", "script", functions=[add], runs=1)
    assert isinstance(profile, LineProfile)
    assert hits(profile, "add")["total += i"] == 5
    assert optbook.log().iloc[-1].label == "script"
    same = optbook.profile(functools.partial(add, 5), "lines", "script", functions=["add"], runs=1)
    assert isinstance(same, LineProfile)
    assert hits(same, "add") == hits(profile, "add")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("sum", "sum is a builtin or compiled code, with no Python lines"),
        ("nothing.of.it", "there is no function 'nothing.of.it' here"),
        (3, "int is no function and has no Python lines"),
        (math.sqrt, "sqrt is a builtin"),
    ],
)
def test_what_has_no_lines_is_refused_before_anything_runs(given: object, message: str) -> None:
    calls: list[int] = []
    with pytest.raises(OptionError, match=message):
        optbook.profile(lambda: calls.append(1), "lines", functions=[given])
    assert calls == []


def test_what_line_profiler_wraps_already_is_refused() -> None:
    from line_profiler import LineProfiler

    wrapped = LineProfiler()(add)
    with pytest.raises(OptionError, match="profiled by line_profiler already: take its @profile off"):
        optbook.profile(lambda: wrapped(3), "lines", functions=[wrapped])


def test_another_tracer_is_named_and_nothing_runs() -> None:
    calls: list[int] = []

    def my_debugger(frame: Any, event: str, argument: Any) -> None:
        return None

    sys.settrace(my_debugger)
    try:
        with pytest.raises(OptbookError, match=r"my_debugger.* traces lines already: end it"):
            optbook.profile(lambda: calls.append(1), "lines", functions=[add])
        assert sys.gettrace() is my_debugger
    finally:
        sys.settrace(None)
    assert calls == []


def test_missing_source_is_said_and_lines_have_numbers() -> None:
    namespace: dict[str, Any] = {}
    exec(compile("def made(n):\n    n += 1\n    return n", "/nowhere/made.py", "exec"), namespace)
    profile = optbook.profile(lambda: namespace["made"](1), "lines", functions=[namespace["made"]], runs=1)
    assert isinstance(profile, LineProfile)
    assert [(line.number, line.hits) for line in profile.listings[0].lines] == [(2, 1), (3, 1)]
    assert "the source of made is missing" in str(profile)


@pytest.mark.parametrize("changed", [True, False])
def test_changed_source_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: bool) -> None:
    name = f"module_changed_{changed}"
    path = tmp_path / f"{name}.py"
    path.write_text("def f(n):\n    return abs(n)\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    f = importlib.import_module(name).f
    monkeypatch.delitem(sys.modules, name)
    if changed:
        path.write_text("import math\n\ndef f(n):\n    return math.fabs(n)\n", encoding="utf-8")
    profile = optbook.profile(lambda: f(1), "lines", functions=[f], runs=1)
    assert (f"the source of f ({name}.py) is not the one that runs" in str(profile)) is changed


def test_compiled_functions_run_eagerly_and_it_is_said() -> None:
    import torch

    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    compiled = torch.compile(double, backend="eager")
    x = torch.ones(2)
    compiled(x)
    profile = optbook.profile(lambda: compiled(x), "lines", functions=[compiled], runs=1)
    assert isinstance(profile, LineProfile)
    name = "test_compiled_functions_run_eagerly_and_it_is_said.double"
    assert hits(profile, name) == {"return x * 2": 1}
    assert "ran uncompiled (eagerly)" in str(profile)


def test_a_module_means_its_forward() -> None:
    import torch

    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    net, x = Net(), torch.ones(1)
    profile = optbook.profile(lambda: net(x), "lines", functions=[net], runs=1)
    assert isinstance(profile, LineProfile)
    assert hits(profile, profile.listings[0].name) == {"return x + 1": 1}


def listing(source: str) -> LineProfile:
    line = Line(3, 1000, 0.75, source), Line(4, 10, 0.25, "    b = 2"), Line(5, 0, 0.0, "    # <i>")
    run = Pass(seconds=2.0, bare=1.0, total=2.0, executions=1, steps=0)
    work = Experiment(label="<b>work</b>", seconds=1.0)
    return LineProfile(work, run, (Listing("f<i>", "file.py", line),), 2, ("a <remark>",))


def test_the_view_is_static_escaped_and_has_heat() -> None:
    html = listing("    a = '<script>'")._repr_html_()
    for bad in ("<script>", "<b>work", "<i>", "<remark>"):
        assert bad not in html
    assert "linear-gradient(to left,rgba(230,159,0,.45) 75%" in html
    assert "    a = &#x27;&lt;script&gt;&#x27;" in html
    assert "2.00 times as long; the workload ran 2 times in all" in html


def test_text_and_frame_have_the_same_lines() -> None:
    profile = listing("    a = 1")
    assert "1\u202f000    750 ms 75.0 %      a = 1" in str(profile)
    frame = profile.to_frame()
    assert frame["line"].tolist() == [3, 4, 5]
    assert frame["share"].tolist() == [0.75, 0.25, 0.0]
    assert frame["hits"].tolist() == [1000, 10, 0]
