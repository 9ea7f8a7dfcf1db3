from __future__ import annotations

import json
from pathlib import Path

import pytest

from optbook.errors import OptionError
from optbook.workshop import chapters, exercises


def test_navigation_links_neighbours() -> None:
    first, last = chapters.CHAPTERS[0], chapters.CHAPTERS[-1]
    assert "←" not in chapters.navigation(first.name)
    assert f"]({chapters.CHAPTERS[1].name}.ipynb)" in chapters.navigation(first.name)
    assert "→" not in chapters.navigation(last.name)
    with pytest.raises(KeyError, match="no chapter '99'"):
        chapters.navigation("99")


def test_navigation_is_written_into_tagged_cells_only(tmp_path: Path) -> None:
    for chapter in chapters.CHAPTERS:
        cells = [
            {"metadata": {"tags": ["navigation"]}, "source": ["old"]},
            {"metadata": {}, "source": ["kept"]},
        ]
        (tmp_path / f"{chapter.name}.ipynb").write_text(json.dumps({"cells": cells}))
    assert len(chapters.write_navigation(tmp_path)) == len(chapters.CHAPTERS)
    assert chapters.write_navigation(tmp_path) == []
    cells = json.loads((tmp_path / f"{chapters.CHAPTERS[0].name}.ipynb").read_text())["cells"]
    assert cells[0]["source"] == [chapters.navigation(chapters.CHAPTERS[0].name)]
    assert cells[1]["source"] == ["kept"]


def test_a_predict_question_has_a_reply_for_each_answer() -> None:
    question = exercises.choice("q", "guess", "b", {"a": "no, since", "b": "yes"}, "why")
    assert question.judge({"guess": "b"}) == exercises.Verdict(True, "yes")
    assert question.judge({"guess": " A "}) == exercises.Verdict(False, "no, since")
    for missing in ({}, {"guess": ...}, {"guess": None}):
        assert "set guess to one of 'a', 'b'" in question.judge(missing).message
    assert "guess is 7: choose" in question.judge({"guess": 7}).message
    scope: dict[str, object] = {}
    exec(question.solution, scope)
    assert question.judge(scope).solved


@pytest.mark.parametrize("name", list(exercises.exercises()))
def test_the_empty_exercise_is_not_solved_and_says_what_to_do(name: str) -> None:
    verdict = exercises.check(name, {})
    assert not verdict.solved
    assert verdict.message.startswith("set ")


def test_the_fill_ins_judge_the_result() -> None:
    def prices() -> object:
        yield from range(40)

    good = "prices = make()"
    for prepare, message in [
        (good, "every run gets forty prices"),
        ("prices = list(make())", "prices is a list then"),
        ("prices = iter([1])", "prices holds 1 values"),
        ("prices = prices", "before run 2 prices holds 0 values"),
        ("1 / 0", "raised ZeroDivisionError"),
        ("", "set prepare to a string"),
    ]:
        space = {"prepare": prepare, "make": prices, "prices": iter(range(40))}
        verdict = exercises.check("01_setup", space)
        assert message in verdict.message
        assert verdict.solved == (prepare == good)


def test_unknown_exercises_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match="no exercise '<b>': there are 00_guess"):
        exercises.check("<b>")
    assert exercises.solution("00_guess").code.startswith("guess = 'b'")
    assert "<pre>" in exercises.solution("00_guess")._repr_html_()
    assert "&lt;b&gt;" in exercises.Verdict(False, "<b>", "<b>")._repr_html_()
