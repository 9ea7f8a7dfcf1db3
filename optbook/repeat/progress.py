"""Progress over the experiments of a log: the best so far, and what each experiment brought."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from optbook import formatting as write
from optbook.errors import OptionError
from optbook.experiments.render import one_line

if TYPE_CHECKING:
    import pandas as pd

IN_WORDS = 200
"""So many experiments, the last, are told one by one."""
EMPTY = "No experiments yet: measure something with %%bench or optbook.bench."


@dataclass(frozen=True)
class Point:
    """One experiment as progress sees it, in one unit.

    Parameters
    ----------
    row
        Its index in the log's DataFrame; `number` counts from 1 within what is shown.
    value, low, high
        Units per second and their interval; NaN if not known.
    counts
        Whether it is a figure of the real system: it is ok, without stubs, above zero, and of the machine of
        the latest such experiment.
    elsewhere
        Whether it would count, were it of that machine.
    best
        The best that counts up to here; NaN before the first.
    ratio
        `value` ÷ that of the first that counts.
    gain
        `value` ÷ the best before it; 1 for the first that counts. NaN for one that does not count.
    """

    row: int
    number: int
    label: str
    status: str
    stubs: str
    value: float
    low: float
    high: float
    counts: bool
    best: float
    ratio: float
    gain: float
    elsewhere: bool = False

    @property
    def kind(self) -> str:
        """ok, stubbed, elsewhere, void, interrupted or failed; a failed one with stubs has failed."""
        if self.elsewhere:
            return "elsewhere"
        return "stubbed" if self.status == "ok" and self.stubs else self.status


def default_unit(frame: pd.DataFrame) -> str:
    """The unit of the latest experiment that is ok, else of the latest; "run" if there is none."""
    ok = frame[frame["status"] == "ok"]
    units = ok["unit"] if len(ok) else frame["unit"]
    return str(units.iloc[-1]) if len(units) else "run"


def known_units(frame: pd.DataFrame) -> list[str]:
    """Every unit that some experiment counted, in the order of first appearance."""
    found: dict[str, None] = {}
    for unit, units in zip(frame["unit"], frame["units"], strict=True):
        found.update(dict.fromkeys([str(unit), *units]))
    return list(found)


def check_unit(frame: pd.DataFrame, unit: str | None) -> str:
    """The unit to show.

    Raises
    ------
    OptionError
        No experiment counts this unit.
    """
    if unit is None:
        return default_unit(frame)
    known = known_units(frame)
    if known and unit not in known:
        names = ", ".join(one_line(name, 40) for name in known[:8])
        raise OptionError(f"no experiment counts the unit {one_line(unit, 40)!r}: use one of {names}")
    return unit


def points(frame: pd.DataFrame, unit: str | None = None) -> list[Point]:
    """The experiments that count this unit, and those without any figure, in the order of the log.

    Figures of unequal machines say nothing about each other: only those of one machine count, that of the
    latest experiment which is ok and without stubs. An experiment whose first unit is another one is shown
    with what it counted of this one, its interval scaled along, since both come from the same times.

    Raises
    ------
    OptionError
        No experiment counts this unit.
    """
    unit = check_unit(frame, unit)
    found: list[Point] = []
    first = best = math.nan
    here = machine_of(frame)
    columns = (
        "label", "status", "stubs", "machine", "unit", "units", "throughput", "throughput_low",
        "throughput_high",
    )  # fmt: skip
    for row, (label, status, stubs, machine, own, units, value, low, high) in zip(
        frame.index, zip(*(frame[name].tolist() for name in columns), strict=True), strict=True
    ):
        if own != unit:
            if unit in units:
                scale = units[unit] / value if value else math.nan
                value, low, high = units[unit], low * scale, high * scale
            elif units or math.isfinite(value):
                continue
        real = status == "ok" and not stubs and math.isfinite(value) and value > 0
        comparable = machine in ("", here)
        counts = real and comparable
        ratio = gain = math.nan
        if counts:
            first = value if math.isnan(first) else first
            gain = 1.0 if math.isnan(best) else value / best
            best = value if math.isnan(best) else max(best, value)
        if math.isfinite(value) and comparable:
            ratio = value / first
        number = len(found) + 1
        figures = (value, low, high, counts, best, ratio, gain, real and not counts)
        found.append(Point(row, number, label, status, stubs, *figures))
    return found


def machine_of(frame: pd.DataFrame) -> str:
    """The machine of the latest experiment that is ok, without stubs and of a known machine; "" if none."""
    real = frame[(frame["status"] == "ok") & (frame["stubs"] == "") & (frame["machine"] != "")]
    return str(real["machine"].iloc[-1]) if len(real) else ""


def best_so_far(frame: pd.DataFrame, unit: str | None = None) -> pd.Series[float]:
    """The best throughput up to each experiment, with the frame's index; NaN before the first that counts.

    Failed, interrupted, void and stubbed experiments never count.

    Raises
    ------
    OptionError
        No experiment counts this unit.
    """
    import pandas as pd

    best = {point.row: point.best for point in points(frame, unit)}
    return pd.Series(best, index=frame.index, dtype="float64", name="best").ffill()


def gains(frame: pd.DataFrame, unit: str | None = None) -> pd.DataFrame:
    """What each experiment brought: `label`, `kind`, `value`, `counts`, `best`, `ratio` (to the first that
    counts) and `gain` (over the best before it), with the index of the experiments' rows in the log.

    Raises
    ------
    OptionError
        No experiment counts this unit.
    """
    import pandas as pd

    names = ["label", "kind", "value", "counts", "best", "ratio", "gain"]
    found = points(frame, unit)
    return pd.DataFrame(
        {name: [getattr(point, name) for point in found] for name in names}, index=[p.row for p in found]
    )


def ratios(frame: pd.DataFrame) -> dict[int, float]:
    """By row: its throughput against that of the first that counts and has the same first unit."""
    found: dict[int, float] = {}
    for unit in dict.fromkeys(frame["unit"]):
        same = frame[frame["unit"] == unit]
        found.update({point.row: point.ratio for point in points(same, str(unit))})
    return found


def select(frame: pd.DataFrame, label: str = "", last: int | None = None) -> pd.DataFrame:
    """The experiments whose label contains `label` (in any case), of these the last so many.

    Raises
    ------
    OptionError
        `last` is below 1.
    """
    if last is not None and last < 1:
        raise OptionError(f"last is {last}: give a whole number from 1 on, such as 20")
    if label:
        frame = frame[frame["label"].str.contains(label, case=False, regex=False)]
    return frame if last is None else frame.iloc[-last:]


def times(ratio: float) -> str:
    """A ratio as it is read: ``4.2×``."""
    return f"{write.number(ratio, 2 if ratio < 100 else 3)}×" if math.isfinite(ratio) else write.UNKNOWN


def summary(found: Iterable[Point], unit: str, *, kinds_apart: bool = True) -> str:
    """One plain sentence: how many experiments (and of what kinds), the best, and how it compares."""
    found = list(found)
    if not found:
        return EMPTY
    kinds = {
        kind: sum(p.kind == kind for p in found)
        for kind in ("stubbed", "elsewhere", "void", "interrupted", "failed")
    }
    named = {"elsewhere": "on another machine"}
    apart = (
        ", ".join(f"{count} {named.get(kind, kind)}" for kind, count in kinds.items() if count)
        if kinds_apart
        else ""
    )
    count = f"{len(found)} {'experiment' if len(found) == 1 else 'experiments'}" + (
        f" ({apart})" if apart else ""
    )
    counting = [point for point in found if point.counts]
    if not counting:
        return f"{count}; none gives a figure of the real system yet"
    best = max(counting, key=lambda point: point.value)
    if len(counting) == 1:
        return f"{count}; {write.rate(best.value, unit)} so far"
    return f"{count}; best {write.rate(best.value, unit)}, {times(best.ratio)} the first"


def progress_text(frame: pd.DataFrame, unit: str | None = None) -> str:
    """The progress plot in words: the sentence above it, and a line for each of the last experiments.

    Raises
    ------
    OptionError
        No experiment counts this unit.
    """
    unit = check_unit(frame, unit)
    found = points(frame, unit)
    width = min(40, max((len(one_line(point.label, 40)) for point in found), default=0))
    lines = [summary(found, unit)]
    earlier = max(0, len(found) - IN_WORDS)
    if earlier:
        lines.append(f"      … {earlier} earlier ones are in optbook.log()")
    best = found[earlier - 1].best if earlier else math.nan
    for point in found[earlier:]:
        head = f"{point.number:>4}. {one_line(point.label, 40):<{width}}"
        if not math.isfinite(point.value):
            lines.append(f"{head}  {point.kind}")
            continue
        spread = write.spread(point.value, point.low, point.high)
        figure = f"{write.rate(point.value, unit)}{' ' + spread if spread else ''}"
        if point.counts:
            new_best = not point.value <= best
            best = point.best
            remark = f"{times(point.ratio)} the first" + (", best so far" if new_best else "")
        else:
            why = "on another machine" if point.elsewhere else point.kind
            remark = f"{why}{': ' + one_line(point.stubs, 60) if point.stubs else ''}, does not count"
        lines.append(f"{head}  {figure}  {remark}")
    return "\n".join(lines)
