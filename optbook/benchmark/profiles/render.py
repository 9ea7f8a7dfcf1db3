"""How call and line profiles are shown, in text and as static HTML; every value is escaped."""

from __future__ import annotations

from html import escape

from optbook import formatting as write
from optbook.benchmark.profiles.calls import CallProfile, Function
from optbook.benchmark.profiles.flame import COLOURS, flame
from optbook.benchmark.profiles.lines import Line, LineProfile, Listing
from optbook.benchmark.profiles.page import (
    CODE,
    FAINT,
    LONGEST_NAME,
    heat,
    how,
    page,
    percent,
    row,
    table,
    text_notes,
    text_sentence,
    title,
)
from optbook.benchmark.profiles.places import KINDS
from optbook.experiments.render import one_line

MOST_FUNCTIONS, MOST_OF_OTHERS = 15, 4
LEAST_OF_OTHERS = 0.01
LONGEST_SOURCE = 200
SOURCE = f"{CODE};white-space:pre"


def split(profile: CallProfile) -> str:
    """Your code, libraries, waiting, in per cent."""
    names = {"library": "libraries"}
    return ", ".join(f"{names.get(kind, kind)} {write.percent(profile.share(kind))}" for kind in KINDS)


def calls_as_text(p: CallProfile) -> str:
    """Plain text, for a terminal."""
    lines = [f"{title(p)}: {split(p)}", *text_sentence(p), f"  {how(p)}"]
    lines.append(f"  {'own':>7}  {'with calls':>10}  {'':<9}  function")
    for f in _largest(p):
        own, cumulative = _shares(p, f)
        where = one_line(f.place.where, LONGEST_NAME)
        lines.append(f"  {own:>7}  {cumulative:>10}  {_kind(f):<9}  {_name(f)} ({where})")
    return "\n".join([*lines, *text_notes(p.notes)])


def lines_as_text(p: LineProfile) -> str:
    """Plain text, for a terminal."""
    lines = [f"{title(p)}: time by line", *text_sentence(p), f"  {how(p)}"]
    for listing in p.listings:
        lines.append(f"  {_listed(listing)}")
        lines.append(f"  {'line':>5} {'hits':>9} {'time':>9} {'share':>6}")
        for line in listing.lines:
            hits, time, share = _figures(listing, line)
            source = shown_source(line.source)
            lines.append(f"  {line.number:>5} {hits:>9} {time:>9} {share:>6}  {source}".rstrip())
    return "\n".join([*lines, *text_notes(p.notes)])


def calls_as_html(p: CallProfile) -> str:
    """The split, the flame picture and the functions."""
    legend = " ".join(
        f'<span style="white-space:nowrap;margin-right:1em"><span style="display:inline-block;width:.8em;'
        f'height:.8em;background:{COLOURS[kind][0]}"></span> {escape(kind)} '
        f"{escape(write.percent(p.share(kind)))}</span>"
        for kind in KINDS
    )
    rows = (
        row(
            (*_shares(p, f), _kind(f), _name(f), one_line(f.place.where, LONGEST_NAME)),
            2,
            ("", "", FAINT, CODE, FAINT),
        )
        for f in _largest(p)
    )
    functions = table(("own", "with calls", "", "function", "where"), 2, rows)
    return page(p, f'<div style="margin:2px 0">{legend}</div>{flame(p.stacks)}{functions}', "calls")


def lines_as_html(p: LineProfile) -> str:
    """The source of each function with a column of heat."""
    return page(p, "".join(_listing(listing) for listing in p.listings), "lines")


def _listing(listing: Listing) -> str:
    rows = (
        row(
            (f"{line.number}", *_figures(listing, line), shown_source(line.source)),
            4,
            (FAINT, "", "", heat(line.seconds / listing.seconds if listing.seconds else 0.0), SOURCE),
        )
        for line in listing.lines
    )
    head = f'<div style="margin-top:6px"><b>{escape(_listed(listing))}</b></div>'
    return head + table(("line", "hits", "time", "share", ""), 4, rows)


def _shares(p: CallProfile, f: Function) -> tuple[str, str]:
    if not p.total:
        return write.UNKNOWN, write.UNKNOWN
    return percent(f.own / p.total), percent(f.cumulative / p.total)


def _largest(p: CallProfile) -> list[Function]:
    """The functions to show; of other threads those that do more than wait."""
    mine = [f for f in p.functions if not f.thread]
    others = [f for f in p.functions if f.thread and f.own - f.waiting > LEAST_OF_OTHERS * p.total]
    return mine[:MOST_FUNCTIONS] + others[:MOST_OF_OTHERS]


def _kind(f: Function) -> str:
    return "waiting" if f.own and f.waiting > f.own / 2 else f.place.kind


def _name(f: Function) -> str:
    thread = f" [{one_line(f.thread, 30)}]" if f.thread else ""
    return one_line(f.place.name, LONGEST_NAME) + thread


def _listed(listing: Listing) -> str:
    name, file = one_line(listing.name, LONGEST_NAME), one_line(listing.file, LONGEST_SOURCE)
    where = "" if file in name else f" ({file})"
    return f"{name}{where}, {write.seconds(listing.seconds)}"


def _figures(listing: Listing, line: Line) -> tuple[str, str, str]:
    if not line.hits:
        return "", "", ""
    share = line.seconds / listing.seconds if listing.seconds else 0.0
    return f"{line.hits:,}".replace(",", "\u202f"), write.seconds(line.seconds), percent(share)


def shown_source(source: str) -> str:
    """A line of source as it is shown: printable, and cut where it is very long."""
    text = "".join(c if c.isprintable() else "\ufffd" for c in source.expandtabs(4))
    return text if len(text) <= LONGEST_SOURCE else text[: LONGEST_SOURCE - 1] + "…"
