"""Code that runs too long is ended, or left to itself where that can't be done."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable

import pytest
from IPython.core.error import UsageError

from optbook.errors import OptbookError
from optbook.settings import settings
from optbook.workshop import exercises
from optbook.workshop.exercises import Exercise, Verdict
from optbook.workshop.fill_in import fill_in
from optbook.workshop.limit import TooLong, limited
from tests.shells import shell_with_optbook


def forever() -> None:
    while True:
        time.sleep(0.001)


def never_giving_up() -> None:
    while True:
        with contextlib.suppress(Exception):
            forever()


def in_a_thread(function: Callable[[], object]) -> object:
    """What the function returns or raises, called outside of the main thread."""
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(function())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return outcome[0]


@pytest.mark.parametrize("function", [forever, never_giving_up])
def test_it_ends_what_takes_too_long(function: Callable[[], None]) -> None:
    handler = signal.getsignal(signal.SIGALRM)
    with pytest.raises(TooLong, match=r"longer than 0\.02 s") as caught:
        limited(function, 0.02)
    assert not caught.value.still_running
    assert signal.getsignal(signal.SIGALRM) is handler


def test_what_is_quick_returns_and_raises_as_ever() -> None:
    assert limited(lambda: 3, 5) == 3
    with pytest.raises(ZeroDivisionError):
        limited(lambda: 1 // 0, 5)
    assert in_a_thread(lambda: limited(lambda: 3, 5)) == 3
    assert isinstance(in_a_thread(lambda: limited(lambda: 1 // 0, 5)), ZeroDivisionError)


def test_somebody_elses_alarm_goes_on() -> None:
    before, left = signal.getsignal(signal.SIGALRM), signal.setitimer(signal.ITIMER_REAL, 1000)
    try:
        limited(lambda: None, 5)
        assert 900 < signal.getitimer(signal.ITIMER_REAL)[0] <= 1000
        assert signal.getsignal(signal.SIGALRM) is before
    finally:
        signal.setitimer(signal.ITIMER_REAL, *left)


def test_elsewhere_it_is_left_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = threading.Event()
    error = in_a_thread(lambda: limited(stop.wait, 0.02))
    assert isinstance(error, TooLong)
    assert error.still_running
    monkeypatch.delattr(signal, "setitimer")
    with pytest.raises(TooLong) as caught:
        limited(stop.wait, 0.02)
    assert caught.value.still_running
    stop.set()


def judged_forever() -> Verdict:
    while True:
        time.sleep(0.001)


def of(judge: Callable[[], Verdict], monkeypatch: pytest.MonkeyPatch) -> Verdict:
    tasks = {"99_slow": Exercise("99_slow", "", lambda namespace: judge())}
    monkeypatch.setattr(exercises, "exercises", lambda: tasks)
    return exercises.check("99_slow", {})


def test_a_check_says_that_it_took_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    settings().check_seconds = 0.02
    verdict = of(judged_forever, monkeypatch)
    assert not verdict.solved
    assert verdict.message == "it took longer than 0.02 s (%config OptBook.check_seconds sets the limit)"
    monkeypatch.delattr(signal, "setitimer")
    stop = threading.Event()
    verdict = of(lambda: Verdict(stop.wait(), ""), monkeypatch)
    assert "still runs: restart the kernel" in verdict.message
    stop.set()


def test_a_gain_that_takes_too_long_to_measure_spoils_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    settings().check_seconds = 0.02
    task = Exercise("99_slow", "", lambda _: Verdict(True, "right"), lambda *_: judged_forever().message)
    monkeypatch.setattr(exercises, "exercises", lambda: {"99_slow": task})
    verdict = exercises.check("99_slow", {})
    assert verdict.solved
    assert verdict.advice.startswith("Its speed could not be measured: it took longer than 0.02 s")


def test_objects_that_raise_while_judged_are_a_verdict_and_our_own_errors_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def bad() -> Verdict:
        raise RuntimeError("hostile\n<b>")

    def ours() -> Verdict:
        raise OptbookError("a mistake of the chapter")

    assert of(bad, monkeypatch).message == "judging it raised RuntimeError: hostile <b>"
    with pytest.raises(OptbookError, match="mistake of the chapter"):
        of(ours, monkeypatch)


def test_a_cell_of_a_notebook_is_limited_and_its_lines_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    task = fill_in(
        "99_id", "same", "", inputs=lambda rng: (rng.random(3),), reference=lambda values: values * 1
    )
    monkeypatch.setattr(exercises, "exercises", lambda: {"99_id": task})
    with shell_with_optbook() as shell:
        shell.run_line_magic("config", "OptBook.check_seconds = 0.2")
        shell.run_cell("def same(values):\n    while True:\n        pass")
        assert "took longer than 0.2 s" in str(shell.run_line_magic("check", "99_id"))
        shell.run_cell("def same(values):\n    half = values / 2\n    return half.shape[7]")
        found = str(shell.run_line_magic("check", "99_id"))
        assert "raised IndexError" in found
        assert "in line 3: return half.shape[7]" in found
        with pytest.raises(UsageError, match="no exercise '<script>'"):
            shell.run_line_magic("check", "<script>")


def test_the_limit_is_validated() -> None:
    for bad in (0, -1, float("inf"), float("nan")):
        with pytest.raises(Exception, match=r"OptBook\.check_seconds is"):
            settings().check_seconds = bad
