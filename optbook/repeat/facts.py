"""What a report tells, as written values: before and after, improvements, the machine, what to doubt."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from optbook import formatting as write
from optbook.experiments.checked import ResultCheck
from optbook.experiments.goal import Goal
from optbook.experiments.render import one_line
from optbook.repeat.goal import money
from optbook.repeat.journey import Journey
from optbook.repeat.progress import Point
from optbook.repeat.stopping import times

if TYPE_CHECKING:
    import pandas as pd

MILLION = 1e6
LONGEST, LONGEST_NOTE = 60, 300
MOST_NOTES = MOST_NAMES = 20
UNCHECKED = "not checked"


@dataclass(frozen=True)
class Change:
    """A figure before and after, written, and how they compare."""

    what: str
    before: str
    after: str
    compared: str = ""


@dataclass(frozen=True)
class Improvement:
    """One step of the waterfall, written; ``results`` says whether they were held against those before."""

    number: str
    label: str
    throughput: str
    brought: str
    in_all: str
    results: str


def headline(journey: Journey) -> str:
    """What was reached, in a few words."""
    first, best = journey.first, journey.best
    unit = one_line(journey.unit, LONGEST)
    if first is None or best is None:
        return "Nothing measured yet"
    if best is first:
        return f"{write.rate(first.value, unit)} so far"
    return (
        f"From {write.rate(first.value, unit)} to {write.rate(best.value, unit)}: {times(best.ratio)} as fast"
    )


def changes(journey: Journey, frame: pd.DataFrame) -> list[Change]:
    """Before and after: the first that counts and the best; time and money, memory, CPU, and results."""
    first, best = journey.first, journey.best
    if first is None or best is None or first is best:
        return []
    unit = one_line(journey.unit, LONGEST)
    return [
        Change("experiment", one_line(first.label, LONGEST), one_line(best.label, LONGEST)),
        Change(
            "throughput",
            write.rate(first.value, unit),
            write.rate(best.value, unit),
            f"{times(best.ratio)} as fast",
        ),
        *_costs(journey.goal, unit, first.value, best.value),
        *_measured(_row(frame, first), _row(frame, best)),
    ]


def _row(frame: pd.DataFrame, point: Point) -> dict[Any, Any]:
    return dict(frame.loc[point.row])


def gaps(journey: Journey) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The heads and rows of a table: what is still open, and the time and money it would save."""
    amount, what = _amount(journey.goal, one_line(journey.unit, LONGEST))
    price = journey.goal.price if journey.goal is not None else None
    heads = ["to", "gap", f"time saved, {what}"] + (["money saved"] if price is not None else [])
    rows = []
    for name, gap in journey.gaps:
        saved = gap * amount / journey.standing.best
        row = [name, write.percent(gap), write.duration(saved)]
        if journey.goal is not None and price is not None:
            row.append(money(saved / 3600 * price, journey.goal.currency))
        rows.append(tuple(row))
    return tuple(heads), rows


def _amount(goal: Goal | None, unit: str) -> tuple[float, str]:
    """What times and costs are told for: a training run where its length is known, else a million units."""
    if goal is None or goal.training is None:
        return MILLION, f"a million {write.plural(unit)}"
    return goal.training, "a training run"


def _costs(goal: Goal | None, unit: str, first: float, best: float) -> Iterable[Change]:
    amount, what = _amount(goal, unit)
    then, now = amount / first, amount / best
    yield Change(
        f"time for {what}", write.duration(then), write.duration(now), f"{write.duration(then - now)} saved"
    )
    if goal is not None and goal.price is not None:
        paid = (each / 3600 * goal.price for each in (then, now, then - now))
        before, after, saved = (money(each, goal.currency) for each in paid)
        yield Change(f"cost of {what}", before, after, f"{saved} saved")


def _measured(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> Iterable[Change]:
    memory = before["memory_peak"], after["memory_peak"]
    if all(each > 0 for each in memory):
        then, now = map(write.bytes_, memory)
        yield Change("peak memory", then, now, times(memory[1] / memory[0]))
    cores = before["cpu_cores"], after["cpu_cores"]
    if all(math.isfinite(each) for each in cores):
        yield Change("CPU cores busy", *(write.number(each, 2) for each in cores))
    waits = before["wait_share"], after["wait_share"]
    if all(math.isfinite(each) for each in waits):
        yield Change("waiting for data", *map(write.percent, waits))
    for name in before["metrics"]:
        if name in after["metrics"]:
            pair = before["metrics"][name], after["metrics"][name]
            yield Change(one_line(name, LONGEST), *(write.number(each, 4) for each in pair))


def improvements(journey: Journey, frame: pd.DataFrame, checks: Sequence[ResultCheck]) -> list[Improvement]:
    """Each real improvement in its order, the first experiment before them."""
    unit, found = one_line(journey.unit, LONGEST), journey.improvements
    rows = [
        Improvement(
            str(p.row + 1),
            one_line(p.label, LONGEST),
            write.rate(p.value, unit),
            "",
            "1.00×",
            "the reference",
        )
        for p in found[:1]
    ]
    for before, point in pairwise(found):
        rows.append(
            Improvement(
                str(point.row + 1),
                one_line(point.label, LONGEST),
                write.rate(point.value, unit),
                times(point.value / before.value),
                times(point.ratio),
                results(point, found[0], frame, checks),
            )
        )
    return rows


def results(point: Point, first: Point, frame: pd.DataFrame, checks: Sequence[ResultCheck]) -> str:
    """Whether an improvement's results were held against others: by a comparison, or by figures of both."""
    for check in reversed(checks):
        if check.second == point.label:
            return one_line(f"{check.sentence} (against {check.first})", LONGEST_NOTE)
    then, now = _row(frame, first)["metrics"], _row(frame, point)["metrics"]
    both = [name for name in now if name in then]
    if both:
        told = (
            f"{one_line(name, LONGEST)} {write.number(now[name], 4)}, was {write.number(then[name], 4)}"
            for name in both
        )
        return "; ".join(told)
    return UNCHECKED


def caveats(journey: Journey, frame: pd.DataFrame, steps: Sequence[Improvement]) -> list[str]:
    """What was not checked, and what speaks against the figures."""
    found = []
    unchecked = [step.label for step in steps if step.results == UNCHECKED]
    if unchecked:
        more = f" and {len(unchecked) - MOST_NAMES} more" if len(unchecked) > MOST_NAMES else ""
        found.append(
            "Faster, but nobody checked that the results are the same: "
            f"{', '.join(unchecked[:MOST_NAMES])}{more}. "
            "%%compare --same, or --metric in both, would."
        )
    if journey.standing.target is None:
        found.append("No goal is set in this unit: nobody said how fast is fast enough. %goal does.")
    if journey.outlook is None and journey.best is not None:
        found.append("No %%ceiling was taken of the real system: what could still be gained is not known.")
    found += list(_again(journey, frame))
    for kind, told in _LEFT_OUT.items():
        count = sum(point.kind == kind for point in journey.points)
        if count:
            found.append(f"{count} {'experiment' if count == 1 else 'experiments'} {told}.")
    best = (journey.best,) if journey.best is not None else ()
    for point in {point.number: point for point in (*journey.improvements, *best)}.values():
        found += list(_doubts(point, frame))
    return (
        found if len(found) <= MOST_NOTES else [*found[:MOST_NOTES], f"… and {len(found) - MOST_NOTES} more."]
    )


_LEFT_OUT = {
    "stubbed": "with stubs: not figures of the real system, and they count for nothing here",
    "elsewhere": "of another machine: not comparable, and left out",
    "void": "void: measured, but not to be trusted, and left out",
    "failed": "failed",
    "interrupted": "interrupted, and left out",
}


def _again(journey: Journey, frame: pd.DataFrame) -> Iterable[str]:
    """Improvements over an experiment of the same name and, for all that is known, the same code."""
    seen: dict[tuple[str, ...], Point] = {}
    gained = {point.number for point in journey.improvements}
    for point in journey.points:
        if not point.counts:
            continue
        row = _row(frame, point)
        same = (point.label, str(row["modules_hash"]), str(row["git_revision"]))
        if point.number in gained and same in seen:
            then = seen[same]
            yield (
                f"{one_line(point.label, LONGEST)} (#{point.row + 1}) bears the name of #{then.row + 1}, and "
                f"no module has changed: unless its cell did, the {times(point.value / then.value)} are the "
                "machine's. %%compare would tell."
            )
        seen.setdefault(same, point)


def _doubts(point: Point, frame: pd.DataFrame) -> Iterable[str]:
    row = _row(frame, point)
    name = one_line(point.label, LONGEST)
    if not point.low <= point.value <= point.high:
        yield f"{name}: no interval is known."
    if row["git_dirty"] is True:
        yield f"{name}: measured with uncommitted changes (revision {one_line(row['git_revision'], 12)})."
    for warning in row["warnings"]:
        yield f"{name}: {one_line(warning, LONGEST_NOTE)}."


def machine_rows(journey: Journey, frame: pd.DataFrame) -> list[tuple[str, str]]:
    """The machine that the figures are of, as far as it is known."""
    best = journey.best
    if best is None:
        return []
    row = _row(frame, best)
    rows = [("fingerprint", one_line(row["machine"], LONGEST) or "not known")]
    rows += list(_of_this_machine(row["machine"]))
    if math.isfinite(row["cores"]):
        rows.append(("cores that the process could use", f"{row['cores']:g}"))
    for name in ("gpu", "flags", "versions"):
        value = row[name]
        told = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
        if told:
            rows.append((_NAMES.get(name, name), one_line(told, LONGEST_NOTE)))
    if row["git_revision"]:
        rows.append(("revision", one_line(row["git_revision"], LONGEST)))
    return rows


_NAMES = {"gpu": "GPU", "flags": "settings"}


def _of_this_machine(fingerprint: str) -> Iterable[tuple[str, str]]:
    from optbook.benchmark.machine.info import machine

    here = machine(check=False)
    if here.fingerprint == fingerprint:
        yield "processor", here.processor
        yield "memory", write.bytes_(here.memory)
        yield "system", here.system
