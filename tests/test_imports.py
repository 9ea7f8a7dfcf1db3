"""Every module can be imported, and `import optbook` stays light."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import pytest

import optbook

HEAVY = ("ipywidgets", "jupyterlab", "matplotlib", "pandas", "scipy", "sqlalchemy", "torch")
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(optbook.__path__, "optbook.")
    if not module.name.endswith("__main__")
)


def loaded_by(statement: str, names: tuple[str, ...]) -> set[str]:
    """Which of the modules a fresh interpreter has loaded after the statement."""
    code = f"{statement}\nimport sys\nprint(*(name for name in {names!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_there_are_modules() -> None:
    assert {"optbook.cli", "optbook.experiments.record", "optbook.hotdog.coco"} <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_every_module_imports(name: str) -> None:
    importlib.import_module(name)


def test_import_loads_nothing_heavy() -> None:
    assert loaded_by("import optbook", HEAVY) == set()


def test_the_check_sees_what_is_loaded() -> None:
    assert loaded_by("import pandas", HEAVY) >= {"pandas"}


def test_the_command_line_starts_without_anything_heavy() -> None:
    assert loaded_by("import optbook.cli", HEAVY) == set()
