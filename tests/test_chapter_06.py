"""The exercises of chapter 06: the history without a leak, and the recipe that keeps little."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from optbook.hotdog.pixels import decode_small
from optbook.hotdog.recipe import Recipe
from optbook.hotdog.training import remember_number
from optbook.workshop.exercises import check, solution

RECIPE = Recipe.first().replace(width=2, input_size=32, batch_size=2)


@pytest.mark.parametrize(
    ("remember", "message"),
    [
        (lambda losses: losses.total.item(), ""),
        (lambda losses: losses.total.detach(), ""),
        (lambda losses: (losses.heat + losses.sides).detach().clone(), ""),
        (lambda losses: losses.total, "has a grad_fn still"),
        (lambda losses: losses.total * 1, "has a grad_fn still"),
        (lambda losses: losses.total.detach().requires_grad_(), "has a grad_fn still"),
        (lambda losses: losses.heat.item(), "where losses.total is"),
        (lambda losses: 0.5, "it returns 0.5 where"),
        (lambda losses: torch.zeros(2), "a tensor of shape (2,)"),
        (lambda losses: losses, "it returns a SimpleNamespace"),
        (lambda losses: None, "it returns a NoneType"),
        (lambda losses: str(losses.total.item()), "it returns a str"),
        (3, "remember_lightly is a int: it should be a function"),
        (None, "set remember_lightly to a function"),
    ],
)
def test_what_is_remembered_is_the_loss_and_nothing_hangs_on_it(remember: Any, message: str) -> None:
    verdict = check("06_leak", {"remember_lightly": remember})
    assert verdict.solved == (not message)
    assert message in verdict.message


def changed(**changes: Any) -> Callable[[], Recipe]:
    light = {"decode": decode_small, "dtype": torch.float32, "remember": remember_number}
    return lambda: RECIPE.replace(**light | changes)


def dark(source: Any, size: int) -> Any:
    return np.zeros((size, size, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    ("lean", "message"),
    [
        (changed(), ""),
        (changed(keep_decoded=True), ""),
        (lambda: Recipe.tuned().replace(width=2, input_size=32, batch_size=2), ""),
        (changed(decode=RECIPE.decode), "more than half"),
        (changed(remember=RECIPE.remember), "its history holds on to the graph"),
        (changed(batch_size=1), "lean.batch_size is 1: leave it at 2"),
        (changed(input_size=16), "lean.input_size is 16: leave it at 32"),
        (changed(decode=dark), "it learns something else"),
        (lambda: RECIPE, "its history holds on"),
        (lambda: "lean", "lean is a str, not a recipe"),
        (lambda: Recipe, "lean is a type, not a recipe"),
    ],
)
def test_a_lean_recipe_keeps_half_and_learns_the_same(lean: Callable[[], Any], message: str) -> None:
    verdict = check("06_lean", {"lean": lean(), "recipe": RECIPE})
    assert verdict.solved == (not message), verdict
    assert message in verdict.message


def test_a_lean_recipe_is_held_against_the_first_version_whatever_the_readers_is() -> None:
    lighter = RECIPE.replace(decode=decode_small, dtype=torch.float32, remember=remember_number)
    assert check("06_lean", {"lean": lighter, "recipe": lighter}).solved
    assert "run the cell that sets recipe first" in check("06_lean", {"lean": lighter}).message


def test_solutions_pass() -> None:
    scope: dict[str, Any] = {"recipe": RECIPE, "torch": torch, "decode_small": decode_small}
    for name in ("06_leak", "06_lean"):
        exec(solution(name).code, scope)
        verdict = check(name, scope)
        assert verdict.solved, verdict
        assert verdict.advice
