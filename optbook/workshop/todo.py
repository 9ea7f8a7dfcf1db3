"""What to do first, by what a ceiling found: the end of chapter 03."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Any

from optbook.benchmark.profiles.page import CELL, CODE, FAINT, STYLE, row, table
from optbook.errors import OptionError
from optbook.experiments.render import one_line
from optbook.simplify.ceiling_render import times
from optbook.simplify.result import NOTHING, Ceiling, Estimate, Part
from optbook.workshop.chapters import CHAPTERS

HEAD = ("", "component", "at most", "2× as fast", "what may help")
LONGEST = 60


@dataclass(frozen=True)
class Section:
    """A section that treats a kind of cure: its chapter's number and its heading.

    As soon as the chapter is in `CHAPTERS`, it is shown as a link.
    """

    chapter: str
    heading: str

    def __str__(self) -> str:
        return f"chapter {self.chapter}: {self.heading}"

    @property
    def link(self) -> str:
        """Where the section is, seen from another chapter; "" if the chapter is not there yet."""
        for chapter in CHAPTERS:
            if chapter.name.startswith(f"{self.chapter}_"):
                return f"{chapter.name}.ipynb#{self.heading.replace(' ', '-')}"
        return ""


# The one place where cures are tied to chapters: a section for each row of the method.
SECTIONS = {
    "C0": Section("04", "Less work first"),
    "C1": Section("04", "All at once"),
    "C2": Section("04", "Compute it once"),
    "C3": Section("04", "Call C"),
    "C4": Section("04", "Hardware last"),
    "K1": Section("05", "Nobody waits"),
    "K2": Section("05", "Keep it local"),
    "K3": Section("05", "Don't wait for it"),
    "K4": Section("05", "Avoid moving data"),
    "M0": Section("06", "How much room is there?"),
    "M1": Section("06", "The smallest type that will do"),
    "M2": Section("06", "A cache that pays for its memory"),
    "M3": Section("06", "Use it again"),
    "M4": Section("06", "Let go"),
    "M5": Section("06", "One at a time"),
}
OF_PARTS = {
    "decode": ("C2", "M2", "C0"),
    "augment": ("C0", "C3", "M1"),
    "resize": ("C0",),
    "normalise": ("C2", "M1"),
    "targets": ("C1",),
    "collate": ("K4", "M3", "M1"),
    "loader": ("K1", "K2", "C2", "M5"),
    "step": ("C0", "M1", "M0", "C4"),
    "log": ("K3", "M4"),
}
"""By stage of the recipe: the rows of the method that may help."""
STAGES = {
    "decode_full_size": "decode",
    "decoded_picture": "decode",
    "augment_step_by_step": "augment",
    "rotate": "augment",
    "rescale": "augment",
    "warp": "augment",
    "recolour": "augment",
    "add_noise": "augment",
    "resize_through_bytes": "resize",
    "draw_cell_by_cell": "targets",
    "collate_arrays": "collate",
    "__next__": "loader",
    "__getitem__": "loader",
    "__getitems__": "loader",
    "step_by_step": "step",
    "forward": "step",
    "backward": "step",
    "print_every_step": "log",
}
"""Functions of the sample by the stage that they belong to."""


@dataclass(frozen=True)
class Item:
    """A component that is worth it: the gain were it free, and were it twice as fast (None if not asked).

    ``after`` names the component that hides it: until that one is faster, it brings nothing.
    """

    component: str
    free: Estimate
    twice: Estimate | None
    sections: tuple[Section, ...]
    after: str = ""


@dataclass(frozen=True)
class Todo:
    """What to do, the largest gain first; and what to leave as it is."""

    label: str
    items: tuple[Item, ...]
    left: tuple[str, ...]

    def _cells(self) -> Iterator[tuple[str, ...]]:
        for number, item in enumerate(self.items, 1):
            most = times(item.free) if not item.after else f"{times(item.free)}, after {_name(item.after)}"
            twice = f"{item.twice.ratio:.2f}×" if item.twice is not None else ""
            yield f"{number}.", _name(item.component), most, twice

    def _remark(self) -> str:
        names = ", ".join(map(_name, self.left))
        return f"leave as it is: {names}; at no cost at all it would bring next to nothing" if names else ""

    def __str__(self) -> str:
        lines = [f"what to do first, by the ceiling of {one_line(self.label)}"]
        for (number, name, most, twice), item in zip(self._cells(), self.items, strict=True):
            lines.append(f"  {number} {name}: at most {most}" + (f"; 2× as fast {twice}" if twice else ""))
            lines += [f"       {section}" for section in item.sections] or [f"       {UNKNOWN}"]
        if not self.items:
            lines.append(f"  {NOTHING_TO_DO}")
        return "\n".join([*lines, *([f"  {self._remark()}"] if self.left else [])])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        rows = [
            f'{row(cells, 1, ("", CODE)).removesuffix("</tr>")}<td style="{CELL}">{_links(item)}</td></tr>'
            for cells, item in zip(self._cells(), self.items, strict=True)
        ]
        body = table(HEAD, 1, rows) if rows else f"<div>{escape(NOTHING_TO_DO)}</div>"
        return (
            f'<div class="optbook-todo" style="{STYLE}"><b>what to do first, by the ceiling of '
            f"{escape(one_line(self.label))}</b>{body}"
            f'<div style="{FAINT}">{escape(self._remark())}</div></div>'
        )


UNKNOWN = "chapter 02 again: which of its lines?"
NOTHING_TO_DO = "none of these parts is worth it: look at what was not named"


def todo(ceiling: Ceiling) -> Todo:
    """The list of what to do first: components by what the system would gain were they free.

    Those that another one hides come after it; those that bring next to nothing are named at the end.

    Args:
        ceiling: what `optbook.ceiling` or ``%%ceiling -o name`` found.

    Raises:
        OptionError: it is no ceiling.
    """
    if not isinstance(ceiling, Ceiling):
        raise OptionError(f"todo got a {type(ceiling).__name__}: give the result of %%ceiling -o name")
    worth = [part for part in ceiling.parts if part.free is not None and part.free.ratio > NOTHING]
    worth.sort(key=lambda part: -part.free.ratio if part.free else 0.0)
    items = [_item(part, part.free, "") for part in worth if part.free]
    hidden = {pair.hidden: pair for pair in ceiling.pairs}
    items += [_item(ceiling[name], pair.both, pair.hiding) for name, pair in hidden.items()]
    listed = {item.component for item in items}
    left = (part.component for part in ceiling.parts if part.component not in listed and not part.error)
    return Todo(ceiling.label, tuple(items), tuple(left))


def _item(part: Part, gain: Estimate, after: str) -> Item:
    name = part.component.rpartition(".")[2]
    rows = OF_PARTS.get(STAGES.get(name, name), ())
    return Item(part.component, gain, part.faster.get(2.0), tuple(SECTIONS[row] for row in rows), after)


def _links(item: Item) -> str:
    if not item.sections:
        return escape(UNKNOWN)
    return "<br>".join(
        f'<a href="{escape(section.link)}">{escape(str(section))}</a>'
        if section.link
        else escape(str(section))
        for section in item.sections
    )


def _name(component: str) -> str:
    return one_line(component, LONGEST)
