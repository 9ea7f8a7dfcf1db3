"""The FLOPs of a workload and its share of the machine's peak: a pass of its own, after the measured runs."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from optbook import formatting as write
from optbook.benchmark import output
from optbook.benchmark.compilation import compiled, eagerly
from optbook.benchmark.flop_counter import FlopCounter, Tally
from optbook.benchmark.progress import Progress
from optbook.benchmark.recorder import Count, Recorder, recording
from optbook.benchmark.restore import Kept
from optbook.benchmark.runner import Outcome, Workload

MOST_STEPS = 4
STEPS_SECONDS = 10.0
NOTED_OPERATORS = 3
MIXED_SHARE = 0.01
LONG_CALL = 50e-6
"""Seconds: what an operator costs whatever it does (some 5 to 10 µs here) is a fifth of that at most."""


@dataclass(frozen=True)
class Pass:
    """What the counting pass saw: FLOPs of each run or step, the tally of all of them, and remarks."""

    flops: tuple[int, ...]
    tally: Tally
    notes: tuple[str, ...]
    exception: BaseException | None = None


class _StepCounter(Recorder):
    """Counts the FLOPs of each step of the unit that is tracked first, and leaves out what lies between."""

    def __init__(self, counter: FlopCounter, limit: int | None, on_step: Callable[[], None] | None) -> None:
        super().__init__(limit=limit, on_step=self._end_of_step)
        self.flops: list[int] = []
        self._counter = counter
        self._further = on_step

    def steps(self, iterable: Iterable[Any], unit: str, counts: Mapping[str, Count]) -> Iterator[Any]:
        """As in `Recorder`."""
        if next(iter(self.series), unit) == unit:
            self._counter.drop()
        yield from super().steps(iterable, unit, counts)

    def _end_of_step(self) -> None:
        if len(next(iter(self.series.values()))) > len(self.flops):
            self.flops.append(self._counter.keep())
            if self._further is not None:
                self._further()


def measured(
    workload: Workload,
    function: Callable[..., object],
    outcome: Outcome,
    figures: Mapping[str, Any],
    shown: bool = True,
) -> tuple[dict[str, Any], BaseException | None]:
    """Count the FLOPs of a workload that was measured, and hold them against the machine's peak.

    Args:
        workload: what was measured.
        function: the function or cell behind it, whose names and state are put back.
        outcome: what happened when it was measured.
        figures: the experiment's fields that followed from this.
        shown: whether a progress bar is shown.

    Returns:
        Further fields of the experiment, and the exception (an interrupt too) that ended the counting.
    """
    if "torch" not in sys.modules:
        return {"flops_note": "this workload's FLOPs can't be counted: it does not use torch"}, None
    seconds = figures.get("seconds")
    if figures.get("steps"):
        rate = figures["steps"] / math.fsum(figures["times"])
    else:
        rate = 1 / seconds if seconds else None
    again = {"executions": figures["executions"] + 1}
    try:
        counted = count(workload, function, steps_to_count(outcome, seconds), shown)
        return again | fields(counted, rate), counted.exception
    except KeyboardInterrupt as interrupt:  # between the workload and here, or while peaks were measured
        return again | {"flops_note": "interrupted while FLOPs were counted"}, interrupt


def count(workload: Workload, function: Callable[..., object], steps: int | None, shown: bool = True) -> Pass:
    """Execute a workload once more and count what torch's operators do in it; then put back what it changed.

    Args:
        workload: what was measured.
        function: the function or cell behind it, whose names and state are put back.
        steps: ends the tracked loop after so many steps; None for a workload without one.
        shown: whether a progress bar is shown.

    Returns:
        The pass. An exception of the workload ends it and is kept there.
    """
    counter = FlopCounter()
    kept = Kept(function)
    exception: BaseException | None = None
    printed = output.Printed()
    with Progress("counting FLOPs", math.inf, steps, shown) as progress, output.dropped(printed):
        recorder = _StepCounter(counter, steps, progress.step)
        try:
            if workload.setup is not None:
                workload.setup()
            with recording(recorder), eagerly(), counter.counting():
                workload.run()
        except BaseException as raised:
            exception = raised
            exception.add_note("raised in the pass that counts FLOPs; what was measured before is recorded")
    kept.put_back()
    tracked = any(recorder.series.values())
    flops = tuple(recorder.flops) if tracked or steps is not None else (counter.keep(),)
    notes = tuple(_notes(flops, bool(tracked), kept.problems))
    return Pass(flops, counter.kept, notes, exception)


def _notes(flops: tuple[int, ...], tracked: bool, problems: list[str]) -> Iterable[str]:
    amount = f" ({len(flops)} {'step' if len(flops) == 1 else 'steps'})" if tracked else ""
    yield (
        f"counting FLOPs executed the workload once more{amount}; parameters, buffers, optimizer state, "
        "names and random state were put back, what else it changes (iterators, files, arrays) was not"
    )
    yield from problems
    if len(set(flops)) > 1:
        yield (
            f"the steps differ: {write.number(min(flops))} to {write.number(max(flops))} FLOPs, "
            f"the mean of {len(flops)} is used"
        )
    if compiled():
        yield "functions compiled by torch.compile ran uncompiled while FLOPs were counted"


def steps_to_count(outcome: Outcome, seconds: float | None) -> int | None:
    """How many steps of a tracked loop are counted: few, fewer where they are long; None without one."""
    if not outcome.tracked:
        return None
    there = len(next(iter(outcome.tracked[0].series.values())))
    fitting = MOST_STEPS if not seconds else int(STEPS_SECONDS / seconds)
    return max(1, min(MOST_STEPS, fitting, there))


def fields(counted: Pass, rate: float | None, refresh: bool = False) -> dict[str, Any]:
    """The fields of an experiment that follow from a counting pass.

    Args:
        counted: what the pass saw.
        rate: runs (or tracked steps) per second, as measured without counting.
        refresh: measure the machine's peaks again, although there are kept ones.
    """
    tally, notes = counted.tally, list(counted.notes)
    if counted.exception is not None:
        raised = counted.exception
        notes.insert(0, f"the workload raised {type(raised).__name__} while its FLOPs were counted")
        return {"flops_note": "; ".join(notes)}
    if not counted.flops or not tally.total or not rate:
        return {"flops_note": "; ".join([_uncountable(counted, rate), *notes])}
    per_unit = sum(counted.flops) / len(counted.flops)
    dtype, device = _kind(tally)
    found: dict[str, Any] = {
        "flops": per_unit * rate,
        "flops_counted": per_unit,
        "flops_dtype": dtype,
        "flops_coverage": tally.coverage,
    }
    mixed = _mixed(tally, dtype)
    if mixed:
        notes.insert(0, mixed)
    left_out = _left_out(tally)
    if left_out:
        notes.insert(0, left_out)
    found |= _share(found["flops"], dtype, device, _devices(tally, device), notes, refresh)
    evidence = _roofline(tally, dtype, device, len(counted.flops) / rate)
    return found | {"flops_note": "; ".join(notes), "evidence": evidence}


def _uncountable(counted: Pass, rate: float | None) -> str:
    """Why there is no figure, in one sentence."""
    tally = counted.tally
    if not counted.flops:
        return "no step was tracked while FLOPs were to be counted: the workload seems to use up its input"
    if not rate:
        return "there is no time to hold the FLOPs against"
    if not tally.operators:
        return "this workload's FLOPs can't be counted: it runs no torch operator in this thread"
    names = _names(tally.other_seconds)
    return f"this workload's FLOPs can't be counted: its operators ({names}) have no formula"


def _kind(tally: Tally) -> tuple[str, str]:
    """The dtype that did most of the FLOPs, and the type of the device that did most of these."""
    by_dtype: dict[str, int] = {}
    for (dtype, _), flops in tally.flops.items():
        by_dtype[dtype] = by_dtype.get(dtype, 0) + flops
    dtype = max(by_dtype, key=lambda name: by_dtype[name])
    by_device = {place: flops for (kind, place), flops in tally.flops.items() if kind == dtype}
    return dtype, max(by_device, key=lambda name: by_device[name]).partition(":")[0]


def _devices(tally: Tally, device: str) -> int:
    """How many devices of a type did FLOPs."""
    return len({place for (_, place), flops in tally.flops.items() if flops and place.startswith(device)})


def _mixed(tally: Tally, most: str) -> str:
    shares = {
        kind: sum(flops for (name, _), flops in tally.flops.items() if name == kind) / tally.total
        for kind in {name for name, _ in tally.flops}
    }
    others = [f"{kind} {write.percent(share)}" for kind, share in sorted(shares.items()) if kind != most]
    if 1 - shares[most] < MIXED_SHARE:
        return ""
    return f"the FLOPs are of several dtypes ({most} {write.percent(shares[most])}, {', '.join(others)})"


def _left_out(tally: Tally) -> str:
    if tally.coverage is None or tally.coverage > 0.95:
        return ""
    return f"most of the rest of the operator time: {_names(tally.other_seconds)}"


def _names(seconds: Mapping[str, float]) -> str:
    longest = sorted(seconds, key=lambda name: -seconds[name])[:NOTED_OPERATORS]
    return ", ".join(longest)


def _roofline(tally: Tally, dtype: str, device: str, seconds: float) -> dict[str, float]:
    """The shares of the time in operators on each side of the roofline's ridge, as evidence for a diagnosis.

    An operator's arithmetic intensity is its FLOPs ÷ the bytes of its operands and results (Williams et al.,
    CACM 52, 2009); the ridge is the machine's peak FLOP/s ÷ its peak bytes/s. Very short calls say nothing.

    Args:
        tally: what was counted.
        dtype, device: of most of the FLOPs.
        seconds: how long the counted steps (or the run) take without counting.
    """
    from optbook.benchmark.machine.peaks import known

    machine = known()  # None if they were disturbed
    peak = None if machine is None else machine.of(dtype, device)
    bandwidth = None if machine is None else machine.bandwidth.get(device)
    if peak is None or bandwidth is None:
        return {}
    ridge = peak.rate / bandwidth.rate
    shares = {"arithmetic_share": 0.0, "memory_share": 0.0}
    for work in tally.work.values():
        if work.bytes and work.seconds >= LONG_CALL * work.calls:
            side = "arithmetic_share" if work.flops / work.bytes >= ridge else "memory_share"
            shares[side] += work.seconds / seconds
    most = max(1.0, sum(shares.values()))  # counting takes time, too
    return {name: share / most for name, share in shares.items()}


def _share(
    flops: float, dtype: str, device: str, devices: int, notes: list[str], refresh: bool
) -> dict[str, Any]:
    from optbook.benchmark.machine.peaks import known, peaks

    if refresh or known() is None:
        notes.append("the machine's peaks were measured for this")
    machine = peaks(refresh)
    peak = machine.of(dtype, device)
    if peak is None:
        notes.insert(0, f"no share of peak: there is no measured peak for {dtype} on {device}")
        return {}
    if machine.disturbed:
        notes.insert(
            0,
            "no share of peak: other work took part of the cores while the peak was measured, so it is too "
            "low; measure it again when the machine is quiet: optbook.peaks(refresh=True)",
        )
        return {}
    several = f"{devices} devices, each " if devices > 1 else ""
    found = {
        "flops_peak": peak.rate * devices,
        "flops_peak_of": f"{several}{machine.source(peak, device)}, {dtype}",
    }
    share = flops / found["flops_peak"]  # type: ignore[operator]
    if share > 1:
        notes.insert(
            0,
            f"no share of peak: {write.percent(share)} of the measured peak can't be; the peak was taken "
            "while the machine was slower (measure it again: optbook.peaks(refresh=True)), or the workload "
            "skips work that is counted, as causal attention does",
        )
        return found
    return found | {"flops_share": share}
