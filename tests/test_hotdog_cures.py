"""The cures: each alone, in any order, and all together as the tuned recipe."""

from __future__ import annotations

import dataclasses
import math
import random
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from optbook.hotdog.coco import Picture
from optbook.hotdog.cures import CURES, Cure
from optbook.hotdog.detect import detect
from optbook.hotdog.flaws import FLAWS
from optbook.hotdog.recipe import Recipe
from optbook.hotdog.training import train
from tests.test_hotdog_stages import paint


@pytest.fixture
def pictures(tmp_path: Path) -> list[Picture]:
    return paint(tmp_path) * 2


def small(recipe: Recipe) -> Recipe:
    return recipe.replace(input_size=32, width=4, batch_size=3, epochs=2)


def assert_trains(recipe: Recipe, pictures: list[Picture]) -> None:
    trained = train(recipe, pictures, progress=False)
    assert len(trained.losses) == recipe.epochs * math.ceil(len(pictures) / recipe.batch_size)
    assert all(math.isfinite(loss) for loss in trained.losses)
    assert len(detect(trained.network, recipe, pictures)) == 6


def test_the_tuned_recipe_is_the_first_with_every_cure() -> None:
    everything = {name: value for cure in CURES for name, value in cure.changes.items()}
    assert Recipe.tuned() == Recipe.first().replace(**everything)


def test_cures_change_fields_of_their_own_and_say_where_they_are_treated() -> None:
    fields = {field.name for field in dataclasses.fields(Recipe)}
    changed = [name for cure in CURES for name in cure.changes]
    assert len(changed) == len(set(changed))
    assert set(changed) <= fields
    assert len({cure.name for cure in CURES}) == len(CURES)
    for cure in CURES:
        assert re.fullmatch(r"[CKM]\d", cure.row)
        assert cure.chapter in ("04", "05", "06")
        if cure.component is not None:
            assert cure.component in {f"recipe.{name}" for name in cure.changes}
            assert callable(getattr(Recipe.first(), cure.component.removeprefix("recipe.")))


def test_every_flaw_has_its_cures() -> None:
    changed = {name for cure in CURES for name in cure.changes}
    for flaw in FLAWS:
        assert set(flaw.fields) <= changed, flaw.what


@pytest.mark.parametrize("cure", CURES, ids=lambda cure: cure.name)
def test_each_cure_works_alone(cure: Cure, pictures: list[Picture]) -> None:
    assert_trains(small(Recipe.first()).replace(**cure.changes), pictures)


@pytest.mark.parametrize("cure", CURES, ids=lambda cure: cure.name)
def test_the_tuned_recipe_works_without_each_cure(cure: Cure, pictures: list[Picture]) -> None:
    first = Recipe.first()
    back = {name: getattr(first, name) for name in cure.changes}
    assert_trains(small(Recipe.tuned()).replace(**back), pictures)


@pytest.mark.parametrize("seed", range(6))
def test_cures_work_in_any_order(seed: int, pictures: list[Picture]) -> None:
    chance = random.Random(seed)
    some = chance.sample(CURES, chance.randint(2, len(CURES) - 1))
    recipe = small(Recipe.first())
    for cure in some:
        recipe = recipe.replace(**cure.changes)
    assert_trains(recipe, pictures)


def test_the_tuned_recipe_repeats_with_its_seed(pictures: list[Picture]) -> None:
    recipe = small(Recipe.tuned())
    one, same = (train(recipe, pictures, progress=False).losses for _ in range(2))
    assert one == same
    assert train(recipe.replace(seed=1), pictures, progress=False).losses != one


def test_first_and_tuned_give_batches_that_teach_the_same(pictures: list[Picture]) -> None:
    """Without chance, the tuned batches are the first version's but for how pictures are shrunk."""
    first, tuned = (
        list(small(recipe).loader(pictures, training=False)) for recipe in (Recipe.first(), Recipe.tuned())
    )
    for one, other in zip(first, tuned, strict=True):
        assert other.images.dtype == torch.float32
        assert np.abs(one.images.numpy() - other.images.numpy()).mean() < 0.02
        for name in ("heat", "sides", "close"):
            assert torch.allclose(getattr(one, name).float(), getattr(other, name), atol=1e-4)
