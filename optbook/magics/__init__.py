"""The magics: options → one library call → result."""

from __future__ import annotations

import re
import sys
from typing import Any

from optbook.magics.base import Notebook
from optbook.magics.compare import CompareMagics
from optbook.magics.goal import GoalMagics
from optbook.magics.measure import MeasureMagics
from optbook.magics.simplify import SimplifyMagics
from optbook.magics.sweep import SweepMagics
from optbook.magics.views import ViewMagics
from optbook.settings import OptBook

CLASSES = (MeasureMagics, SimplifyMagics, CompareMagics, SweepMagics, GoalMagics, ViewMagics)
MAGICS = (
    "bench", "profile", "setup", "stub", "unstub", "ceiling", "compare", "sweep", "goal", "progress",
    "optbook", "check",
)  # fmt: skip


def comments_below_magic(lines: list[str]) -> list[str]:
    """Move comments and blank lines above one of our cell magics to below it, where IPython wants them."""
    for i, line in enumerate(lines):
        if re.match(rf"%%({'|'.join(MAGICS)})\b", line):
            return [line, *lines[:i], *lines[i + 1 :]]
        if line.strip() and not line.lstrip().startswith("#"):
            break
    return lines


def load(shell: Any) -> None:
    """Register the magics and settings with ``shell``."""
    notebook = Notebook()
    shell.register_magics(*(magics(shell, notebook) for magics in CLASSES))
    settings = OptBook.instance()
    if settings not in shell.configurables:
        shell.configurables.append(settings)
    if comments_below_magic not in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.insert(0, comments_below_magic)


def unload(shell: Any) -> None:
    """Undo `load`, and take all stubs away."""
    stubs = sys.modules.get("optbook.simplify.stubs")
    if stubs is not None:
        stubs.remove_all()
    for kind in ("line", "cell"):
        for name in MAGICS:
            shell.magics_manager.magics[kind].pop(name, None)
    for magics in CLASSES:
        shell.magics_manager.registry.pop(magics.__name__, None)
    shell.configurables[:] = [c for c in shell.configurables if not isinstance(c, OptBook)]
    shell.input_transformers_cleanup[:] = [
        t
        for t in shell.input_transformers_cleanup
        if getattr(t, "__name__", "") != comments_below_magic.__name__
    ]
