"""`optbook run`, `optbook reset` and `optbook doctor --workshop`: the workbook without JupyterLab."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path

import click

from optbook.cli_log import one_line_errors
from optbook.errors import OptbookError, OptionError
from optbook.experiments.location import workbook


@click.command("run")
@click.argument("chapters", metavar="[CHAPTER]...", nargs=-1)
@click.option("--quick", is_flag=True, help="Less work: does it run? Figures mean little.")
@click.option(
    "-o",
    "--output",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where executed copies go [default: optbook-run-DATE-TIME].",
)
@click.option("--force", is_flag=True, help="Replace copies that are in FOLDER.")
@one_line_errors
def run_command(chapters: tuple[str, ...], quick: bool, output: Path | None, force: bool) -> None:
    """Run chapters without JupyterLab, in order: all, or those named (03, 03_simplify).

    Your notebooks and your log stay as they are: FOLDER gets executed copies, and their experiments in a log
    of its own. Exits with 1 if a chapter failed.
    """
    from tqdm import tqdm

    from optbook.workshop import headless

    try:
        chosen = headless.chosen(chapters)
    except OptionError as error:
        raise click.BadParameter(str(error), param_hint="CHAPTER") from error
    notebooks = _notebooks()
    folder = output or Path(f"optbook-run-{datetime.now():%Y-%m-%d-%H%M%S}")
    headless.prepare(folder, notebooks, chosen, force=force)
    outcomes: list[headless.Outcome] = []
    shape = "{desc:<20} {percentage:3.0f}%|{bar}| {elapsed}"
    with tqdm(total=len(chosen), disable=None, bar_format=shape) as bar:

        def advance(share: float) -> None:
            bar.update(len(outcomes) + share - bar.n)

        for chapter in chosen:
            bar.set_description_str(chapter.name)
            outcomes.append(headless.run_chapter(chapter, notebooks, folder, quick=quick, on_cell=advance))
            advance(0)
    click.echo(headless.summary(outcomes))
    failed = [each.chapter for each in outcomes if each.failure]
    click.echo(f"Executed copies are in {folder}.")
    if failed:
        raise click.ClickException(f"failed: {', '.join(failed)}.")


@click.command("reset")
@click.argument("chapter")
@click.option(
    "--from",
    "revision",
    default="HEAD",
    show_default=True,
    metavar="REV",
    help="The git revision that has the fresh copy; if you commit your own work, such as origin/main.",
)
@one_line_errors
def reset_command(chapter: str, revision: str) -> None:
    """Start CHAPTER (03, 03_simplify) anew.

    It becomes what git has; your own is kept beside it as NAME.mine-DATE.ipynb, and never overwritten.
    """
    from optbook.workshop import fresh
    from optbook.workshop.chapters import find_chapter

    try:
        name = find_chapter(chapter).name
    except OptionError as error:
        raise click.BadParameter(str(error), param_hint="CHAPTER") from error
    path = _notebooks() / f"{name}.ipynb"
    click.echo(fresh.reset(path, fresh.original(path, revision), date.today()))


def doctor_for_workshop() -> bool:
    """Print what the day needs, line by line; whether nothing is severe."""
    from optbook.workshop.readiness import before_the_day

    well = True
    for line in before_the_day(_root()):
        click.echo(line)
        well = well and line.state != "severe"
    return well


def _notebooks() -> Path:
    root = _root()
    if root is None:
        raise OptbookError(f"no workbook here: {Path.cwd()} is not in a clone of optbook.")
    return root / "notebooks"


def _root() -> Path | None:
    """The workbook that the working directory lies in, else the clone that this package runs from."""
    return workbook(Path.cwd()) or workbook(Path(__file__).resolve().parent)
