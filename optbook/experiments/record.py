"""What one recorded experiment holds. Every field but the raw series is a column of the log."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

Status = Literal["ok", "failed", "interrupted", "void"]
STATUSES: tuple[Status, ...] = ("ok", "failed", "interrupted", "void")


def column(doc: str, default: Any = dataclasses.MISSING, **kwargs: Any) -> Any:
    """A dataclass field that is a column of the log, with its documentation."""
    return dataclasses.field(default=default, metadata={"doc": doc, "column": True}, **kwargs)


def payload(doc: str, default: Any) -> Any:
    """A dataclass field that is stored with the experiment but is too large for the table."""
    return dataclasses.field(default=default, metadata={"doc": doc, "column": False})


def _new_id() -> str:
    return uuid.uuid4().hex


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One measured (or failed) workload: a row of the log and the raw times behind it.

    Times are in seconds, memory in bytes, shares between 0 and 1. ``None`` means "not known",
    never zero. Intervals are 95 % intervals.
    """

    label: str = column("what the experiment is called")
    id: str = dataclasses.field(
        default_factory=_new_id, metadata={"doc": "unique id (UUID4, hex)", "column": True}
    )
    created: datetime = dataclasses.field(
        default_factory=_now, metadata={"doc": "when it was recorded (UTC)", "column": True}
    )
    status: Status = column("ok, failed, interrupted or void (measured, but not to be trusted)", "ok")  # noqa: RUF009
    error: str = column("what went wrong; empty if nothing did", "")

    unit: str = column("what throughput counts: the unit named first, or 'run'", "run")
    throughput: float | None = column("units per second", None)
    throughput_low: float | None = column("lower end of the interval of throughput", None)
    throughput_high: float | None = column("upper end of the interval of throughput", None)
    units: Mapping[str, float] = column("throughput of every unit counted, per second", None)
    seconds: float | None = column("median seconds of a run, or of a step if steps were tracked", None)
    seconds_low: float | None = column("lower end of the interval of seconds", None)
    seconds_high: float | None = column("upper end of the interval of seconds", None)
    metrics: Mapping[str, float] = column("results measured beside the time, such as accuracy", None)

    runs: int = column("runs counted", 0)
    steps: int = column("steps counted, 0 if none were tracked", 0)
    warmup: int = column("warm-up runs (or steps) executed and not counted", 0)
    executions: int = column("how often the workload's effects were applied", 0)
    wait_share: float | None = column("share of the tracked steps' time spent waiting for data", None)
    startup_seconds: float | None = column("from asking the loader for its iterator to the first item", None)
    parts: Mapping[str, float] = column("seconds inside each span, over the counted time", None)

    cpu_cores: float | None = column("cores kept busy, over this process and its children", None)
    cpu_share: float | None = column("cpu_cores as a share of the cores this process may use", None)
    memory_peak: float | None = column("peak resident memory of this process, in bytes", None)
    memory_growth: float | None = column("memory_peak less what was resident before, in bytes", None)
    memory_children: float | None = column("peak memory of child processes, summed, in bytes", None)
    memory_method: str = column("how the peak was taken: 'exact' or 'sampled'", "")
    memory_workers: float | None = column(
        "own peak growth of worker processes, summed, in bytes: an upper bound",
        None,
    )
    gpu: str = column("the GPUs that were used; 'no GPU', or why nothing is known of them", "")
    gpu_resident: float | None = column(
        "share of the time in which a kernel was resident on the GPU, setup and warm-up included", None
    )
    gpu_memory: float | None = column("peak device memory of this process, in bytes", None)
    gpu_memory_used: float | None = column("peak device memory of all processes, in bytes", None)
    gpu_memory_total: float | None = column("memory of the GPUs used, in bytes", None)
    gpu_allocated: float | None = column(
        "peak that torch's allocator gave out on the accelerator, in bytes", None
    )
    gpu_clock: float | None = column("mean clock of the GPU as a share of its highest", None)
    gpu_slowed: Mapping[str, float] = column("share of the time in which each cause lowered the clock", None)

    noise_drift: float | None = column("relative change of the times, first third to last; 0 if chance", None)
    noise_machine: float | None = column("the same of a fixed probe: the machine changed", None)
    noise_modes: int | None = column("kinds of times: 1, or 2 if they fall into two groups", None)
    noise_few: bool | None = column("whether too few runs or steps were counted for an interval", None)
    noise_compiled: int | None = column("runs or steps left out because torch.compile compiled in them", None)
    noise_correlation: float | None = column("how much neighbouring steps depend on each other", None)

    flops: float | None = column(
        "floating-point operations per second; see optbook.benchmark.flop_formulas", None
    )
    flops_counted: float | None = column("floating-point operations of a run, or of a step", None)
    flops_share: float | None = column("flops as a share of flops_peak", None)
    flops_peak: float | None = column("the machine's measured peak for flops_dtype, per second", None)
    flops_peak_of: str = column("the kernel that reached the peak, and of how many it is the best", "")
    flops_dtype: str = column("the data type that did most of the counted operations", "")
    flops_coverage: float | None = column(
        "share of operator time, in the workload's thread, in operators whose FLOPs were counted", None
    )
    flops_note: str = column("how FLOPs were counted, or why they could not be", "")

    diagnosis: str = column(
        "what the time goes to: waiting for data, Python overhead, arithmetic, memory bandwidth, host–device "
        "copies, network, idle or not clear; empty without a valid measurement",
        "",
    )
    diagnosis_note: str = column("the figures behind the diagnosis, and the chapter that treats it", "")
    evidence: Mapping[str, float] = column(
        "what the diagnosis rests on, by the names in optbook.benchmark.evidence", None
    )

    stubs: str = column("active stubs, joined by commas; empty if none", "")
    expected: str = column("the component whose predicted gain was to be met; empty if none", "")
    component_speedup: float | None = column("how many times as fast that component is by itself", None)
    predicted: float | None = column("throughput predicted at that speed-up, against prediction_of's", None)
    predicted_low: float | None = column("lower end of the range of predicted", None)
    predicted_high: float | None = column("upper end of the range of predicted", None)
    achieved: float | None = column("throughput against that of prediction_of", None)
    prediction_of: str = column("id of the experiment whose ceiling predicted it", "")
    warnings: tuple[str, ...] = column("what to keep in mind when reading the figures", ())

    notebook: str = column("the notebook or script it came from", "")
    participant: str = column("who ran it, in a workshop", "")
    session: str = column("id of the kernel or process that ran it", "")
    machine: str = column("fingerprint of the machine", "")
    cores: float | None = column("cores this process may use (affinity and quota)", None)
    git_revision: str = column("git revision of the working directory", "")
    git_dirty: bool | None = column("whether it had uncommitted changes", None)
    modules_hash: str = column("hash of the local modules in use", "")
    versions: Mapping[str, str] = column("versions of Python and the libraries that matter", None)
    flags: Mapping[str, str] = column("threads and switches that change speed", None)
    seed: int | None = column("torch's initial seed, if torch was in use", None)

    times: tuple[float, ...] = payload("seconds of every counted run, or of every counted step", ())
    waits: tuple[float, ...] = payload("of each counted step, the seconds spent waiting for data", ())
    source: str = payload("the workload's source; empty if OptBook.store_source is off", "")

    def __post_init__(self) -> None:
        for name in ("units", "metrics", "parts", "gpu_slowed", "evidence", "versions", "flags"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, {})
        if self.status not in STATUSES:
            raise ValueError(f"status is {self.status!r}: use one of {', '.join(STATUSES)}")

    def replace(self, **changes: Any) -> Experiment:
        """The same experiment with some fields changed."""
        return dataclasses.replace(self, **changes)

    def __str__(self) -> str:
        from optbook.experiments.render import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        from optbook.experiments.render import as_html

        return as_html(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))


def column_fields() -> tuple[dataclasses.Field[Any], ...]:
    """The fields of `Experiment` that are columns of the log, in order."""
    return tuple(f for f in dataclasses.fields(Experiment) if f.metadata["column"])
