# mypy: disable-error-code="no-untyped-call,untyped-decorator"
"""``%%sweep``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import line_cell_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments

from optbook.benchmark.cell import Cell, evaluated
from optbook.magics.base import OptbookMagics, is_quiet, one_line_errors, result_options, unit_options

_EXAMPLE = "such as batch_size=8,16,32"


@magics_class
class SweepMagics(OptbookMagics):
    """``%%sweep``."""

    @no_var_expand
    @magic_arguments()
    @argument("words", nargs="*", help="one or two settings, as name=8,16,32, and what the sweep is called")
    @argument("--budget", help="seconds for all points")
    @argument("--runs", help="at each point, execute the cell so many times, warm-up included")
    @argument("--steps", help="at each point, end the tracked loop after so many steps")
    @argument("--warmup", help="at each point, runs (or tracked steps) that are not counted")
    @argument("--count", help="the unit that the curve shows, such as sample")
    @unit_options
    @result_options
    @line_cell_magic
    @one_line_errors
    def sweep(self, line: str, cell: str | None = None) -> Any:
        """Measure the cell with each value of a setting, and find the knee of the throughput.

        ``%%sweep batch_size=8,16,32 workers=0,2`` sets these names before the cell runs, and puts back what
        they were. Each point is an experiment; one that runs out of memory is shown as that.
        """
        options = self._options(self.sweep, line)
        if options is None:
            return None
        if cell is None:
            raise UsageError("%sweep measures a cell: write %%sweep on its first line, and the code below it")
        from optbook.optimize.sweep import sweep

        quiet = is_quiet(options, line, cell)
        given = [word for word in options.words if "=" in word]
        settings = dict(map(self._setting, given))
        if len(settings) < len(given):
            raise UsageError("%%sweep got a setting twice: give its values in one list, " + _EXAMPLE)
        result = sweep(
            Cell(cell, self._shell, silent=quiet),
            settings,
            self._label(word for word in options.words if "=" not in word),
            unit=options.count,
            budget=self._number(options.budget, "--budget"),
            runs=self._number(options.runs, "--runs"),
            steps=self._number(options.steps, "--steps"),
            warmup=self._number(options.warmup, "--warmup"),
            setup=self._setup(options.setup),
            units=dict(self._units(options)),
            metrics=dict(self._named(options.metric, "--metric")),
            source=cell,
        )
        return self._shown(result, options.output, quiet)

    def _setting(self, word: str) -> tuple[str, Sequence[Any]]:
        name, _, text = word.partition("=")
        if text.endswith(","):
            raise UsageError(f"{name} got {text!r}: write the values without spaces, {_EXAMPLE}")
        values = evaluated(f"[{text}]", self._shell.user_ns, name)
        if len(values) == 1 and not isinstance(values[0], (int, float)):
            (values,) = values  # batch_size=sizes
        return name, values
