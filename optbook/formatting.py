"""How figures are written. All functions take ``None`` (or NaN) for "not known" and write it as a dash."""

from __future__ import annotations

import math

UNKNOWN = "—"

_TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_BYTE_UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_IRREGULAR_PLURALS = {"batch": "batches", "box": "boxes", "pass": "passes", "query": "queries"}


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def number(value: float | None, digits: int = 3) -> str:
    """``value`` with ``digits`` significant digits, never in exponent form below 10^15."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    if not -9 <= magnitude < 15:
        return f"{value:.{digits - 1}e}"
    rounded = round(value, digits - 1 - magnitude)
    magnitude = math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{max(0, digits - 1 - magnitude)}f}".replace(",", "\u202f")


def seconds(value: float | None) -> str:
    """A duration in seconds, as s, ms, µs or ns (above two minutes as minutes and seconds)."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if abs(value) >= 120:
        minutes, rest = divmod(round(value), 60)
        return f"{minutes} min {rest:02d} s"
    for scale, name in _TIME_UNITS:
        if abs(value) >= scale * 0.9995:
            return f"{number(value / scale)} {name}"
    return "0 s" if value == 0 else f"{number(value / 1e-9)} ns"


def duration(value: float) -> str:
    """A long time in seconds: hours and minutes from two hours on, days from two days on."""
    if value >= 2 * 86_400:
        return f"{number(value / 86_400)} days"
    if value >= 2 * 3600:
        hours, rest = divmod(round(value / 60), 60)
        return f"{hours} h {rest:02d} min"
    return seconds(value)


def bytes_(value: float | None) -> str:
    """A number of bytes, in binary units."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    for scale, name in _BYTE_UNITS:
        if abs(value) >= scale:
            return f"{number(value / scale)} {name}"
    return f"{round(value)} B"


def flops(value: float | None) -> str:
    """Floating-point operations per second, in decimal units: ``240 GFLOP/s``."""
    for scale, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value is not None and value >= scale:
            return f"{number(value / scale)} {prefix}FLOP/s"
    return f"{number(value)} FLOP/s"


def percent(share: float | None) -> str:
    """A share between 0 and 1, in per cent."""
    if share is None or not math.isfinite(share):
        return UNKNOWN
    return f"{number(100 * share, 2 if abs(share) < 0.995 else 3)} %"


def plural(unit: str) -> str:
    """The plural of a unit's name: ``batch`` → ``batches``, ``env_step`` → ``env steps``."""
    words = unit.replace("_", " ")
    head, _, last = words.rpartition(" ")
    last = _IRREGULAR_PLURALS.get(last, last if last.endswith("s") else last + "s")
    return f"{head} {last}".strip()


def singular(units: str) -> str:
    """The unit of which this may be the plural: ``batches`` → ``batch``, ``env steps`` → ``env_step``."""
    head, _, last = "_".join(units.split()).rpartition("_")
    irregular = {many: one for one, many in _IRREGULAR_PLURALS.items()}
    one = irregular.get(last, last.removesuffix("s") or last)
    return f"{head}_{one}".removeprefix("_")


def rate(value: float | None, unit: str) -> str:
    """A throughput: ``340 batches/s``."""
    return f"{number(value)} {plural(unit)}/s"


def spread(value: float | None, low: float | None, high: float | None) -> str:
    """Half the width of an interval as a share of its value: ``± 1.2 %``; empty if not known."""
    if value is None or low is None or high is None or not value or not all(map(_known, (value, low, high))):
        return ""
    share = 100 * (high - low) / 2 / abs(value)
    return f"± {number(share, 2)} %"
