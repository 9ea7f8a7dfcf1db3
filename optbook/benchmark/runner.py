"""Runs a workload and notes what happened; what the figures mean is worked out elsewhere."""

from __future__ import annotations

import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from optbook.benchmark import output
from optbook.benchmark.clock import Clock
from optbook.benchmark.compilation import compiled_frames
from optbook.benchmark.evidence import Usage, Used, traffic
from optbook.benchmark.meters import cpu
from optbook.benchmark.meters.memory import Memory, PeakMemory
from optbook.benchmark.noise import Probe
from optbook.benchmark.progress import Progress
from optbook.benchmark.recorder import Recorder, active, recording
from optbook.benchmark.watch import Watch, Watched
from optbook.errors import OptbookError, OptionError

USED_UP_SHARE = 0.02
USED_UP_SECONDS = 0.1


@dataclass(frozen=True)
class Workload:
    """What is measured. ``setup`` runs untimed before every run, ``units`` counts what a run did."""

    run: Callable[[], object]
    setup: Callable[[], object] | None = None
    units: Callable[[], Mapping[str, float]] | None = None


@dataclass(frozen=True)
class Plan:
    """How often to run it.

    ``runs`` is how often the workload is executed, warm-up included; None repeats it until
    ``budget`` seconds are spent. ``steps`` ends a tracked loop after so many steps, warm-up
    included. ``warmup`` is how many of the runs (or tracked steps) are not counted; None chooses.

    Raises:
        OptionError: a number is out of range.
    """

    runs: int | None = None
    steps: int | None = None
    warmup: int | None = None
    budget: float = 5.0
    max_runs: int = 10_000
    reset_peak: bool = True

    def __post_init__(self) -> None:
        for name, least in (("runs", 1), ("steps", 1), ("warmup", 0)):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
                raise OptionError(f"{name} is {value!r}: give a whole number from {least} on")
        budget: object = self.budget
        if not isinstance(budget, (int, float)) or not 0 < budget <= 86_400:
            raise OptionError(f"budget is {self.budget!r}: give seconds between 0 and 86400, such as 5")
        if self.runs is not None and self.warmup is not None and self.warmup >= self.runs:
            raise OptionError(f"warmup {self.warmup} leaves none of {self.runs} runs to count: give fewer")
        if self.steps is not None and self.warmup is not None and self.warmup >= self.steps:
            raise OptionError(f"warmup {self.warmup} leaves none of {self.steps} steps to count: give fewer")


@dataclass
class Outcome:
    """What happened, in seconds and bytes; ``void`` says why it does not count."""

    times: list[float] = field(default_factory=list)
    warmup_times: list[float] = field(default_factory=list)
    executions: int = 0
    counts: dict[str, float] = field(default_factory=dict)
    parts: dict[str, float] = field(default_factory=dict)
    tracked: list[Recorder] = field(default_factory=list)
    cpu_seconds: float | None = None
    cpu_window: float = 0.0
    used: Used = field(default_factory=Used)
    network_rate: float | None = None
    memory: Memory = field(default_factory=lambda: Memory(None, None, None, ""))
    watched: Watched = field(default_factory=Watched)
    printed: output.Printed = field(default_factory=output.Printed)
    repeated: output.Printed = field(default_factory=output.Printed)
    probes: list[float] = field(default_factory=list)
    void_runs: int = 0
    exception: BaseException | None = None
    void: str = ""


class _CpuWindow:
    """CPU seconds of the process tree over the parts of a measurement between `start` and `stop`."""

    def __init__(self, now: Callable[[], float], usage: Usage) -> None:
        self._now = now
        self._usage = usage
        self.seconds = 0.0
        self.window = 0.0
        self.used = Used()

    def start(self) -> None:
        self._cpu, self._before, self._wall = cpu.tree_seconds(), self._usage.read(), self._now()

    def stop(self) -> None:
        self.window += self._now() - self._wall
        self.used = self.used.plus(self._usage.read(), self._before)
        self.seconds += cpu.tree_seconds() - self._cpu

    def toggle(self, entering: bool) -> None:
        (self.start if entering else self.stop)()


@dataclass(frozen=True)
class _Run:
    """One execution: its wall and own CPU seconds, and what was recorded inside."""

    seconds: float
    own_cpu: float
    used: Used
    recorder: Recorder
    compiled: bool


class Execution:
    """One measurement in progress."""

    def __init__(self, workload: Workload, plan: Plan, clock: Clock, progress: Progress) -> None:
        self.workload = workload
        self.plan = plan
        self.clock = clock
        self.progress = progress
        self.outcome = Outcome()
        self._usage = Usage()
        self._loops = _CpuWindow(clock.now, self._usage)
        self._probe = Probe()
        self._watch = Watch(plan.reset_peak)
        self._imported = False
        self._pid = os.getpid()

    def execute(self) -> Outcome:
        """Run the workload as planned. An exception of the workload ends it and is kept in the outcome.

        What a forked child raises is passed on, so that the measurement stays the parent's.
        """
        if active() is not None:
            raise OptbookError("a measurement is running already: don't measure inside a measured workload")
        gc.collect()
        bytes_before, started = traffic(), time.perf_counter()
        with self.progress, self._watch, PeakMemory(reset=self.plan.reset_peak) as memory:
            try:
                self._measure()
            except BaseException as exception:
                if os.getpid() != self._pid:
                    raise
                self.outcome.exception = exception
            finally:
                self._usage.close()
        bytes_after, seconds = traffic(), time.perf_counter() - started
        if bytes_before is not None and bytes_after is not None:
            self.outcome.network_rate = max(0.0, bytes_after - bytes_before) / seconds
        self.outcome.memory = memory.result
        self.outcome.watched = self._watch.result
        self.outcome.probes = list(self._probe.times)
        return self.outcome

    def _measure(self) -> None:
        outcome, plan = self.outcome, self.plan
        of_children = cpu.descendants_seconds()
        modules = len(sys.modules)
        first = self._run_once(output.limited(outcome.printed))
        self._imported = len(sys.modules) != modules
        if outcome.tracked:
            self._repeat_tracked()
        elif plan.runs == 1 or (plan.runs is None and plan.warmup is None and first.seconds >= plan.budget):
            self._keep(first)
            self._add_cpu(cpu.descendants_seconds() - of_children)
        else:
            self._repeat(first)

    def _run_once(self, showing: AbstractContextManager[None]) -> _Run:
        clock, outcome = self.clock, self.outcome
        recorder = Recorder(
            clock, self.plan.steps, self._loops.toggle, self._after_step, self._watch.starting
        )
        compilations = compiled_frames()
        self._set_up()
        with showing, recording(recorder):
            outcome.executions += 1
            clock.synchronize()
            own, used, start = cpu.own_seconds(), self._usage.read(), clock.now()
            try:
                self.workload.run()
                if os.getpid() != self._pid:
                    raise OptbookError("a forked child left the workload: end it there with os._exit(0)")
                clock.synchronize()
            finally:
                seconds = clock.now() - start
                compiled = compiled_frames() != compilations
                used = Used().plus(self._usage.read(), used)
                run = _Run(seconds, cpu.own_seconds() - own, used, recorder, compiled)
                recorder.close()
                self._note_tracked(run)
        self._count_units()
        return run

    def _after_step(self) -> None:
        if self.progress.step is not None:
            self.progress.step()
        self._probe.take()

    def _set_up(self) -> None:
        if self.workload.setup is None:
            return
        try:
            with output.dropped(output.Printed()) if self.outcome.executions else nullcontext():
                self.workload.setup()
        except Exception as exception:
            exception.add_note("raised in the setup, before the workload ran")
            raise

    def _note_tracked(self, run: _Run) -> None:
        if any(len(series) for series in run.recorder.series.values()):
            outcome = self.outcome
            outcome.tracked.append(run.recorder)
            outcome.times.append(run.seconds)
            outcome.void_runs += sum(len(series.compiled) for series in run.recorder.series.values())
            outcome.cpu_seconds, outcome.cpu_window = self._loops.seconds, self._loops.window
            outcome.used = self._loops.used

    def _count_units(self) -> None:
        if self.workload.units is None:
            return
        outcome, counts = self.outcome, dict(self.workload.units())
        if outcome.counts and counts != outcome.counts:
            outcome.void = (
                f"run {outcome.executions} counted {_written(counts)}, an earlier one "
                f"{_written(outcome.counts)}: the runs do different amounts of work"
            )
        outcome.counts = outcome.counts or counts

    def _repeat_tracked(self) -> None:
        outcome = self.outcome
        for _ in range((self.plan.runs or 1) - 1):
            run = self._run_once(output.dropped(outcome.repeated))
            before, after = _steps(outcome.tracked[0]), _steps(run.recorder)
            if before != after:
                fewer = sum(after.values()) < sum(before.values())
                why = (
                    "the cell seems to use up its input; rebuild the input in --setup, or give --runs 1"
                    if fewer
                    else "the runs do different amounts of work"
                )
                outcome.void = (
                    f"run {outcome.executions} tracked {_written(after)}, the first {_written(before)}: {why}"
                )
            if outcome.void:
                return

    def _repeat(self, first: _Run) -> None:
        plan, outcome = self.plan, self.outcome
        warmup = 1 if plan.warmup is None else plan.warmup
        if warmup:
            outcome.warmup_times.append(first.seconds)
        else:
            self._keep(first)
        of_children = cpu.descendants_seconds()
        started = self.clock.now()
        try:
            while self._wants_more(self.clock.now() - started):
                run = self._run_once(output.dropped(outcome.repeated))
                if self._refused(first.seconds, run.seconds):
                    return
                if len(outcome.warmup_times) < warmup:
                    outcome.warmup_times.append(run.seconds)
                    started = self.clock.now()
                elif run.compiled:
                    outcome.void_runs += 1
                else:
                    self._probe.take()
                    self._keep(run)
                    self.progress.elapsed(self.clock.now() - started)
        except Exception as exception:
            exception.add_note(
                f"raised in run {outcome.executions}, after {outcome.executions - 1} that went well: if the "
                "workload can't be repeated as it is, rebuild what it uses up in --setup, or give --runs 1"
            )
            raise
        finally:
            self._add_cpu(cpu.descendants_seconds() - of_children)

    def _keep(self, run: _Run) -> None:
        outcome = self.outcome
        outcome.times.append(run.seconds)
        self._add_cpu(run.own_cpu)
        outcome.cpu_window += run.seconds
        outcome.used = outcome.used.plus(run.used, Used())
        for name, spans in run.recorder.spans.items():
            outcome.parts[name] = outcome.parts.get(name, 0.0) + sum(spans.durations)

    def _add_cpu(self, seconds: float) -> None:
        self.outcome.cpu_seconds = (self.outcome.cpu_seconds or 0.0) + seconds

    def _wants_more(self, elapsed: float) -> bool:
        plan, outcome = self.plan, self.outcome
        if outcome.void:
            return False
        if plan.runs is not None:
            return outcome.executions < plan.runs
        if not outcome.times:
            return True
        if len(outcome.times) >= plan.max_runs:
            return False
        return elapsed + statistics.fmean(outcome.times[-5:]) <= plan.budget

    def _refused(self, first: float, later: float) -> bool:
        """Whether a later run did next to nothing, unless the first had one-off work such as imports."""
        if first < USED_UP_SECONDS or later > first * USED_UP_SHARE or self._imported:
            return False
        self.outcome.times.append(later)
        self.outcome.void = (
            f"run {self.outcome.executions} took {later:.2g} s, the first {first:.2g} s: the workload seems "
            "to use up its input (or to keep its result); rebuild the input in --setup, or give --runs 1"
        )
        return True


def _steps(recorder: Recorder) -> dict[str, float]:
    return {unit: len(series) for unit, series in recorder.series.items()}


def _written(counts: Mapping[str, float]) -> str:
    return ", ".join(f"{value:g} {unit}" for unit, value in counts.items()) or "nothing"
