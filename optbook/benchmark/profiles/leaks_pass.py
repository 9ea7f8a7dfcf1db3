"""The pass that looks for leaks: a workload runs again a few times, or the steps of its tracked loop do."""

from __future__ import annotations

import math

from optbook.benchmark.clock import Clock
from optbook.benchmark.profiles.leaks import Census, Growth
from optbook.benchmark.profiles.request import Request
from optbook.benchmark.recorder import Recorder, recording
from optbook.benchmark.runner import Workload

INTERVALS = 3
LEAST_RUNS, LEAST_STEPS, MOST_STEPS = 3, 4, 40
STEPS_SECONDS = 2.0
CAN_NOT = (
    "what grows from run to run is not seen where a workload runs once: "
    "let it run four times or more (--runs 4), or track its steps"
)


class LeakSearch:
    """Executes the workload once more as a warm-up and `INTERVALS` times between counts of what is alive.

    Of a workload with a tracked loop it compares the early steps with the late ones, in one execution; what
    its functions hold then is seen as well. `growth` holds what was found.
    """

    def __init__(self, request: Request) -> None:
        self.growth: Growth | None = None
        self.executions = 0
        self._request = request
        experiment = request.experiment
        self._steps = 0
        if experiment.steps:
            fitting = math.ceil(STEPS_SECONDS / experiment.seconds) if experiment.seconds else MOST_STEPS
            wanted = min(MOST_STEPS, max(2 * LEAST_STEPS, fitting))
            self._steps = min(experiment.steps + experiment.warmup, wanted)
        unit, every = ("step", max(1, (self._steps - 1) // INTERVALS)) if self._steps else ("run", 1)
        self._census = Census(request.given, unit, every)

    @property
    def possible(self) -> bool:
        """Whether the workload runs often enough, or has enough steps."""
        if self._request.experiment.steps:
            return self._steps >= LEAST_STEPS
        return self._request.experiment.executions >= LEAST_RUNS

    def workload(self) -> Workload:
        """The workload, with counts of what is alive in between."""
        own = self._request.workload
        return Workload(self._over_steps if self._steps else self._over_runs, own.setup)

    def start(self) -> None:
        """As in `Instrument`."""

    def stop(self) -> None:
        """As in `Instrument`."""
        self._census.close()

    def running(self, on: bool) -> None:
        """As in `Instrument`."""

    def _over_runs(self) -> None:
        workload = self._request.workload
        census = self._census
        for turn in range(INTERVALS + 1):
            if turn and workload.setup is not None:
                workload.setup()
            if turn == INTERVALS:
                census.trace()
            self.executions += 1
            workload.run()
            census.take(last=turn == INTERVALS)
        self.growth = census.finish()

    def _over_steps(self) -> None:
        census, every = self._census, self._census.every
        edges = [self._steps - every * turn for turn in range(INTERVALS, -1, -1)]

        def on_step() -> None:
            if not edges or len(next(iter(recorder.series.values()))) != edges[0]:
                return
            edges.pop(0)
            census.take(last=not edges)
            if len(edges) == 1:
                census.trace()
            if not edges:
                self.growth = census.finish()

        recorder = Recorder(self._request.clock or Clock(), self._steps, on_step=on_step)
        self.executions = 1
        with recording(recorder):
            self._request.workload.run()
