"""The points of a sweep: which there are, whether a workload takes them, and the workload at one of them."""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import itertools
import keyword
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any

from optbook.benchmark.cell import Cell
from optbook.benchmark.quantities import short
from optbook.errors import OptionError
from optbook.optimize.rebind import keep

MOST_POINTS = 64
_FEWER = "give fewer values, such as powers of two"
_MISSING = object()

Settings = Mapping[str, float]


def grid(settings: object) -> Iterator[Settings]:
    """All combinations of the values, the smallest first."""
    if not isinstance(settings, Mapping) or not 1 <= len(settings) <= 2:
        number = f"{len(settings)} settings" if isinstance(settings, Mapping) else short(settings)
        raise OptionError(f"sweep got {number}: give one or two, such as {{'batch_size': [8, 16, 32]}}")
    values = [_values(name, given) for name, given in settings.items()]
    count = math.prod(len(each) for each in values)
    if count > MOST_POINTS:
        raise OptionError(f"these are {count} points, and {MOST_POINTS} is the most: {_FEWER}")
    for combination in itertools.product(*values):
        yield dict(zip(settings, combination, strict=True))


def _values(name: object, given: Any) -> list[float]:
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise OptionError(f"the setting {short(name)} is no name: give one such as 'batch_size'")
    if hasattr(given, "tolist"):
        given = given.tolist()
    if not isinstance(given, Sequence) or isinstance(given, (str, bytes)):
        raise OptionError(f"{name} got {short(given)}: give a list of numbers, such as [8, 16, 32]")
    if not len(given):
        raise OptionError(f"{name} has no values: give some, such as [8, 16, 32]")
    values = [value.item() if hasattr(value, "item") else value for value in given[: MOST_POINTS + 1]]
    for value in values:
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        if not number:
            raise OptionError(f"{name} got {short(value)}: give numbers, such as [8, 16, 32]")
    if len(given) > MOST_POINTS:
        raise OptionError(f"{name} has {len(given)} values, and {MOST_POINTS} is the most: {_FEWER}")
    if len(set(values)) < len(values):
        raise OptionError(f"{name} got a value twice: {short(values)}; give each once")
    return sorted(values)


def check_use(function: Callable[..., object], setup: object, at: Settings) -> None:
    """Refuse settings that the function doesn't take, or that the cell doesn't use or sets itself."""
    if not isinstance(function, Cell):
        try:
            inspect.signature(function).bind(**at)
        except TypeError as error:
            name = getattr(function, "__name__", "the function")
            raise OptionError(f"{name}() can't be called with {', '.join(at)}: {error}") from None
        except ValueError:  # built-in functions may have no signature
            pass
        return
    cells = [cell for cell in (function, setup) if isinstance(cell, Cell)]
    own = {name for cell in cells for code in cell.code for name in _assigned(code)} & set(at)
    if own:
        raise OptionError(f"the cell sets {', '.join(own)} itself: take that line out, the sweep sets it")
    with named(function, at):
        used = keep("", function, cells[1] if len(cells) > 1 else None, None, function.namespace).bindings
    for name in at:
        if name not in used:
            raise OptionError(f"the cell does not use {name}: write it where its value belongs")


def _assigned(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("STORE_NAME", "STORE_GLOBAL"):
            yield str(instruction.argval)


@contextlib.contextmanager
def named(function: object, at: Settings) -> Iterator[None]:
    """Set the settings as names of a cell, and put back what was there; nothing for a function."""
    namespace = function.namespace if isinstance(function, Cell) else {}
    before = {name: namespace.get(name, _MISSING) for name in at}
    namespace.update(at)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is not _MISSING:
                namespace[name] = value
            else:
                namespace.pop(name, None)


def bound(value: Any, at: Settings) -> Any:
    """A function with those of the settings that it takes filled in; anything else as it is."""
    if not callable(value) or isinstance(value, Cell):
        return value
    try:
        taken = inspect.signature(value).parameters
    except ValueError:
        return value
    filled = {name: setting for name, setting in at.items() if name in taken}
    return functools.partial(value, **filled) if filled else value
