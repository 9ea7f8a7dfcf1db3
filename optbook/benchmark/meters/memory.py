"""Peak memory of this process and of its children. All sizes are in bytes."""

from __future__ import annotations

import os
import re
import threading
from dataclasses import dataclass
from pathlib import Path

_SELF = Path("/proc/self")
SAMPLE_SECONDS = 0.1


@dataclass(frozen=True)
class Memory:
    """``peak`` of this process, its ``growth`` since the start, and the sampled peak of all children."""

    peak: float | None
    growth: float | None
    children: float | None
    method: str


def _kib(name: str, text: str) -> float | None:
    found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    return float(found.group(1)) * 1024 if found else None


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def resident() -> float | None:
    """Resident memory of this process."""
    from_kernel = _kib("VmRSS", _read(_SELF / "status"))
    if from_kernel is not None:
        return from_kernel
    import psutil

    return float(psutil.Process().memory_info().rss)


def reset_high_water_mark(proc: Path = _SELF) -> bool:
    """Set the kernel's high-water mark of this process back to what is resident now (Linux).

    Writing 5 to ``/proc/self/clear_refs`` does so (Linux's Documentation/filesystems/proc). Returns
    whether it could be done.
    """
    try:
        (proc / "clear_refs").write_text("5")
    except OSError:
        return False
    return True


def high_water_mark(proc: Path = _SELF) -> float | None:
    """Peak resident memory of this process since the mark was last set back."""
    return _kib("VmHWM", _read(proc / "status"))


def _child_ids() -> list[int]:
    ids: list[int] = []
    waiting = list(_SELF.glob("task/*/children"))
    while waiting:
        for pid in _read(waiting.pop()).split():
            ids.append(int(pid))
            waiting.extend(Path(f"/proc/{pid}").glob("task/*/children"))
    return ids


def children_memory() -> float | None:
    """What the descendants hold: on Linux with shared pages split between them, elsewhere resident."""
    if any(_SELF.glob("task/*/children")):
        ids = _child_ids()
        sizes = [_kib("Pss", _read(Path(f"/proc/{pid}/smaps_rollup"))) for pid in ids]
        return sum(size for size in sizes if size is not None) if ids else None
    import psutil

    total, seen = 0.0, False
    for child in psutil.Process().children(recursive=True):
        try:
            total += child.memory_info().rss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        seen = True
    return total if seen else None


class PeakMemory:
    """Measures peak memory between entering and leaving a ``with`` block; `result` then holds it.

    ``reset`` allows setting back the kernel's high-water mark, which makes this process's own
    peak exact; otherwise, and where the kernel can't, it is sampled.
    """

    def __init__(self, reset: bool = True) -> None:
        self._reset = reset
        self._stop = threading.Event()
        self._own: float | None = None
        self._children: float | None = None
        self.result = Memory(None, None, None, "")

    def __enter__(self) -> PeakMemory:
        self._before = resident()
        self._exact = self._reset and reset_high_water_mark()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._sample, name="optbook-memory", daemon=True)
        self._thread.start()
        return self

    def _sample(self) -> None:
        while True:
            self._children = _larger(self._children, children_memory())
            if not self._exact:
                self._own = _larger(self._own, resident())
            if self._stop.wait(SAMPLE_SECONDS):
                return

    def __exit__(self, *exception: object) -> None:
        if os.getpid() != self._pid:
            return
        self._stop.set()
        self._thread.join()
        peak = high_water_mark() if self._exact else _larger(self._own, resident())
        growth = None if peak is None or self._before is None else max(0.0, peak - self._before)
        self.result = Memory(peak, growth, self._children, "exact" if self._exact else "sampled")


def _larger(a: float | None, b: float | None) -> float | None:
    return b if a is None else a if b is None else max(a, b)
