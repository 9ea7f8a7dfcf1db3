"""The exercises of chapter 04: targets drawn at once, and a stage of the reader's choice."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from optbook.benchmark.clock import Clock
from optbook.hotdog import augment, detect, pixels, suppress, targets
from optbook.hotdog.batched import for_a_batch
from optbook.hotdog.recipe import Recipe
from optbook.workshop.chapter_04 import EXERCISES, STAGES
from optbook.workshop.exercises import Verdict, check, find, solution

NAMES = {**vars(targets), "torch": torch, "Recipe": Recipe, "__name__": "__main__"}


def solved(name: str, **changes: str) -> dict[str, Any]:
    """What the reader's cell defines: the solution, with parts of it replaced."""
    code = solution(name).code
    for right, wrong in changes.items():
        left, _, new = wrong.partition(" -> ")
        assert left in code, right
        code = code.replace(left, new)
    scope = dict(NAMES)
    exec(compile(code, "<cell>", "exec"), scope)
    return scope


def judged(name: str, namespace: dict[str, Any]) -> Verdict:
    """The verdict on the result, without measuring the gain."""
    return find(name).judge(namespace)


@pytest.mark.parametrize("name", [exercise.name for exercise in EXERCISES])
def test_solutions_pass(name: str) -> None:
    verdict = judged(name, solved(name))
    assert verdict.solved, verdict


@pytest.mark.parametrize("name", ["04_loops", "04_keep", "04_cores"])
def test_each_answer_of_a_question_has_a_reply_of_its_own(name: str) -> None:
    (variable,) = set(solved(name)) - set(NAMES) - {"__builtins__"}
    verdicts = [judged(name, {variable: letter}) for letter in "abc"]
    assert sum(verdict.solved for verdict in verdicts) == 1
    assert len({verdict.message for verdict in verdicts}) == 3
    assert all(verdict.message.startswith("right") == verdict.solved for verdict in verdicts)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("ys = np.arange(grid)[:, None] -> ys = ...", "raised TypeError"),
        ("hotter = value > heat[0] -> hotter = ...", "raised TypeError"),
        ("ys = np.arange(grid)[:, None] -> ys = np.arange(grid)", "different results"),
        ("hotter = value > heat[0] -> hotter = value > 0", "different results"),
        ("heat[0]) -> heat[0]) * 0.5", "different results"),
        ("value > CLOSE_ENOUGH -> value > 0.5", "different results"),
        ("grid - 1 -> grid", "different results"),
        ("return Targets(heat, sides, close) -> return heat", "different results"),
        ("return Targets(heat, sides, close) -> return None", "returns None"),
    ],
)
def test_wrong_targets_do_not_pass(change: str, message: str) -> None:
    verdict = judged("04_cells", solved("04_cells", a=change))
    assert not verdict.solved
    assert message in verdict.message


def test_targets_may_be_of_32_bits_and_may_not_be_the_first_versions() -> None:
    assert judged("04_cells", {"draw_at_once": as_reader(targets.draw_with_arrays)}).solved

    def in_float32(boxes: Any, grid: int) -> Any:
        return targets.draw_together([boxes], grid)[0]

    assert judged("04_cells", {"draw_at_once": in_float32}).solved
    verdict = judged("04_cells", {"draw_at_once": as_reader(targets.draw_cell_by_cell)})
    assert not verdict.solved
    assert "calls the first version" in verdict.message


def as_reader(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same, as if the reader had written it."""

    @functools.wraps(function)
    def mine(*arguments: Any) -> Any:
        return function(*arguments)

    mine.__module__ = "__main__"
    return mine


def twice_as_bright(image: Any) -> Any:
    return pixels.normalise(image * 2)


def in_place(image: Any) -> Any:
    image -= pixels.MEAN
    image /= pixels.DEVIATION
    return image.transpose(2, 0, 1)


@pytest.mark.parametrize(
    ("stage", "function"),
    [
        ("augment", as_reader(augment.augment_step_by_step)),
        ("resize", as_reader(pixels.resize_floats)),
        ("normalise", as_reader(pixels.normalise_together)),
        ("normalise", in_place),
        ("targets", as_reader(targets.draw_together)),
        ("find", as_reader(detect.hot_cells_together)),
        ("suppress", as_reader(suppress.suppress_together)),
    ],
)
def test_every_stage_may_be_chosen(stage: str, function: Callable[..., Any]) -> None:
    verdict = judged("04_mine", {"mine": Recipe.first().replace(**{stage: function})})
    assert verdict.solved, verdict
    assert verdict.message.startswith(stage)


def test_the_stages_are_those_of_the_recipe() -> None:
    first = Recipe.first()
    for name, stage in STAGES.items():
        module, _, function = stage.first.partition(":")
        assert getattr(first, name).__module__ == module
        assert getattr(first, name).__qualname__ == function


@pytest.mark.parametrize(
    ("mine", "message"),
    [
        (..., "set mine to a recipe with a stage of yours"),
        (None, "set mine to a recipe with a stage of yours"),
        ("normalise", "mine is a str, not a recipe"),
        (Recipe, "mine is a type, not a recipe"),
        (Recipe.first(), "mine has a function of yours in none of"),
        (Recipe.first().replace(dtype=torch.float32), "mine has a function of yours in none of"),
        (Recipe.first().replace(normalise=in_place, find=detect.hot_cells_together), "normalise, find are"),
        (Recipe.first().replace(find=detect.hot_cells_together), "the workbook's own"),
        (
            Recipe.first().replace(decode=as_reader(pixels.decode_small)),
            "mine has a function of yours in none of",
        ),
        (Recipe.first().replace(normalise=twice_as_bright), "different results"),
        (Recipe.first().replace(normalise=lambda image: None), "returns None"),
        (Recipe.first().replace(normalise=lambda image: 1 / 0), "raised ZeroDivisionError"),
        (Recipe.first().replace(suppress=lambda *given: [0]), "different results"),
        (Recipe.first().replace(targets=for_a_batch(lambda boxes, grid: [0])), "different results"),
    ],
)
def test_a_recipe_that_is_none_of_the_readers_or_gives_something_else(mine: Any, message: str) -> None:
    verdict = judged("04_mine", {"mine": mine})
    assert not verdict.solved
    assert message in verdict.message


def test_the_gain_of_a_stage_is_advice() -> None:
    ticks = itertools.count()
    clock = Clock(lambda: 0.01 * next(ticks), lambda: None, lambda: None)  # every reading is 10 ms later
    verdict = check("04_mine", solved("04_mine"), clock)
    assert verdict.solved
    assert "No difference in speed was seen" in verdict.advice
