"""What a check of a function lets pass, and what it can't be fooled by."""

from __future__ import annotations

import copy
import functools
import importlib
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optbook
from optbook.errors import OptionError
from optbook.optimize.outputs import same_outputs
from optbook.workshop import exercises
from optbook.workshop.exercises import Exercise, Verdict
from optbook.workshop.fill_in import fill_in, open_ended
from optbook.workshop.original import imported
from tests.fakes import FakeClock

SLOW = '''
def square(values):
    """Square them, one by one."""
    done = values.copy()
    for i in range(len(values)):
        done[i] = values[i] * values[i]
    return done
'''


def numbers(rng: np.random.Generator) -> tuple[Any]:
    return (rng.normal(size=20),)


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module in which the first version lies, as the reader would import it."""
    (tmp_path / "slow_squares.py").write_text(SLOW)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "slow_squares", raising=False)
    return importlib.import_module("slow_squares")


def exercise(make: Callable[..., Exercise] = fill_in, **more: Any) -> Exercise:
    options = {"inputs": numbers, "reference": "slow_squares:square", **more}
    return make("99_squares", "fast", "fast = lambda values: values * values", **options)


def judged(fast: object, **more: Any) -> Verdict:
    return exercise(**more).judge({"fast": fast})


def in_cell(source: str) -> Callable[..., Any]:
    scope: dict[str, Any] = {}
    exec(compile(source, "<cell>", "exec"), scope)
    function: Callable[..., Any] = scope["fast"]
    return function


@pytest.mark.usefixtures("slow")
def test_a_right_result_passes() -> None:
    assert judged(lambda values: values * values) == Verdict(
        True, "fast gives the results of the first version, on 3 random inputs"
    )
    scope: dict[str, Any] = {}
    exec(exercise().solution, scope)
    assert exercise().judge(scope).solved


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize(
    ("fast", "message"),
    [
        (..., "set fast to a function"),
        (None, "set fast to a function"),
        (7, "fast is a int: set it to a function"),
        (lambda values: ..., "fast returns Ellipsis"),
        (lambda values: None, "fast returns None"),
        (lambda values: values, "(first: the first version, second: fast)"),
        (lambda values: (values * values)[:-1], "has shape (20,) in the first, (19,) in the second"),
        (lambda values: (values * values).astype(np.float32), "is float64 in the first, float32"),
        (lambda values: values * np.nan, "nan in the second"),
        (lambda values: list(values * values), "a list in the second"),
        (lambda values: iter(values * values), "fast returned something else"),
        (lambda: 1, "raised TypeError"),
        (lambda values: sys.exit("bye"), "raised SystemExit: bye"),
        (lambda values: {"one": "<b>"}.pop("<b>"), "raised KeyError: '<b>'"),
    ],
)
def test_what_is_wrong_is_said(fast: object, message: str) -> None:
    verdict = judged(fast)
    assert not verdict.solved
    assert message in str(verdict)
    assert "\n" not in str(verdict)
    assert "<b>" not in verdict._repr_html_().replace('<b style="color', "").replace("</b>", "")


@pytest.mark.usefixtures("slow")
def test_what_is_raised_comes_with_its_line() -> None:
    fast = in_cell("def fast(values):\n    half = values / 2\n    return half.nothing_such\n")
    assert "has no attribute 'nothing_such' in line 3" in judged(fast).message


@pytest.mark.usefixtures("slow")
def test_objects_that_claim_to_be_equal_or_raise_when_touched_do_not_pass() -> None:
    class Yes:
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    class Touchy:
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError("don't touch")

    assert not judged(lambda values: Yes()).solved
    assert not judged(lambda values: Touchy()).solved
    assert not judged(Touchy()).solved


def test_the_first_version_is_noticed_however_it_is_reached(slow: types.ModuleType) -> None:
    square = slow.square
    same_code = types.FunctionType(square.__code__, {"len": len, "range": range})
    typed_again = in_cell(SLOW.replace("square", "fast").replace("one by one", "in a loop"))
    for fast in (square, functools.partial(square), same_code, typed_again, copy.copy(square)):
        assert "is the first version itself" in judged(fast).message
        assert "is the first version itself" in judged(fast, may_call_reference=True).message

    def in_a_thread(values: Any) -> Any:
        results: list[Any] = []
        thread = threading.Thread(target=lambda: results.append(square(values)))
        thread.start()
        thread.join()
        return results[0]

    def from_a_fresh_copy(values: Any) -> Any:
        return imported("slow_squares:square")(values)

    for fast in (lambda values: square(values) + 0, in_a_thread, from_a_fresh_copy):
        assert "calls the first version itself" in judged(fast).message
        assert judged(fast, make=open_ended).solved


def test_a_first_version_of_c_is_noticed_too() -> None:
    task = exercise(reference=sorted, inputs=lambda rng: (list(rng.integers(0, 9, 5)),))
    assert "calls the first version itself" in task.judge({"fast": lambda values: sorted(values)}).message
    assert task.judge({"fast": lambda values: (values.sort(), values)[1]}).solved


def test_patching_the_first_version_changes_nothing(
    slow: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow, "square", lambda values: values)
    assert not judged(lambda values: values).solved
    slow.square.__code__ = (lambda values: values + 1).__code__
    assert not judged(lambda values: values + 1).solved
    assert judged(lambda values: values**2).solved


def test_putting_other_code_into_a_reference_changes_nothing() -> None:
    def square(values: Any, *, power: int = 2) -> Any:
        return values**power

    task = exercise(reference=square)
    square.__code__ = (lambda values, *, power=2: values).__code__
    assert not task.judge({"fast": lambda values: values}).solved
    assert task.judge({"fast": lambda values: values * values}).solved


@pytest.mark.usefixtures("slow")
def test_inputs_are_fresh_and_whoever_changes_them_changes_only_their_own() -> None:
    seen: list[Any] = []

    def fast(values: Any) -> Any:
        seen.append(values.copy())
        values *= values
        return values

    assert judged(fast).solved
    assert judged(fast).solved
    assert len({tuple(each) for each in seen}) == 6
    answers = [each * each for each in seen]
    assert not judged(lambda values: answers[0]).solved
    space = {"fast": lambda values: values, "values": np.zeros(20), "numbers": lambda rng: (np.zeros(20),)}
    assert not exercise().judge(space).solved


@pytest.mark.usefixtures("slow")
def test_the_expected_result_can_not_be_found_on_the_stack() -> None:
    def fast(values: Any) -> Any:
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None:
            for name in ("expected", "result", "_original"):
                if isinstance(frame.f_locals.get(name), np.ndarray):
                    return frame.f_locals[name]
            frame = frame.f_back
        return values

    assert not judged(fast).solved


@pytest.mark.usefixtures("slow")
def test_how_it_is_used_and_what_is_equal_can_be_said() -> None:
    def lazily(f: Callable[..., Any], values: Any) -> Any:
        return list(f(values))

    assert judged(lambda values: (v * v for v in values), call=lazily).solved
    assert judged(3, call=lambda how, values: values * values if how == 3 else how(values)).solved
    close = functools.partial(same_outputs, rtol=1e-3, strict=False)
    assert judged(lambda values: (values * values).astype(np.float32), same=close).solved
    assert "set fast to your version" in judged(None, call=lazily).message


def test_the_watch_is_put_away(slow: types.ModuleType) -> None:
    def profiler(*_: object) -> None: ...

    before = sys.getprofile()
    sys.setprofile(profiler)
    try:
        judged(lambda values: 1 / 0)
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(before)


@pytest.mark.usefixtures("slow")
def test_the_gain_is_advice_by_a_clock_that_can_be_faked() -> None:
    fake = FakeClock()

    def of(fast_seconds: float, slow_seconds: float) -> str:
        def call(f: Any, values: Any) -> Any:
            fake.spend(fast_seconds if f is fast else slow_seconds)
            return f(values)

        def fast(values: Any) -> Any:
            return values * values

        task = exercise(call=call)
        assert task.gain is not None
        assert task.judge({"fast": fast}).solved
        return task.gain({"fast": fast}, fake.clock)

    assert of(0.01, 0.02).startswith("It is faster here: 2.00×")
    assert of(0.02, 0.01).startswith("It is slower here: 0.50×")
    assert of(0.01, 0.01).startswith("No difference in speed was seen: 1.00×")
    task = exercise()
    assert task.gain is not None
    broken = {"fast": lambda values: 1 / 0}
    assert "could not be measured: it raised ZeroDivisionError" in task.gain(broken, fake.clock)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("no_such_module_here:f", "can't be imported: write package.module:name"),
        ("no_such.module_here:f", "can't be imported: write package.module:name"),
        ("math", "can't be imported: write package.module:name"),
        ("json:nothing", "json has no nothing"),
    ],
)
def test_a_reference_that_is_not_there_is_the_chapters_mistake(place: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        judged(len, reference=place)


@pytest.mark.usefixtures("slow")
def test_check_gives_the_gain_and_records_that_it_is_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeClock()

    def call(f: Any, values: Any) -> Any:
        fake.spend(0.01)
        return f(values)

    tasks = {"99_squares": exercise(call=call)}
    monkeypatch.setattr(exercises, "exercises", lambda: tasks)
    wrong = exercises.check("99_squares", {"fast": lambda values: values}, fake.clock)
    assert not wrong.solved
    assert len(exercises.solved()) == 0
    right = exercises.check("99_squares", {"fast": lambda values: values**2}, fake.clock)
    assert right.solved
    assert "No difference in speed was seen" in right.advice
    assert exercises.solved()["exercise"].tolist() == ["99_squares"]
    assert len(optbook.log()) == 0
