"""Logs to look at, made from a few figures."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd

from optbook.experiments.frames import to_frame
from optbook.experiments.record import Experiment


def measured(label: str, throughput: float, **more: Any) -> Experiment:
    """An experiment of `throughput` batches of 16 images a second, known to 5 %."""
    return Experiment(
        label=label,
        unit="batch",
        throughput=throughput,
        throughput_low=throughput * 0.95,
        throughput_high=throughput * 1.05,
        units={"batch": throughput, "image": throughput * 16},
        seconds=1 / throughput,
        cpu_cores=1.4,
        memory_peak=2.0**30,
        **more,
    )


def frame_of(*experiments: Experiment) -> pd.DataFrame:
    """The log that holds these, recorded in this order, a second apart."""
    return to_frame([], [], None, in_order(experiments))


def in_order(experiments: Iterable[Experiment]) -> list[Experiment]:
    began = datetime(2026, 1, 1, tzinfo=UTC)
    return [e.replace(created=began + timedelta(seconds=n)) for n, e in enumerate(experiments)]


def story() -> tuple[Experiment, ...]:
    """A first version, a stub, a failure, gains, a setback, a void run, an interrupt."""
    return (
        measured("first version", 4.0),
        measured("reuse one batch", 39.0, stubs="load"),
        Experiment(label="more workers", status="failed", error="boom"),
        measured("decode once", 8.0),
        measured("float32", 6.0),
        measured("compiled", 30.0, status="void", warnings=("compiled while measured",)),
        Experiment(label="too long", status="interrupted"),
        measured("two workers", 16.0),
    )


def store_at(path: Path, *experiments: Experiment) -> None:
    """Write a log there."""
    from optbook.experiments.store import Store

    store = Store(path)
    for experiment in in_order(experiments):
        store.append(experiment)
    store.close()
