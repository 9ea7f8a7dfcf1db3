"""How profiles are shown, in text and as static HTML; every value is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from optbook import formatting as write
from optbook.benchmark.profiles.calls import CallProfile, Function
from optbook.benchmark.profiles.flame import COLOURS, flame
from optbook.benchmark.profiles.lines import Line, LineProfile, Listing
from optbook.benchmark.profiles.places import KINDS
from optbook.experiments.render import one_line

MOST_FUNCTIONS, MOST_OF_OTHERS = 15, 4
LEAST_OF_OTHERS = 0.01
LONGEST_NAME, LONGEST_NOTE, LONGEST_SOURCE = 60, 500, 200
_STYLE = (
    "font-family:var(--jp-ui-font-family,system-ui,sans-serif);font-size:var(--jp-ui-font-size1,13px);"
    "color:var(--jp-ui-font-color1,currentColor);margin-top:4px"
)
_FAINT = "color:var(--jp-ui-font-color2,gray)"
_CELL = "text-align:left;padding:1px 1em 1px 0"
_NUMBER = "text-align:right;padding:1px 1em 1px 0;white-space:nowrap"
_CODE = "font-family:var(--jp-code-font-family,monospace);font-size:var(--jp-code-font-size,12px)"
_HEAT = "rgba(230,159,0,.45)"  # text stays readable on it in both themes


def how(profile: CallProfile | LineProfile) -> str:
    """What the profile cost: the instrument's overhead and the number of executions."""
    run = profile.run
    unit = "step" if run.steps else "run"
    times = "once" if profile.executions == 1 else f"{profile.executions} times"
    of_it = f" ({run.steps} steps)" if run.steps else ""
    paid = f"{write.seconds(run.seconds)} a {unit} with the instrument, {write.seconds(run.bare)} without"
    factor = f": {write.number(run.overhead)} times as long" if run.overhead is not None else ""
    again = "once" if run.executions == 1 else f"{run.executions} times"
    return f"{paid}{factor}; the workload ran {times} in all, {again} under this instrument{of_it}"


def split(profile: CallProfile) -> str:
    """Your code, libraries, waiting, in per cent."""
    names = {"library": "libraries"}
    return ", ".join(f"{names.get(kind, kind)} {write.percent(profile.share(kind))}" for kind in KINDS)


def calls_as_text(p: CallProfile) -> str:
    """Plain text, for a terminal."""
    lines = [f"{one_line(p.experiment.label)}: {split(p)}", f"  {how(p)}"]
    lines.append(f"  {'own':>7}  {'with calls':>10}  {'':<9}  function")
    for f in _largest(p):
        own, cumulative = _shares(p, f)
        where = one_line(f.place.where, LONGEST_NAME)
        lines.append(f"  {own:>7}  {cumulative:>10}  {_kind(f):<9}  {_name(f)} ({where})")
    return "\n".join([*lines, *_text_notes(p.notes)])


def lines_as_text(p: LineProfile) -> str:
    """Plain text, for a terminal."""
    lines = [f"{one_line(p.experiment.label)}: time by line", f"  {how(p)}"]
    for listing in p.listings:
        lines.append(f"  {_title(listing)}")
        lines.append(f"  {'line':>5} {'hits':>9} {'time':>9} {'share':>6}")
        for line in listing.lines:
            hits, time, share = _figures(listing, line)
            source = _source(line)
            lines.append(f"  {line.number:>5} {hits:>9} {time:>9} {share:>6}  {source}".rstrip())
    return "\n".join([*lines, *_text_notes(p.notes)])


def calls_as_html(p: CallProfile) -> str:
    """The split, the flame picture and the functions."""
    legend = " ".join(
        f'<span style="white-space:nowrap;margin-right:1em"><span style="display:inline-block;width:.8em;'
        f'height:.8em;background:{COLOURS[kind][0]}"></span> {escape(kind)} '
        f"{escape(write.percent(p.share(kind)))}</span>"
        for kind in KINDS
    )
    rows = "".join(
        "<tr>"
        + "".join(f'<td style="{_NUMBER}">{escape(text)}</td>' for text in _shares(p, f))
        + f'<td style="{_CELL};{_FAINT}">{escape(_kind(f))}</td>'
        f'<td style="{_CELL};{_CODE}">{escape(_name(f))}</td>'
        f'<td style="{_CELL};{_FAINT}">{escape(one_line(f.place.where, LONGEST_NAME))}</td></tr>'
        for f in _largest(p)
    )
    head = _head(("own", "with calls", "", "function", "where"), 2)
    return _page(p, f'<div style="margin:2px 0">{legend}</div>{flame(p.stacks)}{_table(head, rows)}', "calls")


def lines_as_html(p: LineProfile) -> str:
    """The source of each function with a column of heat."""
    return _page(p, "".join(_listing(listing) for listing in p.listings), "lines")


def _listing(listing: Listing) -> str:
    head = _head(("line", "hits", "time", "share", ""), 4)
    rows = []
    for line in listing.lines:
        share = line.seconds / listing.seconds if listing.seconds else 0.0
        heat = f"background:linear-gradient(to left,{_HEAT} {100 * share:.0f}%,transparent 0)"
        hits, time, percent = (escape(text) for text in _figures(listing, line))
        rows.append(
            f'<tr><td style="{_NUMBER};{_FAINT}">{line.number}</td><td style="{_NUMBER}">{hits}</td>'
            f'<td style="{_NUMBER}">{time}</td><td style="{_NUMBER};min-width:5em;{heat}">{percent}</td>'
            f'<td style="{_CELL};{_CODE};white-space:pre">{escape(_source(line))}</td></tr>'
        )
    title = f'<div style="margin-top:6px"><b>{escape(_title(listing))}</b></div>'
    return title + _table(head, "".join(rows))


def _page(p: CallProfile | LineProfile, body: str, kind: str) -> str:
    notes = "".join(f"<li>{escape(one_line(note, LONGEST_NOTE))}</li>" for note in p.notes)
    return (
        f'<div class="optbook-profile optbook-profile-{kind}" style="{_STYLE}">'
        f"<b>{escape(one_line(p.experiment.label))}</b>"
        f'<div style="{_FAINT}">{escape(how(p))}</div>{body}'
        + (f'<ul style="margin:4px 0 0;padding-left:1.4em;{_FAINT}">{notes}</ul>' if notes else "")
        + "</div>"
    )


def _head(names: Sequence[str], numbers: int) -> str:
    return "".join(
        f'<th scope="col" style="{_NUMBER if i < numbers else _CELL};font-weight:normal;{_FAINT}">'
        f"{escape(name)}</th>"
        for i, name in enumerate(names)
    )


def _table(head: str, rows: str) -> str:
    return (
        f'<table style="border-collapse:collapse;margin:0"><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def _shares(p: CallProfile, f: Function) -> tuple[str, str]:
    if not p.total:
        return write.UNKNOWN, write.UNKNOWN
    return _percent(f.own / p.total), _percent(f.cumulative / p.total)


def _largest(p: CallProfile) -> list[Function]:
    """The functions to show; of other threads those that do more than wait."""
    mine = [f for f in p.functions if not f.thread]
    others = [f for f in p.functions if f.thread and f.own - f.waiting > LEAST_OF_OTHERS * p.total]
    return mine[:MOST_FUNCTIONS] + others[:MOST_OF_OTHERS]


def _percent(share: float) -> str:
    """As in a column: one decimal."""
    return f"{100 * share:.1f} %"


def _kind(f: Function) -> str:
    return "waiting" if f.own and f.waiting > f.own / 2 else f.place.kind


def _name(f: Function) -> str:
    thread = f" [{one_line(f.thread, 30)}]" if f.thread else ""
    return one_line(f.place.name, LONGEST_NAME) + thread


def _title(listing: Listing) -> str:
    name, file = one_line(listing.name, LONGEST_NAME), one_line(listing.file, LONGEST_SOURCE)
    where = "" if file in name else f" ({file})"
    return f"{name}{where}, {write.seconds(listing.seconds)}"


def _figures(listing: Listing, line: Line) -> tuple[str, str, str]:
    if not line.hits:
        return "", "", ""
    share = line.seconds / listing.seconds if listing.seconds else 0.0
    return f"{line.hits:,}".replace(",", "\u202f"), write.seconds(line.seconds), _percent(share)


def _source(line: Line) -> str:
    text = "".join(c if c.isprintable() else "\ufffd" for c in line.source.expandtabs(4))
    return text if len(text) <= LONGEST_SOURCE else text[: LONGEST_SOURCE - 1] + "…"


def _text_notes(notes: Iterable[str]) -> list[str]:
    return [f"  ! {one_line(note, LONGEST_NOTE)}" for note in notes]
