"""Imports that an interrupt can't break off."""

from __future__ import annotations

import importlib
import sys
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType


def import_whole(name: str) -> ModuleType:
    """Import a large module in a thread of its own, where no interrupt reaches it.

    An interrupt in the middle of an import leaves parts of a package behind, which can't be imported again.
    Here it is raised once the import is complete.

    Raises:
        ImportError: there is no such module, or it can't be imported.
    """
    if name in sys.modules:
        return sys.modules[name]
    with ThreadPoolExecutor(1, thread_name_prefix="optbook-import") as pool:
        return pool.submit(importlib.import_module, name).result()
