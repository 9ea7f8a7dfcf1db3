"""How a sweep is shown: a sentence, the curve with its intervals and failures, and the points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from itertools import pairwise

from optbook import formatting as write
from optbook.benchmark.profiles.page import FAINT, STYLE, row, table
from optbook.experiments.render import one_line
from optbook.optimize.knee import ENOUGH, Point
from optbook.optimize.sweep import Sweep

WIDTH, HEIGHT = 600, 240
LEFT, RIGHT, TOP, BOTTOM = 70, 130, 26, 40
LONGEST_NAME, LONGEST_NOTE = 60, 500
MOST_TICKS, MOST_LEGEND = 16, 10
# Okabe and Ito's colours: https://jfly.uni-koeln.de/color/
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_INK = "var(--jp-ui-font-color1,currentColor)"
_GREY = "var(--jp-ui-font-color2,gray)"


def headline(s: Sweep) -> str:
    """The verdict in one sentence."""
    return f"{one_line(s.label, LONGEST_NAME)}: {one_line(s.verdict, LONGEST_NOTE)}"


def as_text(s: Sweep) -> str:
    """Plain text, for a terminal."""
    rows = [_heads(s), *(_cells(s, point) for point in s.points)]
    widths = [max(len(cells[i]) for cells in rows) for i in range(len(rows[0]) - 1)]
    lines = [headline(s)]
    for cells in rows:
        padded = [text.rjust(width) for text, width in zip(cells, widths, strict=False)]
        lines.append("  " + "  ".join([*padded, cells[-1]]).rstrip())
    return "\n".join([*lines, *(f"  ! {one_line(note, LONGEST_NOTE)}" for note in s.notes)])


def as_html(s: Sweep) -> str:
    """Static HTML; every value is escaped."""
    numbers = len(_heads(s)) - 1
    rows = [row(_cells(s, point), numbers) for point in s.points]
    notes = "".join(f"<li>{escape(one_line(note, LONGEST_NOTE))}</li>" for note in s.notes)
    return (
        f'<div class="optbook-sweep" style="{STYLE}"><b>{escape(headline(s))}</b>{picture(s)}'
        f"{table(_heads(s), numbers, rows)}"
        + (f'<ul style="margin:4px 0 0;padding-left:1.4em;{FAINT}">{notes}</ul>' if notes else "")
        + "</div>"
    )


def _heads(s: Sweep) -> list[str]:
    names = [one_line(name, LONGEST_NAME) for name in s.names]
    return [*names, f"{write.plural(one_line(s.unit, 40))}/s", "", "of the best", "peak memory", ""]


def _cells(s: Sweep, point: Point) -> list[str]:
    values = [_number(value) for value in point.settings.values()]
    if point.status != "ok":
        return [*values, write.UNKNOWN, "", "", "", one_line(_failure(point), LONGEST_NOTE)]
    best = s.best
    share = point.throughput / best.throughput if best and best.throughput and point.throughput else None
    return [
        *values,
        write.number(point.throughput),
        write.spread(point.throughput, point.low, point.high),
        write.percent(share),
        write.bytes_(point.memory),
        "knee" if point is s.knee else "may be the knee" if point in s.candidates and s.knee is None else "",
    ]


def _failure(point: Point) -> str:
    return f"{point.status}: {point.error}" if point.error else point.status


def _number(value: float) -> str:
    return f"{value:,}".replace(",", "\u202f") if isinstance(value, int) else f"{value:g}"


def picture(s: Sweep) -> str:
    """Throughput over the setting with more values, a curve for each value of the other, as SVG."""
    tried = {name: sorted({point.settings[name] for point in s.points}) for name in s.names}
    across = max(s.names, key=lambda name: len(tried[name]))
    other = next((name for name in s.names if name != across), None)
    top = max((point.high or point.throughput or 0.0 for point in s.points), default=0.0) or 1.0
    step = (WIDTH - LEFT - RIGHT) / max(1, len(tried[across]))

    def x(point: Point) -> float:
        return LEFT + step * (tried[across].index(point.settings[across]) + 0.5)

    def y(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top)

    curves = []
    for i, value in enumerate(tried[other] if other else [0.0]):
        chosen = [point for point in s.points if other is None or point.settings[other] == value]
        curves.append(_curve(i, chosen, x, y))
        if other is not None and i < MOST_LEGEND:
            curves.append(_legend(i, f"{one_line(other, 12)}={_number(value)}"))
    ring = "" if s.knee is None else _ring(x(s.knee), y(s.knee.throughput or 0.0))
    words = escape(
        f"{write.plural(one_line(s.unit, 40))} per second over {', '.join(s.names)}; {headline(s)}"
    )
    return (
        f'<svg role="img" aria-label="{words}" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" style="display:block;max-width:100%;margin:4px 0;font-size:11px">'
        f"<title>{words}</title>{_axes(s, across, tried[across], step, top, y)}{''.join(curves)}{ring}</svg>"
    )


def _axes(
    s: Sweep, across: str, values: Sequence[float], step: float, top: float, y: Callable[[float], float]
) -> str:
    right = WIDTH - RIGHT
    every = -(-len(values) // MOST_TICKS)
    lines = "".join(
        f'<line x1="{LEFT}" x2="{right}" y1="{y(at):.1f}" y2="{y(at):.1f}" '
        f'style="stroke:{_GREY};stroke-width:{0.5 if at else 1}"/>'
        f'<text x="{LEFT - 6}" y="{y(at) + 4:.1f}" text-anchor="end" style="fill:{_GREY}">'
        f"{escape(write.number(at))}</text>"
        for at in (0.0, top / 2, top)
    )
    best = s.best
    if best is not None and len(s.points) > 1:
        enough = y(ENOUGH * (best.throughput or 0.0))
        lines += (
            f'<line x1="{LEFT}" x2="{right}" y1="{enough:.1f}" y2="{enough:.1f}" '
            f'style="stroke:{_GREY};stroke-width:1;stroke-dasharray:4 3"/>'
            f'<text x="{right + 6}" y="{enough + 4:.1f}" style="fill:{_GREY}">'
            f"{escape(write.percent(ENOUGH))} of the best</text>"
        )
    ticks = "".join(
        f'<text x="{LEFT + step * (i + 0.5):.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle" '
        f'style="fill:{_GREY}">{escape(_number(value))}</text>'
        for i, value in enumerate(values)
        if i % every == 0
    )
    counted = escape(write.plural(one_line(s.unit, 30)))
    name = (
        f'<text x="{(LEFT + right) / 2:.1f}" y="{HEIGHT - 6}" text-anchor="middle" style="fill:{_INK}">'
        f"{escape(one_line(across, LONGEST_NAME))}</text>"
        f'<text x="4" y="{TOP - 14}" style="fill:{_INK}">{counted}/s</text>'
    )
    return lines + ticks + name


def _curve(i: int, points: Sequence[Point], x: Callable[[Point], float], y: Callable[[float], float]) -> str:
    """A line through neighbours that were measured, intervals, markers, and a cross where one failed."""
    colour = COLOURS[i % len(COLOURS)]
    drawn = ""
    for a, b in pairwise(points):
        if a.throughput and b.throughput:
            drawn += (
                f'<line x1="{x(a):.1f}" y1="{y(a.throughput):.1f}" '
                f'x2="{x(b):.1f}" y2="{y(b.throughput):.1f}" '
                f'style="stroke:{colour};stroke-width:1.5"/>'
            )
    for point in points:
        told = f"<title>{escape(one_line(f'{point}: {_failure(point)}', LONGEST_NOTE))}</title>"
        if not point.throughput:
            place, foot = x(point) + 3 * i, y(0)
            drawn += (
                f'<g class="failed">{told}<path d="M{place - 5:.1f} {foot - 5:.1f}l10 10m0 -10l-10 10" '
                f'style="stroke:{colour};stroke-width:2.5;fill:none"/></g>'
            )
            continue
        if point.low is not None and point.high is not None:
            drawn += (
                f'<line x1="{x(point):.1f}" x2="{x(point):.1f}" y1="{y(point.low):.1f}" '
                f'y2="{y(point.high):.1f}" style="stroke:{colour};stroke-width:2"/>'
            )
        drawn += _marker(i, x(point), y(point.throughput))
    return drawn


def _marker(i: int, x: float, y: float) -> str:
    """Markers differ by form as well as by colour."""
    forms = (
        "a4 4 0 1 0 8 0a4 4 0 1 0 -8 0",
        "v-4h8v8h-8z",
        "l4 -5l4 5l-4 5z",
        "l4 -6l4 8h-8z",
    )
    return f'<path d="M{x - 4:.1f} {y:.1f}{forms[i % len(forms)]}" style="fill:{COLOURS[i % len(COLOURS)]}"/>'


def _ring(x: float, y: float) -> str:
    return (
        f'<circle class="knee" cx="{x:.1f}" cy="{y:.1f}" r="9" '
        f'style="fill:none;stroke:{_INK};stroke-width:1.5"/>'
        f'<text x="{x:.1f}" y="{y + 24:.1f}" text-anchor="middle" style="fill:{_INK}">knee</text>'
    )


def _legend(i: int, text: str) -> str:
    height = HEIGHT - BOTTOM - 4 - 15 * i
    left = WIDTH - RIGHT + 10
    words = f'<text x="{left + 9}" y="{height + 4}" style="fill:{_INK}">{escape(text)}</text>'
    return _marker(i, left, height) + words
