"""Peak memory of worker processes, noted by each worker before it ends. All sizes are in bytes."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate
from multiprocessing import util
from pathlib import Path
from typing import Any

from optbook.benchmark.meters import memory

_PROC = Path("/proc")
_FIRST_OF_ALL = 1000


@dataclass(frozen=True)
class Workers:
    """What is known of the worker processes of one measurement.

    ``growth`` is the sum of what each grew by at its own peak, over those that lived at the same
    time: an upper bound, since they need not peak together. ``unknown`` counts the workers whose
    peak is not known. ``threads`` is how many threads a worker of a tracked loader computes with.
    """

    growth: float | None = None
    count: int = 0
    unknown: int = 0
    asked: int = 0
    threads: int = 1


@dataclass
class _Life:
    """One worker: when it lived (monotonic seconds) and how far it grew."""

    began: float
    own_before: float
    ended: float | None = None
    growth: float | None = None


def _level(proc: Path) -> tuple[float, float] | None:
    """High-water mark, and how much is file pages, which are shared and no growth of its own (Linux)."""
    status = memory._read(proc / "status")
    mark = memory._kib("VmHWM", status)
    return None if mark is None else (mark, memory._kib("RssFile", status) or 0.0)


def _own_level(proc: Path = _PROC / "self") -> float | None:
    """Peak memory of this process, without file pages where the system tells them apart."""
    level = _level(proc)
    if level is not None:
        return level[0] - level[1]
    if sys.platform == "win32":
        import psutil

        return float(psutil.Process().memory_info().peak_wset)
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak if sys.platform == "darwin" else 1024 * peak)


def _write(path: Path, content: dict[str, float]) -> None:
    with suppress(OSError):  # the measurement is over, and its folder gone
        path.with_suffix(".part").write_text(json.dumps(content))
        path.with_suffix(".part").replace(path)


def begin(folder: str) -> None:
    """In a worker: set the high-water mark back, and have the growth noted when the worker ends."""
    path = Path(folder) / f"{os.getpid()}.begin"
    if path.exists():
        return
    before = _own_level() if memory.reset_high_water_mark() else memory.resident()
    if before is None:
        return
    _write(path, {"began": time.monotonic(), "before": before})
    util.Finalize(None, _end, args=(folder, before), exitpriority=_FIRST_OF_ALL)


def _end(folder: str, before: float) -> None:
    peak = _own_level()
    if peak is not None:
        path = Path(folder) / f"{os.getpid()}.end"
        _write(path, {"ended": time.monotonic(), "growth": max(0.0, peak - before)})


@dataclass(frozen=True)
class WorkerInit:
    """A ``worker_init_fn`` that measures the worker around the loader's own one. It can be pickled."""

    folder: str
    inner: Callable[[int], object] | None

    def __call__(self, worker_id: int) -> None:
        begin(self.folder)
        if self.inner is not None:
            self.inner(worker_id)
        torch = sys.modules.get("torch")
        if torch is not None:
            _write(Path(self.folder) / f"{os.getpid()}.threads", {"threads": torch.get_num_threads()})


def _begin_after_fork(meter: WorkerMemory) -> None:
    if meter.folder:
        begin(meter.folder)


class WorkerMemory:
    """Measures worker processes between entering and leaving a ``with`` block; `result` then holds it.

    Workers that multiprocessing forks are measured whoever starts them, those of a DataLoader that
    is started inside `starting` under every start method. A worker that is killed is known by its
    last reading (`sample`), as are workers that were running before (Linux only).
    """

    def __init__(self, reset: bool = True, proc: Path = _PROC) -> None:
        self.folder = ""
        self.result = Workers()
        self._reset = reset
        self._proc = proc
        self._pid = 0
        self._lives: dict[int, _Life] = {}
        self._over: list[_Life] = []
        self._unknown: set[int] = set()
        self._asked = 0

    def __enter__(self) -> WorkerMemory:
        self._pid = os.getpid()
        if self._reset:
            with suppress(OSError):
                self.folder = tempfile.mkdtemp(prefix="optbook-workers-")
                util.register_after_fork(self, _begin_after_fork)
        return self

    @contextmanager
    def starting(self, loader: Any) -> Iterator[None]:
        """While the iterator of ``loader`` is made: have the workers that start measured."""
        count = getattr(loader, "num_workers", 0)
        if not (isinstance(count, int) and hasattr(loader, "worker_init_fn")):
            count = 0
        self._asked = max(self._asked, count)
        if not (self.folder and count):
            yield
            return
        self._take_over(loader)
        own = loader.worker_init_fn
        loader.worker_init_fn = WorkerInit(self.folder, own)
        try:
            yield
        finally:
            loader.worker_init_fn = own

    def _take_over(self, loader: Any) -> None:
        """Measure persistent workers that run already, from outside."""
        for worker in getattr(getattr(loader, "_iterator", None), "_workers", ()):
            if worker.pid in self._lives or self._noted(worker.pid, "begin"):
                continue
            folder = self._proc / str(worker.pid)
            level = _level(folder) if memory.reset_high_water_mark(folder) else None
            if level is None:
                self._unknown.add(worker.pid)
            else:
                self._lives[worker.pid] = _Life(time.monotonic(), level[0] - level[1])

    def _noted(self, pid: int, what: str) -> dict[str, float]:
        text = memory._read(Path(self.folder) / f"{pid}.{what}")
        return dict(json.loads(text)) if text else {}

    def sample(self) -> None:
        """Read the high-water marks of the workers that live."""
        if not self.folder:
            return
        for path in Path(self.folder).glob("*.begin"):
            pid = int(path.stem)
            if pid not in self._lives:
                noted = self._noted(pid, "begin")
                self._lives[pid] = _Life(noted["began"], noted["before"])
        for pid, life in list(self._lives.items()):
            self._follow(pid, life)

    def _follow(self, pid: int, life: _Life) -> None:
        level = _level(self._proc / str(pid))
        if level is not None:
            life.growth = max(life.growth or 0.0, level[0] - level[1] - life.own_before)
        end = self._noted(pid, "end")
        if end:
            life.ended, life.growth = end["ended"], end["growth"]
        elif not _exists(pid):
            life.ended = time.monotonic()
        if life.ended is not None:
            self._over.append(self._lives.pop(pid))
            for what in ("begin", "end"):
                (Path(self.folder) / f"{pid}.{what}").unlink(missing_ok=True)

    def __exit__(self, *exception: object) -> None:
        if os.getpid() != self._pid:
            return
        if not self.folder:
            self.result = Workers(asked=self._asked)
            return
        self.sample()
        threads = [json.loads(memory._read(path))["threads"] for path in Path(self.folder).glob("*.threads")]
        folder, self.folder = self.folder, ""
        shutil.rmtree(folder, ignore_errors=True)
        lives = [*self._over, *self._lives.values()]
        unknown = len(self._unknown) + sum(life.growth is None for life in lives)
        self.result = Workers(
            growth=most_at_once(lives),
            count=len(lives) + len(self._unknown),
            unknown=unknown,
            asked=self._asked,
            threads=max((int(number) for number in threads), default=1),
        )


def most_at_once(lives: Iterable[_Life]) -> float | None:
    """The largest sum of growths over workers that lived at the same time; None if none is known."""
    events = []
    for life in lives:
        if life.growth is not None:
            events.append((life.began, 1, life.growth))
            if life.ended is not None:
                events.append((life.ended, 0, -life.growth))
    if not events:
        return None
    return max(accumulate(growth for _, _, growth in sorted(events)))


def _exists(pid: int) -> bool:
    import psutil

    return psutil.pid_exists(pid)
