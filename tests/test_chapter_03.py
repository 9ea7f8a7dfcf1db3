"""The exercises of chapter 03, judged by made-up ceilings, and the list of what to do that ends it."""

from __future__ import annotations

import json
from typing import Any

import pytest

import optbook
from optbook.errors import OptionError
from optbook.simplify.result import Ceiling, Estimate, Pair, Part
from optbook.workshop import todo as module
from optbook.workshop.chapters import Chapter
from optbook.workshop.exercises import check, solution
from optbook.workshop.todo import OF_PARTS, SECTIONS, STAGES, Section, todo
from tests.notebooks import FOLDER


def estimate(ratio: float) -> Estimate:
    return Estimate(ratio, ratio - 0.02, ratio + 0.02)


def ceiling(*gains: tuple[str, float], pairs: tuple[Pair, ...] = (), error: str = "") -> Ceiling:
    parts = [
        Part(name, free=estimate(gain), alone=estimate(2), faster={2.0: estimate(1 + (gain - 1) / 3)})
        for name, gain in gains
    ]
    if error:
        parts.append(Part("broken", error=error))
    return Ceiling("made <up>", "batch", 0.1, tuple(parts), estimate(5.0), pairs)


NIGHT = ceiling(("order", 1.4), ("fry", 1.2), ("pay", 1.0), ("fetch", 0.99))


def draw(boxes: int) -> int:
    return boxes


class Recipe:
    targets = staticmethod(draw)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (optbook.stub("draw", keep=1), ""),
        (optbook.stub(draw, "replay", keep=1), ""),
        (optbook.stub(draw), "it keeps 4 outcomes"),
        (optbook.stub(draw, "skip"), "its kind is 'skip'"),
        (optbook.stub(draw, "sleep", seconds=1.0), "its kind is 'sleep'"),
        (optbook.stub(estimate, keep=1), "this one takes the place of"),
        ("recipe.targets", "stand_in is a str, not a stub"),
        (None, "set stand_in to a stub"),
    ],
)
def test_the_stand_in_is_a_stub_of_the_targets(given: Any, message: str) -> None:
    verdict = check("03_stub", {"stand_in": given, "recipe": Recipe})
    assert verdict.solved == (not message)
    assert message in verdict.message


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["order", "fry", "pay", "fetch"], ""),
        (("order", "fry", "fetch", "pay"), ""),
        (["fry", "order", "pay", "fetch"], "order brings 1.40×, and fry only 1.20×"),
        (["order", "fetch", "fry", "pay"], "fry brings 1.20×, and fetch only 0.99×"),
        (["order", "fry", "pay"], "each of order, fetch, fry, pay once"),
        (["order", "fry", "pay", "pay"], "each of order, fetch, fry, pay once"),
        ("order fry", "each of order"),
        (["order", "fry", "pay", 7], "each of order"),
        ([["order"], "fry", "pay", "fetch"], "each of order"),
    ],
)
def test_the_order_is_that_of_the_readers_own_ceiling(given: Any, message: str) -> None:
    verdict = check("03_rank", {"ranking": given, "night": NIGHT})
    assert verdict.solved == (not message)
    assert message in verdict.message


def test_functions_count_by_their_names_and_hidden_parts_are_told() -> None:
    def order() -> None: ...

    pairs = (Pair("fry", "fetch", estimate(1.6)),)
    night = ceiling(("order", 1.4), ("fry", 1.2), ("pay", 1.0), ("fetch", 1.0), pairs=pairs)
    verdict = check("03_rank", {"ranking": [order, "fry", "pay", "fetch"], "night": night})
    assert verdict.solved
    assert verdict.advice == "Fetch is hidden by fry."


@pytest.mark.parametrize(
    ("night", "message"),
    [
        (None, "take a ceiling of serve_at_night first"),
        ("1.4", "take a ceiling of serve_at_night first"),
        (ceiling(("order", 1.4), ("fry", 1.2)), "does not tell about fetch, pay: name all four"),
    ],
)
def test_without_a_ceiling_the_reader_is_told_how(night: Any, message: str) -> None:
    verdict = check("03_rank", {"ranking": ["order"], "night": night})
    assert not verdict.solved
    assert message in verdict.message


def test_the_solution_ranks_by_a_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def of(*given: Any, **options: Any) -> Ceiling:
        asked.extend(given)
        return NIGHT

    monkeypatch.setattr(optbook, "ceiling", of)
    scope: dict[str, Any] = {"optbook": optbook, "GUESTS": 3, "MOMENT": 1}
    exec(solution("03_rank").code, scope)
    assert scope["ranking"] == ["order", "fry", "pay", "fetch"]
    assert sorted(asked[1]) == ["fetch", "fry", "order", "pay"]


def test_the_list_begins_with_the_largest_gain_and_ends_with_what_to_leave() -> None:
    pairs = (Pair("recipe.step", "recipe.decode", estimate(2.4)),)
    made = todo(
        ceiling(
            ("recipe.augment", 1.4),
            ("recipe.step", 1.9),
            ("recipe.targets", 1.01),
            ("recipe.decode", 1.0),
            pairs=pairs,
            error="it can't be",
        )
    )
    assert [item.component for item in made.items] == ["recipe.step", "recipe.augment", "recipe.decode"]
    assert made.items[2].after == "recipe.step"
    assert made.left == ("recipe.targets",)
    text = str(made)
    assert "1. recipe.step: at most 1.90× (1.88 to 1.92); 2× as fast 1.30×" in text
    assert "3. recipe.decode: at most 2.40× (2.38 to 2.42), after recipe.step" in text
    assert "leave as it is: recipe.targets" in text
    assert "chapter 04" in text
    assert "broken" not in text


def test_the_list_is_escaped_and_links_only_to_chapters_that_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = todo(ceiling(("recipe.targets", 1.5), ("<b>", 1.4)))
    section = SECTIONS[OF_PARTS["targets"][0]]
    monkeypatch.setattr(module, "CHAPTERS", (Chapter("03_simplify", "Simplify"),))
    assert "<a " not in made._repr_html_()
    assert "<b>&" not in made._repr_html_()
    assert "&lt;b&gt;" in made._repr_html_()
    assert "made &lt;up&gt;" in made._repr_html_()
    monkeypatch.setattr(module, "CHAPTERS", (Chapter("04_optimize", "Optimize"),))
    assert section.link == f"04_optimize.ipynb#{section.heading.replace(' ', '-')}"
    assert f'<a href="{section.link}">' in made._repr_html_()
    assert Section("05", "Nobody waits").link == ""


def test_what_is_not_known_is_to_be_looked_at_and_nothing_to_do_is_said() -> None:
    assert "chapter 02 again" in str(todo(ceiling(("my_function", 1.5))))
    nothing = todo(ceiling(("recipe.step", 1.0)))
    for shown in (str(nothing), nothing._repr_html_()):
        assert "none of these parts is worth it" in shown
        assert "leave as it is: recipe.step" in shown


@pytest.mark.parametrize("given", [..., None, "parts"])
def test_a_list_needs_a_ceiling(given: Any) -> None:
    with pytest.raises(OptionError, match=r"give the result of %%ceiling -o name"):
        todo(given)


def test_every_row_and_stage_that_is_named_exists() -> None:
    assert {row for rows in OF_PARTS.values() for row in rows} <= set(SECTIONS)
    assert set(STAGES.values()) <= set(OF_PARTS)


def test_every_row_of_optimize_has_a_section_that_is_there_and_a_stage_that_leads_to_it() -> None:
    rows = [f"C{i}" for i in range(5)] + [f"K{i}" for i in range(1, 5)] + [f"M{i}" for i in range(6)]
    assert list(SECTIONS) == rows
    assert {row for rows in OF_PARTS.values() for row in rows} == set(SECTIONS)
    for section in SECTIONS.values():
        (path,) = FOLDER.glob(f"{section.chapter}_*.ipynb")
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        lines = [line.strip() for cell in cells if cell["cell_type"] == "markdown" for line in cell["source"]]
        assert f"## {section.heading}" in lines, section
        assert section.link.startswith(path.name)
