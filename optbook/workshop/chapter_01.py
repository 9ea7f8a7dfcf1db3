"""The exercises of chapter 01."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from optbook.workshop.exercises import Exercise, Verdict, choice

_UNITS = choice(
    "01_units",
    "units",
    "a",
    {
        "a": "right: a batch is a quarter of the work, so about four of them fit into the time of one; the "
        "pictures take what they took",
        "b": "less work a batch, but as many pictures to get through: compare the rows 'pictures/s'",
        "c": "the same code, but with a quarter of the pictures each time: compare the rows 'batches/s'",
    },
    "the batch shrinks, the work a picture does not",
)


def _judge_setup(namespace: Mapping[str, Any]) -> Verdict:
    prepare = namespace.get("prepare", ...)
    if not isinstance(prepare, str) or not prepare.strip():
        return Verdict(False, "set prepare to a string with one statement, such as 'x = make()'")
    scratch = dict(namespace)
    try:
        for run in (1, 2):
            exec(prepare, scratch)
            prices = scratch.get("prices")
            if not isinstance(prices, Iterator):
                return Verdict(False, f"prices is a {type(prices).__name__} then: it should be a generator")
            if (left := len(list(prices))) != 40:
                return Verdict(False, f"before run {run} prices holds {left} values: it should hold 40")
    except Exception as exception:
        return Verdict(False, f"{prepare!r} raised {type(exception).__name__}: {exception}")
    return Verdict(True, "every run gets forty prices", "Try: %%bench --setup 'prices = make_prices()'")


EXERCISES = (_UNITS, Exercise("01_setup", 'prepare = "prices = make_prices()"', _judge_setup))
