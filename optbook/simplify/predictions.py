"""All predictions that were accepted, beside what was achieved: ``%optbook predictions``."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from optbook import formatting as write
from optbook.benchmark.profiles.page import CODE, FAINT, STYLE, row, table
from optbook.experiments import log
from optbook.experiments.render import one_line
from optbook.simplify.expect import NOT_SCORED

if TYPE_CHECKING:
    import pandas

HEAD = ("experiment", "component", "alone", "predicted", "achieved", "error", "in range")
LONGEST, LONGEST_NOTE = 60, 300
NONE_YET = (
    "no predictions yet: take a %%ceiling, make the component faster, and write "
    "%%bench label --expect component"
)


@dataclass(frozen=True)
class Scored:
    """A prediction of an experiment.

    ``speedup`` is the component's alone (inf: it costs nothing now), ``predicted`` with its range and
    ``achieved`` are throughputs against that of the experiment ``prediction_of``. NaN where it was not
    scored; ``note`` says why.
    """

    experiment: str
    label: str
    component: str
    speedup: float
    predicted: float
    low: float
    high: float
    achieved: float
    prediction_of: str
    note: str = ""

    @property
    def scored(self) -> bool:
        """Whether the prediction could be held against the experiment."""
        return not math.isnan(self.predicted)

    @property
    def error(self) -> float:
        """achieved ÷ predicted − 1."""
        return self.achieved / self.predicted - 1

    @property
    def inside(self) -> bool:
        """Whether what was achieved lies in the range."""
        return self.low <= self.achieved <= self.high

    @property
    def cells(self) -> tuple[str, ...]:
        """As they are shown."""
        names = one_line(self.label, LONGEST), one_line(self.component, LONGEST)
        if not self.scored:
            return (*names, write.UNKNOWN, write.UNKNOWN, _times(self.achieved), write.UNKNOWN, "not scored")
        return (
            *names,
            f"{self.speedup:.3g}×" if math.isfinite(self.speedup) else "gone",
            f"{self.predicted:.2f}× ({self.low:.2f} to {self.high:.2f})",
            _times(self.achieved),
            f"{100 * self.error:+.1f} %",
            "yes" if self.inside else "no",
        )


def _times(ratio: float) -> str:
    return write.UNKNOWN if math.isnan(ratio) else f"{ratio:.2f}×"


@dataclass(frozen=True)
class Predictions:
    """The predictions in the log, oldest first."""

    rows: tuple[Scored, ...]

    @property
    def median_error(self) -> float | None:
        """The median of the errors' sizes, as a share; None where nothing was scored."""
        errors = [abs(scored.error) for scored in self.rows if scored.scored]
        return statistics.median(errors) if errors else None

    @property
    def summary(self) -> str:
        """The median error, and how many lay in their range."""
        if not self.rows:
            return NONE_YET
        scored = [each for each in self.rows if each.scored]
        if not scored:
            return "none could be scored"
        inside = sum(each.inside for each in scored)
        unscored = len(self.rows) - len(scored)
        rest = f"; {unscored} not scored" if unscored else ""
        return f"median error {write.percent(self.median_error)}; {inside} of {len(scored)} in range{rest}"

    def to_frame(self) -> pandas.DataFrame:
        """One row a prediction: the fields of `Scored`, ``error`` (a share) and ``inside``."""
        import pandas as pd

        names = [*Scored.__dataclass_fields__, "error", "inside"]
        rows = [asdict(each) | {"error": each.error, "inside": each.inside} for each in self.rows]
        return pd.DataFrame(rows, columns=names)

    def _notes(self) -> Iterable[str]:
        for each in self.rows:
            if each.note:
                yield one_line(f"{each.label}: {each.note}", LONGEST_NOTE)

    def __str__(self) -> str:
        if not self.rows:
            return NONE_YET
        rows = [HEAD, *(each.cells for each in self.rows)]
        widths = [max(len(cells[i]) for cells in rows) for i in range(len(HEAD))]
        lines = [
            "  ".join(
                text.ljust(width) if i < 2 else text.rjust(width)
                for i, (text, width) in enumerate(zip(cells, widths, strict=True))
            ).rstrip()
            for cells in rows
        ]
        return "\n".join([*lines, self.summary, *(f"! {note}" for note in self._notes())])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        body = table(HEAD, 0, (row(each.cells, 0, ("", CODE)) for each in self.rows)) if self.rows else ""
        notes = "".join(f"<li>{escape(note)}</li>" for note in self._notes())
        return (
            f'<div class="optbook-predictions" style="{STYLE}">{body}<div>{escape(self.summary)}</div>'
            + (f'<ul style="margin:4px 0 0;padding-left:1.4em;{FAINT}">{notes}</ul>' if notes else "")
            + "</div>"
        )


def predictions() -> Predictions:
    """What `optbook.expect` was asked to hold against a measurement, and what came of it.

    Raises:
        LogError: the log can't be read.
    """
    frame = log.log()
    asked = frame[frame["expected"] != ""]
    return Predictions(tuple(_scored(each) for each in asked.to_dict("records")))


def _scored(values: Mapping[Any, Any]) -> Scored:
    notes = [line for line in values["warnings"] if line.startswith(NOT_SCORED)]
    return Scored(
        experiment=values["id"],
        label=values["label"],
        component=values["expected"],
        speedup=values["component_speedup"],
        predicted=values["predicted"],
        low=values["predicted_low"],
        high=values["predicted_high"],
        achieved=values["achieved"],
        prediction_of=values["prediction_of"],
        note=notes[0] if notes else "",
    )
