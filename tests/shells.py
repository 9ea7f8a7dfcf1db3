"""A real IPython shell with optbook loaded, for tests of what magics do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config


@contextmanager
def shell_with_optbook() -> Iterator[Any]:
    config = Config()
    config.HistoryManager.enabled = False
    InteractiveShell.clear_instance()
    config.InteractiveShell.colors = "nocolor"
    shell: Any = InteractiveShell.instance(config=config)
    shell.run_line_magic("load_ext", "optbook")
    shell.run_line_magic("config", "OptBook.budget = 0.02")
    try:
        yield shell
    finally:
        shell.run_line_magic("unload_ext", "optbook")
        InteractiveShell.clear_instance()
