"""How network profiles are shown, in text and as static HTML; every value is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from optbook import formatting as write
from optbook.benchmark.meters.network import Traffic
from optbook.benchmark.profiles.network import NetworkProfile
from optbook.benchmark.profiles.page import (
    FAINT,
    LONGEST_NAME,
    how,
    page,
    percent,
    row,
    table,
    text_notes,
    text_sentence,
    title,
)
from optbook.experiments.render import one_line

MOST_ROWS = 15
SILENT = "no network traffic"
Table = tuple[Sequence[str], int, Sequence[tuple[str, ...]]]


def headline(p: NetworkProfile) -> str:
    """How the time of the workload's thread is divided, in one line."""
    if p.silent:
        return SILENT
    if not p.calls:
        return "no network calls in this process"
    network, waiting = (seconds / p.seconds if p.seconds else 0.0 for seconds in (p.network, p.waiting))
    work = max(0.0, 1 - network)
    return (
        f"network {write.percent(network)} of the time ({write.percent(waiting)} waiting), "
        f"work {write.percent(work)}"
    )


def as_text(p: NetworkProfile) -> str:
    """Plain text, for a terminal."""
    lines = [f"{title(p)}: {headline(p)}", *text_sentence(p), f"  {how(p)}"]
    for names, numbers, rows in _tables(p):
        widths = [max(len(line[i]) for line in (names, *rows)) for i in range(len(names))]
        for line in (names, *rows):
            cells = (
                text.rjust(width) if i < numbers else text.ljust(width)
                for i, (text, width) in enumerate(zip(line, widths, strict=True))
            )
            lines.append(f"  {'  '.join(cells)}".rstrip())
    return "\n".join([*lines, *text_notes(p.notes)])


def as_html(p: NetworkProfile) -> str:
    """The division of the time, and the tables."""
    body = f"<div>{escape(headline(p))}</div>"
    for names, numbers, rows in _tables(p):
        styles = [FAINT if i > numbers else "" for i in range(len(names))]
        shown = table(names, numbers, (row(line, numbers, styles) for line in rows))
        body += f'<div style="margin-top:6px">{shown}</div>'
    return page(p, body, "network")


def _tables(p: NetworkProfile) -> list[Table]:
    if p.silent:
        return []
    found = [_components(p), _calls(p), _interfaces(p), _conversations(p)]
    return [each for each in found if each[2]]


def _components(p: NetworkProfile) -> Table:
    shown = p.components[:MOST_ROWS] if p.calls else ()
    rows = [
        (
            write.seconds(part.seconds),
            percent(part.network / part.seconds if part.seconds else 0.0),
            percent(part.waiting / part.seconds if part.seconds else 0.0),
            percent(part.work / part.seconds if part.seconds else 0.0),
            one_line(part.name, LONGEST_NAME),
        )
        for part in shown
    ]
    return ("time", "network", "of it waiting", "work", "component"), 4, rows


def _calls(p: NetworkProfile) -> Table:
    rows = [
        (
            write.seconds(call.seconds),
            write.seconds(call.waiting),
            f"{call.calls}",
            write.bytes_(call.bytes),
            call.operation,
            one_line(call.component, LONGEST_NAME)
            + (f" [{one_line(call.thread, 30)}]" if call.thread else ""),
        )
        for call in p.calls[:MOST_ROWS]
    ]
    return ("time", "waiting", "calls", "bytes", "call", "component"), 4, rows


def _interfaces(p: NetworkProfile) -> Table:
    rows = [
        (
            write.bytes_(t.bytes_sent),
            write.bytes_(t.bytes_received),
            f"{t.packets_sent + t.packets_received}",
            *_rates(t, p.seconds),
            one_line(name, LONGEST_NAME),
        )
        for name, t in p.interfaces.items()
        if t.bytes
    ]
    return ("sent", "received", "packets", "bytes/s", "packets/s", "interface"), 5, rows


def _rates(t: Traffic, seconds: float) -> tuple[str, str]:
    if not seconds:
        return write.UNKNOWN, write.UNKNOWN
    packets = (t.packets_sent + t.packets_received) / seconds
    return f"{write.bytes_(t.bytes / seconds)}/s", write.number(packets)


def _conversations(p: NetworkProfile) -> Table:
    rows = [
        (
            write.bytes_(c.bytes),
            f"{c.packets}",
            write.seconds(c.seconds),
            f"{one_line(c.one, LONGEST_NAME)} – {one_line(c.other, LONGEST_NAME)}",
            one_line(c.protocol, 30),
        )
        for c in (p.conversations or ())[:MOST_ROWS]
    ]
    return ("bytes", "packets", "time", "conversation", "protocol"), 3, rows
