"""Which machine this is, as far as it bears on speed."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
from pathlib import Path

from optbook.benchmark.meters import cpu


@functools.cache
def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name, as the system gives it."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(errors="replace"), re.MULTILINE)
    except OSError:
        found = None
    return found.group(1).strip() if found else platform.processor() or platform.machine()


def fingerprint() -> str:
    """A short stable hash of processor, usable cores, memory and system."""
    import psutil

    memory = round(psutil.virtual_memory().total / 2**30)
    text = "|".join(
        (
            processor(),
            str(os.cpu_count()),
            f"{cpu.usable_cores():g}",
            str(memory),
            platform.system(),
            platform.machine(),
        )
    )
    return hashlib.sha256(text.encode()).hexdigest()[:12]
