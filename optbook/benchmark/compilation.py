"""What torch.compile compiled, and how to run it uncompiled."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

COMPILER = "torch._dynamo.utils"


def compiled_frames() -> int:
    """How many frames torch.compile has compiled in this process; 0 where it was never used."""
    utils = sys.modules.get(COMPILER)
    counters = getattr(utils, "counters", None)
    return int(counters["frames"]["total"]) if counters else 0


def compiled() -> bool:
    """Whether torch.compile has compiled anything in this process."""
    dynamo = sys.modules.get(COMPILER)
    return dynamo is not None and bool(dynamo.counters["stats"].get("unique_graphs"))


@contextlib.contextmanager
def eagerly() -> Iterator[None]:
    """Run what torch.compile compiled as it was written, so that its operators and lines are seen."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    import torch

    with torch.compiler.set_stance("force_eager"):
        yield
