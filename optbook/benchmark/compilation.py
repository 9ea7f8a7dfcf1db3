"""Whether torch.compile compiled while a workload ran."""

from __future__ import annotations

import sys


def compiled_frames() -> int:
    """How many frames torch.compile has compiled in this process; 0 where it was never used."""
    utils = sys.modules.get("torch._dynamo.utils")
    counters = getattr(utils, "counters", None)
    return int(counters["frames"]["total"]) if counters else 0
