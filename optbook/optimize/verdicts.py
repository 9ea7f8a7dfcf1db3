"""How a comparison is shown, in text and as static HTML."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

from optbook import formatting as write
from optbook.experiments.render import one_line
from optbook.optimize.agreement import signed

if TYPE_CHECKING:
    from optbook.optimize.compare import Comparison

WIDTH, HEIGHT = 420, 34
_STYLE = (
    "font-family:var(--jp-ui-font-family,system-ui,sans-serif);font-size:var(--jp-ui-font-size1,13px);"
    "color:var(--jp-ui-font-color1,currentColor)"
)


def sentence(c: Comparison) -> str:
    """The verdict in one sentence, marked where results differ or where that was not checked."""
    if c.same is None:
        return f"{_speed(c)} (results not checked)"
    return _speed(c) if c.same else f"{_speed(c)}, but the results differ"


def _speed(c: Comparison) -> str:
    first, second = (one_line(label, 60) for label in c.labels)
    if c.verdict.startswith("no difference"):
        return f"{second} against {first}: {c.verdict}"
    times = c.ratio if c.ratio >= 1 else 1 / c.ratio
    return f"{second} is {c.verdict} than {first}: {write.number(times)} times as {_fast(c.verdict)}"


def _fast(verdict: str) -> str:
    return "fast" if verdict == "faster" else "slow"


def interval(c: Comparison) -> str:
    """The ratio with its interval, where there is one."""
    if not math.isfinite(c.high):
        return f"{c.ratio:.3f} (too few pairs for an interval)"
    return f"{c.ratio:.3f} ({c.low:.3f} to {c.high:.3f})"


def _rows(c: Comparison) -> list[tuple[str, str]]:
    runs = "" if c.loops == 1 else f" of {c.loops} runs a sample"
    looks = "once" if c.looks == 1 else f"{c.looks} times"
    return [
        (one_line(c.labels[0], 60), write.seconds(c.seconds[0]) + " a run"),
        (one_line(c.labels[1], 60), write.seconds(c.seconds[1]) + " a run"),
        ("throughput ratio", interval(c)),
        ("counted", f"{c.pairs} pairs{runs}, in random order; looked at {looks}"),
        (
            "results",
            "not checked: give what must be equal, --same EXPRESSION" if c.same is None else c.same.sentence,
        ),
        *((one_line(name, 40), _metric(*values)) for name, values in c.metrics.items()),
    ]


def _metric(first: float, second: float) -> str:
    return f"{write.number(first, 4)}, then {write.number(second, 4)}: {signed(second - first)}"


def as_text(c: Comparison) -> str:
    """Plain text, for a terminal."""
    rows = _rows(c)
    width = max(len(name) for name, _ in rows)
    lines = [sentence(c), *(f"  {name:<{width}}  {value}" for name, value in rows)]
    return "\n".join([*lines, *(f"  ! {warning}" for warning in c.warnings)])


def as_html(c: Comparison) -> str:
    """A sentence, the interval as a picture, and a table; every value is escaped."""
    body = "".join(
        f'<tr><th scope="row" style="text-align:left;font-weight:normal;padding:1px 1em 1px 0">{escape(name)}'
        f'</th><td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in _rows(c)
    )
    warnings = "".join(f"<li>{escape(warning)}</li>" for warning in c.warnings)
    return (
        f'<div class="optbook-comparison" style="{_STYLE}"><b>{escape(sentence(c))}</b>{picture(c)}'
        f'<table style="border-collapse:collapse;margin:0">{body}</table>'
        + (f'<ul style="margin:4px 0 0;padding-left:1.4em">{warnings}</ul>' if warnings else "")
        + "</div>"
    )


def picture(c: Comparison) -> str:
    """The interval of the ratio on a logarithmic axis around 1, as SVG with a description."""
    low, high = max(c.low, c.ratio / 100), min(c.high, c.ratio * 100)
    reach = max(abs(math.log(low)), abs(math.log(high)), 0.01) * 1.15

    def x(ratio: float) -> float:
        return WIDTH / 2 * (1 + math.log(ratio) / reach)

    words = escape(f"throughput ratio {interval(c)}; left of the line is slower, right of it faster")
    middle = HEIGHT / 2
    return (
        f'<svg role="img" aria-label="{words}" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" style="display:block;max-width:100%;margin:4px 0">'
        f"<title>{words}</title>"
        f'<line x1="{WIDTH / 2}" x2="{WIDTH / 2}" y1="2" y2="{HEIGHT - 2}" '
        'style="stroke:var(--jp-ui-font-color2,gray);stroke-width:1;stroke-dasharray:4 3"/>'
        f'<line x1="{x(low):.1f}" x2="{x(high):.1f}" y1="{middle}" y2="{middle}" '
        'style="stroke:var(--jp-brand-color1,#0072b2);stroke-width:3;stroke-linecap:round"/>'
        f'<circle cx="{x(c.ratio):.1f}" cy="{middle}" r="5" style="fill:var(--jp-brand-color1,#0072b2)"/>'
        f'<g style="fill:var(--jp-ui-font-color2,gray);font-size:10px">'
        f'<text x="2" y="{HEIGHT - 4}">slower</text>'
        f'<text x="{WIDTH - 2}" y="{HEIGHT - 4}" text-anchor="end">faster</text></g></svg>'
    )
