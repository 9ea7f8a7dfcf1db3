"""Several workloads in turn, in random order within each round: drift of the machine hits all alike."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np

from optbook.benchmark import output
from optbook.benchmark.clock import Clock
from optbook.benchmark.recorder import Recorder, Series, recording
from optbook.benchmark.sequential import Floats

SAMPLE_SECONDS = 2e-3
"""Shorter workloads are repeated inside a sample until it lasts as long as this."""


@dataclass(frozen=True)
class Side:
    """One of the workloads: ``setup`` runs untimed before every run, inside the context ``around``."""

    run: Callable[[], object]
    setup: Callable[[], object] | None = None
    around: Callable[[], AbstractContextManager[object]] = nullcontext


class Interleaved:
    """Workloads, and the seconds taken so far by a run of each, or by a step where steps are tracked.

    ``steps`` ends tracked loops after so many steps, of which the first ``skipped`` do not count; ``order``
    draws the order within each round.
    """

    def __init__(
        self,
        sides: Sequence[Side],
        steps: int | None,
        clock: Clock,
        order: random.Random,
        skipped: int = 0,
    ) -> None:
        self.sides = tuple(sides)
        self.times: tuple[list[float], ...] = tuple([] for _ in sides)
        self.loops = 1
        self.printed = output.Printed()
        self.repeated = output.Printed()
        self._steps = steps
        self._clock = clock
        self._order = order
        self._skipped = skipped

    def warm_up(self) -> list[float]:
        """Run each uncounted, three times in all; choose how many runs make a sample; seconds of a sample."""
        indices = range(len(self.sides))
        for index in indices:
            with output.limited(self.printed):
                self.sample(index)
        with output.dropped(self.repeated):
            seconds = [min(self.sample(index) for _ in range(2)) for index in indices]
            shortest = max(min(seconds), 1e-9)
            if all(side.setup is None for side in self.sides) and shortest < SAMPLE_SECONDS:
                self.loops = math.ceil(SAMPLE_SECONDS / shortest)
                seconds = [self.loops * self.sample(index) for index in indices]
        return seconds

    def sample(self, index: int) -> float:
        """Seconds of one run of a workload, or of one step if it tracks its steps."""
        side, now = self.sides[index], self._clock.now
        recorder = Recorder(self._clock, self._steps)
        with side.around():
            if side.setup is not None:
                side.setup()
            with recording(recorder):
                self._clock.synchronize()
                start = now()
                for _ in range(self.loops):
                    side.run()
                self._clock.synchronize()
                seconds = (now() - start) / self.loops
        series = next(iter(recorder.series.values()), None)
        return seconds if series is None or not len(series) else per_step(series, self._skipped)

    def round(self) -> None:
        """One more sample of each, in random order."""
        indices = list(range(len(self.sides)))
        self._order.shuffle(indices)
        with output.dropped(self.repeated):
            for index in indices:
                self.times[index].append(self.sample(index))

    def differences(self, first: int = 0, second: int = 1) -> Floats:
        """Log-ratios of throughput, second ÷ first, one a round."""
        a, b = (np.maximum(np.asarray(self.times[index]), 1e-12) for index in (first, second))
        ratios: Floats = np.log(a) - np.log(b)
        return ratios


def per_step(series: Series, skipped: int) -> float:
    """Mean seconds of the steps after the first few: from one step's end to the last one's."""
    if not 0 < skipped < len(series):
        return series.seconds / len(series)
    done = series.done
    return (done[-1] - done[skipped - 1]) / (len(series) - skipped)
