"""Rows of the log → DataFrame, a column at a time, so that 100 000 experiments take a second or two."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from optbook.experiments.columns import (
    UNREADABLE,
    Kind,
    Problems,
    default,
    from_database,
    kinds,
    read_list,
    read_many_numbers,
    read_numbers,
    read_texts,
    to_database,
)
from optbook.experiments.record import STATUSES, Experiment, column_fields

if TYPE_CHECKING:
    import pandas as pd

_DTYPES: dict[Kind, str] = {"text": "str", "real": "float64", "count": "int64", "flag": "boolean"}
_PLAIN: dict[Kind, set[type]] = {
    "text": {str},
    "time": {str},
    "real": {float, int},
    "count": {int},
    "flag": {int, bool},
}
_JSON: dict[Kind, Callable[[Any], Any]] = {"numbers": read_numbers, "texts": read_texts, "list": read_list}


@contextmanager
def without_collector() -> Iterator[None]:
    """Half a million fresh dicts hold no cycles: walking them again and again doubles the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def to_frame(
    rows: Sequence[Sequence[Any]],
    notes: Sequence[str],
    hidden: Sequence[bool] | None,
    pending: Sequence[Experiment] = (),
) -> pd.DataFrame:
    """The log as a DataFrame.

    Parameters
    ----------
    rows
        One sequence a row: the columns of the record, in its order, as the database gave them.
    notes, hidden
        One entry a row; no column ``hidden`` if None.
    pending
        Experiments that are not stored yet: they come last, and their note says so.

    Returns
    -------
    Dtypes: str; datetime64 (UTC); float64 with NaN for "not known"; int64; nullable boolean; object for
    dicts, tuples and `seed`. A value that could not be read has its default, and a line in `warnings`.
    """
    import pandas as pd

    names = kinds()
    if pending:
        rows = [*rows, *(tuple(to_database(experiment)[0].values()) for experiment in pending)]
        notes = [*notes, *("not in the log yet" for _ in pending)]
        hidden = None if hidden is None else [*hidden, *(False for _ in pending)]
    cells = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    problems: Problems = {}
    data: dict[str, Any] = {}
    fallbacks = {field.name: default(field) for field in column_fields()}
    with without_collector():
        for (name, kind), values in zip(names.items(), cells, strict=True):
            data[name] = _series(name, kind, values, fallbacks[name], problems)
    for row, lines in problems.items():
        data["warnings"].iat[row] = (*data["warnings"].iat[row], *lines)
    data["note"] = pd.Series(list(notes), dtype="str")
    if hidden is not None:
        data["hidden"] = pd.Series(list(hidden), dtype="bool")
    frame = pd.DataFrame(data)
    if not frame["created"].is_monotonic_increasing:
        order = frame["created"].ffill().argsort(kind="stable")
        frame = frame.iloc[order.to_numpy()].reset_index(drop=True)
    return frame


def _series(
    name: str, kind: Kind, values: Sequence[Any], fallback: Any, problems: Problems
) -> pd.Series[Any]:
    import pandas as pd

    found: Sequence[Any]
    types = set(map(type, values))
    if kind in _JSON:
        found = _decoded(name, kind, values, fallback, problems)
    elif types == {str} and kind == "integer":
        found = _integers(name, values, fallback, problems)
    elif not _readable(name, kind, values, types):
        found = _one_by_one(name, kind, values, fallback, problems)
    elif fallback is None or type(None) not in types:
        found = values
    else:
        found = [fallback if value is None else value for value in values]
    if kind == "time":
        moments = pd.to_datetime(
            pd.Series(found, dtype="object"), utc=True, format="ISO8601", errors="coerce"
        )
        if len(values) and moments.isna().any():
            _one_by_one(name, kind, values, fallback, problems)
        return moments.dt.as_unit("us")
    return pd.Series(found, dtype=_DTYPES.get(kind, "object"))


def _readable(name: str, kind: Kind, values: Sequence[Any], types: set[type]) -> bool:
    """Whether nothing in this column needs a closer look."""
    if not types - {type(None)} <= _PLAIN.get(kind, set()):
        return False
    if name == "status":
        return set(values) <= set(STATUSES)
    if kind == "flag":
        return set(values) <= {0, 1, None}
    return kind != "text" or not any(v and "\x00" in v for v in set(values))


def _integers(name: str, values: Sequence[Any], fallback: Any, problems: Problems) -> list[Any]:
    try:
        return list(map(int, values))
    except ValueError:
        return _one_by_one(name, "integer", values, fallback, problems)


def _one_by_one(name: str, kind: Kind, values: Sequence[Any], fallback: Any, problems: Problems) -> list[Any]:
    found = []
    for row, value in enumerate(values):
        read, problem = from_database(name, kind, value, fallback)
        if problem:
            problems.setdefault(row, []).append(problem)
        found.append(read)
    return found


def _decoded(name: str, kind: Kind, values: Sequence[Any], fallback: Any, problems: Problems) -> list[Any]:
    if kind == "numbers":
        at_once = read_many_numbers(["{}" if value is None else value for value in values])
        if at_once is not None:
            return at_once
    read = _JSON[kind]
    known: dict[Any, Any] = {None: fallback}  # versions and flags hardly ever change
    unreadable: dict[Any, str] = {}
    for value in set(values) - {None}:
        try:
            known[value] = read(value)
        except UNREADABLE:
            known[value], unreadable[value] = from_database(name, kind, value, fallback)
    if unreadable:
        for row, value in enumerate(values):
            if value in unreadable:
                problems.setdefault(row, []).append(unreadable[value])
    if kind == "list":
        return [known[value] for value in values]
    return [known[value].copy() for value in values]
