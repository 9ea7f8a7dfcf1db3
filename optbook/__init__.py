"""optbook: benchmark, simplify, optimize, repeat. An interactive optimization workbook for ML systems."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optbook.benchmark.bench import bench
    from optbook.benchmark.machine.info import machine
    from optbook.benchmark.machine.peaks import peaks
    from optbook.benchmark.profiles.profile import profile
    from optbook.benchmark.recorder import span, track
    from optbook.experiments.log import log
    from optbook.optimize.accuracy import same_accuracy
    from optbook.optimize.compare import compare
    from optbook.optimize.losses import same_losses
    from optbook.optimize.outputs import same_outputs
    from optbook.optimize.sweep import sweep
    from optbook.repeat.goal import goal
    from optbook.repeat.overview import progress
    from optbook.repeat.report import report
    from optbook.repeat.widgets import dashboard
    from optbook.simplify.ceiling import ceiling
    from optbook.simplify.expect import expect
    from optbook.simplify.loaders import dummy_loader
    from optbook.simplify.smallest import smallest
    from optbook.simplify.stubs import stub

__version__ = "0.1.0"
__all__ = [
    "bench",
    "ceiling",
    "compare",
    "dashboard",
    "dummy_loader",
    "expect",
    "goal",
    "log",
    "machine",
    "peaks",
    "profile",
    "progress",
    "report",
    "same_accuracy",
    "same_losses",
    "same_outputs",
    "smallest",
    "span",
    "stub",
    "sweep",
    "track",
]

_WHERE = {
    "bench": "optbook.benchmark.bench",
    "compare": "optbook.optimize.compare",
    "same_accuracy": "optbook.optimize.accuracy",
    "same_losses": "optbook.optimize.losses",
    "same_outputs": "optbook.optimize.outputs",
    "sweep": "optbook.optimize.sweep",
    "track": "optbook.benchmark.recorder",
    "span": "optbook.benchmark.recorder",
    "log": "optbook.experiments.log",
    "machine": "optbook.benchmark.machine.info",
    "peaks": "optbook.benchmark.machine.peaks",
    "profile": "optbook.benchmark.profiles.profile",
    "goal": "optbook.repeat.goal",
    "progress": "optbook.repeat.overview",
    "report": "optbook.repeat.report",
    "dashboard": "optbook.repeat.widgets",
    "ceiling": "optbook.simplify.ceiling",
    "stub": "optbook.simplify.stubs",
    "smallest": "optbook.simplify.smallest",
    "expect": "optbook.simplify.expect",
    "dummy_loader": "optbook.simplify.loaders",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that ``import optbook`` costs next to nothing."""
    if name not in _WHERE:
        raise AttributeError(f"module 'optbook' has no attribute {name!r}: it has {', '.join(__all__)}")
    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext optbook``."""
    from optbook.magics import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """``%unload_ext optbook``: undo what loading did."""
    from optbook.magics import unload

    unload(shell)
