"""The flame picture: call stacks as a static SVG, callers above what they call, width is time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape

from optbook import formatting as write
from optbook.benchmark.profiles.places import Kind, Place
from optbook.experiments.render import one_line

WIDTH, ROW, MOST_ROWS = 760, 17, 26
SMALLEST_SHARE = 0.004
CHARACTER = 6.2
COLOURS: dict[Kind, tuple[str, str]] = {
    "your code": ("#e69f00", "#000"),
    "library": ("#56b4e9", "#000"),
    "waiting": ("#999999", "#000"),
}
"""Of each kind, the colour of its boxes and of the text in them; told apart in grey as well."""


@dataclass
class _Node:
    place: Place
    seconds: float = 0.0
    inner: dict[Place, _Node] = field(default_factory=dict)


def flame(stacks: Iterable[tuple[tuple[Place, ...], float]]) -> str:
    """The picture as SVG, with a title on every box; empty without stacks."""
    root = _Node(Place("", "", 0, "library"))
    for stack, seconds in stacks:
        root.seconds += seconds
        node = root
        for place in stack:
            node = node.inner.setdefault(place, _Node(place))
            node.seconds += seconds
    if not root.seconds:
        return ""
    boxes: list[str] = []
    deepest = _draw(root, 0.0, 0, root.seconds, boxes)
    height = ROW * deepest
    words = "Flame picture: callers above what they call; the width of a box is its share of the time"
    return (
        f'<svg role="img" aria-label="{words}" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" style="display:block;max-width:100%;margin:6px 0;'
        f'font-family:var(--jp-code-font-family,monospace);font-size:10px">{"".join(boxes)}</svg>'
    )


def _draw(node: _Node, left: float, row: int, total: float, boxes: list[str]) -> int:
    """Draw what ``node`` called, side by side from ``left`` on; return how many rows there are."""
    deepest = row
    for inner in sorted(node.inner.values(), key=lambda n: (-n.seconds, n.place.name)):
        share = inner.seconds / total
        if share >= SMALLEST_SHARE and row < MOST_ROWS:
            boxes.append(_box(inner, left * WIDTH, row * ROW, share))
            deepest = max(deepest, row + 1, _draw(inner, left, row + 1, total, boxes))
        left += share
    return deepest


def _box(node: _Node, x: float, y: int, share: float) -> str:
    place = node.place
    width = share * WIDTH
    fill, ink = COLOURS[place.kind]
    name = one_line(place.name, 120)
    where = one_line(place.where, 120)
    title = f"{name} ({where}), {place.kind}: {write.percent(share)}, {write.seconds(node.seconds)}"
    room = int((width - 4) / CHARACTER)
    text = name if len(name) <= room else name[: room - 1] + "…"
    label = f'<text x="{x + 3:.1f}" y="{y + 12}" fill="{ink}">{escape(text)}</text>' if room >= 3 else ""
    return (
        f'<g><title>{escape(title)}</title><rect x="{x:.1f}" y="{y}" width="{max(width - 0.5, 0.5):.1f}" '
        f'height="{ROW - 1}" fill="{fill}"/>{label}</g>'
    )
