"""Worker processes that run already when a stub is put in place or taken away: they know nothing of it."""

from __future__ import annotations

import gc
import multiprocessing
import sys
from multiprocessing.process import BaseProcess


def running() -> tuple[BaseProcess, ...]:
    """Those that stay as they are; persistent workers of data loaders start again with the next epoch."""
    if not multiprocessing.active_children():
        return ()
    data = sys.modules.get("torch.utils.data")
    if data is not None:
        for thing in gc.get_objects():
            if issubclass(type(thing), data.DataLoader) and getattr(thing, "_iterator", None) is not None:
                thing._iterator = None
    return tuple(multiprocessing.active_children())
