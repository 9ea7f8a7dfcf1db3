"""Whether two versions do the same: what the three kinds of check share, and how their results are shown."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

from optbook import formatting as write
from optbook.benchmark.profiles.page import CELL, FAINT, STYLE
from optbook.experiments.render import one_line

LONGEST_LABEL, LONGEST_TEXT = 60, 400
ALPHA = 0.05
"""Share of checks that find a difference by chance where there is none."""


@dataclass(frozen=True, kw_only=True)
class Equivalence:
    """The result of a check. It is true where `holds` is, so that ``assert same_outputs(a, b)`` works."""

    holds: bool
    labels: tuple[str, str] = ("first", "second")
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.holds

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        raise NotImplementedError

    def rows(self) -> list[tuple[str, str]]:
        """The figures behind it, as pairs of a name and a written value."""
        return []

    def label(self, index: int) -> str:
        """What the first (0) or the second (1) is called, on one line."""
        return one_line(self.labels[index], LONGEST_LABEL)

    def __str__(self) -> str:
        rows = self.rows()
        width = max((len(name) for name, _ in rows), default=0)
        lines = [self.sentence, *(f"  {name:<{width}}  {value}" for name, value in rows)]
        return "\n".join([*lines, *(f"  ! {one_line(note, LONGEST_TEXT)}" for note in self.notes)])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        colour = "inherit" if self.holds else "var(--jp-error-color1,#b00020)"
        body = "".join(
            f'<tr><th scope="row" style="{CELL};font-weight:normal;{FAINT}">{escape(name)}</th>'
            f'<td style="{CELL}">{escape(value)}</td></tr>'
            for name, value in self.rows()
        )
        notes = "".join(f"<li>{escape(one_line(note, LONGEST_TEXT))}</li>" for note in self.notes)
        return (
            f'<div class="optbook-equivalence" style="{STYLE}">'
            f'<b style="color:{colour}">{escape(self.sentence)}</b>'
            + (f'<table style="border-collapse:collapse;margin:0">{body}</table>' if body else "")
            + (f'<ul style="margin:4px 0 0;padding-left:1.4em;{FAINT}">{notes}</ul>' if notes else "")
            + "</div>"
        )


def signed(value: float) -> str:
    """A difference with its sign."""
    return ("+" if value > 0 else "−" if value < 0 else "") + write.number(abs(value), 3)
