"""A further pass over a workload that was measured: with an instrument, and everything put back after it."""

from __future__ import annotations

import contextlib
import math
import os
import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from optbook.benchmark import output
from optbook.benchmark.clock import Clock
from optbook.benchmark.meters import cpu
from optbook.benchmark.progress import Progress
from optbook.benchmark.recorder import Recorder, recording
from optbook.benchmark.restore import Kept
from optbook.benchmark.runner import Workload
from optbook.experiments.record import Experiment

FEWEST_STEPS = 4
NOTED_CPU_SECONDS = 0.02
PUT_BACK = (
    "parameters, buffers, optimizer state, names and random state were put back after the profile, "
    "what else the workload changes (iterators, files, arrays) was not"
)
QUEUED = "the accelerator works on while Python goes on: its time appears where Python waits for it"


class Instrument(Protocol):
    """Looks at a workload from `start` to `stop`, while it is `running`."""

    def start(self) -> None:
        """Called once before the first execution, in the workload's thread."""

    def stop(self) -> None:
        """Called once after the last, also if the workload raised."""

    def running(self, on: bool) -> None:
        """Called at the edges of each run, or of the tracked loops."""


@dataclass(frozen=True)
class Pass:
    """How a workload ran under an instrument.

    ``seconds`` is the median of a run (or a tracked step) with the instrument, ``bare`` without it;
    ``total`` the seconds in all of them. ``executions`` counts those of this pass.
    """

    seconds: float
    bare: float | None
    total: float
    executions: int
    steps: int
    notes: tuple[str, ...] = field(default=())

    @property
    def overhead(self) -> float | None:
        """Instrumented time ÷ bare time; None if either is not known."""
        return self.seconds / self.bare if self.bare and self.seconds else None


def further(
    workload: Workload,
    given: Callable[..., object],
    experiment: Experiment,
    instrument: Instrument,
    *,
    enough: float,
    name: str,
    shown: bool = True,
    around: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
    clock: Clock | None = None,
) -> Pass:
    """Execute a measured workload again under an instrument, then put back what it changed.

    Args:
        workload: what was measured.
        given: the function or cell behind it, whose names and state are put back.
        experiment: the measurement without instrument.
        instrument: what looks at it.
        enough: seconds after which no further run or step is begun. A workload that was measured in one
            run is executed once; a tracked loop ends after a few steps, at most as many as were measured.
        name: of the pass, for its progress bar and errors.
        shown: whether a progress bar is shown.
        around: a context in which the workload runs.
        clock: the clock to read.

    Raises:
        Exception: what the workload raised; all is put back before.
    """
    clock = clock or Clock()
    steps = _steps(experiment, enough)
    times: list[float] = []
    kept = Kept(given)
    started = cpu.descendants_seconds(), _reaped()
    try:
        with Progress(name, math.inf, steps, shown) as progress, output.dropped(output.Printed()):
            instrument.start()
            try:
                _executions(workload, experiment, instrument, clock, steps, enough, progress, times, around)
            finally:
                instrument.stop()
                children = cpu.descendants_seconds() - started[0] + _reaped() - started[1]
    except BaseException as exception:
        exception.add_note(f"raised in the {name} pass; what was measured before it is recorded")
        raise
    finally:
        kept.put_back()
    executions = 1 if steps is not None else len(times)
    notes = [PUT_BACK, *kept.problems, *_missing(children)]
    if clock.device() is not None:
        notes.append(QUEUED)
    return Pass(
        seconds=statistics.median(times) if times else 0.0,
        bare=experiment.seconds,
        total=math.fsum(times),
        executions=executions,
        steps=0 if steps is None else len(times),
        notes=tuple(notes),
    )


def _steps(experiment: Experiment, enough: float) -> int | None:
    if not experiment.steps:
        return None
    fitting = math.ceil(enough / experiment.seconds) if experiment.seconds else 0
    return min(experiment.steps + experiment.warmup, max(FEWEST_STEPS, fitting))


def _executions(
    workload: Workload,
    experiment: Experiment,
    instrument: Instrument,
    clock: Clock,
    steps: int | None,
    enough: float,
    progress: Progress,
    times: list[float],
    around: Callable[[], AbstractContextManager[None]],
) -> None:
    """Run once, or until enough seconds were seen, and add the seconds of each run or step to ``times``."""
    most = 1 if steps is not None else max(1, experiment.runs)
    tracked = instrument.running if steps is not None else None
    while len(times) < most and math.fsum(times) < enough:
        if workload.setup is not None:
            workload.setup()
        recorder = Recorder(clock, steps, tracked, progress.step)
        with recording(recorder), around():
            clock.synchronize()
            start = clock.now()
            if tracked is None:
                instrument.running(True)
            try:
                execute(workload.run)
                clock.synchronize()
            finally:
                instrument.running(False)
            seconds = clock.now() - start
        if steps is None:
            times.append(seconds)
            continue
        for series in list(recorder.series.values())[:1]:
            times += [done - asked for asked, done in zip(series.asked, series.done, strict=True)]
        break


def execute(run: Callable[[], object]) -> None:
    """Call ``run``. What this function calls is the workload, to whoever looks at the stack."""
    run()


def _reaped() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _missing(children: float) -> list[str]:
    if children <= NOTED_CPU_SECONDS:
        return []
    return [f"worker processes used {children:.2g} s of CPU time, which is not in this profile"]
