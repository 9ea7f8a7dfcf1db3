"""`optbook board`: how far a room is."""

from __future__ import annotations

import click

from optbook.cli_log import one_line_errors


@click.command("board")
@click.argument("place", metavar="FOLDER|URL")
@click.option("--rank", is_flag=True, help="In the order of what each gained, with places.")
@click.option("-o", "--output", metavar="FILE", help="Write it there as a page, too.")
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
@one_line_errors
def board_command(place: str, rank: bool, output: str | None, force: bool) -> None:
    """Who is in which chapter, exercises solved, and what each gained on their own machine.

    FOLDER holds the logs, every *.sqlite in it; URL is the database that a room writes to, such as
    postgresql+psycopg://user@host/name.
    """
    from optbook.experiments.files import write_file
    from optbook.workshop.board import board
    from optbook.workshop.exercises import exercises
    from optbook.workshop.room import read_room

    found = board(read_room(place), exercises(), rank=rank)
    click.echo(str(found))
    if output is not None:
        write_file(output, lambda path: path.write_text(found.page(), encoding="utf-8"), force=force)
