"""Which machine this is, as far as it bears on speed: the same after a reboot, another on other hardware."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from optbook.benchmark.meters import cgroup, cpu, gpu

ASK_SECONDS = 2.0


@functools.cache
def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name, as the system gives it."""
    if sys.platform == "darwin":
        named = ask("sysctl", "-n", "machdep.cpu.brand_string")
        if named:
            return named
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(errors="replace"), re.MULTILINE)
    except OSError:
        found = None
    return found.group(1).strip() if found else platform.processor() or platform.machine()


def ask(*command: str) -> str:
    """What a command of the system prints; "" where it can't be run."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=ASK_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def usable_memory() -> int:
    """Bytes of memory this process may use: the machine's, limited by its control group."""
    import psutil

    total = int(psutil.virtual_memory().total)
    limit = cgroup.memory_limit()
    return total if limit is None else min(total, limit)


def rounded(memory: int) -> int:
    """``memory`` rounded up to an eighth of the power of two above it, in bytes.

    What firmware and kernel keep for themselves (some per cent) changes with their versions; the
    memory that was put in does not.
    """
    grain = max(1, (1 << (memory - 1).bit_length()) // 8)
    return -(-memory // grain) * grain


def fingerprint() -> str:
    """A short stable hash of processor, usable cores and memory, GPUs and system."""
    return digest(
        processor=processor(),
        logical=os.cpu_count() or 1,
        usable=cpu.usable_cores(),
        memory=usable_memory(),
        gpus=gpu.present(),
        system=f"{platform.system()} {platform.machine()}",
    )


def digest(
    *, processor: str, logical: int, usable: float, memory: int, gpus: Sequence[str], system: str
) -> str:
    """The fingerprint of a machine with these properties; ``memory`` in bytes, ``usable`` in cores."""
    parts = (processor, str(logical), f"{usable:.3g}", str(rounded(memory)), *gpus, system)
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:12]
