# mypy: disable-error-code="no-untyped-call,untyped-decorator"
"""``%progress``, ``%optbook`` and ``%check``: what there is to see."""

from __future__ import annotations

from typing import Any

from IPython.core.magic import line_magic, magics_class, no_var_expand, output_can_be_silenced
from IPython.core.magic_arguments import argument, magic_arguments

from optbook.magics.base import Notebook, OptbookMagics, help_option, one_line_errors


@magics_class
class ViewMagics(OptbookMagics):
    """``%progress``, ``%optbook`` and ``%check``."""

    def __init__(self, shell: Any, notebook: Notebook) -> None:
        super().__init__(shell, notebook)
        self._live: Any = None

    @no_var_expand
    @output_can_be_silenced
    @magic_arguments()
    @argument("--unit", help="plot this unit; the latest experiment's if left out")
    @argument("--label", default="", help="only experiments whose label contains this")
    @argument("--last", type=int, help="only the last so many experiments")
    @help_option
    @line_magic
    @one_line_errors
    def progress(self, line: str) -> Any:
        """Plot the progress over the experiments in the log."""
        options = self._options(self.progress, line)
        if options is None:
            return None
        from optbook.repeat.overview import progress

        return progress(unit=options.unit, label=options.label, last=options.last)

    @no_var_expand
    @output_can_be_silenced
    @magic_arguments()
    @argument(
        "what",
        nargs="?",
        default="overview",
        choices=["overview", "log", "machine", "profiles", "predictions", "help"],
        help="what to show",
    )
    @argument("label", nargs="*", help="profiles: only those of experiments with this label")
    @argument("--live", action="store_true", help="a view that follows the log (needs ipywidgets)")
    @help_option
    @line_magic
    @one_line_errors
    def optbook(self, line: str) -> Any:
        """Show the log and the progress; with --live, in a view that follows the log."""
        options = self._options(self.optbook, line)
        if options is None:
            return None
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
        if options.what == "profiles":
            from optbook.experiments.log import profiles

            return profiles(" ".join(options.label) or None)
        if options.what == "predictions":
            from optbook.simplify.predictions import predictions

            return predictions()
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
    @help_option
    @line_magic
    @one_line_errors
    def check(self, line: str) -> Any:
        """Judge an exercise by what your variables hold now."""
        options = self._options(self.check, line)
        if options is None:
            return None
        from optbook.workshop import exercises

        if options.solution:
            return exercises.solution(options.name)
        return exercises.check(options.name, self._shell.user_ns)
