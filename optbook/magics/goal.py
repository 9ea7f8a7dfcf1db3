# mypy: disable-error-code="no-untyped-call,untyped-decorator"
"""``%goal``."""

from __future__ import annotations

from typing import Any

from IPython.core.magic import line_magic, magics_class, no_var_expand, output_can_be_silenced
from IPython.core.magic_arguments import argument, magic_arguments

from optbook.magics.base import OptbookMagics, help_option, one_line_errors


@magics_class
class GoalMagics(OptbookMagics):
    """``%goal``."""

    @no_var_expand
    @output_can_be_silenced
    @magic_arguments()
    @argument("target", nargs="*", help="units per second, such as 500 samples/s; what is set if left out")
    @argument("--because", default="", help="why it matters, in quotes")
    @argument("--price", help="what an hour on the machine costs, such as 0.90/h")
    @argument("--training", help="units that a whole training run takes: a number or an expression")
    @help_option
    @line_magic
    @one_line_errors
    def goal(self, line: str) -> Any:
        """Set the throughput that is worth reaching, and why; alone, show the goals that are set."""
        options = self._options(self.goal, line)
        if options is None:
            return None
        from optbook.repeat.goal import goal

        training = self._number(options.training, "--training")
        target = " ".join(options.target) or None
        return goal(target, because=options.because, price=options.price, training=training)
