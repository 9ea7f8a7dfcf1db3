# mypy: disable-error-code="no-untyped-call,untyped-decorator"
"""``%stub``, ``%%stub``, ``%unstub`` and ``%%ceiling``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import (
    line_cell_magic,
    line_magic,
    magics_class,
    no_var_expand,
    output_can_be_silenced,
)
from IPython.core.magic_arguments import argument, magic_arguments

from optbook.benchmark.cell import Cell
from optbook.magics.base import OptbookMagics, help_option, is_quiet, one_line_errors, result_options

STUB_OPTIONS = ("seconds", "speedup", "value", "like", "keep", "limit")


@magics_class
class SimplifyMagics(OptbookMagics):
    """``%stub``, ``%%stub``, ``%unstub`` and ``%%ceiling``."""

    @no_var_expand
    @output_can_be_silenced
    @magic_arguments()
    @argument(
        "name", nargs="?", help="the component: a function, object.method, Class.method, torch.stack, …"
    )
    @argument("kind", nargs="?", help="replay (the default), sleep, spin, dummy, value or skip")
    @argument("--seconds", help="sleep, spin: how long a call takes; as long as the real one if left out")
    @argument("--speedup", help="sleep, spin: take the real time divided by this")
    @argument("--value", help="value, sleep, spin: an expression, what each call returns")
    @argument("--like", help="dummy: an expression, what the made-up data are modelled on")
    @argument("--keep", help="how many outputs are recorded for each form of the arguments")
    @argument("--limit", help="bytes that recorded outputs may take, such as 2**28")
    @argument("--copy", action="store_true", help="give out copies, where outputs are changed later")
    @help_option
    @line_cell_magic
    @one_line_errors
    def stub(self, line: str, cell: str | None = None) -> Any:
        """Replace a component until ``%unstub``; ``%stub`` alone lists what is replaced, with its calls.

        ``%stub augment`` replays recorded outputs. ``%%stub augment`` replaces it by the cell below, in which
        its arguments have their names and ``real`` is the component.
        """
        options = self._options(self.stub, line)
        if options is None:
            return None
        from optbook.simplify import kinds, stubs
        from optbook.simplify.listing import Listing

        if options.name is None:
            return Listing.of(stubs.active())
        given = {
            name: self._number(getattr(options, name), f"--{name}")
            for name in STUB_OPTIONS
            if getattr(options, name) is not None
        } | ({"copy": True} if options.copy else {})
        namespace = self._shell.user_ns
        if cell is None:
            made = stubs.install(options.name, options.kind or "replay", namespace=namespace, **given)
        elif options.kind or given:
            raise UsageError(f"%%stub {options.name} is its body, the cell: leave out the kind and options")
        else:
            body = kinds.Body(self._shell.transform_cell(cell), namespace)
            made = stubs.install(options.name, body, namespace=namespace)
        return Listing.of((made,))

    @no_var_expand
    @magic_arguments()
    @argument("name", nargs="*", help="the components whose stubs to take away, as %%stub lists them")
    @argument("--all", action="store_true", help="take all stubs away")
    @help_option
    @line_magic
    @one_line_errors
    def unstub(self, line: str) -> Any:
        """Take stubs away: the newest of each name, or all of them."""
        options = self._options(self.unstub, line)
        if options is None:
            return
        from optbook.simplify import stubs

        if bool(options.name) == options.all:
            raise UsageError("%unstub takes the name of a component, or --all")
        if options.all:
            stubs.remove_all()
        for name in options.name:
            stubs.remove(name)

    @no_var_expand
    @magic_arguments()
    @argument("components", nargs="*", help="what to free; found from a call profile if left out")
    @argument("--inside", action="store_true", help="ask the same of the parts of the components")
    @argument("--speedup", help="what the system would gain from faster components: 2,4")
    @argument("--label", help="what the experiment is called (the cell's number if left out)")
    @argument("--steps", help="end the tracked loop after so many steps, each time")
    @argument("--budget", help="seconds for all rounds")
    @result_options
    @line_cell_magic
    @one_line_errors
    def ceiling(self, line: str, cell: str | None = None) -> Any:
        """Find what the cell would reach if components of it cost nothing, and each without all others.

        The cell runs many times, mostly with stubs in place of components; loops over ``track(...)`` end
        early each time.
        """
        options = self._options(self.ceiling, line)
        if options is None:
            return None
        if cell is None:
            raise UsageError("%ceiling looks at a cell: write %%ceiling on its first line, the code below it")
        from optbook.simplify.ceiling import ceiling

        quiet = is_quiet(options, line, cell)
        result = ceiling(
            Cell(cell, self._shell, silent=True),
            options.components or None,
            options.label or self._label(()),
            speedup=list(self._numbers(options.speedup, "--speedup")),
            inside=options.inside,
            setup=self._setup(options.setup),
            steps=self._number(options.steps, "--steps"),
            budget=self._number(options.budget, "--budget"),
            source=cell,
            namespace=self._shell.user_ns,
        )
        return self._shown(result, options.output, quiet)

    def _numbers(self, text: str | None, option: str) -> Iterable[Any]:
        return (
            () if text is None else [self._number(each, option) for each in text.split(",") if each.strip()]
        )
