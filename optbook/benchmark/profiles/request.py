"""What a kind of profile is given: the workload, what was measured of it, and what the user asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from optbook import settings as configuration
from optbook.benchmark.clock import Clock
from optbook.benchmark.profiles import passes
from optbook.benchmark.runner import Workload
from optbook.experiments.record import Experiment


@dataclass(frozen=True)
class Request:
    """A workload to look into.

    ``given`` is the function or cell behind ``workload``; ``experiment`` the measurement without
    instrument, recorded already. ``functions`` are those to look at, themselves or by name; ``options``
    belong to the kind.
    """

    workload: Workload
    given: Callable[..., object]
    experiment: Experiment
    functions: tuple[object, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)
    clock: Clock | None = None

    def further(
        self,
        instrument: passes.Instrument,
        *,
        enough: float,
        name: str,
        workload: Workload | None = None,
        around: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> passes.Pass:
        """A pass of its own under an instrument; see `passes.further`."""
        return passes.further(
            workload or self.workload,
            self.given,
            self.experiment,
            instrument,
            enough=enough,
            name=name,
            shown=configuration.settings().progress_bar,
            around=around,
            clock=self.clock,
        )
