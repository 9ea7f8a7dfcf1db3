"""What a diagnosis rests on, and where it comes from: figures that a measurement has at no further cost."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SHORTEST_WINDOW = 0.05
"""Seconds of counted time below which the system's counters say too little."""
SCHEDULER = "/proc/thread-self/schedstat"
DISK_BLOCK = 512


@dataclass(frozen=True)
class Evidence:
    """What is known of where a workload's time goes; None is "not known", never zero.

    Shares are of the counted time, between 0 and 1, and of the workload's own thread where nothing else is
    said; rates are in bytes per second. A share that is a lower bound may be given.
    """

    wait_share: float | None = None
    """Of the tracked steps' time: before the item was there."""
    idle_share: float | None = None
    """The thread waited for something else than a core; of the time in which it had or could have had one."""
    crowded_share: float | None = None
    """The thread wanted a core and got none: others had them all."""
    system_share: float | None = None
    """In the operating system, on behalf of this thread."""
    other_cores: float | None = None
    """Cores that further threads of this process kept busy."""
    child_cores: float | None = None
    """Cores that child processes kept busy."""
    network_rate: float | None = None
    """Sent and received over all interfaces, by all programs."""
    disk_rate: float | None = None
    """Read from a disk (not from the system's memory) by this thread."""
    gpu_resident: float | None = None
    """A kernel was resident on the GPU."""
    flops_share: float | None = None
    """Of the machine's measured peak."""
    looks: float | None = None
    """How many looks at the stack the shares below rest on."""
    python_share: float | None = None
    """In Python's interpreter, and in calls into C too short to be worth their price."""
    native_share: float | None = None
    """In long calls into C, whatever they do."""
    arithmetic_share: float | None = None
    """In operators or calls known to compute much on each byte."""
    memory_share: float | None = None
    """In operators or calls known to move bytes and compute little."""
    copy_share: float | None = None
    """Copying between host and device."""
    socket_share: float | None = None
    """Waiting in sockets or in messages between machines, by looks at the stack."""
    network_share: float | None = None
    """Inside calls of sockets and collectives, each of them timed."""

    def known(self) -> dict[str, float]:
        """What is known, by name."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}

    def with_(self, **further: float | None) -> Evidence:
        """This, and what is known from elsewhere, which counts more."""
        return dataclasses.replace(self, **{n: v for n, v in further.items() if v is not None})


def stored(values: Mapping[str, float]) -> Evidence:
    """The evidence that was stored with an experiment; names that are not known here are left out."""
    names = {field.name for field in dataclasses.fields(Evidence)}
    return Evidence(**{name: value for name, value in values.items() if name in names})


@dataclass(frozen=True)
class Used:
    """Seconds that a thread and its process used, and what the thread waited for.

    ``thread`` and ``process`` are CPU seconds, ``system`` those of the thread in the operating system,
    ``ready`` the seconds in which it wanted a core and had none, ``read`` the bytes it read from a disk.
    The last three are 0 where the system doesn't tell.
    """

    thread: float = 0.0
    process: float = 0.0
    system: float = 0.0
    ready: float = 0.0
    read: float = 0.0

    def plus(self, after: Used, before: Used) -> Used:
        """This, and what was used between two readings."""
        return Used(
            *(
                getattr(self, field.name) + getattr(after, field.name) - getattr(before, field.name)
                for field in dataclasses.fields(self)
            )
        )


class Usage:
    """Reads what the thread that reads first has used so far, in some microseconds; nothing is polled."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._there = os.path.exists(SCHEDULER)

    def close(self) -> None:
        """Reads what the scheduler knows no more."""
        if self._file is not None:
            os.close(self._file)
        self._file, self._there = None, False

    def read(self) -> Used:
        """What was used so far; only readings in the same thread can be compared."""
        process, thread = time.process_time(), time.thread_time()
        if not self._there or sys.platform == "win32":
            return Used(thread, process)
        if self._file is None:
            self._file = os.open(SCHEDULER, os.O_RDONLY)
        import resource

        of_thread = resource.getrusage(resource.RUSAGE_THREAD)
        ready = int(os.pread(self._file, 96, 0).split()[1]) / 1e9
        return Used(thread, process, of_thread.ru_stime, ready, DISK_BLOCK * of_thread.ru_inblock)


def traffic() -> float | None:
    """Bytes sent and received so far over all interfaces; None where the system doesn't tell."""
    import psutil

    try:
        counted = psutil.net_io_counters(pernic=True)
    except OSError:  # no access to the counters, as in some containers
        return None
    return float(sum(each.bytes_sent + each.bytes_recv for each in counted.values())) if counted else None


def of_measurement(
    used: Used,
    window: float,
    cpu_seconds: float | None,
    network_rate: float | None,
    fields: Mapping[str, Any],
) -> Evidence:
    """The evidence of a measurement without instrument.

    Args:
        used: what the workload's thread and process used.
        window: the seconds in which it did.
        cpu_seconds: CPU seconds of the whole process tree in this time.
        network_rate: bytes per second over the interfaces.
        fields: the experiment's fields that are known already.
    """
    found = Evidence(
        wait_share=fields.get("wait_share"),
        gpu_resident=fields.get("gpu_resident"),
        flops_share=fields.get("flops_share"),
        network_rate=network_rate,
    )
    if window < SHORTEST_WINDOW:
        return found
    with_core = max(window - used.ready, used.thread)  # what the thread lost to others falls on all alike
    idle = 1 - used.thread / with_core if with_core else 0.0
    children = None if cpu_seconds is None else max(0.0, cpu_seconds - used.process) / window
    return found.with_(
        idle_share=min(1.0, max(0.0, idle)),
        crowded_share=min(1.0, used.ready / window),
        system_share=min(1.0, used.system / with_core) if with_core else None,
        other_cores=max(0.0, used.process - used.thread) / window,
        child_cores=children,
        disk_rate=used.read / window,
    )
