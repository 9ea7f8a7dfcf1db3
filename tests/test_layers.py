"""The package's layers: pyproject.toml's contract for import-linter, and the sample system's independence."""

from __future__ import annotations

from pathlib import Path

import grimp
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

PYPROJECT = Path(__file__).parent.parent / "pyproject.toml"


def test_imports_keep_to_the_layers() -> None:
    assert lint_imports(config_filename=str(PYPROJECT), no_cache=True) == EXIT_STATUS_SUCCESS


def test_the_sample_system_and_optbook_know_nothing_of_each_other() -> None:
    graph = grimp.build_graph("optbook", cache_dir=None)
    crossing = [
        f"{importer} imports {imported}"
        for importer in graph.modules
        for imported in graph.find_modules_directly_imported_by(importer)
        if _in_sample(importer) != _in_sample(imported)
    ]
    assert crossing == []


def _in_sample(module: str) -> bool:
    return module == "optbook.hotdog" or module.startswith("optbook.hotdog.")
