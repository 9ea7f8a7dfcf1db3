"""The recipe: its settings are checked, its fields replaced, its flaws documented."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
import torch

from optbook.hotdog import flaws
from optbook.hotdog.recipe import Recipe


def test_replace_changes_one_field_and_leaves_the_rest() -> None:
    first = Recipe.first()
    changed = first.replace(batch_size=8)
    assert changed.batch_size == 8
    assert first.batch_size == Recipe.first().batch_size
    assert changed.replace(batch_size=first.batch_size) == first


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tragets", "no field 'tragets': did you mean 'targets'"),
        ("zzz", "no field 'zzz': it has decode, keep_decoded"),
    ],
)
def test_an_unknown_field_is_named_with_what_may_have_been_meant(name: str, message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        Recipe.first().replace(**{name: 1})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1, not 0"),
        ({"workers": -1}, "workers must be at least 0, not -1"),
        ({"epochs": 0}, "epochs must be at least 1, not 0"),
        ({"input_size": 100}, "input_size must be a multiple of 16, not 100"),
        ({"lr": float("nan")}, "lr must be above 0, not nan"),
        ({"threshold": 1.5}, "threshold must lie between 0 and 1, not 1.5"),
        ({"overlap": 0}, "overlap must lie between 0 and 1, not 0"),
        (
            {"dtype": torch.int64},
            "dtype must be a floating-point type such as torch.float32, not torch.int64",
        ),
        ({"dtype": "float32"}, "dtype must be a floating-point type such as torch.float32, not 'float32'"),
        ({"autocast": True}, "autocast must be None or a type such as torch.bfloat16, not True"),
        ({"cache_bytes": -1}, "cache_bytes must be at least 0, not -1"),
        ({"targets": None}, "targets must be a function, not None"),
        ({"collate": 3}, "collate must be a function, not 3"),
    ],
)
def test_settings_that_cannot_work_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        Recipe.first().replace(**change)


def test_every_flaw_lies_in_fields_of_the_recipe_and_was_reported_by_someone() -> None:
    fields = {field.name for field in dataclasses.fields(Recipe)}
    for flaw in flaws.FLAWS:
        assert flaw.fields
        assert set(flaw.fields) <= fields
        assert re.fullmatch(r"[CKM]\d", flaw.row)
        assert re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+", flaw.report)
        assert flaw.title
    assert len({flaw.what for flaw in flaws.FLAWS}) == len(flaws.FLAWS)
