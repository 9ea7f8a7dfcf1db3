"""Run chapters without JupyterLab, each in a fresh kernel of this Python, and tell how they went."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optbook import formatting as write
from optbook.errors import OptbookError
from optbook.experiments.render import one_line
from optbook.workshop.chapters import CHAPTERS, Chapter, find_chapter

LOG_NAME = "experiments.sqlite"


@dataclass(frozen=True)
class Outcome:
    """How a chapter went: in seconds, exercises solved of all; `failure` is "" if it ran through."""

    chapter: str
    seconds: float
    solved: int = 0
    exercises: int = 0
    failure: str = ""


def chosen(names: Iterable[str]) -> list[Chapter]:
    """The chapters of these names, each once and in the order of the workbook; all without names.

    Raises:
        OptionError: there is no such chapter.
    """
    meant = {find_chapter(name) for name in names}
    return [chapter for chapter in CHAPTERS if not meant or chapter in meant]


def prepare(output: Path, notebooks: Path, chapters: Iterable[Chapter], *, force: bool) -> None:
    """Make the folder for executed copies.

    Raises:
        OptbookError: it holds the chapters themselves, or (without ``force``) copies, or can't be written.
    """
    if output.resolve() == notebooks.resolve():
        raise OptbookError(f"{output} holds the chapters themselves: give another folder for the copies.")
    there = [name for chapter in chapters if (output / (name := f"{chapter.name}.ipynb")).exists()]
    if there and not force:
        raise OptbookError(f"{output} holds {there[0]} already: give another folder, or --force.")
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptbookError(f"{output} can't be made: {error.strerror}; give another folder.") from error
    if not os.access(output, os.W_OK):
        raise OptbookError(f"{output} can't be written to: give another folder.")


def run_chapter(
    chapter: Chapter, notebooks: Path, output: Path, *, quick: bool, on_cell: Callable[[float], None]
) -> Outcome:
    """Run a copy of the chapter, in the folder of the chapters, and write it to ``output``.

    Its experiments go to a log of their own in ``output``. ``on_cell`` gets the share
    of its cells that is done, before each.

    Raises:
        OptbookError: the copy can't be written, or the ``workbook`` extra is missing.
    """
    with workbook_extra():
        import nbformat

    started = time.perf_counter()
    name = f"{chapter.name}.ipynb"
    try:
        notebook = nbformat.read(notebooks / name, as_version=4)  # type: ignore[no-untyped-call]
    except FileNotFoundError:
        return Outcome(chapter.name, 0, failure=f"{name} is missing: `optbook reset {chapter.name}`")
    except (OSError, ValueError) as error:  # broken JSON, or none of a notebook's versions
        return Outcome(chapter.name, 0, failure=f"{name} can't be read: {one_line(str(error), 120)}")
    environment = {
        **os.environ,
        "OPTBOOK_LOG": str((output / LOG_NAME).resolve()),
        "JPY_SESSION_NAME": name,
        **({"OPTBOOK_QUICK": "1"} if quick else {}),
    }
    failure = execute(notebook, notebooks, environment, on_cell=on_cell)
    try:
        nbformat.write(notebook, output / name)  # type: ignore[no-untyped-call]
    except OSError as error:
        raise OptbookError(f"{output / name} can't be written: {error.strerror}.") from error
    verdicts = solved(notebook)
    return Outcome(
        chapter.name, time.perf_counter() - started, sum(verdicts.values()), len(verdicts), failure
    )


def execute(
    notebook: Any,
    folder: Path,
    environment: Mapping[str, str],
    *,
    on_cell: Callable[[float], None] = lambda share: None,
    timeout: float | None = None,
) -> str:
    """Run all cells in place, in a fresh kernel in ``folder``, up to the first that fails.

    Returns that cell and its error in one line, "" if none failed. ``timeout`` limits each cell, in seconds.

    Raises:
        OptbookError: the ``workbook`` extra is missing.
    """
    with workbook_extra():
        from jupyter_client.kernelspec import KernelSpecManager
        from jupyter_client.manager import AsyncKernelManager
        from nbclient import NotebookClient
        from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    reached = [0]

    def count(cell: Any, cell_index: int) -> None:
        reached[0] = cell_index
        on_cell(cell_index / len(notebook.cells))

    def let_ctrl_c_through(notebook: Any) -> None:
        # nbclient would end the kernel and go on, as if the kernel had died
        with suppress(NotImplementedError):  # Windows: it has no such handler there
            asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)

    client = NotebookClient(
        notebook,
        # No folder to look in: this leaves the kernel of this very Python, whatever else is registered.
        km=AsyncKernelManager(kernel_spec_manager=KernelSpecManager(kernel_dirs=[])),
        timeout=timeout,
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(folder)}},
        on_notebook_start=let_ctrl_c_through,
        on_cell_start=count,
    )
    try:
        asyncio.run(client.async_execute(env=dict(environment), cleanup_kc=True))
    except CellExecutionError as error:
        told = f"{error.ename}: {error.evalue}"
    except CellTimeoutError:
        told = f"not done after {timeout:.0f} s"
    except DeadKernelError:
        told = "the kernel died, perhaps for lack of memory"
    except RuntimeError as error:
        return f"the kernel did not start: {one_line(str(error), 160)}"
    else:
        return ""
    return f"{where(notebook, reached[0])}: {one_line(told, 200)}"


def where(notebook: Any, index: int) -> str:
    """A code cell as a reader finds it: the number it gets when all are run, and its first line."""
    number = sum(is_run(cell) for cell in notebook.cells[: index + 1])
    first = notebook.cells[index].source.strip().splitlines()[:1]
    return f"cell [{number}] {one_line(first[0], 60) if first else ''}".rstrip()


def is_run(cell: Any) -> bool:
    """Whether this is a cell with code in it."""
    return bool(cell.cell_type == "code" and cell.source.strip())


def solved(notebook: Any) -> dict[str, bool]:
    """By exercise, whether its ``%check`` said that it is solved; not, where it was not reached."""
    found = {}
    for cell in notebook.cells:
        words = cell.source.split()
        if cell.cell_type == "code" and words[:1] == ["%check"] and len(words) > 1:
            texts = [output.get("data", {}).get("text/plain", "") for output in cell.outputs]
            found[words[1]] = any(text.startswith("✓") for text in texts)
    return found


def summary(outcomes: Iterable[Outcome]) -> str:
    """A table: chapter, ok or failed, time, exercises solved; below a failed one, why."""
    lines = [f"{'chapter':<20} {'result':<8} {'time':>12}   exercises solved"]
    for each in outcomes:
        result = "failed" if each.failure else "ok"
        share = f"{each.solved} of {each.exercises}" if each.exercises else "none to solve"
        lines.append(f"{each.chapter:<20} {result:<8} {write.seconds(each.seconds):>12}   {share}")
        if each.failure:
            lines.append(f"  {each.failure}")
    return "\n".join(lines)


@contextmanager
def workbook_extra() -> Iterator[None]:
    """Say what to install where an import finds nothing.

    Raises:
        OptbookError: instead of ModuleNotFoundError.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise OptbookError(
            f"{error.name} is missing, which the workbook needs: pip install 'optbook[workbook]'."
        ) from error
