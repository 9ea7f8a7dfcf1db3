"""The progress plot. It shows the same by marker as by colour, and reads on a light and a dark page."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from optbook import formatting as write
from optbook.experiments.render import one_line
from optbook.repeat.progress import Point, check_unit, points, summary, times

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#757575"  # grey that reads on white and on black; the page's own text colour in `as_svg`
FAINT = "#9e9e9f"
LABELLED = 12
DENSE = 500
"""From so many points of a kind on, they are a bitmap within the picture, without error bars: a page with
thousands of them takes a second, and not twenty."""
LABEL_LENGTH = 24
LABEL_SIZE = 9
FLAT_LENGTH = 70
# Okabe and Ito's colours: https://jfly.uni-koeln.de/color/
STYLES: dict[str, dict[str, Any]] = {
    "ok": {"marker": "o", "color": "#0072b2", "label": "measured"},
    "stubbed": {"marker": "D", "color": "#d55e00", "label": "with stubs: not the real system"},
    "elsewhere": {"marker": "v", "color": "#56b4e9", "label": "on another machine"},
    "void": {"marker": "s", "color": "#cc79a7", "label": "void: not to be trusted"},
    "interrupted": {"marker": "^", "color": "#e69f00", "label": "interrupted"},
    "failed": {"marker": "x", "color": "#d55e00", "label": "failed"},
}
BEST = {"color": "#009e73", "label": "best so far"}


def progress(frame: pd.DataFrame, unit: str | None = None, target: float | None = None) -> Figure:
    """Throughput of each experiment in the order of the log, and the best so far.

    Error bars are 95 % intervals; hollow markers do not count; a cross at the bottom has no figure. The
    scale is logarithmic when the figures span more than a factor of ten. A target, in units per second, is a
    dashed line.

    Raises
    ------
    OptionError
        No experiment counts this unit.
    """
    from matplotlib.figure import Figure

    unit = check_unit(frame, unit)
    found = points(frame, unit)
    figure = Figure(figsize=(7.2, 4.0), dpi=100, layout="constrained", facecolor="none")
    axes = figure.add_subplot(facecolor="none")
    title = summary(found, unit, kinds_apart=False)
    axes.set_title(title, color=INK, fontsize=11, loc="left", parse_math=False)
    measured = [point for point in found if math.isfinite(point.value)]
    _draw_best(axes, found)
    if target is not None and measured:
        axes.axhline(target, color=INK, lw=1.4, ls=(0, (5, 3)), zorder=1, label="goal")
    for kind, style in STYLES.items():
        _draw(axes, [point for point in measured if point.kind == kind], style)
    _draw_failed(axes, [point for point in found if not math.isfinite(point.value)])
    _label_axes(axes, found, measured, unit, target)
    if len(found) <= LABELLED:
        _label_bests(axes, found)
    handles, labels = axes.get_legend_handles_labels()
    if len(handles) > 1:
        handles = [each[0] if isinstance(each, tuple) else each for each in handles]  # no error bars there
        plain: dict[str, Any] = {"ncols": 3, "frameon": False, "labelcolor": INK, "fontsize": 9}
        figure.legend(handles, labels, loc="outside lower center", **plain)
    if not found:
        axes.set_axis_off()
    return figure


def _draw_best(axes: Axes, found: Sequence[Point]) -> None:
    counting = [point for point in found if math.isfinite(point.best)]
    if len(counting) > 1:
        x = [*(float(point.number) for point in counting), found[-1].number + 0.5]
        y = [*(point.best for point in counting), counting[-1].best]
        axes.step(x, y, where="post", lw=1.8, zorder=1, color=BEST["color"], label=BEST["label"])


def _label_bests(axes: Axes, found: Sequence[Point]) -> None:
    """Above each new best: how many times the first it is."""
    for point in found:
        if point.counts and point.gain > 1:
            top = point.high if point.high >= point.value else point.value
            axes.annotate(
                times(point.ratio),
                (point.number, top),
                xytext=(0, 5),
                textcoords="offset points",
                ha="center",
                fontsize=9,
                color=INK,
            )


def _draw(axes: Axes, chosen: Sequence[Point], style: dict[str, Any]) -> None:
    if not chosen:
        return
    hollow = style["marker"] != "o"
    dense = len(chosen) >= DENSE
    below = [point.value - point.low if point.low <= point.value else 0.0 for point in chosen]
    above = [point.high - point.value if point.high >= point.value else 0.0 for point in chosen]
    axes.errorbar(
        [point.number for point in chosen],
        [point.value for point in chosen],
        yerr=None if dense else [below, above],
        rasterized=dense,
        fmt=style["marker"],
        color=style["color"],
        label=style["label"],
        markerfacecolor="none" if hollow else style["color"],
        markeredgewidth=0 if dense and not hollow else 1.6,
        markersize=3 if dense else 6.5,
        capsize=3,
        elinewidth=1.2,
        zorder=0.5 if dense else 3,
    )


def _draw_failed(axes: Axes, chosen: Sequence[Point]) -> None:
    for kind, style in STYLES.items():
        x = [point.number for point in chosen if point.kind == kind]
        if x:
            label = style["label"] if kind == "failed" else f"{style['label']}, no figure"
            axes.plot(
                x,
                [0.035] * len(x),
                linestyle="none",
                marker="x",
                color=style["color"],
                label=label,
                markersize=7,
                markeredgewidth=1.8,
                transform=axes.get_xaxis_transform(),
                clip_on=False,
                zorder=3,
            )


def _label_axes(
    axes: Axes, found: Sequence[Point], measured: Sequence[Point], unit: str, target: float | None
) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    values = [point.value for point in measured if point.value > 0]
    values += [target] if values and target is not None else []
    logarithmic = bool(values) and max(values) > 10 * min(values)
    if logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_minor_formatter(NullFormatter())
        decades = math.log10(max(values) / min(values))
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 2.5 else (1,)))
    elif values:
        axes.margins(y=0.18)
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.6g}".replace(",", "\u202f")))
    axes.set_ylabel(f"{write.plural(one_line(unit, 30))}/s", color=INK, parse_math=False)
    axes.set_xlim(0.5, max(len(found), 1) + 0.5)
    if 0 < len(found) <= LABELLED:
        labels = [one_line(point.label, LABEL_LENGTH) for point in found]
        flat = max(map(len, labels)) * len(labels) <= FLAT_LENGTH
        slope: dict[str, Any] = {} if flat else {"rotation": 30, "ha": "right", "rotation_mode": "anchor"}
        axes.set_xticks(
            [point.number for point in found], labels, fontsize=LABEL_SIZE, parse_math=False, **slope
        )
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("experiment", color=INK)
    axes.grid(axis="y", color=FAINT, alpha=0.35, lw=0.7)
    axes.tick_params(which="both", color=FAINT, labelcolor=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)


def as_svg(figure: Figure, words: str) -> str:
    """The figure as SVG for a page: it takes the page's text colour and font, and says what it shows."""
    import matplotlib as mpl

    buffer = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)  # the page has the glyph
        figure.savefig(
            buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
        )
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<defs>\s*<style[^>]*>.*?</style>\s*</defs>", "", text, count=1, flags=re.DOTALL)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, count=1, flags=re.DOTALL)
    text = re.sub(r' style="[^"]*"', _page_style, text)
    attributes = (
        f'role="img" aria-label="{escape(words)}" style="max-width:100%;height:auto;stroke-linejoin:round;'
        'color:var(--jp-ui-font-color1,currentColor)"'
    )
    return text.replace("<svg ", f"<svg {attributes} ", 1)


def _page_style(found: re.Match[str]) -> str:
    """A style attribute with the page's colours and font in place of ours."""
    style = found[0].replace(INK, "currentColor").replace(FAINT, "var(--jp-border-color0,#9e9e9e)")
    return re.sub(
        r"(font: [0-9.]+px|font-family:) [^;\"]+", r"\1 var(--jp-ui-font-family,system-ui,sans-serif)", style
    )
