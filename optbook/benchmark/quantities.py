"""Numbers that a user gives, or gives a function for: units, counts and metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from optbook.errors import OptionError

Quantity = float | Callable[[], float]


def evaluated(quantities: Mapping[str, Quantity], check: Callable[[str, object], float]) -> dict[str, float]:
    """The value of each quantity now, passed through ``check`` (`metric` or `amount`).

    Raises:
        OptionError: a function raised, or what it gave is no such number.
    """
    found = {}
    for name, quantity in quantities.items():
        try:
            value = quantity() if callable(quantity) else quantity
        except OptionError:
            raise
        except Exception as exception:
            what = f"the expression for {name!r} raised {type(exception).__name__}: {exception}"
            raise OptionError(f"{what}; give one that gives a number") from exception
        found[name] = check(name, value)
    return found


def metric(name: str, value: object) -> float:
    """``value`` as a float; a tensor or array of one element counts as a number, a truth value does not.

    Raises:
        OptionError: it is not a number, or NaN.
    """
    try:
        if isinstance(value, (bool, str, bytes)):
            raise TypeError
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise OptionError(f"{name!r} is {short(value)}: give a number, such as 20") from None
    if math.isnan(number):
        raise OptionError(f"{name!r} is nan: give a number, such as 20")
    return number


def amount(name: str, value: object, *, or_zero: bool = False) -> float:
    """``value`` as a finite float above zero (or from zero on).

    Raises:
        OptionError: it is no such number.
    """
    number = metric(name, value)
    if 0 < number < math.inf or (or_zero and number == 0):
        return number
    raise OptionError(
        f"{name!r} is {number:g}: give a number {'from zero on' if or_zero else 'above zero'}, such as 20"
    )


def short(value: Any) -> str:
    """``value`` as Python writes it, cut after 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
