"""Exercises that check themselves: ``%check name``."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from optbook.errors import OptionError
from optbook.workshop.chapters import CHAPTERS


@dataclass(frozen=True)
class Verdict:
    """Whether an exercise is solved, why (or what to try), and what else helps."""

    solved: bool
    message: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{'✓' if self.solved else '…'} {self.message}" + (f"\n  {self.advice}" if self.advice else "")

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        colour = "var(--jp-success-color1,#00695c)" if self.solved else "var(--jp-warn-color1,#a15c00)"
        advice = f"<div>{escape(self.advice)}</div>" if self.advice else ""
        mark = "✓ solved" if self.solved else "not yet"
        return f'<div><b style="color:{colour}">{mark}</b> {escape(self.message)}{advice}</div>'


@dataclass(frozen=True)
class Exercise:
    """``judge`` looks at the reader's variables; ``solution`` is code that solves it in its cell."""

    name: str
    solution: str
    judge: Callable[[Mapping[str, Any]], Verdict]


@dataclass(frozen=True)
class Solution:
    """Code that solves an exercise, shown and not run."""

    name: str
    code: str

    def __str__(self) -> str:
        return self.code

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self.code)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.code)}</pre>"


def choice(name: str, variable: str, answer: str, replies: Mapping[str, str], because: str) -> Exercise:
    """A predict question: the reader sets ``variable`` to a letter; each wrong one has its own reply."""

    def judge(namespace: Mapping[str, Any]) -> Verdict:
        given = namespace.get(variable, ...)
        if given is ... or given is None or given == "":
            return Verdict(False, f"set {variable} to one of {', '.join(map(repr, replies))}")
        letter = str(given).strip().lower()
        if letter not in replies:
            return Verdict(False, f"{variable} is {given!r}: choose one of {', '.join(map(repr, replies))}")
        return Verdict(letter == answer, replies[letter])

    return Exercise(name, f"{variable} = {answer!r}  # {because}", judge)


def exercises() -> dict[str, Exercise]:
    """All exercises by name, in the order of the chapters."""
    found: dict[str, Exercise] = {}
    for chapter in CHAPTERS:
        module = importlib.import_module(f"optbook.workshop.chapter_{chapter.name.partition('_')[0]}")
        found |= {exercise.name: exercise for exercise in module.EXERCISES}
    return found


def find(name: str) -> Exercise:
    """The exercise of that name.

    Raises:
        OptionError: there is none; the message lists what there is.
    """
    known = exercises()
    if name not in known:
        raise OptionError(f"no exercise {name!r}: there are {', '.join(known)}")
    return known[name]


def check(name: str, namespace: Mapping[str, Any] | None = None) -> Verdict:
    """Judge an exercise by the reader's variables (those of ``__main__`` if no ``namespace`` is given).

    Raises:
        OptionError: there is no such exercise.
    """
    if namespace is None:
        import __main__

        namespace = vars(__main__)
    return find(name).judge(namespace)


def solution(name: str) -> Solution:
    """Code that solves the exercise.

    Raises:
        OptionError: there is no such exercise.
    """
    return Solution(name, find(name).solution)
