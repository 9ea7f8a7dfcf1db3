"""The command line: `optbook` or `python -m optbook`. Every command is one call into the library."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click

import optbook
from optbook import lab
from optbook.cli_board import board_command
from optbook.cli_log import log_group, one_line_errors
from optbook.cli_workbook import doctor_for_workshop, reset_command, run_command
from optbook.errors import OptbookError

BENCHMARKS = Path(__file__).resolve().parent.parent / "tests" / "benchmarks"


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(optbook.__version__, message="%(prog)s %(version)s")
def main() -> None:
    """Find out how fast your training code is, what limits it, and when to stop."""


for command in (log_group, run_command, reset_command):
    main.add_command(command)
main.add_command(board_command)


@main.command("lab")
@click.option("--no-browser", is_flag=True, help="Only print the address, open no browser.")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help="Port to listen on [default: 8888, or the next that is free].",
)
@one_line_errors
def lab_command(no_browser: bool, port: int | None) -> None:
    """Open the workbook in JupyterLab."""
    browser = not no_browser and lab.has_display(os.environ, sys.platform)
    root = lab.find_workbook(Path.cwd())
    click.echo(f"JupyterLab opens the workbook in {root}. Ctrl-C, then y, stops it.", err=True)
    lab.start(lab.plan(root, os.environ, browser=browser, port=port, superuser=_is_superuser()))


@main.command("report")
@click.option("-o", "--output", metavar="FILE", help="Write it here, as .html or .md [default: print it].")
@click.option("--unit", help="What throughput counts [default: that of the latest goal].")
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
@one_line_errors
def report_command(output: str | None, unit: str | None, force: bool) -> None:
    """One page for the meeting: before and after, plots, what was not checked, what is left."""
    made = optbook.report(output, unit, force=force)
    click.echo(f"Written to {output}." if output is not None else str(made))


@main.command("doctor")
@click.option("--workshop", is_flag=True, help="Look at what a workshop needs instead: before the day.")
def doctor_command(workshop: bool) -> None:
    """Look for what would spoil a measurement here; fails if it is severe."""
    if workshop:
        if not doctor_for_workshop():
            raise SystemExit(1)
        return
    from optbook.benchmark.machine.preflight import preflight

    found = preflight()
    click.echo(str(found))
    if found.severe:
        raise SystemExit(1)


@main.command("guard")
@click.argument("script", metavar="SCRIPT[::FUNCTION]")
@click.option("--against", required=True, metavar="REV", help="The revision to compare with, such as main.")
@click.option(
    "--tolerate",
    type=click.FloatRange(0, 100, max_open=True),
    default=0.0,
    metavar="PERCENT",
    help="A loss of throughput that does not count [default: none].",
)
@click.option("--budget", type=click.FloatRange(0, min_open=True), help="Seconds for all samples.")
@click.option("--pairs", type=click.IntRange(8), help="Pairs of fresh interpreters [default: 10].")
def guard_command(
    script: str, against: str, tolerate: float, budget: float | None, pairs: int | None
) -> None:
    """Fail if the working tree is slower than another revision.

    SCRIPT is run as it is here and as it is in REV, in turn, in fresh interpreters. Of a script that tracks
    its steps (optbook.track) a step is timed, else a whole run; with ::FUNCTION, calls of that function.
    Exits with 1 if throughput fell, with 2 if that could not be found out.
    """
    from optbook.optimize.guard import guard

    try:
        found = guard(script, against, tolerated=tolerate / 100, budget=budget, pairs=pairs)
    except OptbookError as error:
        click.echo(f"Error: {error}", err=True)
        raise SystemExit(2) from error
    click.echo(str(found))
    if found.fell:
        raise SystemExit(1)


@main.command("bench")
@click.argument("name", required=False)
def bench_command(name: str | None) -> None:
    """Measure optbook itself: all of the project's benchmarks, or the one called NAME.

    They come with the source. Each prints a table and writes tests/benchmarks/results/NAME.json.
    """
    names = sorted(path.stem.removeprefix("bench_") for path in BENCHMARKS.glob("bench_*.py"))
    if not names:
        raise click.ClickException(f"no benchmarks in {BENCHMARKS}: they come with a clone of the source.")
    if name is not None and name not in names:
        raise click.BadParameter(f"{name!r} is none of {', '.join(names)}.", param_hint="NAME")
    failed = [each for each in names if name in (None, each) and not _run_benchmark(each)]
    if failed:
        raise click.ClickException(f"failed: {', '.join(failed)}.")


def _run_benchmark(name: str) -> bool:
    """Run one benchmark in a process of its own, so that none disturbs the next."""
    command = [sys.executable, "-m", "tests.benchmarks.run", name]
    return subprocess.run(command, cwd=BENCHMARKS.parent.parent, check=False).returncode == 0


def _is_superuser() -> bool:
    return sys.platform != "win32" and os.geteuid() == 0
