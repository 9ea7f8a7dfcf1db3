"""The exercises of chapter 02 are judged by profiles: here by made-up ones."""

from __future__ import annotations

from typing import Any

import pytest

from optbook.benchmark.profiles.calls import CallProfile, Function
from optbook.benchmark.profiles.lines import Line, LineProfile, Listing
from optbook.benchmark.profiles.passes import Pass
from optbook.benchmark.profiles.places import Kind, Place
from optbook.experiments.record import Experiment
from optbook.workshop.chapter_02 import heaviest
from optbook.workshop.exercises import check, solution

RUN = Pass(seconds=1.0, bare=1.0, total=10.0, executions=1, steps=4)
BARE = Experiment(label="made up")


def place(name: str, kind: Kind = "your code", line: int = 1) -> Place:
    return Place(name, "made_up.py", line, kind)


def calls() -> CallProfile:
    cell, step, forward = place("cell In[1]"), place("step"), place("HotdogNet.forward")
    warp, targets = place("warp"), place("draw_cell_by_cell")
    stacks = (
        ((cell, place("augment"), warp), 3.0),
        ((cell, warp, place("np.take()", "your code", 0)), 1.0),
        ((cell, step, place("backward", "library")), 2.5),
        ((cell, step, forward, place("conv", "library")), 1.6),
        ((cell, targets), 1.5),
        ((cell, place("augment")), 0.2),
        ((cell,), 0.2),
    )
    names = ("warp", 4.0), ("step", 4.1), ("HotdogNet.forward", 1.6), ("draw_cell_by_cell", 1.5)
    functions = tuple(Function(place(name), 0.0, cumulative) for name, cumulative in names)
    seconds: dict[Kind, float] = {"your code": 5.9, "library": 4.1, "waiting": 0.0}
    return CallProfile(BARE, RUN, seconds, functions, stacks, looks=1000, executions=2)


def loops() -> LineProfile:
    lines = (
        Line(7, 10, 0.1, "for"),
        Line(8, 1000, 0.2, "if"),
        Line(9, 500, 2.0, "a"),
        Line(10, 500, 1.9, "b"),
    )
    return LineProfile(BARE, RUN, (Listing("draw", "made_up.py", (*lines, Line(11, 0, 0.0, ""))),), 2)


def test_time_in_libraries_counts_for_the_function_that_calls_them() -> None:
    shares = heaviest(calls())
    assert list(shares) == ["warp", "step", "HotdogNet.forward", "draw_cell_by_cell", "augment"]
    assert shares["warp"] == pytest.approx(0.4)
    assert shares["step"] == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("given", "solved", "message"),
    [
        ("c", True, "right: warp took 40 %"),
        (" C ", True, "right: warp took 40 %"),
        ("a", False, "HotdogNet.forward took 16 % of the time, warp 40 %: most people suspect"),
        ("b", False, "decode_full_size took 0 %"),
        ("d", False, "the price of a turn"),
        (3, False, "suspect is 3: choose"),
    ],
)
def test_the_suspect_is_who_the_readers_profile_says(given: Any, solved: bool, message: str) -> None:
    verdict = check("02_suspect", {"suspect": given, "calls": calls()})
    assert verdict.solved == solved
    assert message in verdict.message


@pytest.mark.parametrize(
    ("given", "solved", "message"),
    [
        (9, True, "line 9 took 48 %"),
        (10, True, "line 10 took 45 %"),
        (8, False, "ran most often, but"),
        (7, False, "another line took more"),
        (11, False, "busiest is 11: no line of that number was run"),
        ([9], False, "busiest is [9]: no line"),
    ],
)
def test_the_busiest_line_is_one_that_takes_about_the_most(given: Any, solved: bool, message: str) -> None:
    verdict = check("02_busiest", {"busiest": given, "loops": loops()})
    assert verdict.solved == solved
    assert message in verdict.message


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("warp", "step", "forward"), ""),
        (("draw_cell_by_cell", "warp", "step"), ""),
        (("warp", "step"), "should hold three functions"),
        (("warp", "step", "backward"), "'backward' is no function of ours"),
        (("warp", "step", "augment"), "augment itself took 2.0 % of the time: look at"),
        (("warp", "step", 7), "7 is no function of ours"),
    ],
)
def test_the_heaviest_functions_may_differ_where_they_are_close(names: Any, message: str) -> None:
    verdict = check("02_heaviest", {"heaviest": dict.fromkeys(names, "slow"), "calls": calls()})
    assert verdict.solved == (not message)
    assert message in verdict.message


def test_a_word_on_each_function_is_asked_for() -> None:
    given = {"warp": "pixels", "step": "backward", "HotdogNet.forward": "..."}
    assert "say in a few words" in check("02_heaviest", {"heaviest": given, "calls": calls()}).message
    assert "should hold" in check("02_heaviest", {"heaviest": ["warp"], "calls": calls()}).message


@pytest.mark.parametrize(
    ("name", "answer"),
    [("02_suspect", {"suspect": "c"}), ("02_busiest", {"busiest": 9}), ("02_heaviest", {"heaviest": {}})],
)
def test_without_a_profile_the_reader_is_told_which_cell_to_run(name: str, answer: dict[str, Any]) -> None:
    answer = {"heaviest": dict.fromkeys("abc", "slow")} if "heaviest" in answer else answer
    verdict = check(name, {**answer, "calls": 3, "loops": "none"})
    assert not verdict.solved
    assert verdict.message.startswith("run the cell with '%%profile ")


def test_the_solutions_read_the_readers_profiles() -> None:
    scope: dict[str, Any] = {"loops": loops(), "lines": loops()}
    for name in ("02_suspect", "02_busiest", "02_heaviest"):
        exec(solution(name).code, scope)
    assert (scope["suspect"], scope["busiest"]) == ("c", 9)
    assert scope["heaviest"] == {"draw": "to be found out"}
