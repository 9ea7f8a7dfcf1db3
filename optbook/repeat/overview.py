"""What `%optbook` and `%progress` show: the log as a table, and the plot; static, in text and in HTML."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from optbook import formatting as write
from optbook.experiments.errors import LogError
from optbook.experiments.location import Location
from optbook.experiments.render import one_line
from optbook.repeat.journey import Journey, so_far
from optbook.repeat.progress import EMPTY, check_unit, points, progress_text, ratios, select, summary, times

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

LAST = 20
_STYLE = (
    "font-family:var(--jp-ui-font-family,system-ui,sans-serif);font-size:var(--jp-ui-font-size1,13px);"
    "color:var(--jp-ui-font-color1,currentColor);line-height:1.3"
)
_FAINT = "color:var(--jp-ui-font-color2,gray)"
HEADS = ("#", "label", "status", "throughput", "±", "seconds", "× first", "CPU", "memory", "stubs", "!")
_NUMERIC = frozenset({"#", "throughput", "±", "seconds", "× first", "CPU", "memory", "!"})
_TITLES = {
    "±": "half the 95 % interval",
    "seconds": "median run or step",
    "× first": "against the first of this unit that is ok and without stubs; in brackets: does not count",
    "CPU": "cores kept busy",
    "memory": "peak of this process",
    "stubs": "components that were replaced: not a figure of the real system",
    "!": "warnings",
}


@dataclass(frozen=True, eq=False)
class Progress:
    """The progress plot of some experiments, with the same in words.

    Parameters
    ----------
    frame
        The experiments, as `optbook.log` gives them.
    unit
        What throughput counts.
    journey
        What the whole log amounts to in this unit; nothing is said of it if left out.
    """

    frame: pd.DataFrame
    unit: str
    journey: Journey | None = None

    def figure(self) -> Figure:
        """The plot as a matplotlib figure."""
        from optbook.repeat.plots import progress as plot

        return plot(self.frame, self.unit, _target(self.journey))

    def __str__(self) -> str:
        return "\n".join([progress_text(self.frame, self.unit), *_lines(self.journey)])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        if not len(self.frame):
            return f'<div class="optbook-progress" style="{_STYLE}">{escape(EMPTY)}</div>'
        from optbook.repeat.plots import as_svg

        told = [summary(points(self.frame, self.unit), self.unit), *_lines(self.journey)]
        svg = as_svg(self.figure(), ". ".join(told))
        words = (
            f'<details><summary style="{_FAINT}">in words</summary>'
            f'<pre style="white-space:pre-wrap;color:inherit;background:none">{escape(str(self))}</pre>'
            "</details>"
        )
        return f'<div class="optbook-progress" style="{_STYLE}">{svg}{_lines_html(self.journey)}{words}</div>'


@dataclass(frozen=True, eq=False)
class Overview:
    """The last experiments as a table, the progress plot, and where the log lies.

    Parameters
    ----------
    frame
        The whole log, as `optbook.log` gives it.
    location
        Where it lies.
    unit
        What the plot's throughput counts.
    last
        How many experiments the table shows.
    journey
        What the log amounts to in this unit; nothing is said of it if left out.
    """

    frame: pd.DataFrame
    location: Location
    unit: str
    last: int = LAST
    journey: Journey | None = None

    def __str__(self) -> str:
        parts = [_text_table(table_rows(self.frame, self.last)), _more(self.frame, self.last)]
        parts += [summary(points(self.frame, self.unit), self.unit), *_lines(self.journey)]
        parts.append(_where(self.location))
        return "\n".join(part for part in parts if part)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        plot = Progress(self.frame, self.unit, self.journey)._repr_html_()
        table = table_html(self.frame, self.last) if len(self.frame) else ""
        where = f'<div style="{_FAINT};margin-top:6px">{escape(_where(self.location))}</div>'
        return f'<div class="optbook-overview" style="{_STYLE}">{table}{plot}{where}</div>'


def progress(unit: str | None = None, label: str = "", last: int | None = None) -> Progress:
    """The progress over the experiments in the log, and from all of them what to do next, and why.

    Parameters
    ----------
    unit
        What throughput counts; the unit of the latest experiment that is ok if left out.
    label
        Only experiments whose label contains this, in any case.
    last
        Only the last so many of them.

    Raises
    ------
    OptionError
        No experiment counts the unit, or `last` is below 1.
    LogError
        The log cannot be read.
    """
    from optbook.experiments.log import log

    whole = log()
    frame = select(whole, label, last)
    unit = check_unit(frame, unit)
    return Progress(frame, unit, _journey(whole, unit) if len(frame) else None)


def overview(unit: str | None = None, last: int = LAST) -> Overview:
    """The log and the progress.

    Raises
    ------
    OptionError
        No experiment counts the unit.
    LogError
        The log cannot be read.
    """
    from optbook.experiments.log import session

    frame = session().frame()
    unit = check_unit(frame, unit)
    return Overview(frame, session().location, unit, last, _journey(frame, unit))


def table_rows(frame: pd.DataFrame, last: int = LAST) -> list[tuple[str, ...]]:
    """The last experiments, newest last, as written values under the heads of the table."""
    against_first = ratios(frame)
    rows: list[tuple[str, ...]] = []
    for index, row in zip(frame.index[-last:], frame.iloc[-last:].to_dict("records"), strict=True):
        real = row["status"] == "ok" and not row["stubs"]
        ratio = against_first.get(index, math.nan)
        shown = times(ratio) if math.isfinite(ratio) else ""
        rows.append(
            (
                str(index + 1),
                one_line(row["label"], 60),
                row["status"],
                _known(write.rate(row["throughput"], one_line(row["unit"], 30)), row["throughput"]),
                write.spread(row["throughput"], row["throughput_low"], row["throughput_high"]),
                _known(write.seconds(row["seconds"]), row["seconds"]),
                shown if real or not shown else f"({shown})",
                _known(write.number(row["cpu_cores"], 2), row["cpu_cores"]),
                _known(write.bytes_(row["memory_peak"]), row["memory_peak"]),
                one_line(row["stubs"], 40),
                str(len(row["warnings"]) or ""),
            )
        )
    return rows


def _known(text: str, value: float) -> str:
    return text if math.isfinite(value) else ""


def table_html(frame: pd.DataFrame, last: int = LAST) -> str:
    """The table of the last experiments; every value is escaped."""
    cell = "padding:2px 8px 2px 0;{};border-bottom:1px solid var(--jp-border-color2,#8884)"
    head = "".join(
        f'<th scope="col" title="{escape(_TITLES.get(name, ""))}" '
        f'style="{cell.format(_side(name))};font-weight:600">{escape(name)}</th>'
        for name in HEADS
    )
    body = ""
    for row in table_rows(frame, last):
        real = row[2] == "ok" and not row[9]
        cells = "".join(
            f'<td style="{cell.format(_side(name))}">{escape(value)}</td>'
            for name, value in zip(HEADS, row, strict=True)
        )
        body += f'<tr style="{"" if real else _FAINT + ";font-style:italic"}">{cells}</tr>'
    more = _more(frame, last)
    return (
        '<div style="overflow-x:auto">'
        '<table style="border-collapse:collapse;margin:0 0 6px;font-size:inherit;line-height:1.3">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        + (f'<div style="{_FAINT}">{escape(more)}</div>' if more else "")
    )


def _side(name: str) -> str:
    if name in _NUMERIC:
        return "text-align:right;white-space:nowrap"
    return "text-align:left" + (";min-width:12em" if name == "label" else "")


def _more(frame: pd.DataFrame, last: int) -> str:
    return f"{len(frame) - last} earlier ones are in optbook.log()." if len(frame) > last else ""


def _text_table(rows: Sequence[tuple[str, ...]]) -> str:
    if not rows:
        return ""
    used = [i for i in range(len(HEADS)) if i < 2 or any(row[i] for row in rows)]
    lines = [[HEADS[i] for i in used], *([row[i] for i in used] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(used))]
    right = [HEADS[i] in _NUMERIC for i in used]
    return "\n".join(
        "  ".join(
            text.rjust(width) if flush else text.ljust(width)
            for text, width, flush in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def _journey(frame: pd.DataFrame, unit: str) -> Journey | None:
    """None where the log can't be read: what waits in memory is shown then, and said to be all."""
    try:
        return so_far(frame, unit)
    except LogError:
        return None


def _target(journey: Journey | None) -> float | None:
    return None if journey is None or journey.goal is None else journey.goal.target


def _lines(journey: Journey | None) -> list[str]:
    return [] if journey is None else journey.lines()


def _lines_html(journey: Journey | None) -> str:
    lines = _lines(journey)
    body = "".join(f"<div>{escape(line)}</div>" for line in lines[:-1])
    return body + (f'<div style="font-weight:600">{escape(lines[-1])}</div>' if lines else "")


def _where(location: Location) -> str:
    warning = f" Careful: {location.warning}." if location.warning else ""
    return f"The log lies in {location.shown}, {location.why}.{warning}"
