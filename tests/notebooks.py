"""How the chapters are executed in tests: as a reader runs them, but with less work."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from optbook.workshop.chapters import CHAPTERS
from optbook.workshop.exercises import exercises

FOLDER = Path(__file__).parent.parent / "notebooks"
NAMES = [chapter.name for chapter in CHAPTERS]
EXERCISE_TAG = "exercise:"


def read(name: str) -> Any:
    """The notebook of a chapter."""
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)  # type: ignore[no-untyped-call]


def exercise_of(cell: Any) -> str:
    """The name of the exercise that is written into this cell; empty if it is none."""
    tags = [tag for tag in cell.metadata.get("tags", []) if tag.startswith(EXERCISE_TAG)]
    return tags[0].removeprefix(EXERCISE_TAG) if tags else ""


def solve(notebook: Any) -> Any:
    """Put the solutions into the cells of the exercises."""
    known = exercises()
    for cell in notebook.cells:
        if name := exercise_of(cell):
            cell.source = known[name].solution
    return notebook


def execute(notebook: Any, log: Path) -> Any:
    """Run all cells in a fresh kernel, in the folder of the chapters."""
    environment = os.environ | {
        "OPTBOOK_QUICK": "1",
        "OPTBOOK_LOG": str(log),
        "JUPYTER_PREFER_ENV_PATH": "1",
        "OMP_NUM_THREADS": "1",  # on a busy machine, threads that wait for each other take most of the time
    }
    client = NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(FOLDER)}})
    return client.execute(env=environment)


def verdicts(notebook: Any) -> dict[str, bool]:
    """What each ``%check`` cell said: solved or not."""
    found = {}
    for cell in notebook.cells:
        if cell.cell_type == "code" and cell.source.startswith("%check "):
            text = cell.outputs[-1]["data"]["text/plain"]  # a progress bar may come before it
            found[cell.source.split()[1]] = text.startswith("✓")
    return found
