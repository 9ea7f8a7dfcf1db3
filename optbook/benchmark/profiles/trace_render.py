"""How a trace is shown: in text, as static HTML, and as Markdown for TensorBoard; every value is escaped."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from optbook import formatting as write
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
from optbook.benchmark.profiles.trace import TraceProfile
from optbook.benchmark.profiles.trace_summary import STEP
from optbook.experiments.render import one_line

MOST_OPERATORS = 12
PERFETTO = "https://ui.perfetto.dev"


@dataclass(frozen=True)
class _Table:
    """A table before it is written; the columns after the first ``numbers`` hold words.

    ``shares`` are those of the second column, where there are any.
    """

    name: str
    heads: Sequence[str]
    numbers: int
    rows: Sequence[Sequence[str]]
    shares: Sequence[float] = ()


def headline(p: TraceProfile) -> str:
    """The trace in one line: how long, how busy the CPU's thread, what the GPU did."""
    s = p.summary
    unit = "step" if p.run.steps else "run"
    steps = f"{s.steps} {unit if s.steps == 1 else write.plural(unit)} in " if s.steps else ""
    busy = f"operators ran for {write.percent(s.cpu_busy)} of the workload's thread's time"
    return f"{steps}{write.seconds(s.seconds)}; {busy}; {p.gpu}"


def as_text(p: TraceProfile) -> str:
    """Plain text, for a terminal."""
    lines = [f"{title(p)}: {headline(p)}", *text_sentence(p), f"  {how(p)}"]
    for t in _tables(p):
        lines.append(f"  {t.name}")
        columns = [[head, *cells] for head, *cells in zip(t.heads, *t.rows, strict=True)]
        widths = [max(map(len, column)) for column in columns]
        for cells in (t.heads, *t.rows):
            padded = (
                cell.rjust(width) if i < t.numbers else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
            )
            lines.append(f"    {'  '.join(padded)}".rstrip())
    lines += [f"  {name}: {text}" for name, text in _openings(p)]
    return "\n".join([*lines, *text_notes(p.notes)])


def as_html(p: TraceProfile) -> str:
    """The headline, the tables, and how to open the trace."""
    tables = "".join(
        f'<div style="margin-top:6px"><b>{escape(t.name)}</b></div>'
        + table(t.heads, t.numbers, (_row(t, i) for i in range(len(t.rows))))
        for t in _tables(p)
    )
    openings = "".join(
        f'<div><span style="{FAINT}">{escape(name)}:</span> '
        f'<span style="{CODE};user-select:all">{escape(text)}</span></div>'
        for name, text in _openings(p)
    )
    return page(
        p,
        f'<div style="margin:2px 0">{escape(headline(p))}</div>{tables}'
        f'<div style="margin-top:6px">{openings}</div>',
        "trace",
    )


def as_markdown(p: TraceProfile) -> Iterable[tuple[str, str]]:
    """Name and Markdown of each table, for TensorBoard's page of texts."""
    yield "summary", f"{_plain(title(p))}: {_plain(headline(p))}"
    for t in _tables(p):
        rule = ["---:" if i < t.numbers else "---" for i in range(len(t.heads))]
        rows = (t.heads, rule, *(list(map(_plain, cells)) for cells in t.rows))
        yield t.name, "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def _plain(text: str) -> str:
    """``text`` as Markdown that shows it as it is."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]()#+-.!|~" else escape(c) for c in text)


def _row(t: _Table, index: int) -> str:
    styles = ["" for _ in t.heads]
    if t.shares:
        styles[1] = heat(t.shares[index])
    styles[t.numbers :] = [CODE] * (len(t.heads) - t.numbers)
    return row(t.rows[index], t.numbers, styles)


def _tables(p: TraceProfile) -> Iterable[_Table]:
    yield _operators(p)
    if p.summary.copies:
        yield _copies(p)
    if p.summary.gaps:
        yield _gaps(p)


def _operators(p: TraceProfile) -> _Table:
    s = p.summary
    shown = s.operators[:MOST_OPERATORS]
    on_gpu = bool(s.gpus)
    heads = ["own time", "share", "calls", "operator"]
    rows = [
        [write.seconds(o.own), percent(o.own / s.seconds), _count(o.calls), one_line(o.name, LONGEST_NAME)]
        for o in shown
    ]
    shares = [o.own / s.seconds for o in shown]
    if on_gpu:
        heads = ["GPU time", "share", "own CPU time", *heads[1:]]
        rows = [
            [write.seconds(o.device), percent(o.device / s.seconds), *cells]
            for o, cells in zip(shown, rows, strict=True)
        ]
        shares = [o.device / s.seconds for o in shown]
    return _Table("operators", heads, len(heads) - 1, rows, [min(1.0, share) for share in shares])


def _copies(p: TraceProfile) -> _Table:
    words = {True: "pinned", False: "not pinned", None: ""}
    rows = [
        [write.seconds(c.seconds), _count(c.count), write.bytes_(c.size), one_line(c.what), words[c.pinned]]
        for c in p.summary.copies
    ]
    return _Table("copies", ("time", "count", "bytes", "from where to where", "host memory"), 3, rows)


def _gaps(p: TraceProfile) -> _Table:
    unit = "step" if p.run.steps else "run"
    rows = [
        [
            write.seconds(gap.seconds),
            write.seconds(gap.start),
            gap.where,
            *(one_line(name, LONGEST_NAME) for name in (gap.before, gap.after)),
            one_line(gap.inside.replace(STEP, f"{unit} "), LONGEST_NAME),
        ]
        for gap in p.summary.gaps
    ]
    return _Table(
        "longest gaps, in which no operator ran", ("time", "at", "on", "after", "before", "in"), 2, rows
    )


def _openings(p: TraceProfile) -> Iterable[tuple[str, str]]:
    yield f"Perfetto: open {PERFETTO} (or chrome://tracing), “Open trace file”", str(p.file)
    magics = ["%load_ext tensorboard", f'%tensorboard --logdir "{p.logdir}"']
    program = Path(sys.executable).with_name("tensorboard")
    if shutil.which("tensorboard") is None and program.exists():
        magics.insert(1, f"%env TENSORBOARD_BINARY={program}")
    yield "TensorBoard: run in a cell, each on a line", "  ".join(magics)


def _count(value: int) -> str:
    return f"{value:,}".replace(",", "\u202f")
