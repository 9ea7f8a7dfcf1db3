"""The stubs that are in place, as a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Any

from optbook import formatting as write
from optbook.benchmark.profiles.page import CODE, FAINT, STYLE, row, table
from optbook.experiments.render import one_line
from optbook.simplify.stubs import Stub

HEAD = ("component", "kind", "calls", "recorded", "misses", "memory")
LONGEST = 80
MOST_WORKERS = 4


@dataclass(frozen=True)
class Listed:
    """A stub as it was when the table was made."""

    name: str
    kind: str
    calls: int
    recorded: int
    misses: int
    bytes: int
    notes: tuple[str, ...]
    workers: tuple[tuple[int, int], ...] = ()
    """The number of each worker process, and the calls in it."""

    @property
    def where(self) -> str:
        """In which processes it was called; "" if there is only this one."""
        if not self.workers:
            return ""
        there = sum(calls for _, calls in self.workers)
        shown = [f"{calls} in worker {pid}" for pid, calls in self.workers]
        if len(shown) > MOST_WORKERS:
            shown = [f"{there} in {len(shown)} workers"]
        return f"calls: {', '.join([f'{self.calls - there} in this process', *shown])}"

    @property
    def cells(self) -> tuple[str, ...]:
        """As they are shown."""
        numbers = (
            f"{number:,}".replace(",", "\u202f") for number in (self.calls, self.recorded, self.misses)
        )
        return (one_line(self.name, LONGEST), self.kind, *numbers, write.bytes_(self.bytes))


@dataclass(frozen=True)
class Listing:
    """What is replaced now. ``calls`` are those in this process and its workers."""

    stubs: tuple[Listed, ...]

    @classmethod
    def of(cls, stubs: Iterable[Stub]) -> Listing:
        """The table of these stubs."""
        return cls(
            tuple(
                Listed(
                    name=s.name,
                    kind=s.kind.name,
                    calls=s.calls,
                    recorded=s.recorded,
                    misses=s.misses,
                    bytes=s.bytes,
                    notes=s.declared,
                    workers=tuple(s.member.calls.items()),
                )
                for s in stubs
            )
        )

    def _notes(self) -> Iterable[str]:
        for stub in self.stubs:
            for note in filter(None, (stub.where, *stub.notes)):
                yield one_line(f"{stub.name}: {note}", 500)

    def __str__(self) -> str:
        if not self.stubs:
            return "no stubs: every component is the real one"
        rows = [HEAD, *(stub.cells for stub in self.stubs)]
        widths = [max(len(cells[i]) for cells in rows) for i in range(len(HEAD))]
        lines = [
            "  ".join(
                text.ljust(width) if i < 2 else text.rjust(width)
                for i, (text, width) in enumerate(zip(cells, widths, strict=True))
            ).rstrip()
            for cells in rows
        ]
        return "\n".join([*lines, *(f"! {note}" for note in self._notes())])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        if not self.stubs:
            return f'<div style="{STYLE}">{escape(str(self))}</div>'
        notes = "".join(f"<li>{escape(note)}</li>" for note in self._notes())
        body = table(HEAD, 0, (row(stub.cells, 0, (CODE,)) for stub in self.stubs))
        return (
            f'<div class="optbook-stubs" style="{STYLE}">{body}'
            + (f'<ul style="margin:4px 0 0;padding-left:1.4em;{FAINT}">{notes}</ul>' if notes else "")
            + "</div>"
        )
