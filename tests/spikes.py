"""Short spikes of memory, in a module that a spawned process imports quickly."""

from __future__ import annotations

import mmap
import time
from typing import Any

SPIKE = 256 * 2**20


def spike() -> None:
    """Hold 256 MiB for a moment."""
    block = mmap.mmap(-1, SPIKE)
    for page in range(0, SPIKE, mmap.PAGESIZE):
        block[page] = 1
    block.close()


def stays(ready: Any) -> None:
    """A spike, a word, and then waiting to be killed."""
    spike()
    ready.set()
    time.sleep(60)


def spike_of_worker(worker_id: int) -> None:
    """The same as a ``worker_init_fn``."""
    spike()
