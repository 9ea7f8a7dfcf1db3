"""What the control groups (containers, systemd slices) that this process is in allow it. Linux only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
_UNLIMITED = 2**60


def cpu_quota(own: Path = OWN, root: Path = ROOT) -> float | None:
    """CPU quota in cores, the smallest of this group and those around it; None if there is none."""
    quotas = [found for folder in folders("cpu", own, root) if (found := _quota(folder)) is not None]
    return min(quotas, default=None)


def _quota(folder: Path) -> float | None:
    both = _read(folder / "cpu.max").split()
    if not both:
        both = [*_read(folder / "cpu.cfs_quota_us").split(), *_read(folder / "cpu.cfs_period_us").split()]
    try:
        limit, period = (float(number) for number in both[:2])
        cores = limit / period
    except (ValueError, ZeroDivisionError):
        return None
    return cores if cores > 0 else None


def memory_limit(own: Path = OWN, root: Path = ROOT) -> int | None:
    """Memory limit in bytes, the smallest of this group and those around it; None if there is none."""
    return min((limit for _, limit in _memory_limits(own, root)), default=None)


def memory_free(own: Path = OWN, root: Path = ROOT) -> int | None:
    """Bytes left below the tightest limit, with file pages that can be dropped; None if unlimited."""
    left = []
    for folder, limit in _memory_limits(own, root):
        used = _number(folder / "memory.current") or _number(folder / "memory.usage_in_bytes")
        if used is not None:
            left.append(max(0, limit - used + _inactive(folder)))
    return min(left, default=None)


def _memory_limits(own: Path, root: Path) -> Iterator[tuple[Path, int]]:
    for folder in folders("memory", own, root):
        limit = _number(folder / "memory.max") or _number(folder / "memory.limit_in_bytes")
        if limit is not None and 0 < limit < _UNLIMITED:
            yield folder, limit


def _inactive(folder: Path) -> int:
    for line in _read(folder / "memory.stat").splitlines():
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file") and value.isdigit():
            return int(value)
    return 0


def folders(controller: str, own: Path = OWN, root: Path = ROOT) -> Iterator[Path]:
    """The group of this process under ``controller`` and those around it, up to the mount point.

    Inside a container the path in ``/proc/self/cgroup`` may be the host's, which is not there; the
    mount point is then the container's own group.
    """
    for line in _read(own).splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number == "0" and not names:
            mount = root if (root / "cgroup.controllers").exists() else root / "unified"
        elif controller in names.split(","):
            mount = root / controller
        else:
            continue
        group = mount / path.lstrip("/")
        for folder in (group, *group.parents):
            if not folder.is_relative_to(mount):
                break
            yield folder


def _number(path: Path) -> int | None:
    text = _read(path).strip()
    return int(text) if text.isdigit() else None


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
