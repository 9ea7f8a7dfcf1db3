"""Every chapter is executed: alone with its exercises left empty, and all in order with solutions."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

import optbook
from optbook.workshop.chapters import navigation
from optbook.workshop.exercises import exercises
from tests import notebooks


@pytest.mark.parametrize("name", notebooks.NAMES)
def test_a_chapter_is_stored_as_it_should_be(name: str) -> None:
    text = (notebooks.FOLDER / f"{name}.ipynb").read_text(encoding="utf-8")
    notebook = notebooks.read(name)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"
    assert all(not cell.outputs and cell.execution_count is None for cell in code_cells(notebook))
    assert text == json.dumps(json.loads(text), indent=1, ensure_ascii=False) + "\n"
    first, last = notebook.cells[0], notebook.cells[-1]
    assert first.source == last.source == navigation(name)
    assert notebook.cells[1].source.startswith("# ")
    assert "Run" in text
    assert "runs without a GPU" in notebook.cells[1].source
    assert notebook.cells[2].source.startswith("%load_ext optbook")


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_every_file_is_a_chapter_and_every_exercise_has_its_cell_and_its_check() -> None:
    assert sorted(path.stem for path in notebooks.FOLDER.glob("*.ipynb")) == notebooks.NAMES
    cells = [cell for name in notebooks.NAMES for cell in code_cells(notebooks.read(name))]
    in_cells = [name for cell in cells if (name := notebooks.exercise_of(cell))]
    checked = [cell.source.split()[1] for cell in cells if cell.source.startswith("%check ")]
    assert in_cells == checked == list(exercises())
    assert all("..." in cell.source for cell in cells if notebooks.exercise_of(cell))


@pytest.mark.notebook
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", notebooks.NAMES)
def test_a_chapter_runs_alone_with_its_exercises_left_empty(name: str, log_path: Path) -> None:
    done = notebooks.execute(notebooks.read(name), log_path)
    assert not any(notebooks.verdicts(done).values())
    assert notebooks.verdicts(done)
    log = optbook.log()
    assert set(log["status"]) <= {"ok", "void"}
    assert len(log) >= 4
    assert set(log["notebook"]) <= {"", f"{name}.ipynb"}


@pytest.mark.notebook
@pytest.mark.timeout(1200)
def test_the_chapters_run_in_order_and_solutions_pass(log_path: Path) -> None:
    rows = 0
    for name in notebooks.NAMES:
        done = notebooks.execute(notebooks.solve(notebooks.read(name)), log_path)
        solved = notebooks.verdicts(done)
        assert all(solved.values()), solved
        assert len(optbook.log()) > rows
        rows = len(optbook.log())
    stubbed = set(optbook.log().query("stubs != ''")["label"])
    assert {"without preparing", "without augmentation", "first version without recipe.step"} <= stubbed
    assert not {"first version", "baseline", "one process"} & stubbed
    assert "void" in set(optbook.log()["status"])


@pytest.mark.notebook
@pytest.mark.parametrize("broken", [False, True])
def test_jupyter_execute_fails_where_a_measured_cell_raises(
    broken: bool, tmp_path: Path, log_path: Path
) -> None:
    notebook = notebooks.read(notebooks.NAMES[0])
    notebook.cells = code_cells(notebook)[:4]
    assert notebook.cells[-1].source.startswith("%%bench")
    if broken:
        notebook.cells[-1].source = "%%bench broken\nraise RuntimeError('on purpose')"
    notebook.cells.append(nbformat.v4.new_code_cell("%progress"))  # type: ignore[no-untyped-call]
    path = tmp_path / "chapter.ipynb"
    nbformat.write(notebook, path)  # type: ignore[no-untyped-call]
    (tmp_path.parent / "data").unlink(missing_ok=True)
    (tmp_path.parent / "data").symlink_to(notebooks.FOLDER.parent / "data")
    done = subprocess.run(
        ["jupyter", "execute", str(path)],
        env=os.environ
        | {
            "OPTBOOK_QUICK": "1",
            "OMP_NUM_THREADS": "1",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
        capture_output=True,
        text=True,
    )
    assert (done.returncode != 0) == broken, done.stderr
    assert optbook.log()["status"].tolist() == (["failed"] if broken else ["ok"])
    plain = re.sub(r"\x1b\[[0-9;]*m", "", done.stderr)
    assert plain.count("RuntimeError: on purpose") == (1 if broken else 0)
