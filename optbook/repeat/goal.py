"""`goal`: a throughput worth reaching, why, and what an hour costs; the latest for a unit holds."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from optbook import formatting as write
from optbook.errors import OptionError
from optbook.experiments.goal import Goal
from optbook.experiments.log import session
from optbook.experiments.render import one_line

LONGEST_UNIT, LONGEST_REASON, LONGEST_CURRENCY = 40, 500, 4
EXAMPLE = '%goal 500 samples/s --because "nightly training must end by 8"'
NONE_YET = f"No goal yet: set one with {EXAMPLE}"
_TARGET = re.compile(
    r"(?P<number>[+-]?\d[\d.]*(?:[eE][+-]?\d+)?)\s*(?P<unit>[^\W\d][^/]*?)\s*/\s*(?:s|sec|second)"
)
_PRICE = re.compile(
    r"\s*(?P<before>[^\d\s/.,+-]*)\s*(?P<number>\d[\d.,_]*)\s*(?P<after>[^\d\s/.,+-]*)\s*(?:/\s*h)?\s*"
)


@dataclass(frozen=True)
class Goals:
    """The goals in force: the latest of each unit, in the order in which they were set."""

    goals: tuple[Goal, ...]
    remark: str = ""

    def lines(self) -> list[str]:
        """A sentence each."""
        return [*(sentence(goal) for goal in self.goals), *([self.remark] if self.remark else [])]

    def __str__(self) -> str:
        return "\n".join(self.lines()) or NONE_YET

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        lines = "".join(f"<div>{escape(line)}</div>" for line in self.lines() or [NONE_YET])
        return f'<div class="optbook-goal" style="color:var(--jp-ui-font-color1,currentColor)">{lines}</div>'


def goal(
    target: str | None = None,
    because: str = "",
    price: str | float | None = None,
    training: float | None = None,
) -> Goals:
    """Set a goal, in the log; without a target, show those that are set.

    Parameters
    ----------
    target
        Units per second, such as ``"500 samples/s"``.
    because
        Why it matters.
    price
        What an hour on the machine costs, such as ``"0.90/h"``, ``"$0.90/h"`` or ``0.9``.
    training
        How many units a whole training run takes (samples an epoch × epochs): then times and costs are those
        of a training run.

    Raises
    ------
    OptionError
        One of them can't be used.
    LogError
        The log can't be read or written.
    """
    if target is None:
        if because or price is not None or training is not None:
            raise OptionError(f"the target is missing: write {EXAMPLE}")
        return Goals(in_force(session().store.goals()))
    known = _counted()
    number, unit = parse_target(target, known)
    amount, currency = parse_price(price)
    made = Goal(
        unit=unit,
        target=number,
        because=one_line(because, LONGEST_REASON),
        price=amount,
        currency=currency,
        training=_above_zero(training, "training"),
    )
    session().store.aim(made)
    names = ", ".join(one_line(each, LONGEST_UNIT) for each in known[:6])
    here = not known or unit in known
    return Goals(
        (made,), "" if here else f"No experiment counts {write.plural(unit)} yet; the log has: {names}."
    )


def in_force(goals: Sequence[Goal]) -> tuple[Goal, ...]:
    """The latest of each unit, in the order in which they were set."""
    latest = {goal.unit: goal for goal in goals}
    return tuple(goal for goal in goals if latest[goal.unit] is goal)


def goal_for(unit: str) -> Goal | None:
    """The goal in force for a unit; None if there is none.

    Raises
    ------
    LogError
        The log can't be read.
    """
    return next((each for each in in_force(session().store.goals()) if each.unit == unit), None)


def sentence(goal: Goal) -> str:
    """What is aimed at, why, and what an hour costs."""
    unit = one_line(goal.unit, LONGEST_UNIT)
    parts = [f"Goal: {write.rate(goal.target, unit)}"]
    if goal.because:
        parts.append(f"because {one_line(goal.because, LONGEST_REASON).rstrip('.')}")
    if goal.price is not None:
        parts.append(f"{money(goal.price, goal.currency)} an hour")
    if goal.training is not None:
        parts.append(f"a training run takes {write.number(goal.training)} {write.plural(unit)}")
    return ", ".join(parts) + "."


def money(amount: float, currency: str) -> str:
    """An amount with its currency: ``0.90 €``, ``12.40``, ``0.0031``."""
    written = (
        f"{amount:,.2f}".replace(",", "\u202f") if amount >= 0.1 or amount == 0 else write.number(amount, 2)
    )
    return f"{written}{' ' + one_line(currency, LONGEST_CURRENCY) if currency else ''}"


def parse_target(text: str, known: Sequence[str] = ()) -> tuple[float, str]:
    """Units per second and the unit, in the log's singular.

    Parameters
    ----------
    text
        Such as ``500 samples/s``.
    known
        Units that the log counts, against which a misspelt one is held.

    Raises
    ------
    OptionError
        It is no positive number of units per second, or the unit is nearly one of the known ones.
    """
    found = _TARGET.fullmatch(text.strip())
    number = _number(found["number"]) if found else math.nan
    if found is None or math.isnan(number):
        raise OptionError(
            f"the goal is {one_line(text, 60)!r}: write a number and a unit per second, such as 500 samples/s"
        )
    if not 0 < number < math.inf:
        raise OptionError(
            f"the goal is {found['number']}: give a finite number above 0, such as 500 samples/s"
        )
    return number, _unit(found["unit"], known)


def parse_price(price: str | float | None) -> tuple[float | None, str]:
    """What an hour costs, and in which currency ("" if it isn't said).

    Raises
    ------
    OptionError
        It is no positive amount per hour.
    """
    if price is None:
        return None, ""
    found = _PRICE.fullmatch(str(price))
    amount = _number(found["number"]) if found else math.nan
    currency = (found["before"] or found["after"]) if found else ""
    bad = not 0 < amount < math.inf or len(currency) > LONGEST_CURRENCY or not currency.isprintable()
    if found is None or bad or (found["before"] and found["after"]):
        raise OptionError(
            f"the price is {one_line(str(price), 60)!r}: write an amount per hour, such as 0.90/h or $0.90/h"
        )
    return amount, currency


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _above_zero(value: float | None, name: str) -> float | None:
    if value is None:
        return None
    given: object = value
    if not isinstance(given, int | float) or isinstance(given, bool) or not 0 < given < math.inf:
        raise OptionError(
            f"{name} is {one_line(repr(value), 40)}: give a number of units above 0, such as 26400"
        )
    return float(given)


def _unit(written: str, known: Sequence[str]) -> str:
    """The singular, as the log has it: by the known units, else by its ending."""
    by_plural = {write.plural(unit): unit for unit in known} | {unit: unit for unit in known}
    if written in by_plural:
        return by_plural[written]
    near = difflib.get_close_matches(written, by_plural, 1, 0.8)
    if near:
        meant = write.plural(by_plural[near[0]])
        raise OptionError(f"no experiment counts {one_line(written, 40)!r}: did you mean {meant}/s?")
    if len(written) > LONGEST_UNIT or not written.isprintable():
        raise OptionError(f"the unit is {one_line(written, 60)!r}: give a short word, such as samples")
    return write.singular(written)


def _counted() -> list[str]:
    from optbook.repeat.progress import known_units

    return known_units(session().frame())
