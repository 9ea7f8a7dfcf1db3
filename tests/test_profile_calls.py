"""The call profile: what the looks at the stack add up to, and what a profile leaves behind."""

from __future__ import annotations

import dis
import itertools
import json
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import pytest

import optbook
from optbook.benchmark.profiles.calls import CallProfile, call_profile, hot_codes
from optbook.benchmark.profiles.flame import flame
from optbook.benchmark.profiles.passes import Pass, execute
from optbook.benchmark.profiles.places import Place, is_yours, of_call
from optbook.benchmark.profiles.sampler import Sampler, Samples, Stacks
from optbook.errors import OptbookError, OptionError
from optbook.experiments.record import Experiment
from tests.shells import shell_with_optbook

pytestmark = pytest.mark.usefixtures("collected_heap")

Run = Callable[[str], Any]


@pytest.fixture
def shell() -> Iterator[Any]:
    with shell_with_optbook() as shell:
        yield shell


@pytest.fixture
def run(shell: Any) -> Run:
    return lambda cell: shell.run_cell(cell, store_history=True)


@pytest.fixture
def free_signal() -> Iterator[None]:
    """SIGALRM as it is outside of tests, which have a time limit by it."""
    handler, timer = signal.signal(signal.SIGALRM, signal.SIG_DFL), signal.setitimer(signal.ITIMER_REAL, 0)
    yield
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, *timer)


def outer() -> None:
    inner()


def inner() -> None:
    time.sleep(0)


def imported() -> None:
    np.zeros(3)


def built_in() -> None:
    len("abc")


def busy(seconds: float = 0.05) -> int:
    """Work until so much time has passed, so that looks at it are certain."""
    turns, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        turns += 1
    return turns


def call_offset(code: CodeType) -> int:
    return next(i.offset for i in dis.get_instructions(code) if i.opname.startswith("CALL"))


def samples(*stacks: tuple[tuple[FunctionType, ...], float, bool], thread: str = "") -> Samples:
    """What the sampler would have seen; it never found the innermost function in a call into C."""
    found = Samples()
    for functions, seconds, idle in stacks:
        codes = [function.__code__ for function in functions]
        found.codes |= {id(code): code for code in codes}
        found.namespaces |= {id(code): globals() for code in codes}
        seen = found.threads.setdefault(thread, Stacks())
        seen.seconds[tuple(map(id, codes)), 0, idle] = seconds
        seen.looks += 100
    return found


def profiled(seen: Samples, notes: tuple[str, ...] = ()) -> CallProfile:
    run = Pass(seconds=1.2, bare=1.0, total=1.2, executions=1, steps=0, notes=notes)
    bare = Experiment(label="<b>work</b>", seconds=1.0, warnings=("the log is <i>away</i>",))
    return call_profile(seen, run, bare, 5)


def test_own_and_cumulative_seconds_add_up() -> None:
    p = profiled(samples(((outer, inner), 3.0, False), ((outer,), 1.0, False)))  # type: ignore[arg-type]
    by_name = {f.place.name: f for f in p.functions}
    assert (by_name["inner"].own, by_name["inner"].cumulative) == (3.0, 3.0)
    assert (by_name["outer"].own, by_name["outer"].cumulative) == (1.0, 4.0)
    assert p.functions[0].place.name == "inner"
    assert p.total == 4.0
    assert p.share("your code") == 1.0


def test_a_recursive_function_counts_once() -> None:
    p = profiled(samples(((outer, inner, outer), 2.0, False)))  # type: ignore[arg-type]
    assert {f.place.name: f.cumulative for f in p.functions} == {"outer": 2.0, "inner": 2.0}


def test_the_split_is_of_the_workloads_thread() -> None:
    seen = samples(((outer,), 1.0, False), ((json.dumps,), 2.0, False), ((inner,), 1.0, True))  # type: ignore[arg-type]
    seen.threads |= samples(((busy,), 9.0, False), thread="loader").threads  # type: ignore[arg-type]
    seen.codes[id(busy.__code__)] = busy.__code__
    seen.namespaces[id(busy.__code__)] = globals()
    p = profiled(seen)
    assert (p.seconds["your code"], p.seconds["library"], p.seconds["waiting"]) == (1.0, 2.0, 1.0)
    assert "busy [loader]" in str(p)
    assert "a further thread was seen" in str(p)


def test_a_call_into_c_is_named_and_has_an_owner() -> None:
    found = [
        of_call(f.__code__, call_offset(f.__code__), globals(), "your code")
        for f in (inner, imported, built_in)
    ]
    assert [(place.name, place.kind) for place in found if place is not None] == [
        ("time.sleep()", "waiting"),
        ("np.zeros()", "library"),
        ("len()", "your code"),
    ]
    assert of_call(inner.__code__, 0, globals(), "your code") is None


def test_whose_a_file_is() -> None:
    assert is_yours(__file__)
    assert is_yours("<ipython-input-3-0123456789ab>")
    assert not is_yours(threading.__file__)
    assert not is_yours(np.__file__)
    assert not is_yours("<frozen importlib._bootstrap>")
    assert not is_yours(execute.__code__.co_filename)


def test_hot_functions_are_yours_and_include_what_they_call_elsewhere() -> None:
    seen = samples(((outer, json.dumps), 5.0, False), ((inner,), 4.0, False), ((busy,), 0.1, False))  # type: ignore[arg-type]
    yours = {key: is_yours(code.co_filename) for key, code in seen.codes.items()}
    assert hot_codes(seen, yours, 0.05, 4) == [outer.__code__, inner.__code__]
    assert hot_codes(seen, yours, 0.05, 1) == [outer.__code__]


def test_the_frame_has_a_row_a_function() -> None:
    frame = profiled(samples(((outer, inner), 3.0, False), ((outer,), 1.0, True))).to_frame()  # type: ignore[arg-type]
    assert frame["function"].tolist() == ["inner", "outer"]
    assert frame["share"].sum() == pytest.approx(1)
    assert frame.set_index("function").loc["outer", "waiting"] == 1.0


def test_overhead_and_executions_are_said() -> None:
    p = profiled(samples(((outer,), 1.0, False)), ("a remark",))  # type: ignore[arg-type]
    assert p.overhead == pytest.approx(1.2)
    for shown in (str(p), p._repr_html_()):
        assert "1.20 times as long; the workload ran 5 times in all, once under this instrument" in shown
        assert "a remark" in shown
        assert "the log is" in shown
        assert ("<i>away</i>" in shown) == (shown == str(p))


def test_few_looks_are_said() -> None:
    seen = samples(((outer,), 1.0, False))  # type: ignore[arg-type]
    assert "only" not in str(profiled(seen))
    seen.threads[""].looks = 7
    assert "only 7 looks at the stack" in str(profiled(seen))


def test_everything_shown_is_escaped() -> None:
    hostile = Place("<script>f</script>", "<i>", 3, "library")
    picture = flame([((hostile, hostile), 1.0)])
    assert "<script>" not in picture
    assert "&lt;script&gt;f" in picture
    assert "<b>work</b>" not in profiled(samples(((outer,), 1.0, False)))._repr_html_()  # type: ignore[arg-type]


def test_boxes_of_the_flame_are_as_wide_as_their_share() -> None:
    a, b = Place("a", "f.py", 1, "your code"), Place("b", "f.py", 9, "waiting")
    picture = flame([((a,), 1.0), ((a, b), 3.0)])
    assert 'width="759.5"' in picture
    assert 'width="569.5"' in picture
    assert "b (f.py:9), waiting: 75 %, 3.00 s" in picture
    assert 'height="34"' in picture
    assert flame([]) == ""


@pytest.mark.parametrize("by_signal", [True, False])
def test_the_sampler_sees_the_workload_and_leaves_nothing_behind(
    by_signal: bool, free_signal: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = signal.SIG_DFL
    if not by_signal:
        handler = lambda number, frame: None  # type: ignore[assignment] # noqa: E731
        signal.signal(signal.SIGALRM, handler)
    switch, threads = sys.getswitchinterval(), threading.active_count()
    sampler = Sampler(execute.__code__)
    sampler.start()
    sampler.running(True)
    execute(busy)
    sampler.running(False)
    sampler.stop()
    seen = sampler.samples.threads[""]
    assert seen.looks > 0
    outermost = {sampler.samples.codes[chain[0]].co_name for chain, _, _ in seen.seconds}
    assert outermost == {"busy"}
    assert signal.getsignal(signal.SIGALRM) is handler
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert (sys.getswitchinterval(), threading.active_count()) == (switch, threads)


def arithmetic(numbers: Any) -> Any:
    product = numbers * numbers
    total = product + numbers
    return total * product


def called_next() -> None:
    pass


@pytest.mark.alone
def test_arithmetic_on_arrays_is_not_taken_for_the_function_called_next(free_signal: None) -> None:
    numbers = np.ones(1_000_000)

    def work() -> None:
        for _ in range(60):
            arithmetic(numbers)
            called_next()

    sampler = Sampler(execute.__code__)
    sampler.start()
    sampler.running(True)
    execute(work)
    sampler.running(False)
    sampler.stop()
    spent: dict[str, float] = {}
    for (chain, _, _), seconds in sampler.samples.threads[""].seconds.items():
        name = sampler.samples.codes[chain[-1]].co_name
        spent[name] = spent.get(name, 0.0) + seconds
    assert spent["arithmetic"] > 2 * spent.get("called_next", 0.0)


def test_a_process_that_the_workload_leaves_behind_does_not_hold_the_sampler(free_signal: None) -> None:
    waiting, go = os.pipe()
    sampler = Sampler(execute.__code__)
    sampler.start()
    child = multiprocessing.get_context("fork").Process(target=os.read, args=(waiting, 1))
    child.start()
    sampler.stop()
    os.write(go, b"!")
    child.join()
    assert child.exitcode == 0
    os.close(waiting)
    os.close(go)


def test_signals_of_others_reach_whoever_waited_for_them(free_signal: None) -> None:
    theirs, told = socket.socketpair()
    for end in (theirs, told):
        end.setblocking(False)
    handler = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    before = signal.set_wakeup_fd(told.fileno())
    try:
        sampler = Sampler(execute.__code__)
        sampler.start()
        signal.raise_signal(signal.SIGUSR1)
        time.sleep(0.05)
        sampler.stop()
        assert signal.set_wakeup_fd(before) == told.fileno()
        assert theirs.recv(100) == bytes([signal.SIGUSR1])
    finally:
        signal.signal(signal.SIGUSR1, handler)
        theirs.close()
        told.close()


def test_a_function_is_profiled_and_its_measurement_recorded() -> None:
    p = optbook.profile(busy, "calls", "in a script", runs=3)
    assert isinstance(p, CallProfile)
    assert p.functions[0].place.name in ("busy", "time.perf_counter()")
    row = optbook.log().iloc[-1]
    assert (row.label, row.id, row.executions) == ("in a script", p.experiment.id, 3)
    assert p.executions == 3 + p.run.executions
    assert p.run.executions in (1, 2)


def test_runs_1_is_one_more_execution() -> None:
    calls = itertools.count()
    p = optbook.profile(lambda: busy(0.01 + 0 * next(calls)), runs=1)
    assert next(calls) == p.executions == 2


def test_a_cell_is_profiled(run: Run, shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run("import time\ndef slow(n):\n    return sum([i * i for i in range(n)])")
    result = run(
        "%%profile calls my label --runs 2 -o p\nprint('printed')\nfor _ in range(9): x = slow(40_000)"
    )
    assert result.success
    out = capsys.readouterr().out
    assert out.count("printed") == 1
    assert "my label: your code" in out
    assert "slow (In[1]:2)" in out
    assert "cell In[2] (In[2]:1)" in out
    assert shell.user_ns["p"].experiment.label == "my label"
    assert "x" in shell.user_ns


def test_a_tracked_cell_ends_after_a_few_steps_and_its_state_is_put_back(run: Run, shell: Any) -> None:
    run("from optbook import track\nimport time\ncalls, steps = 0, 0")
    cell = "calls += 1\nfor b in track(range(60)):\n    steps += 1\n    time.sleep(0.03)"
    result = run(f"%%profile calls -q -o p\n{cell}")
    assert result.success
    assert (shell.user_ns["calls"], shell.user_ns["steps"]) == (1, 60)
    assert shell.user_ns["p"].run.steps < 60
    assert shell.user_ns["p"].executions == 2


def test_an_awaiting_cell_in_a_thread_of_its_own(run: Run) -> None:
    result = run(
        "%%profile calls --runs 1\nimport asyncio\nawait asyncio.sleep(0)\nn = 0\nwhile n < 1_000_000: n += 1"
    )
    assert result.success
    assert result.result.functions[0].place.name == "cell In[1]"


def test_what_a_cell_raises_reaches_ipython_once(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    result = run("%%profile calls broken\nx = 1\n1 / 0")
    assert isinstance(result.error_in_exec, ZeroDivisionError)
    out = capsys.readouterr().out
    assert out.count("ZeroDivisionError: division by zero") == 1
    assert "Cell In[1], line 3" in out
    assert "bench.py" not in out
    assert optbook.log().iloc[-1].status == "failed"


def test_what_is_raised_under_the_instrument_leaves_nothing_behind(
    run: Run, shell: Any, free_signal: None
) -> None:
    run("calls = []\nx = 5")
    result = run("%%profile calls --runs 1\nx += 1\ncalls.append(1)\nif len(calls) == 2: raise KeyError('2')")
    assert isinstance(result.error_in_exec, KeyError)
    assert any("raised in the call profile pass" in note for note in result.error_in_exec.__notes__)
    assert (shell.user_ns["x"], len(shell.user_ns["calls"])) == (6, 1)
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    assert optbook.log().iloc[-1].status == "ok"


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("%%profile\nx", "%%profile needs a kind: write %%profile calls (there are calls, lines"),
        ("%%profile cals\nx", "profile got kind 'cals': there are calls, lines"),
        ("%%profile calls -f f\nx", "functions are for kind 'lines'"),
        ("%%profile calls -o 3\nx", "give the name of a variable"),
        ("%%profile calls --stepz 3\nx", "did you mean --steps?"),
        ("%%profile calls --runs 0\nx", "runs is 0"),
        ("%profile calls", "write %%profile calls on its first line"),
    ],
)
def test_what_cannot_be_used_gives_one_line(
    run: Run, capsys: pytest.CaptureFixture[str], cell: str, message: str
) -> None:
    assert not run(cell).success
    err = capsys.readouterr().err.strip()
    assert message in err
    assert "\n" not in err
    assert optbook.log().empty


def test_a_void_measurement_has_no_profile() -> None:
    left = (busy(0.06) for _ in range(2))

    def use_up() -> None:
        for _ in left:
            pass

    with pytest.raises(OptbookError, match="no profile of a void measurement"):
        optbook.profile(use_up, budget=0.5)


def test_a_generator_function_does_no_work_when_called() -> None:
    def numbers() -> Iterator[int]:
        yield 1

    with pytest.raises(OptionError, match="loop over numbers"):
        optbook.profile(numbers)
