"""Exercises that check themselves: ``%check name``.

A chapter's exercises are the tuple ``EXERCISES`` of its module. There are three kinds::

    choice("04_share", "largest", "b", {"a": "no, since …", "b": "right: …"}, "why b")
    fill_in(  # see optbook.workshop.fill_in, where `open_ended` is as well
        "04_together",
        "all_at_once",
        solution="def all_at_once(boxes, grid): …",
        inputs=lambda rng: (rng.uniform(0, 60, (6, 4)), 32),
        reference="optbook.hotdog.targets:draw_cell_by_cell",
    )
    Exercise("04_mine", solution="mine = 3", judge=judge_mine)

``judge`` takes the reader's variables and returns a `Verdict`; of an exercise left empty it says "set …".
`check` sets it a time limit, measures the gain, and records in the log that the exercise was solved.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from optbook import settings as configuration
from optbook.benchmark.clock import Clock
from optbook.errors import OptbookError, OptionError
from optbook.experiments.log import record_solved, solved
from optbook.experiments.solved import Solved
from optbook.workshop.chapters import CHAPTERS
from optbook.workshop.limit import TooLong, limited, raised

__all__ = ["Exercise", "Solution", "Verdict", "check", "choice", "exercises", "find", "solution", "solved"]


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
    """``judge`` looks at the reader's variables; ``solution`` is code that solves it in its cell.

    ``gain`` measures what a right solution brings, and says it in a sentence.
    """

    name: str
    solution: str
    judge: Callable[[Mapping[str, Any]], Verdict]
    gain: Callable[[Mapping[str, Any], Clock | None], str] | None = None


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


def check(name: str, namespace: Mapping[str, Any] | None = None, clock: Clock | None = None) -> Verdict:
    """Judge an exercise by the reader's variables (those of ``__main__`` if no ``namespace`` is given).

    The reader's code may run for `OptBook.check_seconds`. The result decides; what it gains, on ``clock``,
    is said as advice. That it was solved is recorded in the log.

    Raises:
        OptionError: there is no such exercise.
    """
    if namespace is None:
        import __main__

        namespace = vars(__main__)
    exercise = find(name)
    verdict = _within_limit(lambda: exercise.judge(namespace))
    if not verdict.solved:
        return verdict
    advice = [verdict.advice]
    if exercise.gain is not None:
        measure = exercise.gain
        gained = _within_limit(lambda: Verdict(True, measure(namespace, clock)))
        too_long = "" if gained.solved else "Its speed could not be measured: "
        advice.append(too_long + gained.message)
    advice.append(record_solved(Solved.now(name, configuration.settings().participant)))
    return replace(verdict, advice=" ".join(filter(None, advice)))


def _within_limit(judge: Callable[[], Verdict]) -> Verdict:
    try:
        return limited(judge, configuration.settings().check_seconds)
    except TooLong as late:
        goes_on = ", and still runs: restart the kernel to end it" if late.still_running else ""
        return Verdict(False, f"{late}{goes_on} (%config OptBook.check_seconds sets the limit)")
    except OptbookError:
        raise
    except Exception as error:  # the reader's objects may raise wherever they are touched
        return Verdict(False, f"judging it {raised(error)}")


def solution(name: str) -> Solution:
    """Code that solves the exercise.

    Raises:
        OptionError: there is no such exercise.
    """
    return Solution(name, find(name).solution)
