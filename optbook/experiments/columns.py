"""Values of an experiment ↔ values of a database ↔ columns of a DataFrame. Nothing read is executed."""

from __future__ import annotations

import json
import secrets
import sys
import typing
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from datetime import UTC, datetime
from functools import cache
from itertools import chain
from typing import Any, Literal

from optbook.experiments.record import STATUSES, Experiment

Kind = Literal["text", "time", "real", "count", "integer", "flag", "numbers", "texts", "list", "series"]
_DECODE = json.JSONDecoder().raw_decode
Problems = dict[int, list[str]]
"""Row number → what could not be read there."""

_KINDS: dict[Any, Kind] = {
    str: "text",
    datetime: "time",
    float | None: "real",
    int: "count",
    int | None: "integer",
    bool | None: "flag",
    Mapping[str, float]: "numbers",
    Mapping[str, str]: "texts",
    tuple[str, ...]: "list",
    tuple[float, ...]: "series",
}


@cache
def kinds(*, payload: bool = False) -> Mapping[str, Kind]:
    """Name → kind of every column of the log (or of the payload), in the record's order.

    Raises
    ------
    TypeError
        A field of `Experiment` has a type that the log cannot hold.
    """
    hints = typing.get_type_hints(Experiment)
    found: dict[str, Kind] = {}
    for field in fields(Experiment):
        if bool(field.metadata["column"]) == payload:
            continue
        hint = hints[field.name]
        kind = "text" if typing.get_origin(hint) is Literal else _KINDS.get(hint)
        if kind is None:
            raise TypeError(f"Experiment.{field.name} is {hint}: the log has no column type for it")
        found[field.name] = kind
    return found


def clean(text: str) -> str:
    """Text that every database and every front end can hold: NUL and lone surrogates as escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\x00", "\\x00")


# --- to the database -------------------------------------------------------------------------


def _numbers(value: Mapping[str, Any]) -> str:
    return json.dumps({clean(str(k)): float(v) for k, v in value.items()})


def _texts(value: Mapping[str, Any]) -> str:
    return json.dumps({clean(str(k)): clean(str(v)) for k, v in value.items()}, ensure_ascii=False)


def _list(value: Sequence[Any]) -> str:
    if isinstance(value, str):
        raise TypeError("a tuple of texts is needed")
    return json.dumps([clean(str(v)) for v in value], ensure_ascii=False)


def _series(value: Sequence[float]) -> bytes:
    numbers = array("d", [float(v) for v in value])
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _time(value: datetime) -> str:
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    return value.astimezone(UTC).isoformat(timespec="microseconds")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a text is needed")
    return clean(value)


def _count(value: Any) -> int:
    number = int(value)
    if number != value or not -(2**63) <= number < 2**63:
        raise ValueError("a whole number below 2**63 is needed")
    return number


_TO_DATABASE: dict[Kind, Callable[[Any], Any]] = {
    "text": _text,
    "time": _time,
    "real": float,
    "count": _count,
    "integer": lambda value: str(int(value)),  # a 64-bit seed is too large for a signed column
    "flag": bool,
    "numbers": _numbers,
    "texts": _texts,
    "list": _list,
    "series": _series,
}


def to_database(experiment: Experiment, *, payload: bool = False) -> tuple[dict[str, Any], list[str]]:
    """The experiment's columns (or its payload) as a database takes them, and what was left out.

    A value of the wrong type is left out and named, since losing the experiment would be worse.
    """
    row: dict[str, Any] = {}
    problems: list[str] = []
    for name, kind in kinds(payload=payload).items():
        value = getattr(experiment, name)
        value = str(value) if name == "id" else value
        try:
            row[name] = None if value is None else _TO_DATABASE[kind](value)
        except (TypeError, ValueError, OverflowError, AttributeError):
            row[name] = None
            problems.append(f"{name} was {_short(value)} and could not be stored")
    return row, problems


# --- from the database -----------------------------------------------------------------------


def _short(value: object) -> str:
    text = clean(repr(value)) if not isinstance(value, bytes) else f"{len(value)} bytes"
    return text if len(text) <= 60 else text[:59] + "…"


def _load(text: Any) -> Any:
    if type(text) is not str:
        raise TypeError("JSON text is needed")
    value, end = _DECODE(text)
    return value if end == len(text) else json.loads(text)


def read_numbers(text: Any) -> dict[str, float]:
    """A JSON object of numbers; raises ValueError or TypeError for anything else."""
    value = _load(text)
    if type(value) is not dict:
        raise TypeError("an object is needed")
    types = set(map(type, value.values()))
    if types <= {float} and "\\u" not in text:
        return value
    if types <= {float, int}:
        return {clean(k): float(v) for k, v in value.items()}
    raise TypeError("an object of numbers is needed")


def read_many_numbers(texts: Sequence[Any]) -> list[dict[str, float]] | None:
    """`read_numbers` of many texts in one go, or None if any of them needs a closer look.

    They are parsed as one JSON array. Between them stands a word that no stored text can know, so a text
    that is not a whole value by itself cannot shift its neighbours unnoticed.
    """
    if not texts or set(map(type, texts)) != {str}:
        return None
    word = json.dumps(secrets.token_hex(8))
    document = f"[{f',{word},'.join(texts)}]"
    try:
        values = json.loads(document)
    except UNREADABLE:
        return None
    numbers = values[::2]
    if len(values) != 2 * len(texts) - 1 or values[1::2] != [json.loads(word)] * (len(texts) - 1):
        return None
    if set(map(type, numbers)) != {dict} or "\\u" in document:
        return None
    return numbers if set(map(type, chain.from_iterable(map(dict.values, numbers)))) <= {float} else None


def read_texts(text: Any) -> dict[str, str]:
    """A JSON object of texts; raises ValueError or TypeError for anything else."""
    value = _load(text)
    if type(value) is not dict or not set(map(type, value.values())) <= {str}:
        raise ValueError("an object of texts is needed")
    return {clean(k): clean(v) for k, v in value.items()}


def read_list(text: Any) -> tuple[str, ...]:
    """A JSON array of texts; raises ValueError or TypeError for anything else."""
    value = _load(text)
    if type(value) is not list or not set(map(type, value)) <= {str}:
        raise ValueError("an array of texts is needed")
    return tuple(clean(v) for v in value)


def _read_time(value: Any) -> datetime:
    moment = datetime.fromisoformat(value)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _read_real(value: Any) -> float:
    if isinstance(value, bytes | bool):
        raise TypeError("a number is needed")
    return float(value)


def _read_integer(value: Any) -> int:
    if isinstance(value, bytes | float):
        raise TypeError("a whole number is needed")
    return int(value)


def _read_flag(value: Any) -> bool:
    if value not in (0, 1):
        raise ValueError("0 or 1 is needed")
    return bool(value)


def _read_series(value: Any) -> tuple[float, ...]:
    numbers = array("d")
    numbers.frombytes(value)
    if sys.byteorder == "big":
        numbers.byteswap()
    return tuple(numbers)


_FROM_DATABASE: dict[Kind, Callable[[Any], Any]] = {
    "text": _text,
    "time": _read_time,
    "real": _read_real,
    "count": _count,
    "integer": _read_integer,
    "flag": _read_flag,
    "numbers": read_numbers,
    "texts": read_texts,
    "list": read_list,
    "series": _read_series,
}
_UNREADABLE: dict[str, Any] = {"created": None, "status": "void"}
UNREADABLE = (TypeError, ValueError, OverflowError, RecursionError, AttributeError)


def default(field: Field[Any]) -> Any:
    """What stands for a value that is missing or unreadable: the record's default, never a guess."""
    if field.name in _UNREADABLE:
        return _UNREADABLE[field.name]
    if field.default is not MISSING and field.default is not None:
        return field.default
    kind = {**kinds(), **kinds(payload=True)}[field.name]
    return {"text": "", "numbers": {}, "texts": {}, "list": (), "series": ()}.get(kind)


def from_database(name: str, kind: Kind, value: Any, fallback: Any) -> tuple[Any, str]:
    """One value as the record has it, and what was wrong with it ("" if nothing was)."""
    if value is None:
        return fallback, "" if name not in _UNREADABLE else f"{name} is missing"
    try:
        found = _FROM_DATABASE[kind](value)
    except UNREADABLE:
        return fallback, f"{name} could not be read: {_short(value)}"
    if name == "status" and found not in STATUSES:
        return fallback, f"status {_short(found)} is not known here: taken as void"
    return found, ""
