"""`same_outputs`: whether two results are equal, within a tolerance that suits their data types."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from optbook.benchmark.quantities import short
from optbook.errors import OptionError
from optbook.experiments.render import one_line
from optbook.optimize.agreement import LONGEST_TEXT, Equivalence
from optbook.optimize.flatten import Leaf, array, flattened, named

TOLERANCES: Mapping[str, tuple[float, float]] = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "longdouble": (1e-7, 1e-7),
    "float128": (1e-7, 1e-7),
    "complex32": (1e-3, 1e-5),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}
"""Relative and absolute tolerance by data type: the defaults of ``torch.testing.assert_close``
(https://docs.pytorch.org/docs/stable/testing.html). Data types that are not listed must be equal."""
_SEQUENCES = frozenset(("list", "tuple", "deque"))


@dataclass(frozen=True, kw_only=True, repr=False)
class SameOutputs(Equivalence):
    """Whether two results are equal.

    ``where`` is the first place at which they differ, such as ``[0]['boxes'][3, 2]``, and ``reason`` says
    how; both are empty where they are equal. ``largest`` is the largest absolute difference between numbers
    up to there, ``values`` how many values were compared, ``tolerances`` the data types met and the relative
    and absolute tolerance of each.
    """

    where: str = ""
    reason: str = ""
    largest: float = 0.0
    values: int = 0
    tolerances: Mapping[str, tuple[float, float]]

    @property
    def sentence(self) -> str:
        if not self.holds:
            place = one_line(named(self.where), 120)
            return f"different results: {place} {one_line(self.reason, LONGEST_TEXT)}"
        compared = "1 value" if self.values == 1 else f"{self.values:,} values".replace(",", "\u202f")
        if self.largest == 0:
            return f"same results: {compared}, all equal"
        return (
            f"same results: {compared} equal within tolerance, the largest difference is {self.largest:.2g}"
        )

    def rows(self) -> list[tuple[str, str]]:
        return [
            (f"tolerance for {one_line(dtype, 40)}", f"{rtol:g} of the first's value, and {atol:g}")
            for dtype, (rtol, atol) in self.tolerances.items()
            if rtol or atol
        ]


def same_outputs(
    first: object,
    second: object,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    strict: bool = True,
    labels: tuple[str, str] = ("first", "second"),
) -> SameOutputs:
    """Compare two results, value by value.

    Numbers a of the first and b of the second are equal if |b − a| ≤ ``atol`` + ``rtol``·|a|; NaN equals NaN,
    and an infinity itself. Whole numbers, truth values and texts must be the same, and so must shapes, data
    types, lengths, keys and types. The device is not compared.

    Args:
        first, second: tensors, arrays, numbers, texts, pictures; containers, dataclasses and plain objects
            with such in them; modules of torch, of which the state is compared.
        rtol, atol: the tolerance, in place of that in `TOLERANCES`.
        strict: whether data types and types of containers must be the same; if not, the coarser tolerance of
            the two holds, a list equals a tuple, and a tensor an array or a number.
        labels: what the two are called.

    Raises:
        OptionError: a tolerance can't be used, or something in the results can't be compared.
    """
    return same_leaves(
        flattened(first), flattened(second), rtol=rtol, atol=atol, strict=strict, labels=labels
    )


def same_leaves(
    first: Mapping[str, Leaf],
    second: Mapping[str, Leaf],
    *,
    rtol: float | None = None,
    atol: float | None = None,
    strict: bool = True,
    labels: tuple[str, str] = ("first", "second"),
) -> SameOutputs:
    """`same_outputs`, of results that were taken apart."""
    comparing = _Comparing(tolerance("rtol", rtol), tolerance("atol", atol), strict)
    where, reason = comparing.first_difference(first, second)
    return SameOutputs(
        holds=not reason,
        labels=labels,
        where=where,
        reason=reason,
        largest=comparing.largest,
        values=comparing.values,
        tolerances=comparing.tolerances,
        notes=() if comparing.values or reason else ("there are no values in them",),
    )


def tolerance(name: str, value: object) -> float | None:
    """``value`` as a tolerance.

    Raises:
        OptionError: it is not a finite number from zero on.
    """
    if value is None:
        return None
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 <= value < math.inf:  # type: ignore[operator]
        raise OptionError(f"{name} is {short(value)}: give a number from zero on, such as 1e-3")
    return float(value)  # type: ignore[arg-type]


class _Comparing:
    def __init__(self, rtol: float | None, atol: float | None, strict: bool) -> None:
        self._given = rtol, atol
        self._strict = strict
        self.largest = 0.0
        self.values = 0
        self.tolerances: dict[str, tuple[float, float]] = {}

    def first_difference(self, first: Mapping[str, Leaf], second: Mapping[str, Leaf]) -> tuple[str, str]:
        """Where the results differ first, and how; two empty texts if they don't."""
        for place, leaf in first.items():
            other = second[place]
            where, reason = self._leaf(place, leaf, other)
            if reason:
                return where, reason
        return "", ""

    def _leaf(self, place: str, a: Leaf, b: Leaf) -> tuple[str, str]:
        if a.kind == b.kind == "number" and a.dtype == b.dtype and self._near(a, b):
            self.values += 1
            return "", ""
        if a.numeric and b.numeric and (a.kind == b.kind or not self._strict):
            return self._numeric(place, a, b)
        if a.kind != b.kind and (self._strict or not {a.kind, b.kind} <= _SEQUENCES):
            looser = (a.numeric and b.numeric) or {a.kind, b.kind} <= _SEQUENCES
            return place, f"is {_kind(a)} in the first, {_kind(b)} in the second{_loosen(looser)}"
        if a.parts != b.parts:
            return place, _other_parts(a.parts, b.parts)
        if a.parts is not None:
            return "", ""
        self.values += 1
        return ("", "") if _equal(a.value, b.value) else (place, _other_value(a.value, b.value))

    def _near(self, a: Leaf, b: Leaf) -> bool:
        """Whether two plain numbers are equal, or floats within tolerance: the quick way for long lists."""
        if not isinstance(a.value, float) or not math.isfinite(a.value):
            return bool(a.value == b.value)
        rtol, atol = self._tolerance(a.dtype)
        distance = abs(b.value - a.value)
        near = distance <= atol + rtol * abs(a.value)
        self.largest = max(self.largest, distance) if near else self.largest
        return bool(near)

    def _numeric(self, place: str, a: Leaf, b: Leaf) -> tuple[str, str]:
        x, y = array(a), array(b)
        if a.dtype != b.dtype and self._strict:
            return place, f"is {a.dtype} in the first, {b.dtype} in the second{_loosen(True)}"
        if x.shape != y.shape:
            return place, f"has shape {x.shape} in the first, {y.shape} in the second"
        self.values += x.size
        rtol, atol = self._tolerance(a.dtype, b.dtype)
        far, distance = _far(x, y, rtol, atol)
        known = distance[np.isfinite(distance)]
        self.largest = max(self.largest, float(known.max(initial=0.0)))
        if not far.any():
            return "", ""
        index = tuple(int(i) for i in np.unravel_index(int(np.argmax(far)), far.shape))
        where = place + (f"[{', '.join(map(str, index))}]" if index else "")
        return where, _far_apart(x, y, index, far, distance, (rtol, atol))

    def _tolerance(self, *dtypes: str) -> tuple[float, float]:
        chosen = []
        for i, given in enumerate(self._given):
            usual = max(TOLERANCES.get(dtype, (0.0, 0.0))[i] for dtype in dtypes)
            chosen.append(usual if given is None else given)
        found = chosen[0], chosen[1]
        self.tolerances[" and ".join(dict.fromkeys(dtypes))] = found
        return found


def _far(x: Any, y: Any, rtol: float, atol: float) -> tuple[Any, Any]:
    """Which values are further apart than the tolerance, and how far apart all are (NaN: not known)."""
    kinds = {x.dtype.kind, y.dtype.kind}
    with np.errstate(all="ignore"):
        same = _both(np.equal(x, y), _both(np.not_equal(x, x), np.not_equal(y, y)), np.logical_or)
        if same.all():
            return ~same, np.zeros(same.shape)
        if not kinds <= set("biufc"):
            return ~same, np.full(same.shape, np.nan)
        wide = np.complex128 if "c" in kinds else np.float64
        a, b = np.asarray(x, dtype=wide), np.asarray(y, dtype=wide)
        distance = np.asarray(np.abs(b - a))
        near = np.isfinite(a) & (distance <= atol + rtol * np.abs(a))
    return np.asarray(~same if not (rtol or atol) else ~(near | same)), distance


def _both(one: Any, other: Any, how: Any = np.logical_and) -> Any:
    return np.asarray(how(one, other), dtype=bool)


def _far_apart(
    x: Any, y: Any, index: tuple[int, ...], far: Any, distance: Any, allowed: tuple[float, float]
) -> str:
    a, b = x[index], y[index]
    text = f"is {_written(a)} in the first, {_written(b)} in the second"
    apart = float(distance[index])
    if math.isfinite(apart):
        text += f" ({apart:.3g} apart, {allowed[1] + allowed[0] * abs(a):.2g} allowed)"
    if far.size > 1:
        text += f"; {int(far.sum()):,} of {far.size:,} values differ".replace(",", "\u202f")
        most = np.max(distance[far], initial=0.0, where=np.isfinite(distance[far]))
        text += f", by {most:.3g} at most" if most else ""
    return text


def _written(value: Any) -> str:
    return f"{value:.8g}" if getattr(value, "dtype", np.dtype("O")).kind in "fc" else short(_item(value))


def _item(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _equal(a: Any, b: Any) -> bool:
    try:
        return bool(a is b or a == b)
    except (TypeError, ValueError, RuntimeError):
        raise OptionError(
            f"{one_line(short(a))} can't be compared, == gives no truth value: give numbers, arrays or texts"
        ) from None


def _other_value(a: Any, b: Any) -> str:
    text = f"is {short(a)} in the first, {short(b)} in the second"
    if isinstance(a, (str, bytes)) and min(len(a), len(b)) > 20:
        same = next((i for i, (p, q) in enumerate(zip(a, b, strict=False)) if p != q), min(len(a), len(b)))
        text += f": they differ from position {same} on"
    return text


def _other_parts(a: Hashable, b: Hashable) -> str:
    if not isinstance(a, frozenset) or not isinstance(b, frozenset):
        return f"has {a} items in the first, {b} in the second"
    one, other = (", ".join(sorted(part.strip("[].") for part in parts)) for parts in (a - b, b - a))
    only = [f"{names} only in the {which}" for names, which in ((one, "first"), (other, "second")) if names]
    return f"has {' and '.join(only)}"


def _kind(leaf: Leaf) -> str:
    if leaf.kind == "number":
        return f"the number {short(leaf.value)}"
    article = "an" if leaf.kind[:1] in "aeiou" else "a"
    return f"{article} {leaf.kind}" if leaf.kind != "NoneType" else "None"


def _loosen(looser: bool) -> str:
    return " (allowed with strict=False, or --loose)" if looser else ""
