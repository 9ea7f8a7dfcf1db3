"""The memory profile: lines, allocations and tensors of real cells, and what it refuses."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import importlib
import math
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optbook.benchmark.bench import bench, runnable
from optbook.benchmark.cell import Cell
from optbook.benchmark.profiles.leaks import Growth, Leak
from optbook.benchmark.profiles.memory import (
    MemoryLine,
    MemoryListing,
    MemoryProfile,
    memory_profile,
)
from optbook.benchmark.profiles.memory_lines import MOST_EVENTS
from optbook.benchmark.profiles.memory_meters import Resident
from optbook.benchmark.profiles.passes import Pass
from optbook.benchmark.profiles.request import Request
from optbook.benchmark.profiles.tensors import HeldTensor
from optbook.benchmark.profiles.timing import lines_ready
from optbook.benchmark.runner import Workload
from optbook.errors import OptbookError, OptionError
from optbook.experiments.record import Experiment
from tests.shells import shell_with_optbook

MIB = 2**20
HELPERS = """
import functools
import numpy as np
def logged(f):
    @functools.wraps(f)
    def wrapper(*a):
        return f(*a)
    return wrapper
@logged
def decorated(n):
    x = bytearray(n)
    return x
class Model:
    def forward(self, n):
        def inside(k):
            x = bytearray(k)
            return x
        return inside(n)
    @property
    def size(self):
        x = bytearray(8 << 20)
        return x
    @staticmethod
    def make(n):
        x = bytearray(n)
        return x
def numbers(n):
    for i in range(3):
        x = bytearray(n)
        yield x
def factorial(n):
    x = bytearray(1 << 20)
    return [x] if n < 2 else [x, *factorial(n - 1)]
async def later(n):
    x = bytearray(n)
    return x
def boom(n):
    x = bytearray(n)
    raise ValueError("middle")
def temporary(n):
    total = (np.ones(n) * 2).sum()
    return total
"""
Profiled = Callable[..., MemoryProfile]


@pytest.fixture(autouse=True)
def _no_tracer() -> Iterator[None]:
    """Without the tracer by which coverage is measured."""
    tracer, of_threads = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    yield
    assert (sys.gettrace(), threading.gettrace()) == (None, None)
    assert not tracemalloc.is_tracing()
    sys.settrace(tracer)
    threading.settrace(of_threads)


@pytest.fixture
def shell() -> Iterator[Any]:
    with shell_with_optbook() as shell:
        shell.run_cell(HELPERS, store_history=True)
        yield shell


def of(given: Callable[[], object], *functions: object, runs: int = 1, **options: object) -> MemoryProfile:
    experiment = bench(given, "memory", runs=runs, budget=0.02)
    return memory_profile(Request(Workload(runnable(given)), given, experiment, functions, options))


@pytest.fixture
def cell(shell: Any) -> Profiled:
    return lambda source, *functions, **more: of(Cell(source, shell), *functions, **more)


def lines(profile: MemoryProfile, name: str) -> dict[str, MemoryLine]:
    """The lines that ran, by source."""
    [listing] = [listing for listing in profile.listings if listing.name == name]
    return {line.source.strip(): line for line in listing.lines if line.hits}


def test_lines_of_a_cell_and_the_functions_that_take_memory(cell: Profiled) -> None:
    """Above 32 MiB the C library always asks the system: less may come from what was freed before."""
    profile = cell("kept = Model.make(48 << 20)\nsmall = [1]\ntemporary(5_000_000)")
    names = [listing.name for listing in profile.listings]
    assert names[0].startswith("cell In[")
    assert sorted(names[1:]) == ["Model.make", "temporary"]
    own = lines(profile, names[0])
    first = own["kept = Model.make(48 << 20)"]
    assert (first.hits, first.number) == (1, 2)
    assert first.python_grew == pytest.approx(48 * MIB, rel=0.01)
    assert first.grew == pytest.approx(48 * MIB, abs=2 * MIB)
    assert own["small = [1]"].python_grew < 4096
    temporary = lines(profile, "temporary")["total = (np.ones(n) * 2).sum()"]
    assert temporary.python_rose == pytest.approx(40e6, rel=0.01)  # NumPy doubles in place
    assert abs(temporary.python_grew) < 4096
    if Resident(True).exact:
        assert temporary.rose == pytest.approx(40e6, abs=4 * MIB)
        assert temporary.peak > first.grew + temporary.rose - 8 * MIB
    assert profile.executions == 3
    assert profile.growth is None
    assert any(note.startswith("what grows from run to run is not seen") for note in profile.notes)


@pytest.mark.parametrize(
    ("name", "call", "hits", "grew"),
    [
        ("decorated", "y = decorated(8 << 20)", 1, 8),
        ("Model.forward.inside", "y = Model().forward(8 << 20)", 1, 8),
        ("Model.size", "y = Model().size", 1, 8),
        ("Model.make", "y = Model.make(8 << 20)", 1, 8),
        ("numbers", "y = list(numbers(4 << 20))", 3, 12),
        ("factorial", "y = factorial(5)", 5, 5),
        ("later", "y = await later(8 << 20)", 1, 8),
    ],
)
def test_functions_of_every_kind(cell: Profiled, name: str, call: str, hits: int, grew: int) -> None:
    profile = cell(call, name)
    [line] = [line for line in lines(profile, name).values() if line.source.strip().startswith("x = ")]
    assert line.hits == hits
    assert line.python_grew == pytest.approx(grew * MIB, rel=0.01)
    notes = " ".join(profile.notes)
    assert ("factorial calls itself" in notes) == (name == "factorial")
    assert ("stops and goes on" in notes) == (name in ("numbers", "later"))


def test_time_is_merged_into_the_same_table(cell: Profiled) -> None:
    profile = cell("for i in range(4):\n    y = decorated(1 << 20)", "decorated", time=True)
    line = lines(profile, "decorated")["x = bytearray(n)"]
    assert line.hits == 4
    assert line.seconds is not None
    assert line.seconds > 0
    assert profile.executions == 4
    [heads] = [words for line in str(profile).splitlines() if (words := line.split())[:2] == ["line", "hits"]]
    assert "time" in heads
    assert cell("y = 1").to_frame()["seconds"].isna().all()


def test_what_raises_in_the_middle(shell: Any) -> None:
    calls = []

    def second() -> None:
        calls.append(1)
        if len(calls) == 2:
            shell.user_ns["boom"](1000)

    with pytest.raises(ValueError, match="middle") as raised:
        of(second)
    assert any("raised in the memory profile pass" in note for note in raised.value.__notes__)


def test_a_function_that_raises_and_is_caught_has_its_lines(cell: Profiled) -> None:
    profile = cell("try:\n    boom(8 << 20)\nexcept ValueError:\n    pass", "boom")
    assert lines(profile, "boom")['raise ValueError("middle")'].hits == 1
    assert lines(profile, "boom")["x = bytearray(n)"].python_rose == pytest.approx(8 * MIB, rel=0.01)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("len", "len is a builtin or compiled code, with no Python lines to look at"),
        ("nowhere", "there is no function 'nowhere' here"),
    ],
)
def test_what_has_no_lines_is_refused(cell: Profiled, name: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        cell("y = 1", name)


def test_a_debugger_is_refused_and_kept() -> None:
    def debugger(*_: object) -> None:
        return None

    request = Request(Workload(dir), dir, Experiment(label=""))
    sys.settrace(debugger)
    try:
        with pytest.raises(OptbookError, match=r"a debugger or another profiler \(.*debugger\)"):
            lines_ready(request)
        with pytest.raises(OptbookError, match="traces lines already"):
            memory_profile(request)
        assert sys.gettrace() is debugger
    finally:
        sys.settrace(None)


def test_tracemalloc_of_the_user_stays_on(cell: Profiled) -> None:
    tracemalloc.start()
    try:
        profile = cell("y = bytearray(8 << 20)")
        assert tracemalloc.is_tracing()
        assert profile.allocations[0].size >= 8 * MIB
        assert any(note.startswith("tracemalloc was on") for note in profile.notes)
    finally:
        tracemalloc.stop()


def test_allocations_are_those_at_the_highest_moment_by_line_of_yours(cell: Profiled) -> None:
    profile = cell("big = np.ones(2_000_000)\nlittle = np.ones(1_000_000)\ndel big\nlast = 1")
    assert [(a.line, round(a.size / 8e6)) for a in profile.allocations[:2]] == [(2, 2), (3, 1)]
    assert "In[" in str(profile)


def test_source_that_is_missing_or_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "planted_memory.py"
    file.write_text("def take():\n    return bytearray(9 << 20)\n")
    take = importlib.import_module("planted_memory").take
    file.write_text("import sys\n\n\ndef other():\n    return 1\n")
    assert any("is not the one that runs" in note for note in of(take).notes)
    file.unlink()
    profile = of(take)
    assert any("the source of take is missing" in note for note in profile.notes)
    assert profile.listings[0].lines[-1].python_rose == pytest.approx(9 * MIB, rel=0.01)


def test_code_without_a_file_and_a_function_that_is_not_called(cell: Profiled) -> None:
    profile = cell("y = eval('decorated')", "decorated")
    assert any(note.startswith("decorated was not called") for note in profile.notes)
    assert not profile.to_frame().empty


def test_a_long_loop_is_looked_at_up_to_a_limit(cell: Profiled) -> None:
    profile = cell(
        f"for i in range({MOST_EVENTS}):\n    y = i\nz = bytearray(8 << 20)\nlater_on = Model.make(4 << 20)"
    )
    assert any(f"only the first {MOST_EVENTS} executed lines" in note for note in profile.notes)
    assert lines(profile, "Model.make")["x = bytearray(n)"].python_grew == pytest.approx(4 * MIB, rel=0.01)


def test_threads_of_the_workload_are_seen_and_told() -> None:
    def taken() -> bytearray:
        return bytearray(8 << 20)

    def work() -> None:
        thread = threading.Thread(target=taken)
        thread.start()
        thread.join()

    profile = of(work)
    name = "test_threads_of_the_workload_are_seen_and_told.taken"
    assert lines(profile, name)["return bytearray(8 << 20)"].hits == 1
    assert any("several threads" in note for note in profile.notes)


def test_await_in_a_running_loop(shell: Any) -> None:
    async def notebook() -> MemoryProfile:
        return of(Cell("y = await later(8 << 20)", shell), "later")

    profile = asyncio.run(notebook())
    assert lines(profile, "later")["x = bytearray(n)"].hits == 1


def test_a_tracked_loop_runs_once_a_pass_with_the_lines_around_it(cell: Profiled) -> None:
    source = """import optbook
before = bytearray(8 << 20)
kept = []
for i in optbook.track(range(30)):
    kept.append(np.ones(9000))
"""
    profile = cell(source)
    own = lines(profile, profile.listings[0].name)
    assert own["before = bytearray(8 << 20)"].python_grew == pytest.approx(8 * MIB, rel=0.01)
    assert 4 <= own["kept.append(np.ones(9000))"].hits <= 30
    assert profile.run.steps >= 4
    assert profile.executions == 4
    assert profile.growth is not None
    [leak] = profile.growth.leaks
    assert (profile.growth.per, leak.what, leak.count) == ("step", "ndarray", 1)
    assert leak.chain.startswith("__main__.kept -> list[")
    assert leak.size == pytest.approx(72000, rel=0.01)


def test_leaks_and_tensors_of_a_cell_that_runs_again(shell: Any) -> None:
    shell.run_cell("import torch\nmodel = torch.nn.Sequential(torch.nn.Linear(1000, 900))\nhistory = []")
    profile = of(Cell("history.append(model(torch.ones(2, 1000)).mean())", shell), runs=4)
    assert profile.growth is not None
    [leak] = profile.growth.leaks
    assert leak.chain.startswith("__main__.history -> list[")
    assert leak.chain.endswith("Tensor.grad_fn -> MeanBackward0 -> …")
    assert "model[0].weight" in {tensor.holder for tensor in profile.tensors}
    assert len(shell.user_ns["history"]) == 4  # put back to what the measurement left
    assert profile.executions >= 4 + 1 + 1 + 4
    for text in (str(profile), profile._repr_html_()):
        assert "What grows with each run" in text
        assert "model[0].weight" in text
    assert gc.get_freeze_count() == 0


def test_no_growth_is_said() -> None:
    def clean() -> int:
        return len(np.ones(1000))

    profile = of(clean, runs=4)
    assert profile.growth is not None
    assert profile.growth.leaks == ()
    assert "Nothing grows from run to run" in str(profile)


def drawn() -> MemoryProfile:
    """A profile made by hand, with text that must be escaped."""
    evil = "<b>&x"
    some = MemoryLine(3, 2, 5.0 * MIB, 6.0 * MIB, 7.0 * MIB, -MIB, math.pi, 0.5, f"x = '{evil}'")
    tensor = HeldTensor(f"names[{evil!r}]", MIB, "float32", (2, 3), "cpu", 2, True, 4096)
    leak = Leak(f"__main__.{evil}", evil, 1.5, 3000.0, (f"{evil}.py", 3), 9)
    growth = Growth((leak,), None, 0.0, "run", (tensor,), {"cpu": MIB})
    return MemoryProfile(
        experiment=Experiment(label=evil),
        run=Pass(seconds=2.0, bare=1.0, total=2.0, executions=1, steps=0),
        listings=(MemoryListing(evil, f"{evil}.py", (some, dataclasses.replace(some, hits=0))),),
        allocations=(),
        tensors=(tensor,),
        tensor_bytes={"cpu": MIB},
        growth=growth,
        executions=7,
        notes=(evil,),
    )


def test_html_is_escaped_and_static() -> None:
    html = drawn()._repr_html_()
    assert "<b>&x" not in html
    assert "&lt;b&gt;&amp;x" in html
    assert "<script" not in html
    assert "linear-gradient" in html
    assert "−1.00 MiB" in html
    assert drawn().overhead == 2.0


def test_text_and_frame() -> None:
    text = str(drawn())
    assert "2.00 s a run with the instrument, 1.00 s without: 2.00 times as long" in text
    assert "5.00 MiB" in text
    assert "its graph keeps 4.00 KiB more" in text
    assert "stops at 9 entries" in text
    frame = drawn().to_frame()
    assert frame["rose"].tolist() == [6.0 * MIB] * 2
    assert frame["hits"].tolist() == [2, 0]
    assert list(frame.columns) == [
        *("function", "file", "line", "hits", "seconds", "grew", "rose", "peak"),
        *("python_grew", "python_rose", "source"),
    ]
