"""What is run, how often, and what is noted: with a clock that moves only when told to."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from optbook import track
from optbook.benchmark.clock import Clock
from optbook.benchmark.figures import figures
from optbook.benchmark.progress import Progress
from optbook.benchmark.runner import Execution, Outcome, Plan, Workload
from optbook.errors import OptbookError, OptionError
from tests.fakes import FakeClock

pytestmark = pytest.mark.usefixtures("collected_heap")


def measure(
    run: Callable[[], object],
    fake: FakeClock,
    setup: Callable[[], object] | None = None,
    units: Callable[[], dict[str, float]] | None = None,
    **plan: object,
) -> Outcome:
    progress = Progress("test", 5.0, shown=False)
    return Execution(Workload(run, setup, units), Plan(**plan), fake.clock, progress).execute()  # type: ignore[arg-type]


def spending(fake: FakeClock, *seconds: float) -> Callable[[], None]:
    """A workload that takes each of ``seconds`` in turn, then the last again and again."""
    left = list(seconds)

    def run() -> None:
        fake.spend(left.pop(0) if len(left) > 1 else left[0])

    return run


def test_it_is_warmed_up_and_repeated_until_the_budget_is_spent() -> None:
    fake = FakeClock()
    outcome = measure(spending(fake, 3.0, 1.0), fake, budget=5.0)
    assert outcome.warmup_times == [3.0]
    assert outcome.times == [1.0] * 5
    assert outcome.executions == 6


def test_a_first_run_longer_than_the_budget_is_the_only_one_and_counts() -> None:
    fake = FakeClock()
    outcome = measure(spending(fake, 60.0), fake, budget=5.0)
    assert (outcome.times, outcome.executions) == ([60.0], 1)


@pytest.mark.parametrize("runs", [1, 2, 7])
def test_runs_is_how_often_it_is_executed(runs: int) -> None:
    fake = FakeClock()
    calls = []

    def run() -> None:
        calls.append(1)
        fake.spend(10)

    outcome = measure(run, fake, runs=runs)
    assert len(calls) == outcome.executions == runs
    assert len(outcome.times) == max(1, runs - 1)


def test_warmup_is_as_asked() -> None:
    fake = FakeClock()
    outcome = measure(spending(fake, 1.0), fake, runs=5, warmup=3)
    assert (len(outcome.warmup_times), len(outcome.times)) == (3, 2)
    outcome = measure(spending(fake, 1.0), fake, budget=3.0, warmup=0)
    assert (len(outcome.warmup_times), len(outcome.times)) == (0, 4)


def test_max_runs_ends_what_the_budget_would_not() -> None:
    fake = FakeClock()
    assert len(measure(spending(fake, 1e-6), fake, max_runs=50).times) == 50


def test_setup_runs_before_every_run_and_is_not_timed() -> None:
    fake = FakeClock()
    fresh: list[int] = []

    def setup() -> None:
        fake.spend(50)
        fresh.append(1)

    def run() -> None:
        fake.spend(2)
        fresh.pop()

    outcome = measure(run, fake, setup, runs=4)
    assert outcome.times == [2, 2, 2]
    assert not fresh


def test_the_device_is_waited_for_at_both_edges_of_a_run() -> None:
    fake = FakeClock(device=True)
    fake.queue(7.0)
    outcome = measure(lambda: fake.queue(2.0), fake, runs=3)
    assert outcome.times == [2.0, 2.0]


def test_a_tracked_workload_runs_once_and_its_first_steps_are_warmup() -> None:
    fake = FakeClock()
    calls = []

    def run() -> None:
        calls.append(1)
        for step in track(range(20)):
            fake.spend(9.0 if step < 2 else 0.5)

    plan = Plan()
    outcome = measure(run, fake)
    found = figures(outcome, plan)
    assert len(calls) == 1
    assert (found["steps"], found["warmup"], found["executions"]) == (18, 2, 1)
    assert found["throughput"] == pytest.approx(2.0)
    assert found["unit"] == "batch"
    assert found["wait_share"] == 0.0


def test_steps_ends_the_loop_early() -> None:
    fake = FakeClock()

    def run() -> None:
        for _ in track(range(10**9)):
            fake.spend(0.1)

    found = figures(measure(run, fake, steps=50), Plan(steps=50))
    assert (found["steps"], found["warmup"]) == (45, 5)


def test_units_given_and_tracked_stand_side_by_side() -> None:
    fake = FakeClock()

    def run() -> None:
        for _ in track(range(10), unit="batch", sample=lambda _: 32):
            for _ in track(range(4), unit="env_step"):
                fake.spend(0.25)

    outcome = measure(run, fake, units=lambda: {"token": 1000.0})
    found = figures(outcome, Plan(), ("token",))
    assert found["unit"] == "token"
    assert found["units"] == pytest.approx({"token": 100.0, "batch": 1.0, "sample": 32.0, "env_step": 4.0})


def test_throughput_of_runs_counts_their_units() -> None:
    fake = FakeClock()
    outcome = measure(spending(fake, 0.5), fake, units=lambda: {"batch": 20.0, "sample": 640.0}, runs=8)
    found = figures(outcome, Plan(), ("batch", "sample"))
    assert found["unit"] == "batch"
    assert found["throughput"] == pytest.approx(40)
    assert found["units"] == pytest.approx({"batch": 40.0, "sample": 1280.0, "run": 2.0})
    assert (found["throughput_low"], found["throughput_high"]) == pytest.approx((40, 40))


def test_used_up_input_is_refused() -> None:
    fake = FakeClock()
    data: Iterator[int] = iter(range(5))

    def run() -> None:
        for _ in data:
            fake.spend(1.0)
        fake.spend(0.001)

    outcome = measure(run, fake, budget=50.0)
    assert outcome.executions == 2
    assert "seems to use up its input" in outcome.void
    assert "--setup" in outcome.void


def test_a_quick_second_run_after_imports_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeClock()
    first = [True]

    def run() -> None:
        if first:
            first.pop()
            monkeypatch.setitem(sys.modules, "a_module_imported_by_the_workload", sys)
            fake.spend(10)
        fake.spend(0.01)

    assert not measure(run, fake, budget=50.0).void


def test_a_tracked_input_that_is_used_up_is_refused() -> None:
    fake = FakeClock()
    data = iter(range(5))

    def run() -> None:
        for _ in track(data):
            fake.spend(1.0)

    outcome = measure(run, fake, runs=3)
    assert outcome.executions == 2
    assert "tracked 0 batch, the first 5 batch" in outcome.void


def test_runs_that_count_different_amounts_are_refused() -> None:
    fake = FakeClock()
    amounts = iter([3.0, 3.0, 4.0, 5.0])
    outcome = measure(spending(fake, 1.0), fake, units=lambda: {"batch": next(amounts)})
    assert "counted 4 batch, an earlier one 3 batch" in outcome.void
    assert outcome.executions == 3


def test_an_exception_keeps_the_finished_runs_and_says_which_run_it_was() -> None:
    fake = FakeClock()
    left = [1, 2, 3]

    def run() -> None:
        fake.spend(1)
        left.pop()

    outcome = measure(run, fake)
    assert isinstance(outcome.exception, IndexError)
    assert "raised in run 4" in outcome.exception.__notes__[0]
    assert outcome.times == [1, 1]


def test_an_exception_in_a_tracked_loop_keeps_the_finished_steps() -> None:
    fake = FakeClock()

    def run() -> None:
        for step in track(range(10)):
            fake.spend(1)
            if step == 7:
                raise RuntimeError("diverged")

    outcome = measure(run, fake)
    assert isinstance(outcome.exception, RuntimeError)
    assert not hasattr(outcome.exception, "__notes__")
    assert figures(outcome, Plan())["steps"] == 6


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_whatever_ends_a_run_is_kept(kind: type[BaseException]) -> None:
    fake = FakeClock()

    def run() -> None:
        fake.spend(1)
        if fake.time > 3:
            raise kind

    outcome = measure(run, fake)
    assert type(outcome.exception) is kind
    assert len(outcome.times) == 2


def test_an_exception_in_the_setup_says_so() -> None:
    def setup() -> None:
        raise ValueError("no data")

    outcome = measure(lambda: None, FakeClock(), setup)
    assert outcome.exception is not None
    assert outcome.exception.__notes__ == ["raised in the setup, before the workload ran"]
    assert outcome.executions == 0


def test_printing_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    fake = FakeClock()

    def run() -> None:
        print("hello")
        fake.spend(1)

    outcome = measure(run, fake, runs=4)
    assert capsys.readouterr().out == "hello\n"
    assert outcome.repeated.written == 18
    assert any("shown for the first run only" in w for w in figures(outcome, Plan())["warnings"])


def test_a_hundred_megabytes_of_printing_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    line = "x" * 10_000

    def run() -> None:
        for _ in range(10_000):
            print(line)

    outcome = measure(run, FakeClock(), runs=1)
    assert len(capsys.readouterr().out) == 2**20
    assert outcome.printed.written == 10_000 * 10_001
    assert any("only the first million" in w for w in figures(outcome, Plan())["warnings"])


def test_no_measurement_inside_a_measurement() -> None:
    fake = FakeClock()
    outcome = measure(lambda: measure(lambda: None, fake), fake)
    assert isinstance(outcome.exception, OptbookError)
    assert "a measurement is running already" in str(outcome.exception)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"runs": 0}, "runs is 0: give a whole number from 1 on"),
        ({"runs": True}, "runs is True"),
        ({"steps": -3}, "steps is -3"),
        ({"warmup": -1}, "warmup is -1: give a whole number from 0 on"),
        ({"budget": 0}, "budget is 0: give seconds between 0 and 86400"),
        ({"budget": float("nan")}, "budget is nan"),
        ({"budget": "5"}, "budget is '5'"),
        ({"runs": 3, "warmup": 3}, "warmup 3 leaves none of 3 runs"),
        ({"steps": 3, "warmup": 5}, "warmup 5 leaves none of 3 steps"),
    ],
)
def test_bad_plans_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Plan(**options)  # type: ignore[arg-type]


def test_too_few_runs_and_too_short_runs_warn() -> None:
    fake = FakeClock()
    few = figures(measure(spending(fake, 1.0), fake, runs=4), Plan())
    assert few["warnings"][0].startswith("only 3 runs counted: fewer than 6 have no 95 % interval")
    assert few["throughput_low"] is None
    assert few["noise_few"] is True
    short = figures(measure(spending(fake, 2e-6), fake, runs=100), Plan())
    assert any("so short that the measuring itself counts" in w for w in short["warnings"])


def test_a_workload_that_takes_no_time_has_no_throughput() -> None:
    found = figures(measure(lambda: None, FakeClock(), runs=10), Plan())
    assert found["seconds"] == 0
    assert "throughput" not in found


def in_threads(fake: FakeClock, *bodies: Callable[[], object]) -> None:
    threads = [threading.Thread(target=body) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_steps_of_several_threads_count_against_the_time_that_passed() -> None:
    fake = FakeClock()
    turn = [threading.Barrier(2), threading.Barrier(2)]

    def loop(spends: bool) -> None:
        for _ in track(range(10)):
            turn[0].wait(10)
            if spends:
                fake.spend(0.5)
            turn[1].wait(10)

    outcome = measure(lambda: in_threads(fake, lambda: loop(True), lambda: loop(False)), fake)
    found = figures(outcome, Plan())
    assert found["steps"] == 18
    assert found["throughput"] == pytest.approx(4.0, rel=0.1)
    assert any("ran inside or beside each other" in w for w in found["warnings"])


def test_loops_over_one_unit_inside_each_other_count_no_time_twice() -> None:
    fake = FakeClock()

    def run() -> None:
        for _ in track(range(3)):
            for _ in track(range(10)):
                fake.spend(0.1)

    found = figures(measure(run, fake), Plan())
    assert found["throughput"] == pytest.approx(11.0, rel=0.1)
    assert any("give an inner loop a unit of its own" in w for w in found["warnings"])


def test_an_inner_loop_whose_count_raises_keeps_the_steps_before_it() -> None:
    fake = FakeClock()

    def run() -> None:
        for _ in track(range(3), unit="epoch"):
            for _ in track(range(10), sample=lambda item: 1 / (item - 5)):
                fake.spend(0.1)
            for _ in track(range(2)):
                fake.spend(0.1)

    outcome = measure(run, fake)
    assert "'sample' is -0.2: give a number from zero on" in str(outcome.exception)
    assert "throughput" not in figures(outcome, Plan())


def test_used_up_input_is_refused_also_where_our_own_libraries_are_imported_first() -> None:
    """In a new process, where the first measurement imports psutil and more."""
    code = (
        "import optbook, time\n"
        "left = [0.2]\n"
        "print(optbook.bench(lambda: [time.sleep(left.pop()) for _ in left[:1]], budget=1).status)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "void"


def test_cpu_use_of_short_runs_is_not_known_and_of_others_is_possible() -> None:
    found = figures(measure(lambda: None, FakeClock(), runs=3), Plan())
    assert "cpu_cores" not in found
    progress = Progress("test", 5.0, shown=False)
    busy = Workload(lambda: sum(range(200_000)))
    outcome = Execution(busy, Plan(budget=0.3), Clock(), progress).execute()
    assert 0.1 < figures(outcome, Plan())["cpu_cores"] < 1.2


def test_setup_is_not_in_the_cpu_time_of_a_single_run() -> None:
    setup = Workload(lambda: time.sleep(0.1), setup=lambda: sum(range(5_000_000)))
    outcome = Execution(setup, Plan(runs=1), Clock(), Progress("test", 5.0, shown=False)).execute()
    assert figures(outcome, Plan())["cpu_cores"] < 0.5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("end", ["sys.exit(0)", "pass"])
def test_a_forked_child_that_leaves_the_workload_records_nothing(end: str) -> None:
    code = (
        "import optbook, os, sys\n"
        "def forks():\n"
        "    child = os.fork()\n"
        f"    if child == 0: {end}\n"
        "    else: os.waitpid(child, 0)\n"
        "optbook.bench(forks, runs=2)\n"
        "print(len(optbook.log()), os.getppid())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", str(os.getpid())]
    assert ("end it there with os._exit(0)" in done.stderr) == (end == "pass")


def test_a_handler_made_inside_a_run_goes_on_after_it(capsys: pytest.CaptureFixture[str]) -> None:
    fake = FakeClock()
    kept: list[Any] = []

    def run() -> None:
        kept.append(sys.stderr)
        fake.spend(1)

    measure(run, fake, runs=3)
    for stream in kept:
        stream.write("still here\n")
    assert capsys.readouterr().err == "still here\n" * 3


def test_a_clock_that_goes_back_is_survived() -> None:
    fake = FakeClock()
    found = figures(measure(spending(fake, 0.01, -1.0, 2.0), fake, runs=8), Plan())
    assert found["seconds"] == 2.0
    found = figures(measure(spending(fake, -1.0), fake, budget=5.0, max_runs=20), Plan())
    assert (found["runs"], found["seconds"]) == (20, -1.0)
    assert "throughput" not in found

    def tracked() -> None:
        for step in track(range(10)):
            fake.spend(-1.0 if step % 2 else 0.5)

    assert "throughput" not in figures(measure(tracked, fake), Plan())


def test_a_run_that_tracks_more_than_the_first_does_other_work() -> None:
    fake = FakeClock()
    lengths = iter([3, 5])

    def run() -> None:
        for _ in track(range(next(lengths))):
            fake.spend(1)

    outcome = measure(run, fake, runs=3)
    assert outcome.void == "run 2 tracked 5 batch, the first 3 batch: the runs do different amounts of work"
