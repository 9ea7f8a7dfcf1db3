"""Is there a C++ compiler? `torch.compile` and our own C++ need one."""

from __future__ import annotations

import os
import shutil
import sys


def need_compiler(what: str, instead: str) -> None:
    """Raises RuntimeError where there is none: `what` needs it, and `instead` does without."""
    usual = ["cl"] if sys.platform == "win32" else ["g++", "c++", "clang++"]
    names = os.environ["CXX"].split()[:1] if "CXX" in os.environ else usual
    if not any(shutil.which(name) for name in names):
        tried = " or ".join(names) or "the empty name in CXX"
        raise RuntimeError(f"{what} needs a C++ compiler, and there is no {tried} here: {instead}")
