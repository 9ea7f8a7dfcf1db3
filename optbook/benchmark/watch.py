"""What is watched from beside while a workload runs: GPUs, worker processes, debug settings."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any

from optbook import formatting as write
from optbook.benchmark.machine.finding import Finding
from optbook.benchmark.machine.switches import debug_settings, oversubscribed, process_switches
from optbook.benchmark.meters import cpu
from optbook.benchmark.meters.gpu import Gpu, GpuMeter
from optbook.benchmark.meters.nvml import POWER_LIMIT
from optbook.benchmark.meters.sampler import Sampler
from optbook.benchmark.meters.workers import WorkerMemory, Workers

OFTEN = 0.05


@dataclass(frozen=True)
class Watched:
    """What was seen, and how it is recorded."""

    gpu: Gpu = field(default_factory=Gpu)
    workers: Workers = field(default_factory=Workers)
    settings: tuple[Finding, ...] = ()

    def fields(self) -> dict[str, Any]:
        """The fields of an experiment that follow from it."""
        return {
            "gpu": self.gpu.name,
            "gpu_resident": self.gpu.resident,
            "gpu_memory": self.gpu.memory,
            "gpu_memory_used": self.gpu.used,
            "gpu_memory_total": self.gpu.total,
            "gpu_allocated": self.gpu.allocated,
            "gpu_clock": self.gpu.clock,
            "gpu_slowed": dict(self.gpu.slowed),
            "memory_workers": self.workers.growth,
        }

    def warnings(self) -> Iterable[str]:
        """What to keep in mind when reading the figures."""
        for finding in self.settings:
            if finding.severity != "note":
                yield str(finding)
        crowded = oversubscribed(self.workers.asked, self.workers.threads, cpu.usable_cores())
        if crowded:
            yield f"the loader's workers: {crowded}"
        if self.workers.unknown:
            yield (
                f"the peak memory of {self.workers.unknown} of {self.workers.count} worker processes is not "
                "known: they ran before the measurement, or were killed"
            )
        yield from self.gpu.notes
        # Under full load a large GPU is always at its power limit: a figure, not a warning.
        named = [
            f"{reason} ({write.percent(share)} of the looks)"
            for reason, share in self.gpu.slowed.items()
            if share >= OFTEN and reason != POWER_LIMIT
        ]
        if named:
            yield f"the GPU's clock was lowered by: {', '.join(named)}"


class Watch:
    """Watches between entering and leaving a ``with`` block; `result` then holds what was seen.

    ``reset`` allows setting back the high-water marks of worker processes and of torch's allocator.
    """

    def __init__(self, reset: bool = True) -> None:
        self.result = Watched()
        self._gpu = GpuMeter(reset)
        self._workers = WorkerMemory(reset)
        self._settings: dict[str, Finding] = {}
        self._stack = ExitStack()
        self._pid = os.getpid()

    def __enter__(self) -> Watch:
        self._note(debug_settings())
        for meter in (self._gpu, self._workers):
            self._stack.enter_context(meter)
        probes = (self._gpu.sample, self._workers.sample, lambda: self._note(process_switches()))
        self._stack.enter_context(Sampler(probes))
        return self

    def _note(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self._settings.setdefault(finding.what, finding)

    def starting(self, loader: Iterable[Any]) -> AbstractContextManager[None]:
        """While the iterator of a tracked loader is made: have its workers measured."""
        return self._workers.starting(loader)

    def __exit__(self, *exception: object) -> None:
        if os.getpid() != self._pid:
            return
        self._note(debug_settings())
        self._stack.close()
        self.result = Watched(self._gpu.result, self._workers.result, tuple(self._settings.values()))
