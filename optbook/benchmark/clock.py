"""The clock that measurements read, and the wait for a device's queued work."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass


def device_synchronizer() -> Callable[[], None] | None:
    """The function that waits for the accelerator in use; None where there is none to wait for.

    torch is not imported for this: without torch in the process nothing can be queued. CUDA is not
    initialised for it either.
    """
    torch = sys.modules.get("torch")
    accelerator = getattr(torch, "accelerator", None)
    if torch is None or accelerator is None or not accelerator.is_available():
        return None
    if accelerator.current_accelerator().type == "cuda" and not torch.cuda.is_initialized():
        return None
    synchronize: Callable[[], None] = accelerator.synchronize
    return synchronize


def synchronize_device() -> None:
    """Wait until the accelerator in use, if any, has finished what was queued."""
    wait = device_synchronizer()
    if wait is not None:
        wait()


@dataclass(frozen=True)
class Clock:
    """Seconds, and the synchronisation that belongs to the edges of what is timed."""

    now: Callable[[], float] = time.perf_counter
    synchronize: Callable[[], None] = synchronize_device
    device: Callable[[], Callable[[], None] | None] = device_synchronizer
