# mypy: disable-error-code="no-untyped-call,untyped-decorator"
"""The magics: options → one library call → result."""

from __future__ import annotations

import ast
import asyncio
import functools
import re
import threading
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
from optbook.experiments.log import session
from optbook.magic_options import assignment, parse, two_bodies
from optbook.optimize.rebind import Keeper
from optbook.settings import OptBook

MAGICS = ("bench", "profile", "setup", "compare", "progress", "optbook", "check")
_NOT_THE_USERS = (
    Path(__file__).parent,
    Path(asyncio.__file__).parent,
    Path(ast.__file__),
    Path(threading.__file__),
)
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
            error.__traceback__ = _from_users_code(error)
            raise

    return wrapped


def _from_users_code(error: BaseException) -> TracebackType | None:
    """The part of the traceback from the first frame outside of this package on.

    If there is none, all of it; but nothing for code that could not be compiled.
    """
    inner = error.__traceback__
    while inner is not None and any(
        Path(inner.tb_frame.f_code.co_filename).is_relative_to(place) for place in _NOT_THE_USERS
    ):
        inner = inner.tb_next
    if inner is None and not isinstance(error, SyntaxError):
        return error.__traceback__
    return inner


@magics_class
class OptbookMagics(Magics):
    """``%%bench``, ``%%profile``, ``%%setup``, ``%%compare``, ``%progress``, ``%optbook``, ``%check``."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._shell: Any = shell
        self._setups: dict[str, str] = {}
        self._kept = Keeper()
        self._live: Any = None

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
    @argument("--flops", action="store_true", help="count FLOPs as well, in a further pass over the cell")
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
        label = " ".join(options.label) or f"cell [{prompt_number(self._shell)}]"
        workload = Cell(cell, self._shell, silent=quiet)
        setup = None if options.setup is None else self._setup(options.setup)
        steps = self._number(options.steps, "--steps")
        kept = self._kept.take(label, workload, setup, steps, self._shell.user_ns)
        experiment = bench(
            workload,
            label,
            runs=self._number(options.runs, "--runs"),
            steps=steps,
            warmup=self._number(options.warmup, "--warmup"),
            budget=self._number(options.budget, "--budget"),
            setup=setup,
            units=dict(self._units(options)),
            metrics=dict(self._named(options.metric, "--metric")),
            stubs=options.simplified,
            source=cell,
            flops=options.flops,
        )
        if quiet and session().pending:
            print(experiment.warnings[-1])  # what is not in the log yet is said also where nothing is shown
        self._kept.add(kept)
        return self._shown(experiment, options.output, quiet)

    @no_var_expand
    @magic_arguments()
    @argument("words", nargs="*", help="the kind: calls or lines; then what the experiment is called")
    @argument(
        "-f", "--function", action="append", default=[], help="lines: look at this function; may repeat"
    )
    @argument("--runs", help="of the measurement before the profile: execute the cell so many times")
    @argument("--steps", help="of the measurement before: end the tracked loop after so many steps")
    @argument("--budget", help="of the measurement before: seconds that the counted runs may take")
    @argument("--setup", help="a statement, or the name of a %%%%setup cell, to run untimed before every run")
    @argument("-o", dest="output", help="assign the profile to this variable")
    @argument("-q", "--quiet", action="store_true", help="do not show the result")
    @argument("-h", "--help", action="store_true", help="show this help")
    @line_cell_magic
    @_one_line_errors
    def profile(self, line: str, cell: str | None = None) -> Any:
        """Measure the cell as ``%%bench`` does, then execute it again to see where its time goes.

        ``%%profile calls`` by function; ``%%profile lines`` by line, in the functions with most of the time
        or in those named with ``-f``.
        """
        options = parse(self.profile, line)
        if options.help:
            return print(self.profile.__doc__)
        if cell is None:
            raise UsageError("%profile looks into a cell: write %%profile calls on its first line")
        if options.output is not None and not options.output.isidentifier():
            raise UsageError(f"-o got {options.output!r}: give the name of a variable, such as -o result")
        if not options.words:
            raise UsageError("%%profile needs a kind: write %%profile calls, or %%profile lines")
        from optbook.benchmark.profiles.profile import profile

        kind, *label = options.words
        quiet = options.quiet or line.rstrip().endswith(";") or cell.rstrip().endswith(";")
        result = profile(
            Cell(cell, self._shell, silent=quiet),
            kind,
            " ".join(label) or f"cell [{prompt_number(self._shell)}]",
            functions=options.function,
            setup=None if options.setup is None else self._setup(options.setup),
            runs=self._number(options.runs, "--runs"),
            steps=self._number(options.steps, "--steps"),
            budget=self._number(options.budget, "--budget"),
            source=cell,
        )
        return self._shown(result, options.output, quiet)

    def _shown(self, result: Any, output: str | None, quiet: bool) -> Any:
        if output is not None:
            self._shell.user_ns[output] = result
        return None if quiet else result

    @no_var_expand
    @magic_arguments()
    @argument("labels", nargs="*", help="two labels: of experiments, or (%%%%compare) of the two bodies")
    @argument("--budget", help="seconds for all pairs")
    @argument("--setup", help="a statement, or the name of a %%%%setup cell, to run untimed before every run")
    @argument("--steps", help="end tracked loops after so many steps")
    @argument(
        "--isolate", action="store_true", help="run each in fresh interpreters (bodies see only --setup)"
    )
    @argument("--stored", action="store_true", help="use the times in the log instead of running again")
    @argument("--force", action="store_true", help="compare times of different machines all the same")
    @argument("-o", dest="output", help="assign the comparison to this variable")
    @argument("-q", "--quiet", action="store_true", help="do not show the result")
    @argument("-h", "--help", action="store_true", help="show this help")
    @line_cell_magic
    @_one_line_errors
    def compare(self, line: str, cell: str | None = None) -> Any:
        """Decide which of two is faster, from interleaved runs in random order.

        ``%compare a b`` runs two cells again that were measured in this kernel, each with the bindings
        it had. ``%%compare`` takes two bodies in one cell, with a line ``---`` between them.
        """
        options = parse(self.compare, line)
        if options.help:
            return print(self.compare.__doc__)
        if options.output is not None and not options.output.isidentifier():
            raise UsageError(f"-o got {options.output!r}: give the name of a variable, such as -o result")
        given: dict[str, Any] = {
            "budget": self._number(options.budget, "--budget"),
            "steps": self._number(options.steps, "--steps"),
        }
        if cell is not None:
            from optbook.optimize.compare import compare

            labels = tuple(options.labels) or ("first", "second")
            if len(labels) != 2:
                raise UsageError(f"%%compare got {len(labels)} labels: give two, such as %%compare old new")
            bodies = [Cell(body, self._shell, silent=True) for body in two_bodies(cell)]
            setup = None if options.setup is None else self._setup(options.setup)
            if options.isolate:
                from optbook.optimize.isolate import bodies_isolated

                result = bodies_isolated(bodies, setup, labels, **given)
            else:
                result = compare(bodies[0], bodies[1], labels, setup=setup, **given)
        else:
            if len(options.labels) != 2:
                raise UsageError("%compare takes two labels, such as %compare baseline faster")
            if options.setup is not None:
                raise UsageError("--setup belongs to %%compare: %compare runs each cell with its own")
            if options.isolate:
                raise UsageError("--isolate belongs to %%compare, or to optbook.compare(f, g, isolate=True)")
            first, second = options.labels
            result = self._kept.compare(
                first, second, self._shell.user_ns, stored=options.stored, force=options.force, **given
            )
        quiet = options.quiet or (cell if cell is not None else line).rstrip().endswith(";")
        return self._shown(result, options.output, quiet)

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

    def _setup(self, text: str) -> Cell:
        try:
            return Cell(self._setups.get(text, text), self._shell, silent=True)
        except SyntaxError as error:
            raise UsageError(
                f"--setup got {text!r}: {error.msg}; give a statement, or the name of a %%setup cell"
            ) from None

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
    @argument(
        "what",
        nargs="?",
        default="overview",
        choices=["overview", "log", "machine", "help"],
        help="what to show",
    )
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

            if self._live is not None:
                self._live.board.stop()  # the new view follows the log in its place
            self._live = dashboard()
            return self._live
        if options.what == "machine":
            from optbook.benchmark.machine.info import machine

            return machine(measure=True)
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
