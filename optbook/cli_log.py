"""`optbook log`: show, export, merge and prune experiments."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from optbook.errors import OptbookError

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ["created", "label", "status", "throughput", "unit", "seconds", "stubs"]
SHOWN = 20
_rows = click.option(
    "-n", "--rows", type=click.IntRange(1), default=SHOWN, show_default=True, help="How many."
)


def one_line_errors(command: Callable[..., Any]) -> Callable[..., Any]:
    """Show optbook's own errors as one line, with exit code 1."""

    @wraps(command)
    def wrapped(*args: Any, **options: Any) -> Any:
        try:
            return command(*args, **options)
        except OptbookError as error:
            raise click.ClickException(str(error)) from error

    return wrapped


@click.group("log", invoke_without_command=True)
@_rows
@click.pass_context
@one_line_errors
def log_group(context: click.Context, rows: int) -> None:
    """Show the last experiments of the log; export, merge or prune it.

    OPTBOOK_LOG names another log.
    """
    if context.invoked_subcommand is None:
        _show(rows, "", hidden=False)


@log_group.command("show")
@_rows
@click.option("--label", default="", metavar="TEXT", help="Only those whose label contains this.")
@click.option("--hidden", is_flag=True, help="Hidden ones, too.")
@one_line_errors
def show_command(rows: int, label: str, hidden: bool) -> None:
    """Show the last experiments, newest last."""
    _show(rows, label, hidden=hidden)


@log_group.command("export")
@click.argument("file")
@click.option("--hidden", is_flag=True, help="Hidden ones, too, with a column that tells them.")
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
@one_line_errors
def export_command(file: str, hidden: bool, force: bool) -> None:
    """Write all experiments to FILE: .csv, .json or .parquet."""
    from optbook.experiments.export import export
    from optbook.experiments.log import log

    frame = log(hidden)
    export(frame, file, force=force)
    click.echo(f"{_counted(len(frame))} written to {file}.")


@log_group.command("merge")
@click.argument("other", nargs=-1, required=True)
@one_line_errors
def merge_command(other: tuple[str, ...]) -> None:
    """Bring the rows of OTHER logs (paths or database URLs) into this one, each once."""
    from optbook.experiments.location import locate, parse_place
    from optbook.experiments.merge import merge

    into = locate()
    for each in other:
        merged = merge(into.url, each)
        click.echo(f"{parse_place(each)[2]} into {into.shown}: {merged}.")


@log_group.command("prune")
@click.option("--hidden", is_flag=True, help="Only hidden ones.")
@click.option("--stubbed", is_flag=True, help="Only those with stubs.")
@click.option(
    "--status",
    multiple=True,
    type=click.Choice(["ok", "failed", "interrupted", "void"]),
    help="Only those with this status; may be repeated.",
)
@click.option("--label", metavar="TEXT", help="Only those whose label contains this.")
@click.option(
    "--before", type=click.DateTime(["%Y-%m-%d"]), help="Only those recorded before this day (UTC)."
)
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@click.option("-y", "--yes", is_flag=True, help="Don't ask.")
@one_line_errors
def prune_command(
    hidden: bool,
    stubbed: bool,
    status: tuple[str, ...],
    label: str | None,
    before: datetime | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Delete the experiments that fit all options, with their notes and profiles.

    They are shown first, and nothing is deleted before you agree.
    """
    from optbook.experiments.location import locate
    from optbook.experiments.log import log
    from optbook.experiments.merge import delete

    if not (hidden or stubbed or status or label or before):
        raise click.UsageError("say which: --hidden, --stubbed, --status, --label or --before.")
    frame = log(hidden=True)
    chosen = frame["id"] != ""
    if hidden:
        chosen &= frame["hidden"]
    if stubbed:
        chosen &= frame["stubs"] != ""
    if status:
        chosen &= frame["status"].isin(status)
    if label:
        chosen &= frame["label"].str.contains(label, case=False, regex=False)
    if before is not None:
        chosen &= frame["created"].dt.tz_localize(None) < before
    doomed = frame[chosen]
    where = locate()
    if doomed.empty:
        click.echo(f"No experiment in {where.shown} fits: nothing is deleted.")
        return
    click.echo(_table(doomed.tail(SHOWN)))
    if len(doomed) > SHOWN:
        click.echo(f"… and {_counted(len(doomed) - SHOWN)} before these.")
    what = f"{_counted(len(doomed))} of {len(frame)} in {where.shown}"
    if dry_run:
        click.echo(f"{what} would be deleted.")
        return
    if not yes:
        click.confirm(f"Delete {what} for good?", abort=True)
    click.echo(f"{_counted(delete(where.url, list(doomed['id'])))} deleted.")


def _show(rows: int, label: str, *, hidden: bool) -> None:
    from optbook.experiments.location import locate
    from optbook.experiments.log import log
    from optbook.repeat.progress import select

    where = locate().shown
    frame = log(hidden)
    if frame.empty:
        click.echo(f"No experiments in {where} yet: measure something with %%bench or optbook.bench.")
        return
    found = select(frame, label, rows)
    click.echo(_table(found) if len(found) else f"No experiment in {where} has {label!r} in its label.")


def _table(frame: pd.DataFrame) -> str:
    from optbook.experiments.render import one_line

    columns = [*COLUMNS, *(["hidden"] if "hidden" in frame else [])]
    texts = {name: frame[name].map(lambda text: one_line(text, 40)) for name in ("label", "unit", "stubs")}
    shown = frame[columns].assign(created=frame["created"].dt.strftime("%Y-%m-%d %H:%M:%S"), **texts)
    return shown.to_string(index=False, na_rep="", float_format="{:.4g}".format)


def _counted(number: int) -> str:
    return f"{number} {'experiment' if number == 1 else 'experiments'}"
