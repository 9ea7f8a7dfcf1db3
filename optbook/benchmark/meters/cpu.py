"""CPU time of the process tree, from the kernel's counters: nothing is polled."""

from __future__ import annotations

import os
import sys

from optbook.benchmark.meters import cgroup


def tree_seconds() -> float:
    """CPU seconds used so far by this process, the children it has reaped, and its living descendants.

    The difference of two readings is right also for children that start or end in between: a
    living child's own counter moves to its parent's counter when the child is reaped. Where the
    system keeps no counter for reaped children (Windows), those that ended are missing.
    """
    return own_seconds() + descendants_seconds()


def descendants_seconds() -> float:
    """CPU seconds used so far by the descendants that live now, in ticks of the system's clock (10 ms)."""
    import psutil

    total = 0.0
    for child in psutil.Process().children(recursive=True):
        try:
            total += _with_reaped(child)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return total


def _with_reaped(process: object) -> float:
    times = process.cpu_times()  # type: ignore[attr-defined]
    reaped = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return float(times.user + times.system + reaped)


def own_seconds() -> float:
    """CPU seconds of this process alone and, where the system counts them, of reaped children."""
    if sys.platform == "win32":
        times = os.times()
        return times.user + times.system
    import resource

    own = resource.getrusage(resource.RUSAGE_SELF)
    reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + reaped.ru_utime + reaped.ru_stime


def usable_cores() -> float:
    """Cores this process may use: its affinity, limited by the container's quota (may be half a core)."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup.cpu_quota()
    return float(affinity) if quota is None else min(float(affinity), quota)
