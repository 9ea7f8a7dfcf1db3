"""How a ceiling is shown, in text and as static HTML; every value is escaped."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from html import escape

from optbook import formatting as write
from optbook.benchmark.profiles.page import CODE, FAINT, STYLE, row, table
from optbook.experiments.render import one_line
from optbook.simplify.result import IN_PLACE, NOTHING, Ceiling, Estimate, Part

WIDTH, BAR, LABEL, FIGURE = 560, 24, 170, 60
LONGEST_NAME, LONGEST_NOTE, LONGEST_IN_PICTURE = 60, 500, 24
HEAD = ("calls", "a call", "free", "gap", "alone", "gap", "roofline", "worth it?")


def times(estimate: Estimate | None) -> str:
    """``1.46× (1.41 to 1.50)``."""
    if estimate is None:
        return write.UNKNOWN
    if estimate.low == estimate.high:
        return f"{ratio(estimate.ratio)}×"
    return f"{ratio(estimate.ratio)}× ({ratio(estimate.low)} to {ratio(estimate.high)})"


def ratio(value: float) -> str:
    """With two decimals, fewer for large ones."""
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"


def headline(c: Ceiling) -> str:
    """What limits the system, in one sentence."""
    first = c.bottleneck
    if first is None or first.free is None:
        looked = ", ".join(_name(part.component) for part in c.parts if not part.error)
        return f"none of {looked or 'the components'} is worth it: none, were it free, brings over 3 %"
    most = f"{_name(first.component)} limits: were it free, the system would run {times(first.free)} as fast"
    return f"{most}; {_name(first.next)} limits next" if first.next else most


def worth(part: Part) -> str:
    """Whether making a part faster is worth it, in one sentence."""
    if part.error:
        return f"not removable: {one_line(part.error, LONGEST_NOTE)}"
    if part.free is None:
        return ""
    if part.free.high < NOTHING:
        return "no: even at no cost at all it would bring next to nothing"
    if part.free.ratio <= NOTHING:
        return f"hardly: at most {ratio(part.free.high)}×"
    steps = ", ".join(
        f"{speedup:g}× as fast brings {ratio(estimate.ratio)}×"
        + (f" (between {ratio(estimate.low)}× and {ratio(estimate.high)}×)" if estimate.doubtful else "")
        for speedup, estimate in sorted(part.faster.items())
    )
    return f"at most {ratio(part.free.ratio)}×" + (f"; {steps}" if steps else "")


def as_text(c: Ceiling) -> str:
    """Plain text, for a terminal."""
    lines = [f"{one_line(c.label)}: {headline(c)}", f"  {how(c)}"]
    names = ["", *HEAD]
    rows = [names, *(_cells(part) for part in c.parts)]
    if c.all_free is not None and len(c.parts) > 1:
        rows.append(["all of them", "", "", times(c.all_free), _gap(c.all_free), "", "", "", ""])
    widths = [max(len(cells[i]) for cells in rows) for i in range(len(names) - 1)]
    for cells in rows:
        padded = [
            cells[0].ljust(widths[0]),
            *(t.rjust(w) for t, w in zip(cells[1:-1], widths[1:], strict=True)),
        ]
        lines.append("  " + "  ".join([*padded, cells[-1]]).rstrip())
    lines += [f"  {text}" for text in hidden(c)]
    return "\n".join([*lines, *(f"  ! {one_line(note, LONGEST_NOTE)}" for note in notes(c))])


def how(c: Ceiling) -> str:
    """What was measured, and how often the workload ran for it."""
    each = f"a {c.unit}" if c.unit != "run" else "a run"
    return (
        f"measured: {write.seconds(c.seconds)} {each}; {c.rounds} interleaved rounds, "
        f"the workload ran {c.executions} times, mostly with stubs"
    )


def hidden(c: Ceiling) -> list[str]:
    """The pairs of which one alone brings nothing."""
    return [
        f"{_name(pair.hidden)} alone brings nothing because {_name(pair.hiding)} hides it: "
        f"both free bring {times(pair.both)}"
        for pair in c.pairs
    ]


def notes(c: Ceiling) -> Iterable[str]:
    """What to keep in mind, of the whole and of each part."""
    yield from c.notes
    if any(_estimated(part) for part in c.parts):
        yield "≈ not run alone: it follows from its calls × its time a call, or from what freeing it saves"
    for part in c.parts:
        for note in part.notes:
            yield f"{_name(part.component)}: {note}"
    for name, why in c.left_out.items():
        yield f"left out {_name(name)}: {why}"


def as_html(c: Ceiling) -> str:
    """A sentence, the picture, the table, hidden pairs and notes."""
    styles = (CODE, *["white-space:nowrap"] * (len(HEAD) - 1))
    rows = [row(_cells(part), 0, styles) for part in c.parts]
    if c.all_free is not None and len(c.parts) > 1:
        rows.append(
            row(("all of them", "", "", times(c.all_free), _gap(c.all_free), "", "", "", ""), 0, styles)
        )
    names = ("component", *HEAD)
    pairs = "".join(f"<div>{escape(text)}</div>" for text in hidden(c))
    listed = "".join(f"<li>{escape(one_line(note, LONGEST_NOTE))}</li>" for note in notes(c))
    return (
        f'<div class="optbook-ceiling" style="{STYLE}"><b>{escape(one_line(c.label))}: '
        f'{escape(headline(c))}</b><div style="{FAINT}">{escape(how(c))}</div>{picture(c)}'
        f"{table(names, 0, rows)}{pairs}"
        + (f'<ul style="margin:4px 0 0;padding-left:1.4em;{FAINT}">{listed}</ul>' if listed else "")
        + "</div>"
    )


def picture(c: Ceiling) -> str:
    """Bars of what each part, free, would bring, and marks of what it would reach alone, as SVG."""
    shown = [(part.component, part.free, part.alone) for part in c.parts if part.free is not None]
    if c.all_free is not None and len(c.parts) > 1:
        shown.append(("all of them", c.all_free, None))
    if not shown:
        return ""
    largest = max(e.high for _, free, alone in shown for e in (free, alone) if e is not None)
    top = math.log(max(min(largest, 1000.0), 1.1)) * 1.05
    room = WIDTH - LABEL - FIGURE

    def x(ratio: float) -> float:
        return LABEL + room * min(1.0, max(0.0, math.log(max(ratio, 1e-9)) / top))

    words = "; ".join(
        f"{_name(name)}: free {times(free)}" + (f", alone {times(alone)}" if alone else "")
        for name, free, alone in shown
    )
    bars = "".join(_bar(i, name, free, alone, x) for i, (name, free, alone) in enumerate(shown))
    height = BAR * len(shown) + 18
    return (
        f'<svg role="img" aria-label="{escape(words)}" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" style="display:block;max-width:100%;margin:4px 0;font-size:11px">'
        f"<title>{escape(words)}</title>{bars}"
        f'<line x1="{LABEL}" x2="{LABEL}" y1="0" y2="{height - 16}" '
        'style="stroke:var(--jp-ui-font-color2,gray);stroke-width:1;stroke-dasharray:4 3"/>'
        f'<text x="{LABEL}" y="{height - 4}" text-anchor="middle" '
        'style="fill:var(--jp-ui-font-color2,gray)">measured = 1×</text>'
        f'<g style="fill:var(--jp-ui-font-color2,gray)"><text x="{WIDTH - FIGURE}" y="{height - 4}" '
        'text-anchor="end">bar: free · ring: alone (log scale)</text></g></svg>'
    )


def _bar(i: int, name: str, free: Estimate, alone: Estimate | None, at: Callable[[float], float]) -> str:
    middle = BAR * i + BAR / 2
    right = at(free.ratio)
    ring = (
        f'<circle cx="{at(alone.ratio):.1f}" cy="{middle}" r="5" '
        'style="fill:none;stroke:#d55e00;stroke-width:2"/>'
        if alone is not None
        else ""
    )
    return (
        f'<text x="{LABEL - 8}" y="{middle + 4}" text-anchor="end" '
        f'style="fill:var(--jp-ui-font-color1,currentColor)">{escape(_end(name))}</text>'
        f'<rect x="{LABEL}" y="{middle - 6}" width="{max(1.0, right - LABEL):.1f}" height="12" '
        'style="fill:var(--jp-brand-color1,#0072b2)"/>'
        f'<line x1="{at(free.low):.1f}" x2="{at(free.high):.1f}" y1="{middle}" y2="{middle}" '
        'style="stroke:var(--jp-ui-font-color1,black);stroke-width:1.5"/>'
        f'{ring}<text x="{WIDTH - FIGURE + 8}" y="{middle + 4}" '
        f'style="fill:var(--jp-ui-font-color1,currentColor)">{ratio(free.ratio)}×</text>'
    )


def _cells(part: Part) -> list[str]:
    return [
        _name(part.component),
        write.UNKNOWN if part.error else write.number(part.calls),
        write.seconds(part.seconds),
        times(part.free),
        _gap(part.free),
        _estimated(part) + times(part.alone),
        _gap(part.alone),
        write.UNKNOWN if part.bound is None else f"{write.number(part.bound)}×",
        worth(part),
    ]


def _estimated(part: Part) -> str:
    """A mark where the part was not run alone."""
    return "≈ " if part.alone is not None and part.alone_how != IN_PLACE else ""


def _gap(estimate: Estimate | None) -> str:
    return "" if estimate is None else write.percent(max(0.0, estimate.gap))


def _end(component: str) -> str:
    """A dotted name is known by its end."""
    name = _name(component)
    return name if len(name) <= LONGEST_IN_PICTURE else "…" + name[1 - LONGEST_IN_PICTURE :]


def _name(component: str) -> str:
    return one_line(component, LONGEST_NAME)
