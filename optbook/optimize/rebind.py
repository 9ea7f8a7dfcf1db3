"""Run a measured cell again with the bindings it had, though its names have been given new values since.

The usual habit is to redefine ``augment`` and measure again. If a comparison then simply ran both
cells, both would see the new function.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import zlib
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from optbook.benchmark.cell import Cell
from optbook.errors import OptionError
from optbook.experiments.errors import LogError
from optbook.experiments.log import session

if TYPE_CHECKING:
    from optbook.optimize.compare import Comparison

MOST_KEPT = 20
_HASHED_BYTES = 2**20
_MISSING = object()


@dataclass
class Kept:
    """A measured cell, what its names were bound to, and how those values looked.

    ``opaque`` are the names that are also reached through something that can't be rebuilt (a class of
    the notebook, a closure): they must still have the binding they had.
    """

    label: str
    cell: Cell
    setup: Cell | None
    steps: int | None
    bindings: dict[str, Any]
    opaque: frozenset[str]
    marks: dict[str, object] = field(default_factory=dict)

    def remember(self) -> None:
        """Note how the values look now, to notice changes in place."""
        self.marks = {name: mark(value) for name, value in self.bindings.items()}

    def revive(self, namespace: Mapping[str, Any]) -> tuple[Cell, Cell | None]:
        """The cell and its setup, in a copy of ``namespace`` in which the names have their old bindings.

        Raises:
            OptionError: a name was changed in place, or was rebound where that can't be undone.
        """
        changed = sorted(name for name, value in self.bindings.items() if mark(value) != self.marks[name])
        if changed:
            raise OptionError(
                f"{self.label!r} can't run again as it was: {', '.join(changed)} changed in place since; "
                "measure it again"
            )
        rebound = sorted(n for n in self.opaque if namespace.get(n, _MISSING) is not self.bindings[n])
        if rebound:
            raise OptionError(
                f"{self.label!r} can't run again as it was: {', '.join(rebound)} has a new value and is used "
                "in a class or a decorated function; measure it again, or give both versions names"
            )
        old = dict(namespace) | self.bindings
        for name, value in self.bindings.items():
            if _is_plain(value, namespace):
                old[name] = _rebuilt(value, old)
        return self.cell.within(old), None if self.setup is None else self.setup.within(old)


class Keeper:
    """The cells measured last in this kernel, and with them the values their names were bound to."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._kept: dict[str, Kept] = {}

    def take(
        self, label: str, cell: Cell, setup: Cell | None, steps: int | None, namespace: Mapping[str, Any]
    ) -> Kept:
        """Note the bindings of a cell that is about to be measured."""
        return keep(label, cell, setup, steps, namespace)

    def add(self, kept: Kept) -> None:
        """Keep a cell that was measured; the oldest is let go."""
        kept.remember()
        self._kept.pop(kept.label, None)
        self._kept[kept.label] = kept
        while len(self._kept) > self._most:
            del self._kept[next(iter(self._kept))]

    def compare(
        self,
        first: str,
        second: str,
        namespace: Mapping[str, Any],
        *,
        budget: float | None = None,
        steps: int | None = None,
        stored: bool = False,
        force: bool = False,
    ) -> Comparison:
        """Run two measured cells again, in turn; by their stored times where one was not measured here.

        Raises:
            OptionError: a label is not known, or a cell can't run again with the bindings it had.
        """
        from optbook.optimize.compare import compare
        from optbook.optimize.stored import compare_stored, find

        if stored or first not in self._kept or second not in self._kept:
            return noted(compare_stored(find(first), find(second), force=force))
        pair = self._kept[first], self._kept[second]
        (f, f_setup), (g, g_setup) = (kept.revive(namespace) for kept in pair)
        limits = {kept.steps for kept in pair if kept.steps is not None}
        if steps is None and limits:
            steps = min(limits)
        result = compare(f, g, (first, second), setup=(f_setup, g_setup), budget=budget, steps=steps)
        for kept in pair:
            kept.remember()
        return noted(result)


def noted(result: Comparison) -> Comparison:
    """Add the verdict as a note to the latest experiment of the second label; say so where that fails."""
    from optbook.optimize.verdicts import interval, sentence

    log = session()
    try:
        experiment = log.latest(result.labels[1])
        if experiment is not None:
            log.store.note(experiment.id, f"{sentence(result)}; throughput ratio {interval(result)}")
    except LogError as error:
        return dataclasses.replace(
            result, warnings=(*result.warnings, f"the verdict is not in the log: {error}")
        )
    return result


def keep(label: str, cell: Cell, setup: Cell | None, steps: int | None, namespace: Mapping[str, Any]) -> Kept:
    """Note what the names of a cell, and of the notebook's functions it reaches, are bound to now."""
    bindings: dict[str, Any] = {}
    opaque: set[str] = set()
    waiting = [(name, False) for code in (*cell.code, *(setup.code if setup else ())) for name in names(code)]
    seen: set[tuple[str, bool]] = set()
    while waiting:
        name, hidden = waiting.pop()
        if (name, hidden) in seen or name not in namespace:
            continue
        seen.add((name, hidden))
        value = bindings[name] = namespace[name]
        if hidden:
            opaque.add(name)
        plain = _is_plain(value, namespace) and not hidden
        waiting += [(reached, not plain) for code in _codes(value, namespace) for reached in names(code)]
    return Kept(label, cell, setup, steps, bindings, frozenset(opaque))


def names(code: types.CodeType) -> set[str]:
    """All global and attribute names that a code object, and those inside it, mention."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= names(constant)
    return found


def _is_plain(value: object, namespace: Mapping[str, Any]) -> bool:
    """Whether it is a function of the notebook that can be rebuilt with other globals."""
    return (
        isinstance(value, types.FunctionType)
        and value.__globals__ is namespace
        and not any(_codes(cell.cell_contents, namespace) for cell in _filled(value.__closure__))
        and not hasattr(value, "__wrapped__")
    )


def _filled(closure: tuple[types.CellType, ...] | None) -> Iterable[types.CellType]:
    for cell in closure or ():
        try:
            cell.cell_contents  # noqa: B018 (raises while the variable has no value)
        except ValueError:
            continue
        yield cell


def _codes(value: object, namespace: Mapping[str, Any], depth: int = 0) -> list[types.CodeType]:
    """The code objects of the notebook that using ``value`` may run."""
    if depth > 4:
        return []
    deeper = functools.partial(_codes, namespace=namespace, depth=depth + 1)
    if isinstance(value, types.FunctionType):
        found = [value.__code__] if value.__globals__ is namespace else []
        for inner in (
            getattr(value, "__wrapped__", None),
            *(c.cell_contents for c in _filled(value.__closure__)),
        ):
            found += deeper(inner)
        return found
    if isinstance(value, types.MethodType):
        return deeper(value.__func__) + deeper(value.__self__)
    if isinstance(value, functools.partial):
        return [code for part in (value.func, *value.args, *value.keywords.values()) for code in deeper(part)]
    if isinstance(value, (staticmethod, classmethod)):
        return deeper(value.__func__)
    if isinstance(value, property):
        return deeper(value.fget)
    if isinstance(value, type):
        return [c for part in vars(value).values() for c in deeper(part)] if _of_notebook(value) else []
    return deeper(type(value)) if _of_notebook(type(value)) else []


def _of_notebook(kind: type) -> bool:
    return getattr(kind, "__module__", None) == "__main__"


def _rebuilt(function: types.FunctionType, namespace: MutableMapping[str, Any]) -> types.FunctionType:
    """The same function with other globals."""
    new = types.FunctionType(
        function.__code__, dict_of(namespace), function.__name__, function.__defaults__, function.__closure__
    )
    new.__kwdefaults__ = function.__kwdefaults__
    new.__dict__.update(function.__dict__)
    return new


def dict_of(namespace: MutableMapping[str, Any]) -> dict[str, Any]:
    """``namespace`` itself, which must be a dictionary: functions share it as their globals."""
    assert isinstance(namespace, dict)
    return namespace


def mark(value: Any, depth: int = 0) -> object:
    """How a value looks, cheaply: it differs after most changes in place."""
    if isinstance(value, types.FunctionType):
        return value.__code__, repr(value.__defaults__)[:200]
    if isinstance(value, (bool, int, float, complex, str, bytes, type(None), types.ModuleType, type)):
        return value
    if isinstance(value, (list, tuple, set, frozenset, dict)):
        items = list(value.items()) if isinstance(value, dict) else list(value)
        inside = tuple(mark(item, depth + 1) for item in items[:100]) if depth < 3 else ()
        return type(value), len(value), inside
    if hasattr(value, "parameters") and hasattr(value, "buffers"):
        return tuple((id(t), t._version) for part in (value.parameters(), value.buffers()) for t in part)
    if hasattr(value, "_version") and hasattr(value, "data_ptr"):
        return id(value), value._version
    if hasattr(value, "__array_interface__") and hasattr(value, "tobytes"):
        small = value.nbytes <= _HASHED_BYTES
        return value.shape, str(value.dtype), zlib.crc32(value.tobytes()) if small else id(value)
    if hasattr(value, "__dict__") and depth < 2:
        return id(value), tuple((name, mark(part, depth + 1)) for name, part in vars(value).items())
    return id(value)
