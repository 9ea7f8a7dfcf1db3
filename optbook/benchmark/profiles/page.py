"""What the pages of all profiles share: the frame around a profile, tables, notes; every value is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Protocol

from optbook import formatting as write
from optbook.benchmark.diagnosis import diagnose
from optbook.benchmark.evidence import stored
from optbook.benchmark.profiles.passes import Pass
from optbook.experiments.record import Experiment
from optbook.experiments.render import one_line

LONGEST_NAME, LONGEST_NOTE = 60, 500
STYLE = (
    "font-family:var(--jp-ui-font-family,system-ui,sans-serif);font-size:var(--jp-ui-font-size1,13px);"
    "color:var(--jp-ui-font-color1,currentColor);margin-top:4px"
)
FAINT = "color:var(--jp-ui-font-color2,gray)"
CELL = "text-align:left;padding:1px 1em 1px 0"
NUMBER = "text-align:right;padding:1px 1em 1px 0;white-space:nowrap"
CODE = "font-family:var(--jp-code-font-family,monospace);font-size:var(--jp-code-font-size,12px)"
_HEAT = "rgba(230,159,0,.45)"  # text stays readable on it in both themes


class Profile(Protocol):
    """What the results of all kinds of profile have."""

    @property
    def experiment(self) -> Experiment:
        """The measurement without instrument."""

    @property
    def run(self) -> Pass:
        """The pass with it."""

    @property
    def executions(self) -> int:
        """How often the workload ran in all."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What to keep in mind when reading it."""


def how(profile: Profile) -> str:
    """What the profile cost: the instrument's overhead and the number of executions."""
    run = profile.run
    unit = "step" if run.steps else "run"
    times = "once" if profile.executions == 1 else f"{profile.executions} times"
    of_it = f" ({run.steps} steps)" if run.steps else ""
    paid = f"{write.seconds(run.seconds)} a {unit} with the instrument, {write.seconds(run.bare)} without"
    factor = f": {write.number(run.overhead)} times as long" if run.overhead is not None else ""
    again = "once" if run.executions == 1 else f"{run.executions} times"
    return f"{paid}{factor}; the workload ran {times} in all, {again} under this instrument{of_it}"


def title(profile: Profile) -> str:
    """The label on one line."""
    return one_line(profile.experiment.label)


def sentence(profile: Profile) -> str:
    """What the time goes to, from the measurement and what this kind of profile knows beside it.

    That is ``profile.evidence``, by the names of `optbook.benchmark.evidence.Evidence`, where there is one.
    Empty where nothing is known.
    """
    further = getattr(profile, "evidence", {})
    if not profile.experiment.evidence and not further:
        return ""
    return one_line(diagnose(stored(profile.experiment.evidence).with_(**further)).sentence, LONGEST_NOTE)


def page(profile: Profile, body: str, kind: str) -> str:
    """A profile as static HTML.

    Args:
        profile: the profile.
        body: what is shown of it, as HTML.
        kind: 'calls', 'lines', … for the class of the outer element.
    """
    notes = "".join(f"<li>{escape(one_line(note, LONGEST_NOTE))}</li>" for note in profile.notes)
    told = sentence(profile)
    return (
        f'<div class="optbook-profile optbook-profile-{kind}" style="{STYLE}">'
        f"<b>{escape(title(profile))}</b>"
        + (f"<div>{escape(told)}</div>" if told else "")
        + f'<div style="{FAINT}">{escape(how(profile))}</div>{body}'
        + (f'<ul style="margin:4px 0 0;padding-left:1.4em;{FAINT}">{notes}</ul>' if notes else "")
        + "</div>"
    )


def table(names: Sequence[str], numbers: int, rows: Iterable[str]) -> str:
    """An HTML table.

    Args:
        names: the heads of the columns.
        numbers: how many columns, from the left, hold numbers and are aligned to the right.
        rows: the rows, as made by `row` or as HTML of one's own.
    """
    head = "".join(
        f'<th scope="col" style="{NUMBER if i < numbers else CELL};font-weight:normal;{FAINT}">'
        f"{escape(name)}</th>"
        for i, name in enumerate(names)
    )
    return (
        f'<table style="border-collapse:collapse;margin:0"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
    )


def row(values: Sequence[str], numbers: int, styles: Sequence[str] = ()) -> str:
    """A row of `table`: the written values, escaped here, and further styles of the columns if given."""
    further = [*styles, *[""] * (len(values) - len(styles))]
    cells = (
        f'<td style="{NUMBER if i < numbers else CELL}{";" + style if style else ""}">{escape(value)}</td>'
        for i, (value, style) in enumerate(zip(values, further, strict=True))
    )
    return f"<tr>{''.join(cells)}</tr>"


def heat(share: float) -> str:
    """The style of a cell that is filled to this share, between 0 and 1."""
    return f"min-width:5em;background:linear-gradient(to left,{_HEAT} {100 * share:.0f}%,transparent 0)"


def percent(share: float) -> str:
    """As in a column: one decimal."""
    return f"{100 * share:.1f} %"


def text_notes(notes: Iterable[str]) -> list[str]:
    """The notes as lines of plain text."""
    return [f"  ! {one_line(note, LONGEST_NOTE)}" for note in notes]


def text_sentence(profile: Profile) -> list[str]:
    """The diagnosis as a line of plain text, if there is one."""
    told = sentence(profile)
    return [f"  {told}"] if told else []
