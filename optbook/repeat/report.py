"""`report`: one page for the meeting, as HTML that needs nothing else, or as Markdown."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optbook.errors import OptionError
from optbook.experiments.checked import KIND, ResultCheck, result_checks
from optbook.experiments.files import write_file
from optbook.experiments.log import session
from optbook.experiments.render import one_line
from optbook.repeat import facts, pictures
from optbook.repeat.effort import PAUSE
from optbook.repeat.goal import in_force, sentence
from optbook.repeat.journey import CEILING, Journey, journey
from optbook.repeat.overview import HEADS, table_html, table_rows
from optbook.repeat.plots import as_svg
from optbook.repeat.plots import progress as progress_plot
from optbook.repeat.progress import check_unit, known_units, summary
from optbook.simplify.predictions import HEAD as PREDICTION_HEADS
from optbook.simplify.predictions import Predictions, predictions

if TYPE_CHECKING:
    import pandas as pd
    from jinja2 import Environment
    from matplotlib.figure import Figure

LAST = 100
"""So many experiments are in the table."""
LONGEST = 10_000
SUFFIXES = {".html": "report.html", ".htm": "report.html", ".md": "report.md", ".markdown": "report.md"}
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|~#$&])")


@dataclass(frozen=True, eq=False)
class Picture:
    """A plot, drawn when it is needed, and what it shows in words."""

    draw: Callable[[], Figure]
    words: str

    @property
    def svg(self) -> str:
        """For a page; texts in it are escaped."""
        return as_svg(self.draw(), self.words)


@dataclass(frozen=True, eq=False)
class Report:
    """What there is to tell of a log, in one unit.

    Parameters
    ----------
    frame
        The log, as `optbook.log` gives it.
    journey
        What it amounts to.
    place
        Where it lies, as it may be shown.
    predicted
        The predictions in it, and what came of them.
    checks
        Which versions were checked for giving the same results.
    when
        When the report was made.
    """

    frame: pd.DataFrame
    journey: Journey
    place: str
    predicted: Predictions
    checks: Sequence[ResultCheck]
    when: datetime

    def html(self) -> str:
        """A whole page that needs no other file."""
        return _html().get_template("report.html").render(r=_View(self))

    def markdown(self) -> str:
        """The same as Markdown, with the pictures in words."""
        text = _markdown().get_template("report.md").render(r=_View(self))
        return re.sub(r"\n{3,}", "\n\n", text)

    def __str__(self) -> str:
        return self.markdown()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        return _html().get_template("report_body.html").render(r=_View(self))

    def save(self, path: str | os.PathLike[str], force: bool = False) -> Path:
        """Write it, as the suffix says: .html or .md.

        Raises
        ------
        OptionError
            The suffix is another one, a file is there and `force` is off, or the path can't be written to.
        """
        template = SUFFIXES.get(Path(path).suffix.lower())
        if template is None:
            raise OptionError(
                f"{one_line(os.fspath(path))} ends neither in .html nor in .md: "
                "write one of them, and print the HTML page where a PDF is needed"
            )
        text = self.html() if template == "report.html" else self.markdown()
        return write_file(path, lambda place: place.write_text(text, encoding="utf-8"), force=force)


class _View:
    """What the templates show: values, which they escape, and `table` and pictures, which are HTML."""

    def __init__(self, report: Report) -> None:
        way, frame = report.journey, report.frame
        steps = facts.improvements(way, frame, report.checks)
        self.headline = facts.headline(way)
        self.made = f"Report of {report.when:%Y-%m-%d %H:%M}"
        self.place = report.place
        self.goal = [sentence(way.goal)] if way.goal is not None else []
        self.advice = way.advice.sentence
        self.changes = [astuple(change) for change in facts.changes(way, frame)]
        self.gap_heads, self.gaps = facts.gaps(way)
        self.improvements = [astuple(step) for step in steps[-LAST:]]
        self.caveats = facts.caveats(way, frame, steps)
        self.machine = facts.machine_rows(way, frame)
        self.heads = HEADS
        self.prediction_heads = PREDICTION_HEADS
        self.predictions = [scored.cells for scored in report.predicted.rows[-LAST:]]
        self.predicted = report.predicted.summary
        self.pauses = f"Pauses over {PAUSE / 60:.0f} minutes are left out."
        target = None if way.goal is None else way.goal.target
        self.progress = self.hours = self.waterfall = None
        if way.points:
            words = summary(way.points, way.unit)
            self.progress = Picture(lambda: progress_plot(frame, way.unit, target), words)
        if len(way.improvements) > 1:
            self.hours = Picture(lambda: pictures.over_hours(way), pictures.over_hours_in_words(way))
            self.waterfall = Picture(lambda: pictures.waterfall(way), pictures.waterfall_in_words(way))
        self._frame = frame

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The last experiments."""
        return table_rows(self._frame, LAST)

    @property
    def table(self) -> str:
        """The same as HTML; every value is escaped."""
        return table_html(self._frame, LAST) if len(self._frame) else ""


def report(
    path: str | os.PathLike[str] | None = None, unit: str | None = None, *, force: bool = False
) -> Report:
    """The report on the log: before and after in time and money, plots, what was not checked, what is left.

    Parameters
    ----------
    path
        Where to write it, as .html or .md; nowhere if left out.
    unit
        What throughput counts; if left out, that of the latest goal that some experiment counts, else that of
        the latest experiment that is ok.
    force
        Whether a file that is there may be replaced.

    Raises
    ------
    OptionError
        No experiment counts the unit, or the path can't be used.
    LogError
        The log can't be read.
    """
    log = session()
    frame, goals = log.frame(), in_force(log.store.goals())
    if unit is None:
        counted = set(known_units(frame))
        unit = next((goal.unit for goal in reversed(goals) if goal.unit in counted), None)
    unit = check_unit(frame, unit)
    goal = next((goal for goal in goals if goal.unit == unit), None)
    made = Report(
        frame=frame,
        journey=journey(frame, unit, goal, log.profiles(kind=CEILING)),
        place=log.location.shown,
        predicted=predictions(),
        checks=result_checks(log.profiles(kind=KIND)),
        when=datetime.now().astimezone(),
    )
    if path is not None:
        made.save(path, force)
    return made


def _html() -> Environment:
    return _environment(autoescape=True)


def _markdown() -> Environment:
    """Every value is escaped as it is written."""
    environment = _environment(autoescape=False)
    environment.finalize = lambda value: _MARKDOWN.sub(r"\\\1", one_line(str(value), LONGEST))
    return environment


def _environment(*, autoescape: bool) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=autoescape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
