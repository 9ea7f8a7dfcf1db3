"""One cure after the other, and each alone: what it brings in time and in the price of a training run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from optbook import formatting as write
from optbook.hotdog.cures import Cure
from optbook.hotdog.recipe import Recipe

COUNTING = frozenset(field.name for field in fields(Recipe) if field.name.startswith("inference_")) | {
    "find",
    "suppress",
}
"""Fields of the recipe that only matter when hot dogs are counted."""
SHARED = frozenset(("decode", "resize", "normalise", "network", "dtype", "autocast", "channels_last"))
"""Fields that matter both when it trains and when it counts."""
BETWEEN = frozenset(("checkpoint", "checkpoint_every"))
"""Fields that matter between two epochs, not in a step."""
WHOLE, LINE = "#999999", "#444444"
SAVES, COSTS = "#0072B2", "#D55E00"  # of Okabe and Ito's palette, which colour-blind readers can tell apart


@dataclass(frozen=True)
class Bar:
    """A cure: throughput of the system before it and with it, and of the first version with it alone."""

    name: str
    row: str
    before: float
    throughput: float
    alone: float

    @property
    def gain(self) -> float:
        """What it brings in its place in the order."""
        return self.throughput / self.before


@dataclass(frozen=True)
class Run:
    """A training run: how many pictures it sees in all, and what an hour of the machine costs."""

    pictures: int
    price: float

    def seconds(self, throughput: float) -> float:
        """How long it takes."""
        return self.pictures / throughput

    def cost(self, throughput: float) -> float:
        """What it costs, in the currency of the price."""
        return self.seconds(throughput) / 3600 * self.price


def for_training(cures: Sequence[Cure]) -> tuple[Cure, ...]:
    """Those that change what a training step does."""
    return tuple(cure for cure in cures if not set(cure.changes) <= COUNTING | BETWEEN)


def for_counting(cures: Sequence[Cure]) -> tuple[Cure, ...]:
    """Those that change how hot dogs are counted with a trained network."""
    return tuple(cure for cure in cures if set(cure.changes) & (COUNTING | SHARED))


def in_order(first: Recipe, cures: Sequence[Cure]) -> list[Recipe]:
    """The first version, and after each cure what there is then."""
    recipes = [first]
    for cure in cures:
        recipes.append(recipes[-1].replace(**cure.changes))
    return recipes


def alone(first: Recipe, cures: Sequence[Cure]) -> list[Recipe]:
    """The first version with each cure alone."""
    return [first.replace(**cure.changes) for cure in cures]


def with_effect(cures: Sequence[Cure], first: Recipe) -> tuple[Cure, ...]:
    """Without those that change nothing here, such as a data type that this machine isn't fast with."""
    return tuple(cure for cure in cures if first.replace(**cure.changes) != first)


def bars(
    first: Recipe, cures: Sequence[Cure], throughputs: Callable[[Sequence[Recipe]], Sequence[float]]
) -> list[Bar]:
    """The waterfall, where ``throughputs`` measures recipes, interleaved, in any unit a second."""
    cumulative, each = in_order(first, cures), alone(first, cures)
    found = throughputs([*cumulative, *each])
    steps, single = found[: len(cumulative)], found[len(cumulative) :]
    return [
        Bar(cure.name, cure.row, steps[i], steps[i + 1], single[i] / steps[0]) for i, cure in enumerate(cures)
    ]


def table(found: Sequence[Bar], run: Run) -> str:
    """The bars as a table in Markdown."""
    lines = [
        "| cure | row | pictures/s | gain in this place | alone | training takes | and costs |",
        "|---|---|---|---|---|---|---|",
        _line("the first version", "", found[0].before, "", "", run),
    ]
    for bar in found:
        lines.append(_line(bar.name, bar.row, bar.throughput, f"{bar.gain:.2f}×", f"{bar.alone:.2f}×", run))
    return "\n".join(lines)


def _line(name: str, row: str, throughput: float, gain: str, by_itself: str, run: Run) -> str:
    figures = (write.number(throughput, 3), gain, by_itself, write.seconds(run.seconds(throughput)))
    return f"| {name} | {row} | {' | '.join(figures)} | {run.cost(throughput):.3f} |"


def draw(found: Sequence[Bar], run: Run, path: Path, title: str) -> None:
    """The bars as a picture: on the left what a run takes and costs, on the right each cure alone."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    seconds = [run.seconds(found[0].before), *(run.seconds(bar.throughput) for bar in found)]
    price = run.price / 3600
    with mpl.rc_context({"font.size": 9, "axes.spines.right": False}):
        figure = Figure(figsize=(10, 0.34 * len(found) + 2.5), layout="constrained")
        falling, single = figure.subplots(1, 2, sharey=True, width_ratios=[3, 2])
        figure.suptitle(title)
        falling.barh(0, seconds[0], color=WHOLE)
        for place, bar in enumerate(found, start=1):
            before, after = seconds[place - 1], seconds[place]
            colour, hatch = (SAVES, "") if after <= before else (COSTS, "///")
            falling.barh(
                place,
                abs(before - after),
                left=min(before, after),
                color=colour,
                hatch=hatch,
                edgecolor="white",
            )
            falling.plot([after, after], [place - 0.4, place + 1.4], color=LINE, linewidth=0.8)
            shift = {"xytext": (4, 0), "textcoords": "offset points"}
            falling.annotate(
                f"{bar.gain:.2f}×", (max(before, after), place), va="center", fontsize=8, **shift
            )
            colour, marker = (SAVES, "o") if bar.alone >= 1 else (COSTS, "X")
            single.plot([1, bar.alone], [place, place], color=WHOLE, linewidth=1)
            single.plot(bar.alone, place, marker=marker, color=colour)
        falling.barh(len(found) + 1, seconds[-1], color=WHOLE)
        falling.set_xscale("log")
        falling.set_xlim(min(seconds) / 1.5, max(seconds) * 1.5)
        falling.set_xlabel("seconds of a run (logarithmic)")
        costs = falling.secondary_xaxis("top", functions=(lambda s: s * price, lambda c: c / price))
        costs.set_xlabel(f"its cost, at {run.price:.2f} an hour")
        for axis in (falling.xaxis, costs.xaxis):
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_locator(NullLocator())
        single.axvline(1, color=LINE, linewidth=0.8)
        single.set_xlabel("each cure alone: × the first version")
        names = ["first version", *(bar.name for bar in found), "all of them"]
        falling.set_yticks(range(len(names)), names)
        falling.invert_yaxis()
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=130, metadata={"Software": None})


def keep(text: str, path: Path) -> None:
    """Write a table beside the other results."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")
