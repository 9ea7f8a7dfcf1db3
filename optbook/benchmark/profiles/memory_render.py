"""How a memory profile is shown, in text and as static HTML; every value is escaped."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from html import escape
from pathlib import Path

from optbook import formatting as write
from optbook.benchmark.profiles.leaks import Growth, Leak
from optbook.benchmark.profiles.memory import MemoryLine, MemoryListing, MemoryProfile
from optbook.benchmark.profiles.memory_meters import Allocation
from optbook.benchmark.profiles.page import (
    CODE,
    FAINT,
    LONGEST_NAME,
    heat,
    how,
    page,
    row,
    table,
    text_notes,
    text_sentence,
    title,
)
from optbook.benchmark.profiles.places import cell_name
from optbook.benchmark.profiles.render import LONGEST_SOURCE, SOURCE, shown_source
from optbook.benchmark.profiles.tensors import HeldTensor
from optbook.experiments.render import one_line

LEAST_SHOWN = 4096
LONGEST_CHAIN = 300
Table = tuple[str, tuple[str, ...], int, list[tuple[str, ...]]]


def memory_as_text(p: MemoryProfile) -> str:
    """Plain text, for a terminal."""
    lines = [f"{title(p)}: memory by line", *text_sentence(p), f"  {how(p)}"]
    for listing in p.listings:
        lines.append(f"  {_listed(listing)}")
        names = _line_columns(p)
        lines.append("  " + " ".join(f"{name:>11}" for name in names))
        for line in listing.lines:
            figures = " ".join(f"{value:>11}" for value in _figures(line))
            lines.append(f"  {figures}  {shown_source(line.source)}".rstrip())
    for heading, names, numbers, rows in _tables(p):
        lines.append(f"  {heading}")
        for values in (names, *rows):
            left = " ".join(f"{value:>11}" for value in values[:numbers])
            lines.append(f"  {left}  {'  '.join(values[numbers:])}".rstrip())
    return "\n".join([*lines, *text_notes(p.notes)])


def memory_as_html(p: MemoryProfile) -> str:
    """The source of each function with columns of heat; then tables of what is alive and what grows."""
    body = "".join(_listing(p, listing) for listing in p.listings)
    for heading, names, numbers, rows in _tables(p):
        styles = [*[""] * numbers, *[CODE] * (len(names) - numbers)]
        body += _head(heading) + table(names, numbers, (row(values, numbers, styles) for values in rows))
    return page(p, body, "memory")


def _head(text: str) -> str:
    return f'<div style="margin-top:6px"><b>{escape(text)}</b></div>'


def _listing(p: MemoryProfile, listing: MemoryListing) -> str:
    names = _line_columns(p)
    most = listing.most or 1.0
    seconds = sum(line.seconds or 0.0 for line in listing.lines) or 1.0
    rows = []
    for line in listing.lines:
        timed = [heat((line.seconds or 0.0) / seconds)] if line.seconds is not None else []
        memory = [_share(line.grew, most), _share(line.rose, most)]
        python = [_share(line.python_grew, most), _share(line.python_rose, most)]
        values = (*_figures(line), shown_source(line.source))
        rows.append(row(values, len(names), (FAINT, "", *timed, *memory, "", *python, SOURCE)))
    return _head(_listed(listing)) + table((*names, ""), len(names), rows)


def _share(value: float, most: float) -> str:
    return heat(min(max(value / most, 0.0), 1.0))


def _line_columns(p: MemoryProfile) -> tuple[str, ...]:
    timed = ("time",) if any(line.seconds is not None for x in p.listings for line in x.lines) else ()
    return ("line", "hits", *timed, "grew", "rose", "peak", "Python grew", "Python rose")


def _figures(line: MemoryLine) -> tuple[str, ...]:
    timed = () if line.seconds is None else (write.seconds(line.seconds) if line.hits else "",)
    if not line.hits:
        return (f"{line.number}", "", *timed, "", "", "", "", "")
    hits = f"{line.hits:,}".replace(",", "\u202f")
    sizes = (line.grew, line.rose, line.peak, line.python_grew, line.python_rose)
    return (f"{line.number}", hits, *timed, *(_bytes(size) for size in sizes))


def _bytes(value: float) -> str:
    if abs(value) < LEAST_SHOWN:
        return "0"
    return write.bytes_(value) if value > 0 else f"\u2212{write.bytes_(-value)}"


def _listed(listing: MemoryListing) -> str:
    name, file = one_line(listing.name, LONGEST_NAME), one_line(listing.file, LONGEST_SOURCE)
    where = "" if file in name else f" ({file})"
    return f"{name}{where}, at most {write.bytes_(listing.most)} more within a line"


def _tables(p: MemoryProfile) -> list[Table]:
    tables: list[Table] = []
    if p.allocations:
        heading = "Python's and NumPy's memory by line, when most was in use"
        tables.append((heading, ("bytes", "blocks", "line", ""), 2, [_allocation(a) for a in p.allocations]))
    if p.tensors:
        totals = ", ".join(f"{write.bytes_(size)} on {device}" for device, size in p.tensor_bytes.items())
        names = ("bytes", "dtype", "shape", "holder", "")
        tables.append((f"Tensors alive: {totals}", names, 1, [_tensor(t) for t in p.tensors]))
    if p.growth is not None:
        tables.append(_growth(p.growth))
        cycles = p.growth.left
        if cycles is not None and (cycles.size >= LEAST_SHOWN or cycles.finalizer):
            with_del = " (with __del__)" if cycles.finalizer else ""
            values = (write.bytes_(cycles.size), _count(cycles.count), f"{cycles.ring}{with_del}")
            heading = f"Left to the garbage collector by each {p.growth.per}: rings of references"
            tables.append((heading, ("bytes", "objects", "ring"), 2, [values]))
    return tables


def _allocation(a: Allocation) -> tuple[str, ...]:
    source = linecache.getline(a.file, a.line).strip()
    return write.bytes_(a.size), f"{a.count}", _place((a.file, a.line)), shown_source(source)


def _tensor(t: HeldTensor) -> tuple[str, ...]:
    remarks = ["new" if t.new else "", f"{t.sharing} more share it" if t.sharing else ""]
    remarks.append(f"its graph keeps {write.bytes_(t.graph)} more" if t.graph else "")
    shape = "×".join(map(str, t.shape)) or "scalar"
    where = "" if t.device == "cpu" else f" on {t.device}"
    holder = one_line(t.holder, LONGEST_CHAIN)
    return write.bytes_(t.size), t.dtype, f"{shape}{where}", holder, ", ".join(filter(None, remarks))


def _growth(growth: Growth) -> Table:
    if not growth.leaks:
        return f"Nothing grows from {growth.per} to {growth.per}", (), 0, []
    names = ("bytes", "number", "what", "held by", "allocated at", "")
    rows = [_leak(leak) for leak in growth.leaks]
    return f"What grows with each {growth.per}, and what keeps it", names, 2, rows


def _leak(leak: Leak) -> tuple[str, ...]:
    bound = "" if leak.bound is None else f"stops at {leak.bound} entries"
    chain = one_line(leak.chain, LONGEST_CHAIN)
    where = "" if leak.line is None else _place(leak.line)
    return write.bytes_(leak.size), _count(leak.count), one_line(leak.what, 80), chain, where, bound


def _count(value: float) -> str:
    return f"{value:.0f}" if value >= 10 or value == round(value) else write.number(value, 2)


def _place(line: Sequence[str | int]) -> str:
    file, number = str(line[0]), line[1]
    return one_line(f"{cell_name(file) or Path(file).name}:{number}", LONGEST_NAME)
