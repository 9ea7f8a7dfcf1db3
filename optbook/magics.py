# mypy: disable-error-code="no-untyped-call,untyped-decorator"
"""The magics: options → one library call → result."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import (
    Magics,
    cell_magic,
    line_cell_magic,
    line_magic,
    magics_class,
    no_var_expand,
    output_can_be_silenced,
)
from IPython.core.magic_arguments import argument, magic_arguments

from optbook.benchmark.cell import Cell, evaluated, expression, prompt_number
from optbook.errors import OptbookError
from optbook.magic_options import assignment, parse
from optbook.settings import OptBook

MAGICS = ("bench", "setup", "progress", "optbook", "check")
_PACKAGE = Path(__file__).parent
UNIT_OPTIONS = {"batches": "batch", "samples": "sample", "tokens": "token", "env_steps": "env_step"}


def _one_line_errors(magic: Callable[..., Any]) -> Callable[..., Any]:
    """Turn optbook's own errors into one line, and start the traceback of all others at the user's code."""

    @functools.wraps(magic)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        try:
            return magic(*args, **kwargs)
        except OptbookError as error:
            raise UsageError(str(error)) from None
        except BaseException as error:
            error.__traceback__ = _from_users_code(error.__traceback__)
            raise

    return wrapped


def _from_users_code(trace: TracebackType | None) -> TracebackType | None:
    """The part of a traceback from the first frame outside of this package on; all of it if there is none."""
    inner = trace
    while inner is not None and Path(inner.tb_frame.f_code.co_filename).is_relative_to(_PACKAGE):
        inner = inner.tb_next
    return inner or trace


@magics_class
class OptbookMagics(Magics):
    """``%%bench``, ``%%setup``, ``%progress``, ``%optbook``, ``%check``."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._shell: Any = shell
        self._setups: dict[str, str] = {}

    @no_var_expand
    @magic_arguments()
    @argument("label", nargs="*", help="what the experiment is called (the cell's number if left out)")
    @argument("--runs", help="execute the cell so many times, warm-up included; 1 is exactly once")
    @argument("--steps", help="end the tracked loop after so many steps, warm-up included")
    @argument("--warmup", help="runs (or tracked steps) that are not counted")
    @argument("--budget", help="seconds that the counted runs may take")
    @argument("--setup", help="a statement, or the name of a %%%%setup cell, to run untimed before every run")
    @argument("--batches", help="batches that one run does: a number or an expression")
    @argument("--samples", help="samples that one run does")
    @argument("--tokens", help="tokens that one run does")
    @argument("--env-steps", help="environment steps that one run does")
    @argument("--unit", action="append", default=[], help="another unit, as name=expression; may be repeated")
    @argument("--metric", action="append", default=[], help="a result worth keeping, as name=expression")
    @argument("--simplified", action="append", default=[], help="what a stub made by hand stands in for")
    @argument("-o", dest="output", help="assign the experiment to this variable")
    @argument("-q", "--quiet", action="store_true", help="do not show the result")
    @argument("-h", "--help", action="store_true", help="show this help")
    @line_cell_magic
    @_one_line_errors
    def bench(self, line: str, cell: str | None = None) -> Any:
        """Measure the cell, record the experiment, and show it.

        A cell that loops over ``track(...)`` runs once; any other is repeated until the budget is
        spent. Variables survive: the cell runs in your namespace.
        """
        options = parse(self.bench, line)
        if options.help:
            return print(self.bench.__doc__)
        if cell is None:
            raise UsageError("%bench measures a cell: write %%bench on its first line, and the code below it")
        if options.output is not None and not options.output.isidentifier():
            raise UsageError(f"-o got {options.output!r}: give the name of a variable, such as -o result")
        from optbook.benchmark.bench import bench

        quiet = options.quiet or line.rstrip().endswith(";") or cell.rstrip().endswith(";")
        experiment = bench(
            Cell(cell, self._shell, silent=quiet),
            " ".join(options.label) or f"cell [{prompt_number(self._shell)}]",
            runs=self._number(options.runs, "--runs"),
            steps=self._number(options.steps, "--steps"),
            warmup=self._number(options.warmup, "--warmup"),
            budget=self._number(options.budget, "--budget"),
            setup=None if options.setup is None else self._setup(options.setup),
            units=dict(self._units(options)),
            metrics=dict(self._named(options.metric, "--metric")),
            stubs=options.simplified,
            source=cell,
        )
        if options.output is not None:
            self._shell.user_ns[options.output] = experiment
        return None if quiet else experiment

    def _number(self, text: str | None, option: str) -> Any:
        return None if text is None else evaluated(text, self._shell.user_ns, option)

    def _named(self, given: Iterable[str], option: str) -> Iterable[tuple[str, Any]]:
        for text in given:
            name, value = assignment(text, option)
            yield name, expression(value, self._shell.user_ns, option)

    def _units(self, options: Any) -> Iterable[tuple[str, Any]]:
        for option, unit in UNIT_OPTIONS.items():
            text = getattr(options, option)
            if text is not None:
                yield unit, expression(text, self._shell.user_ns, "--" + option.replace("_", "-"))
        yield from self._named(options.unit, "--unit")

    def _setup(self, text: str) -> Callable[[], object]:
        return Cell(self._setups.get(text, text), self._shell, silent=True)

    @no_var_expand
    @cell_magic
    @_one_line_errors
    def setup(self, line: str, cell: str) -> None:
        """``%%setup NAME``: keep the cell under a name, for ``%%bench --setup NAME``. It is not run now."""
        name = line.strip()
        if not name.isidentifier():
            raise UsageError(f"%%setup got {name!r}: give a name, such as %%setup fresh_loader")
        Cell(cell, self._shell, silent=True)
        self._setups[name] = cell

    @no_var_expand
    @output_can_be_silenced
    @magic_arguments()
    @argument("--unit", help="plot this unit; the latest experiment's if left out")
    @argument("--label", default="", help="only experiments whose label contains this")
    @argument("--last", type=int, help="only the last so many experiments")
    @argument("-h", "--help", action="store_true", help="show this help")
    @line_magic
    @_one_line_errors
    def progress(self, line: str) -> Any:
        """Plot the progress over the experiments in the log."""
        options = parse(self.progress, line)
        if options.help:
            return print(self.progress.__doc__)
        from optbook.repeat.overview import progress

        return progress(unit=options.unit, label=options.label, last=options.last)

    @no_var_expand
    @output_can_be_silenced
    @magic_arguments()
    @argument("what", nargs="?", default="overview", choices=["overview", "log", "help"], help="what to show")
    @argument("--live", action="store_true", help="a view that follows the log (needs ipywidgets)")
    @argument("-h", "--help", action="store_true", help="show this help")
    @line_magic
    @_one_line_errors
    def optbook(self, line: str) -> Any:
        """Show the log and the progress; with --live, in a view that follows the log."""
        options = parse(self.optbook, line)
        if options.help:
            return print(self.optbook.__doc__)
        if options.what == "help":
            from optbook.repeat.sheet import Sheet

            return Sheet()
        if options.live:
            from optbook.repeat.widgets import dashboard

            return dashboard()
        if options.what == "log":
            from optbook.experiments.log import log

            return log()
        from optbook.repeat.overview import overview

        return overview()

    @no_var_expand
    @output_can_be_silenced
    @magic_arguments()
    @argument("name", help="the exercise, as its heading names it")
    @argument("--solution", action="store_true", help="show a solution instead")
    @argument("-h", "--help", action="store_true", help="show this help")
    @line_magic
    @_one_line_errors
    def check(self, line: str) -> Any:
        """Judge an exercise by what your variables hold now."""
        options = parse(self.check, line)
        if options.help:
            return print(self.check.__doc__)
        from optbook.workshop import exercises

        if options.solution:
            return exercises.solution(options.name)
        return exercises.check(options.name, self._shell.user_ns)


def comments_below_magic(lines: list[str]) -> list[str]:
    """Move comments and blank lines above one of our cell magics to below it, where IPython wants them."""
    for i, line in enumerate(lines):
        if re.match(rf"%%({'|'.join(MAGICS)})\b", line):
            return [line, *lines[:i], *lines[i + 1 :]]
        if line.strip() and not line.lstrip().startswith("#"):
            break
    return lines


def load(shell: Any) -> None:
    """Register the magics and settings with ``shell``."""
    shell.register_magics(OptbookMagics(shell))
    settings = OptBook.instance()
    if settings not in shell.configurables:
        shell.configurables.append(settings)
    if comments_below_magic not in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.insert(0, comments_below_magic)


def unload(shell: Any) -> None:
    """Undo `load`."""
    for kind in ("line", "cell"):
        for name in MAGICS:
            shell.magics_manager.magics[kind].pop(name, None)
    shell.magics_manager.registry.pop("OptbookMagics", None)
    shell.configurables[:] = [c for c in shell.configurables if not isinstance(c, OptBook)]
    shell.input_transformers_cleanup[:] = [
        t
        for t in shell.input_transformers_cleanup
        if getattr(t, "__name__", "") != comments_below_magic.__name__
    ]
