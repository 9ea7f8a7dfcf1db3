# mypy: disable-error-code="no-untyped-call,untyped-decorator"
"""``%compare`` and ``%%compare``."""

from __future__ import annotations

from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import line_cell_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments

from optbook.benchmark.cell import Cell
from optbook.magics.base import OptbookMagics, is_quiet, one_line_errors, result_options
from optbook.magics.options import two_bodies


@magics_class
class CompareMagics(OptbookMagics):
    """``%compare`` and ``%%compare``."""

    @no_var_expand
    @magic_arguments()
    @argument("labels", nargs="*", help="two labels: of experiments, or (%%%%compare) of the two bodies")
    @argument("--budget", help="seconds for all pairs")
    @argument("--steps", help="end tracked loops after so many steps")
    @argument(
        "--isolate", action="store_true", help="run each in fresh interpreters (bodies see only --setup)"
    )
    @argument("--stored", action="store_true", help="use the times in the log instead of running again")
    @argument("--force", action="store_true", help="compare times of different machines all the same")
    @result_options
    @line_cell_magic
    @one_line_errors
    def compare(self, line: str, cell: str | None = None) -> Any:
        """Decide which of two is faster, from interleaved runs in random order.

        ``%compare a b`` runs two cells again that were measured in this kernel, each with the bindings
        it had. ``%%compare`` takes two bodies in one cell, with a line ``---`` between them.
        """
        options = self._options(self.compare, line)
        if options is None:
            return None
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
            setup = self._setup(options.setup)
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
            result = self._notebook.kept.compare(
                first, second, self._shell.user_ns, stored=options.stored, force=options.force, **given
            )
        return self._shown(result, options.output, is_quiet(options, "" if cell else line, cell))
