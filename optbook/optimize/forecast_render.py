"""How a forecast is shown: what limits next, efficiency over nodes, the figures, and what they rest on."""

from __future__ import annotations

import math
from html import escape

from optbook import formatting as write
from optbook.benchmark.profiles.page import FAINT, STYLE, row, table
from optbook.experiments.render import one_line
from optbook.optimize.forecast import Forecast, Point
from optbook.optimize.sweep_render import COLOURS

WIDTH, HEIGHT = 600, 220
LEFT, RIGHT, TOP, BOTTOM = 60, 80, 24, 38
LONGEST_NAME, LONGEST_NOTE = 40, 500
MARKERS = ("a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", "v-4h8v8h-8z")
_INK = "var(--jp-ui-font-color1,currentColor)"
_GREY = "var(--jp-ui-font-color2,gray)"


def headline(f: Forecast) -> str:
    """What limits next, for each algorithm."""
    return "; ".join(f.next_limit(name) for name, _ in f.curves)


def as_text(f: Forecast) -> str:
    """Plain text, for a terminal."""
    rows = [_heads(f), *_rows(f)]
    widths = [max(len(cells[i]) for cells in rows) for i in range(len(rows[0]))]
    lines = [f"forecast: {headline(f)}"]
    lines += [
        "  " + "  ".join(text.rjust(width) for text, width in zip(cells, widths, strict=True))
        for cells in rows
    ]
    return "\n".join([*lines, *(f"  assumed: {one_line(note, LONGEST_NOTE)}" for note in f.assumptions)])


def as_html(f: Forecast) -> str:
    """Static HTML; every value is escaped."""
    heads = _heads(f)
    rows = [row(cells, len(heads)) for cells in _rows(f)]
    notes = "".join(f"<li>{escape(one_line(note, LONGEST_NOTE))}</li>" for note in f.assumptions)
    return (
        f'<div class="optbook-forecast" style="{STYLE}"><b>{escape(headline(f))}</b>{picture(f)}'
        f"{table(heads, len(heads), rows)}"
        f'<div style="{FAINT}">Assumed:<ul style="margin:0;padding-left:1.4em">{notes}</ul></div></div>'
    )


def _heads(f: Forecast) -> list[str]:
    rate = f"{write.plural(one_line(f.step.unit, LONGEST_NAME))}/s"
    return ["nodes", "all-reduce", rate, "efficiency", "step", "communication", "not hidden", "limit"]


def _rows(f: Forecast) -> list[list[str]]:
    return [
        [
            str(point.nodes),
            name,
            write.number(point.throughput),
            write.percent(point.efficiency),
            write.seconds(point.seconds),
            write.seconds(point.communication),
            write.seconds(point.waiting),
            point.limit,
        ]
        for name, points in f.curves
        for point in points
    ]


def picture(f: Forecast) -> str:
    """Efficiency over nodes (by powers of two), a curve for each algorithm, as SVG."""
    counts = [point.nodes for _, points in f.curves for point in points]
    first, last = math.log2(min(counts)), math.log2(max(counts))
    right = WIDTH - RIGHT

    def place(point: Point) -> tuple[float, float]:
        across = (math.log2(point.nodes) - first) / ((last - first) or 1)
        return LEFT + (right - LEFT) * across, TOP + (HEIGHT - TOP - BOTTOM) * (1 - point.efficiency)

    drawn = ""
    for share in (0.0, 0.5, 1.0):
        y = TOP + (HEIGHT - TOP - BOTTOM) * (1 - share)
        drawn += (
            f'<line x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" style="stroke:{_GREY};'
            f'stroke-width:0.5"/><text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" '
            f'style="fill:{_GREY}">{100 * share:.0f} %</text>'
        )
    for point in f.curves[0][1]:
        drawn += (
            f'<text x="{place(point)[0]:.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle" '
            f'style="fill:{_GREY}">{point.nodes}</text>'
        )
    for i, (name, points) in enumerate(f.curves):
        places = [place(point) for point in points]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        drawn += f'<polyline points="{line}" style="fill:none;stroke:{COLOURS[i]};stroke-width:1.5"/>'
        for x, y in [*places, (right + 14, TOP + 8 + 16 * i)]:
            drawn += f'<path d="M{x - 4:.1f} {y:.1f}{MARKERS[i % len(MARKERS)]}" style="fill:{COLOURS[i]}"/>'
        drawn += f'<text x="{right + 24}" y="{TOP + 12 + 16 * i}" style="fill:{_INK}">{escape(name)}</text>'
    words = escape(f"efficiency over nodes; {headline(f)}")
    return (
        f'<svg role="img" aria-label="{words}" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" style="display:block;max-width:100%;margin:4px 0;font-size:11px">'
        f'<title>{words}</title><text x="4" y="12" style="fill:{_INK}">efficiency</text>'
        f'<text x="{(LEFT + right) / 2:.1f}" y="{HEIGHT - 6}" text-anchor="middle" '
        f'style="fill:{_INK}">nodes</text>{drawn}</svg>'
    )
