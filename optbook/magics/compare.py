# mypy: disable-error-code="no-untyped-call,untyped-decorator"
"""``%compare`` and ``%%compare``."""

from __future__ import annotations

from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import line_cell_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments

from optbook.benchmark.cell import Cell, expression
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
    @argument("--same", help="an expression, evaluated after each body: what must be equal")
    @argument("--rtol", help="relative tolerance for --same, in place of the data type's")
    @argument("--atol", help="absolute tolerance for --same, in place of the data type's")
    @argument("--loose", action="store_true", help="data types and kinds of containers may differ")
    @argument("--metric", action="append", default=[], help="show name=expression, evaluated after each body")
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

                self._refuse_check(options, "results are not seen from here with --isolate; leave it out")
                result = bodies_isolated(bodies, setup, labels, **given)
            else:
                result = compare(bodies[0], bodies[1], labels, setup=setup, **given, **self._check(options))
        else:
            if len(options.labels) != 2:
                raise UsageError("%compare takes two labels, such as %compare baseline faster")
            if options.setup is not None:
                raise UsageError("--setup belongs to %%compare: %compare runs each cell with its own")
            if options.isolate:
                raise UsageError("--isolate belongs to %%compare, or to optbook.compare(f, g, isolate=True)")
            self._refuse_check(options, "they belong to %%compare, with both bodies in one cell")
            first, second = options.labels
            result = self._notebook.kept.compare(
                first, second, self._shell.user_ns, stored=options.stored, force=options.force, **given
            )
        return self._shown(result, options.output, is_quiet(options, "" if cell else line, cell))

    def _check(self, options: Any) -> dict[str, Any]:
        """What `optbook.compare` is told of --same, its tolerance, and --metric."""
        found: dict[str, Any] = {"metrics": dict(self._named(options.metric, "--metric"))}
        if options.same is None:
            if options.rtol or options.atol or options.loose:
                raise UsageError("--rtol, --atol and --loose belong to --same: give --same EXPRESSION")
            return found
        same = expression(options.same, self._shell.user_ns, "--same")
        if not callable(same):
            raise UsageError(
                f"--same got {options.same!r}, which never changes: name what the bodies compute"
            )
        rtol, atol = self._number(options.rtol, "--rtol"), self._number(options.atol, "--atol")
        return {**found, "same": same, "rtol": rtol, "atol": atol, "strict": not options.loose}

    def _refuse_check(self, options: Any, why: str) -> None:
        if options.same is not None or options.metric:
            raise UsageError(f"--same and --metric: {why}")
