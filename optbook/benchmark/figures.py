"""From what happened in a measurement to the figures of an experiment."""

from __future__ import annotations

import math
import statistics as basic
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from optbook.benchmark import noise, statistics
from optbook.benchmark.meters import cpu
from optbook.benchmark.recorder import Recorder, Series
from optbook.benchmark.runner import Outcome, Plan

MOST_WARMUP_STEPS = 5
SHORT_RUN_SECONDS = 50e-6
SHORTEST_CPU_WINDOW = 0.05
"""Seconds below which the ticks of the system's CPU counters say too little."""
OVERLAP = 1.01


@dataclass(frozen=True)
class _Steps:
    """The counted steps of the unit tracked first."""

    durations: list[float]
    waits: list[float]
    warmup: int
    start: float
    counted: list[int]
    void: list[tuple[float, float]]
    share: float
    covered: float
    """Seconds in which at least one step ran: less than their sum where loops are nested or in threads."""

    def contains(self, moment: float) -> bool:
        """Whether a moment lies after the warm-up, and in no step in which something was compiled."""
        return moment >= self.start and not any(start <= moment <= end for start, end in self.void)


def figures(outcome: Outcome, plan: Plan, unit_order: Sequence[str] = ()) -> dict[str, Any]:
    """The fields of `optbook.experiments.record.Experiment` that follow from a measurement.

    ``unit_order`` names the units given as options, which come before those that were tracked.
    """
    fields: dict[str, Any] = {
        "runs": len(outcome.times),
        "executions": outcome.executions,
        "warmup": len(outcome.warmup_times),
        "memory_peak": outcome.memory.peak,
        "memory_growth": outcome.memory.growth,
        "memory_children": outcome.memory.children,
        "memory_method": outcome.memory.method,
        "times": tuple(outcome.times),
        "cores": cpu.usable_cores(),
        **outcome.watched.fields(),
    }
    if outcome.cpu_seconds is not None and outcome.cpu_window >= SHORTEST_CPU_WINDOW:
        fields["cpu_cores"] = max(0.0, outcome.cpu_seconds) / outcome.cpu_window
        fields["cpu_share"] = fields["cpu_cores"] / fields["cores"]
    if outcome.tracked:
        fields |= _of_steps(outcome, plan, unit_order)
    elif outcome.times:
        fields |= _of_runs(outcome, unit_order)
    seen = noise.judge(fields["times"], outcome.probes)
    fields |= {"noise_drift": seen.drift, "noise_machine": seen.machine, "noise_modes": seen.modes}
    counted = fields.get("steps") or fields["runs"]
    fields |= {"noise_few": counted < statistics.FEWEST, "noise_compiled": outcome.void_runs}
    kind = "steps" if outcome.tracked else "runs"
    doubtful = fields.pop("noise_doubtful", False)
    fields["warnings"] = (
        *_warnings(outcome, fields, doubtful),
        *seen.sentences(kind),
        *outcome.watched.warnings(),
    )
    return fields


def _of_runs(outcome: Outcome, unit_order: Sequence[str]) -> dict[str, Any]:
    seconds = statistics.median(outcome.times)
    if seconds.value <= 0:
        return {"seconds": seconds.value, "parts": dict(outcome.parts)}
    units = {name: outcome.counts[name] / seconds.value for name in unit_order if name in outcome.counts}
    unit = next(iter(units), "run")
    units.setdefault("run", 1 / seconds.value)
    throughput = seconds.inverse(outcome.counts.get(unit, 1.0))
    return {
        "unit": unit,
        "units": units,
        "throughput": throughput.value,
        "throughput_low": throughput.low,
        "throughput_high": throughput.high,
        "seconds": seconds.value,
        "seconds_low": seconds.low,
        "seconds_high": seconds.high,
        "parts": dict(outcome.parts),
    }


def _of_steps(outcome: Outcome, plan: Plan, unit_order: Sequence[str]) -> dict[str, Any]:
    unit = next(iter(outcome.tracked[0].series))
    counted = [_counted_steps(recorder.series[unit], plan.warmup) for recorder in outcome.tracked]
    durations = [seconds for steps in counted for seconds in steps.durations]
    waits = [seconds for steps in counted for seconds in steps.waits]
    total = math.fsum(steps.covered for steps in counted)
    fields: dict[str, Any] = {
        "steps": len(durations),
        "warmup": sum(steps.warmup for steps in counted),
        "times": tuple(durations),
        "waits": tuple(waits),
        "startup_seconds": outcome.tracked[0].series[unit].startup,
    }
    if total <= 0:
        return fields
    overlap = math.fsum(durations) / total
    steps_rate = statistics.rate_of_steps([seconds / overlap for seconds in durations])
    rate = steps_rate.rate
    share = basic.fmean(steps.share for steps in counted)
    units = {
        name: outcome.counts[name] * len(counted) * share / total
        for name in unit_order
        if name in outcome.counts
    }
    units[unit] = rate.value
    for recorder, steps in zip(outcome.tracked, counted, strict=True):
        for name, count in _other_counts(recorder, unit, steps).items():
            units[name] = units.get(name, 0.0) + count / total
    first = next(iter(units))
    scale = units[first] / rate.value
    return fields | {
        "unit": first,
        "units": units,
        "throughput": units[first],
        "throughput_low": None if rate.low is None else rate.low * scale,
        "throughput_high": None if rate.high is None else rate.high * scale,
        "seconds": basic.median(durations),
        "wait_share": math.fsum(waits) / math.fsum(durations),
        "noise_correlation": steps_rate.correlation,
        "noise_doubtful": steps_rate.doubtful,
        "parts": _parts(outcome.tracked, counted),
    }


def _counted_steps(series: Series, warmup: int | None) -> _Steps:
    n = len(series)
    if warmup is None:
        warmup = min(MOST_WARMUP_STEPS, max(1, n // 10)) if n > 1 else 0
    warmup = min(warmup, n - 1)
    asked, ready, done = series.asked, series.ready, series.done
    durations = [end - start for start, end in zip(asked, done, strict=True)]
    durations = _spread_over_blocks(durations, series.synced)
    counted = [i for i in range(warmup, n) if i not in series.compiled] or list(range(warmup, n))
    void = [(asked[i], done[i]) for i in series.compiled if i >= warmup]
    durations = [durations[i] for i in counted]
    waits = [ready[i] - asked[i] for i in counted]
    asked, done = array("d", [asked[i] for i in counted]), array("d", [done[i] for i in counted])
    alone = math.fsum(end - start for start, end in zip(asked, done, strict=True))
    covered = math.fsum(durations) * _covered(asked, done) / alone if alone > 0 else 0.0
    return _Steps(durations, waits, warmup, min(asked), counted, void, len(counted) / n, covered)


def _covered(starts: Sequence[float], ends: Sequence[float]) -> float:
    """Length of the union of intervals."""
    total, until = 0.0, -math.inf
    for start, end in sorted(zip(starts, ends, strict=True)):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def _spread_over_blocks(durations: list[float], synced: list[int]) -> list[float]:
    """Between two synchronisations of a device only all steps together have a true time."""
    spread: list[float] = []
    for end in synced:
        block = durations[len(spread) : end + 1]
        spread += [math.fsum(block) / len(block)] * len(block) if block else []
    return spread + durations[len(spread) :]


def _other_counts(recorder: Recorder, unit: str, steps: _Steps) -> dict[str, float]:
    counts = {
        name: math.fsum(values[i] for i in steps.counted if i < len(values))
        for name, values in recorder.series[unit].counts.items()
    }
    for name, series in recorder.series.items():
        if name == unit:
            continue
        inside = [i for i, asked in enumerate(series.asked) if steps.contains(asked)]
        counts[name] = counts.get(name, 0.0) + len(inside)
        for further, values in series.counts.items():
            known = math.fsum(values[i] for i in inside if i < len(values))
            counts[further] = counts.get(further, 0.0) + known
    return counts


def _parts(recorders: Iterable[Recorder], counted: Iterable[_Steps]) -> dict[str, float]:
    parts: dict[str, float] = {}
    for recorder, steps in zip(recorders, counted, strict=True):
        for name, spans in recorder.spans.items():
            parts[name] = parts.get(name, 0.0) + _inside(spans.starts, spans.durations, steps)
    return parts


def _inside(starts: array[float], durations: array[float], steps: _Steps) -> float:
    return math.fsum(d for start, d in zip(starts, durations, strict=True) if steps.contains(start))


def _warnings(outcome: Outcome, fields: dict[str, Any], doubtful: bool) -> Iterable[str]:
    counted = fields.get("steps") or fields["runs"]
    kind = "steps" if fields.get("steps") else "runs"
    if 0 < counted < statistics.FEWEST:
        few = kind if counted > 1 else kind.removesuffix("s")
        cure = "track more steps"
        if kind == "runs":
            cure = f"give --runs {statistics.FEWEST + 1} or a larger --budget"
        yield f"only {counted} {few} counted: fewer than {statistics.FEWEST} have no 95 % interval; {cure}"
    if outcome.tracked and "units" in fields:
        unit = next(iter(outcome.tracked[0].series))
        if math.fsum(fields["times"]) * fields["units"][unit] > OVERLAP * fields["steps"]:
            yield (
                f"loops over {unit!r} ran inside or beside each other: throughput counts all of their "
                "steps; give an inner loop a unit of its own"
            )
    if kind == "runs" and 0 < fields.get("seconds", 1.0) < SHORT_RUN_SECONDS:
        yield "a run is so short that the measuring itself counts: put a loop into the cell"
    if doubtful:
        yield (
            f"neighbouring steps depend on each other (correlation {fields['noise_correlation']:.2f}): the "
            "interval may be too narrow; track more steps"
        )
    if outcome.void_runs:
        yield (
            f"torch.compile compiled in {outcome.void_runs} of the {kind}: those are not counted; "
            "if it happens again and again, shapes or flags change from one to the next"
        )
    if outcome.printed.dropped:
        yield f"the cell printed {outcome.printed.written} characters: only the first million are shown"
    if outcome.repeated.written or outcome.repeated.displays_dropped:
        yield "the cell prints or displays: shown for the first run only, so later runs do less of that work"
    if outcome.memory.method == "sampled":
        yield "peak memory was sampled: short spikes can be missing"
