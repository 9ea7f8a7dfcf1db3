# mypy: disable-error-code="no-untyped-call,untyped-decorator"
"""``%%bench``, ``%%setup`` and ``%%profile``."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import cell_magic, line_cell_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments

from optbook.benchmark.cell import Cell
from optbook.experiments.log import session
from optbook.magics.base import OptbookMagics, is_quiet, one_line_errors, result_options, unit_options


@magics_class
class MeasureMagics(OptbookMagics):
    """``%%bench``, ``%%setup`` and ``%%profile``."""

    @no_var_expand
    @magic_arguments()
    @argument("label", nargs="*", help="what the experiment is called (the cell's number if left out)")
    @argument("--runs", help="execute the cell so many times, warm-up included; 1 is exactly once")
    @argument("--steps", help="end the tracked loop after so many steps, warm-up included")
    @argument("--warmup", help="runs (or tracked steps) that are not counted")
    @argument("--budget", help="seconds that the counted runs may take")
    @unit_options
    @argument("--flops", action="store_true", help="count FLOPs as well, in a further pass over the cell")
    @argument(
        "--stub",
        action="append",
        default=[],
        help="replace this component while it is measured: name, or name:kind; may be repeated",
    )
    @argument(
        "--expect",
        help="hold the result against what the newest ceiling predicted for this component: decode, "
        "decode=fast_decode (what does its work now), decode:4 (4 times as fast), decode@label",
    )
    @argument("--simplified", action="append", default=[], help="what a stub made by hand stands in for")
    @result_options
    @line_cell_magic
    @one_line_errors
    def bench(self, line: str, cell: str | None = None) -> Any:
        """Measure the cell, record the experiment, and show it.

        A cell that loops over ``track(...)`` runs once; any other is repeated until the budget is
        spent. Variables survive: the cell runs in your namespace.
        """
        options = self._options(self.bench, line)
        if options is None:
            return None
        if cell is None:
            raise UsageError("%bench measures a cell: write %%bench on its first line, and the code below it")
        from optbook.benchmark.bench import bench

        quiet = is_quiet(options, line, cell)
        label = self._label(options.label)
        workload = Cell(cell, self._shell, silent=quiet)
        setup = self._setup(options.setup)
        steps = self._number(options.steps, "--steps")
        kept = self._notebook.kept.take(label, workload, setup, steps, self._shell.user_ns)
        given: dict[str, Any] = {
            "runs": self._number(options.runs, "--runs"),
            "steps": steps,
            "warmup": self._number(options.warmup, "--warmup"),
            "budget": self._number(options.budget, "--budget"),
            "setup": setup,
            "units": dict(self._units(options)),
            "metrics": dict(self._named(options.metric, "--metric")),
            "stubs": options.simplified,
            "flops": options.flops,
        }
        if options.expect is not None:
            from optbook.simplify.expect import parsed

            given["expect"] = parsed(options.expect, self._shell.user_ns)
        with ExitStack() as stack:
            for stub in self._stubs(options.stub):
                stack.enter_context(stub)
            experiment = bench(workload, label, source=cell, **given)
        if quiet and session().pending:
            print(experiment.warnings[-1])  # what is not in the log yet is said also where nothing is shown
        self._notebook.kept.add(kept)
        return self._shown(experiment, options.output, quiet)

    def _stubs(self, given: Iterable[str]) -> Iterable[Any]:
        if given:
            from optbook.simplify.stubs import stub

            for text in given:
                name, _, kind = text.partition(":")
                yield stub(name, kind or "replay", namespace=self._shell.user_ns)

    @no_var_expand
    @cell_magic
    @one_line_errors
    def setup(self, line: str, cell: str) -> None:
        """``%%setup NAME``: keep the cell under a name, for ``%%bench --setup NAME``. It is not run now."""
        name = line.strip()
        if not name.isidentifier():
            raise UsageError(f"%%setup got {name!r}: give a name, such as %%setup fresh_loader")
        Cell(cell, self._shell, silent=True)
        self._notebook.setups[name] = cell

    @no_var_expand
    @magic_arguments()
    @argument("words", nargs="*", help="the kind, then what the experiment is called")
    @argument(
        "-f",
        "--function",
        action="append",
        default=[],
        help="lines, memory: look at this function; may be repeated",
    )
    @argument("--time", action="store_true", help="memory: the time of each line beside its memory")
    @argument("--out", help="trace: the folder to write to (traces/ beside the log if left out)")
    @argument("--capture", action="store_true", help="network: a table of conversations, by tshark")
    @argument("--runs", help="of the measurement before the profile: execute the cell so many times")
    @argument("--steps", help="of the measurement before: end the tracked loop after so many steps")
    @argument("--budget", help="of the measurement before: seconds that the counted runs may take")
    @result_options
    @line_cell_magic
    @one_line_errors
    def profile(self, line: str, cell: str | None = None) -> Any:
        """Measure the cell as ``%%bench`` does, then execute it again to look inside.

        ``%%profile calls``: time by function. ``lines``: by line, in the functions with most of the time or
        in those named with ``-f``. ``memory``: memory by line, tensors, leaks. ``modules``: a model's parts.
        ``trace``: for Perfetto and TensorBoard. ``network``: traffic, and time spent on it.
        """
        options = self._options(self.profile, line)
        if options is None:
            return None
        if cell is None:
            raise UsageError("%profile looks into a cell: write %%profile calls on its first line")
        from optbook.benchmark.profiles.profile import KINDS, profile

        if not options.words:
            raise UsageError(f"%%profile needs a kind: write %%profile calls (there are {', '.join(KINDS)})")
        kind, *label = options.words
        quiet = is_quiet(options, line, cell)
        further = {name: getattr(options, name) for name in ("time", "out", "capture")}
        result = profile(
            Cell(cell, self._shell, silent=quiet),
            kind,
            self._label(label),
            functions=options.function,
            setup=self._setup(options.setup),
            runs=self._number(options.runs, "--runs"),
            steps=self._number(options.steps, "--steps"),
            budget=self._number(options.budget, "--budget"),
            source=cell,
            **{name: value for name, value in further.items() if value},
        )
        return self._shown(result, options.output, quiet)
