"""The report's further pictures: the best over hours of effort, and each real improvement in its order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from optbook import formatting as write
from optbook.experiments.render import one_line
from optbook.repeat.journey import Journey, ordinal
from optbook.repeat.plots import BEST, DENSE, FAINT, INK, STYLES
from optbook.repeat.progress import Point
from optbook.repeat.stopping import times

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_BARS = 24
LABEL_LENGTH = 32


def over_hours(journey: Journey) -> Figure:
    """What counts over hours of effort, and the best so far."""
    figure, axes = _plain((7.2, 2.8))
    counting = [(s / 3600, p) for s, p in zip(journey.seconds, journey.points, strict=True) if p.counts]
    x = [hours for hours, _ in counting]
    axes.step(x, [point.best for _, point in counting], where="post", lw=1.8, color=BEST["color"])
    values = [point.value for _, point in counting]
    axes.plot(
        x,
        values,
        linestyle="none",
        marker="o",
        markersize=5,
        color=STYLES["ok"]["color"],
        rasterized=len(x) >= DENSE,
    )
    if journey.goal is not None:
        axes.axhline(journey.goal.target, color=INK, lw=1.4, ls=(0, (5, 3)))
        values.append(journey.goal.target)
    _scale(axes, values)
    axes.set_xlim(left=0)
    axes.set_xlabel("hours of effort", color=INK)
    axes.set_ylabel(f"{write.plural(one_line(journey.unit, 30))}/s", color=INK, parse_math=False)
    axes.grid(axis="y", color=FAINT, alpha=0.35, lw=0.7)
    return figure


def over_hours_in_words(journey: Journey) -> str:
    """The same, in a sentence."""
    hours = ", ".join(f"{ordinal(number)} {times(gain)}" for number, gain in journey.by_hour)
    return f"What each hour of effort brought: {hours}"


def bars(journey: Journey) -> tuple[Point, ...]:
    """The improvements that the waterfall shows: the last of them, from the one before on."""
    return journey.improvements[-MOST_BARS:]


def waterfall(journey: Journey) -> Figure:
    """Each real improvement from what was before to what came of it, on a logarithmic scale: equal lengths
    are equal factors."""
    shown = bars(journey)
    figure, axes = _plain((7.2, 0.9 + 0.34 * len(shown)))
    axes.set_xscale("log")
    before = shown[0].value
    for place, point in enumerate(shown):
        color = STYLES["ok"]["color"] if place else INK
        start = before if place else point.value / 1.02
        axes.barh(place, point.value - start, left=start, height=0.62, color=color)
        told = times(point.value / before) if place else write.rate(point.value, one_line(journey.unit, 30))
        axes.annotate(
            told, (point.value, place), xytext=(5, 0), textcoords="offset points", va="center", fontsize=9,
            color=INK, parse_math=False,
        )  # fmt: skip
        before = point.value
    labels = [one_line(point.label, LABEL_LENGTH) for point in shown]
    axes.set_yticks(range(len(shown)), labels, fontsize=9, parse_math=False)
    axes.invert_yaxis()
    values = [point.value for point in shown]
    axes.set_xlim(min(values) / 1.1, max(values) * (max(values) / min(values)) ** 0.18 * 1.1)
    _numbers(axes.xaxis, values)
    axes.set_xlabel(f"{write.plural(one_line(journey.unit, 30))}/s", color=INK, parse_math=False)
    axes.grid(axis="x", color=FAINT, alpha=0.35, lw=0.7)
    axes.set_axisbelow(True)
    return figure


def waterfall_in_words(journey: Journey) -> str:
    """The same, in a sentence."""
    found = bars(journey)
    steps = ", ".join(
        f"{one_line(point.label, LABEL_LENGTH)} {times(point.value / before.value)}"
        for before, point in pairwise(found)
    )
    start = f"From {write.rate(found[0].value, one_line(journey.unit, 30))}"
    return f"{start}: {steps}" if steps else f"{start}: nothing was really better yet"


def _plain(size: tuple[float, float]) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=100, layout="constrained", facecolor="none")
    axes = figure.add_subplot(facecolor="none")
    axes.tick_params(which="both", color=FAINT, labelcolor=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    return figure, axes


def _scale(axes: Axes, values: Sequence[float]) -> None:
    if max(values) > 10 * min(values):
        axes.set_yscale("log")
        _numbers(axes.yaxis, values)
    else:
        axes.set_ylim(0, max(values) * 1.1)


def _numbers(axis: Any, values: Sequence[float]) -> None:
    """Ticks of a logarithmic axis, as plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    decades = math.log10(max(values) / min(values))
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 2.5 else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.6g}".replace(",", "\u202f")))
    axis.set_minor_formatter(NullFormatter())
