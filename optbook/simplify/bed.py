"""Runs variants of a workload: the real one, and those with stubs, in turn."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import NamedTuple

from optbook.benchmark import output, sequential
from optbook.benchmark.clock import Clock
from optbook.benchmark.interleave import Interleaved, Side, per_step
from optbook.benchmark.profiles.request import Request
from optbook.benchmark.progress import Progress
from optbook.benchmark.recorder import Recorder, recording
from optbook.benchmark.restore import Kept
from optbook.simplify import stubs
from optbook.simplify.components import Component
from optbook.simplify.imitate import Filled
from optbook.simplify.patching import Filling
from optbook.simplify.result import Estimate

ROUNDS, FEWEST_ROUNDS = 6, 3
"""With fewer than six no 95 % interval rests on order alone: what was seen is the range then."""
OVER_BUDGET = 2
"""How many times the budget may be spent for the sake of six rounds."""
MOST_ROUNDS = 100
SAMPLE_SECONDS = 0.1
"""A sample is short, and there are many: machines change their speed from one second to the next."""
FEWEST_STEPS, SLOW_STEPS, SLOW_SECONDS = 8, 4, 0.1
"""Steps of a sample at least; and where a step takes longer than a tenth of a second."""
SKIPPED_SHARE = 0.25
"""Of the steps of a sample, those at its start that do not count: queues are filled or emptied in them."""
SHORTEST_SECONDS, MOST_LOOPS_SECONDS = 5e-4, 0.05
CRITICAL = 1.96
MOST_VARIANTS = 100


class Once(NamedTuple):
    """One run: its steps, 1 if none are tracked, and the seconds of one of them."""

    steps: int
    seconds: float


Stubbed = tuple[tuple[Component, Filling], ...]
Variant = tuple[str, ...]
REAL: Variant = ()


class Bed:
    """Where variants of a workload are run.

    Args:
        request: the workload, measured already.
        steps: ends tracked loops; chosen if None.
        clock: the clock to read.
        order: draws the order of the runs within each round.
    """

    def __init__(
        self,
        request: Request,
        steps: int | None,
        clock: Clock,
        order: random.Random,
    ) -> None:
        self.experiment = request.experiment
        self.times: dict[Variant, list[float]] = {}
        self.failed: dict[Variant, str] = {}
        self.executions = 0
        self._workload = request.workload
        self._kept = Kept(request.given)
        self.clock = clock
        self._order = order
        self._steps = self._chosen_steps() if steps is None else steps
        if not self.experiment.steps:
            self._steps = None
        self._skipped = 0 if self._steps is None else round(SKIPPED_SHARE * self._steps)
        self._printed = output.Printed()

    def _chosen_steps(self) -> int | None:
        e = self.experiment
        if not e.steps or not e.seconds:
            return None
        fewest = FEWEST_STEPS if e.seconds < SLOW_SECONDS else SLOW_STEPS
        return max(fewest, math.ceil(SAMPLE_SECONDS / (e.seconds * (1 - SKIPPED_SHARE))))

    def affordable(self, budget: float) -> int:
        """How many variants can be run in six rounds without spending far more than the budget."""
        seconds = (self.experiment.seconds or 0.0) * (self._steps or 1)
        return int(OVER_BUDGET * budget / (ROUNDS * seconds)) if seconds else MOST_VARIANTS

    def once(
        self,
        stubbed: Stubbed,
        around: AbstractContextManager[object] | None = None,
        on_step: Callable[[], None] | None = None,
    ) -> Once:
        """One run, uncounted. ``on_step`` is called after each step.

        Raises:
            Exception: what the workload raised.
        """
        recorder = Recorder(self.clock, self._steps, on_step=on_step)
        self.executions += 1
        with output.dropped(self._printed), self._with(stubbed), around or nullcontext():
            if self._workload.setup is not None:
                self._workload.setup()
            started = self.clock.now()
            with recording(recorder):
                self._workload.run()
                self.clock.synchronize()
            seconds = self.clock.now() - started
        series = max(recorder.series.values(), key=len, default=None)
        if series is None or not len(series):
            return Once(1, seconds)
        return Once(len(series), per_step(series, self._skipped))

    def put_back(self) -> None:
        """Put back what the workload changed, as far as that is possible."""
        self._kept.put_back()

    @contextmanager
    def _with(self, stubbed: Stubbed) -> Iterator[None]:
        with ExitStack() as stack:
            for component, filling in stubbed:
                made = stubs.Stub(component, Filled(filling))
                stack.callback(made.remove)  # before it is in place: an interrupt may come right after
                made.install()
            yield
        if stubbed:
            self._kept.put_back()

    def works(self, stubbed: Stubbed) -> str:
        """Run it once with these stubs; "", or what went wrong."""
        try:
            self.once(stubbed)
        except Exception as error:
            return _written(error)
        return ""

    def rounds(
        self, variants: Mapping[Variant, Stubbed], budget: float, progress: Progress, done: float = 0.0
    ) -> dict[Variant, Estimate]:
        """Run the real workload and all variants in turn; the throughput of each against the real one.

        Args:
            variants: the stubs of each; one that breaks the workload is left out, and `failed` says why.
            budget: seconds for all rounds; at least three are run, and six if that is not far more.
            progress: is told the seconds spent.
            done: seconds spent before.
        """
        if not variants:
            return {}
        with output.dropped(self._printed):
            first = {REAL: self._interleaved([()]).sample(0)}
            for variant, stubbed in variants.items():
                try:
                    first[variant] = self._interleaved([stubbed]).sample(0)
                except Exception as error:
                    self.failed[variant] = _written(error)
        everything: dict[Variant, Stubbed] = {v: variants.get(v, ()) for v in first}
        sides = self._interleaved(list(everything.values()))
        sides.loops = self._loops(list(first.values()))
        started, spent, rounds = self.clock.now(), 0.0, 0
        while rounds < MOST_ROUNDS and (
            rounds < FEWEST_ROUNDS
            or spent * (rounds + 1) / rounds <= budget * (OVER_BUDGET if rounds < ROUNDS else 1)
        ):
            sides.round()
            rounds += 1
            spent = self.clock.now() - started
            progress.elapsed(done + min(spent, budget))
        self.executions += len(everything) * (1 + rounds * sides.loops)
        for variant, times in zip(everything, sides.times, strict=True):
            self.times.setdefault(variant, []).extend(times)
        return {
            variant: _estimate(sides.differences(0, index))
            for index, variant in enumerate(everything)
            if variant != REAL
        }

    def _interleaved(self, variants: Sequence[Stubbed]) -> Interleaved:
        sides = [self._side(stubbed) for stubbed in variants]
        return Interleaved(sides, self._steps, self.clock, self._order, self._skipped)

    def _side(self, stubbed: Stubbed) -> Side:
        return Side(self._workload.run, self._workload.setup, lambda: self._with(stubbed))

    def _loops(self, seconds: Sequence[float]) -> int:
        """Runs in a sample: more than one where even the real workload takes next to no time."""
        if self._steps is not None or self._workload.setup is not None:
            return 1
        wanted = math.ceil(SHORTEST_SECONDS / max(min(seconds), 1e-9))
        return max(1, min(wanted, int(MOST_LOOPS_SECONDS / max(seconds[0], 1e-9))))


def _written(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def _estimate(differences: sequential.Floats) -> Estimate:
    seen = sequential.look(differences, CRITICAL)
    if len(differences) < ROUNDS:
        return Estimate(math.exp(seen.center), math.exp(differences.min()), math.exp(differences.max()))
    return Estimate(math.exp(seen.center), math.exp(seen.low), math.exp(seen.high))
