"""What is read at every line: resident memory, and Python's and NumPy's own."""

from __future__ import annotations

import functools
import os
import re
import threading
import tracemalloc
from dataclasses import dataclass
from typing import Protocol

from optbook.benchmark.meters import memory
from optbook.benchmark.profiles.places import is_measuring, is_yours

SNAPSHOT_GROWTH, SNAPSHOT_BYTES = 1.1, 64 * 1024
FRAMES = 8
MOST_ALLOCATIONS, LEAST_SHARE = 12, 0.01
_INSTRUMENTS = (tracemalloc.__file__, threading.__file__)


class Meter(Protocol):
    """Reads how much memory is in use, in bytes."""

    def start(self) -> None:
        """Before the workload runs."""

    def stop(self) -> None:
        """After it."""

    def read(self) -> tuple[float, float]:
        """In use now, and the most since `mark`."""

    def mark(self) -> float:
        """In use now; the most is counted from here."""


class Resident:
    """Resident memory, from the kernel; ``reset`` allows setting back its high-water mark for exact peaks."""

    def __init__(self, reset: bool) -> None:
        self.exact = reset and memory.reset_high_water_mark()
        self._fields = re.compile(rb"VmHWM:\s+(\d+).*?VmRSS:\s+(\d+)", re.DOTALL)
        self._status = self._clear = -1

    def start(self) -> None:
        """As in `Meter`."""
        if self.exact:
            self._status = os.open("/proc/self/status", os.O_RDONLY)
            self._clear = os.open("/proc/self/clear_refs", os.O_WRONLY)

    def stop(self) -> None:
        """As in `Meter`."""
        if self.exact:
            os.close(self._status)
            os.close(self._clear)

    def read(self) -> tuple[float, float]:
        """As in `Meter`; without exact peaks the most is what is there now."""
        found = self._fields.search(os.pread(self._status, 4096, 0)) if self.exact else None
        if found is None:
            now = memory.resident() or 0.0
            return now, now
        now = 1024.0 * int(found[2])
        return now, max(now, 1024.0 * int(found[1]))

    def mark(self) -> float:
        """As in `Meter`."""
        if self.exact:
            os.pwrite(self._clear, b"5", 0)
        return self.read()[0]


@dataclass(frozen=True)
class Allocation:
    """What one line had allocated, in Python's and NumPy's memory, when most was in use."""

    file: str
    line: int
    size: int
    count: int


class Traced:
    """Memory of Python's allocators (also NumPy's), to the byte, by tracemalloc.

    Notes the lines that hold most whenever clearly more is in use than before.
    """

    def __init__(self) -> None:
        self.allocations: tuple[Allocation, ...] = ()
        self._highest = 0.0
        self._before = 0.0

    def start(self) -> None:
        """As in `Meter`; where it is traced already that stays so."""
        self._mine = not tracemalloc.is_tracing()
        if self._mine:
            tracemalloc.start(FRAMES)
        self._before = tracemalloc.get_traced_memory()[0]

    def stop(self) -> None:
        """As in `Meter`."""
        self.note()
        if self._mine:
            tracemalloc.stop()

    def read(self) -> tuple[float, float]:
        """As in `Meter`."""
        return tracemalloc.get_traced_memory()

    def mark(self) -> float:
        """As in `Meter`."""
        self.note()
        tracemalloc.reset_peak()
        return tracemalloc.get_traced_memory()[0]

    def note(self) -> None:
        """Note the lines that hold most, if more is in use than when that was last done."""
        now = tracemalloc.get_traced_memory()[0] - self._before
        if now > SNAPSHOT_GROWTH * self._highest + SNAPSHOT_BYTES:
            self._highest = now
            self.allocations = _by_line(tracemalloc.take_snapshot())


def _by_line(snapshot: tracemalloc.Snapshot) -> tuple[Allocation, ...]:
    """The lines that hold most; what a library allocated counts for the line of yours that called it."""
    sums: dict[tuple[str, int], list[int]] = {}
    for statistic in snapshot.statistics("traceback"):
        place = calling_line(statistic.traceback)
        if place is not None:
            of_line = sums.setdefault(place, [0, 0])
            of_line[0] += statistic.size
            of_line[1] += statistic.count
    largest = sorted(sums.items(), key=lambda item: -item[1][0])[:MOST_ALLOCATIONS]
    found = [Allocation(file, line, size, count) for (file, line), (size, count) in largest]
    return tuple(one for one in found if one.size >= LEAST_SHARE * found[0].size)


def calling_line(frames: tracemalloc.Traceback | None) -> tuple[str, int] | None:
    """The line of yours in which something was allocated, else the library's; None if by the instrument."""
    innermost = None
    for frame in reversed(frames or ()):
        file = frame.filename
        whose = _whose(file)
        if innermost is None and whose is None:
            return None
        innermost = innermost or (file, frame.lineno)
        if whose:
            return file, frame.lineno
    return innermost


@functools.lru_cache(maxsize=4096)
def _whose(file: str) -> bool | None:
    """Whether a file is yours; None for the instrument's."""
    ours = file in _INSTRUMENTS or is_measuring(file) or file.endswith("memory_profiler.py")
    return None if ours else is_yours(file)
