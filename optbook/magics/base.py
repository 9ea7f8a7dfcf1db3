# mypy: disable-error-code="no-untyped-call,untyped-decorator"
"""What all magics share: the notebook they work in, common options, and how errors reach the user."""

from __future__ import annotations

import ast
import asyncio
import functools
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics
from IPython.core.magic_arguments import argument

from optbook.benchmark.cell import Cell, evaluated, expression, prompt_number
from optbook.errors import OptbookError
from optbook.magics.options import assignment, parse
from optbook.optimize.rebind import Keeper

_NOT_THE_USERS = (
    Path(__file__).parent.parent,
    Path(asyncio.__file__).parent,
    Path(ast.__file__),
    Path(threading.__file__),
)


def one_line_errors(magic: Callable[..., Any]) -> Callable[..., Any]:
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


@dataclass
class Notebook:
    """What the magics of one shell share: ``%%setup`` cells, and the cells that ``%compare`` runs again."""

    setups: dict[str, str] = field(default_factory=dict)
    kept: Keeper = field(default_factory=Keeper)


class OptbookMagics(Magics):
    """The base of our magics."""

    def __init__(self, shell: Any, notebook: Notebook) -> None:
        super().__init__(shell)
        self._shell: Any = shell
        self._notebook = notebook

    def _options(self, magic: Any, line: str) -> Any:
        """The options on the line; None after help was asked for and shown.

        Raises:
            UsageError: an option or its value can't be used.
        """
        options = parse(magic, line)
        if options.help:
            print(magic.__doc__)
            return None
        output = getattr(options, "output", None)
        if output is not None and not output.isidentifier():
            raise UsageError(f"-o got {output!r}: give the name of a variable, such as -o result")
        return options

    def _shown(self, result: Any, output: str | None, quiet: bool) -> Any:
        if output is not None:
            self._shell.user_ns[output] = result
        return None if quiet else result

    def _label(self, words: Iterable[str]) -> str:
        return " ".join(words) or f"cell [{prompt_number(self._shell)}]"

    def _number(self, text: str | None, option: str) -> Any:
        return None if text is None else evaluated(text, self._shell.user_ns, option)

    def _named(self, given: Iterable[str], option: str) -> Iterable[tuple[str, Any]]:
        for text in given:
            name, value = assignment(text, option)
            yield name, expression(value, self._shell.user_ns, option)

    def _units(self, options: Any) -> Iterable[tuple[str, Any]]:
        """What a run amounts to, from the options of `unit_options`."""
        for option, unit in UNIT_OPTIONS.items():
            text = getattr(options, option)
            if text is not None:
                yield unit, expression(text, self._shell.user_ns, "--" + option.replace("_", "-"))
        yield from self._named(options.unit, "--unit")

    def _setup(self, text: str | None) -> Cell | None:
        if text is None:
            return None
        try:
            return Cell(self._notebook.setups.get(text, text), self._shell, silent=True)
        except SyntaxError as error:
            raise UsageError(
                f"--setup got {text!r}: {error.msg}; give a statement, or the name of a %%setup cell"
            ) from None


def is_quiet(options: Any, line: str, cell: str | None = None) -> bool:
    """Whether the result is not shown: ``-q``, or a semicolon at the end."""
    return bool(options.quiet) or line.rstrip().endswith(";") or (cell or "").rstrip().endswith(";")


UNIT_OPTIONS = {"batches": "batch", "samples": "sample", "tokens": "token", "env_steps": "env_step"}
_UNITS = (
    argument("--batches", help="batches that one run does: a number or an expression"),
    argument("--samples", help="samples that one run does"),
    argument("--tokens", help="tokens that one run does"),
    argument("--env-steps", help="environment steps that one run does"),
    argument("--unit", action="append", default=[], help="another unit, as name=expression; may be repeated"),
    argument("--metric", action="append", default=[], help="a result worth keeping, as name=expression"),
)
_SETUP = argument(
    "--setup", help="a statement, or the name of a %%%%setup cell, to run untimed before every run"
)
_HELP = argument("-h", "--help", action="store_true", help="show this help")
_RESULT = (
    argument("-o", dest="output", help="assign the result to this variable"),
    argument("-q", "--quiet", action="store_true", help="do not show the result"),
    _HELP,
)


def help_option(magic: Any) -> Any:
    """``-h``."""
    return _HELP(magic)


def unit_options(magic: Any) -> Any:
    """``--samples`` and the like, ``--unit`` and ``--metric``: what a run amounts to, and its results."""
    for option in reversed(_UNITS):
        magic = option(magic)
    return magic


def result_options(magic: Any) -> Any:
    """``--setup``, ``-o``, ``-q`` and ``-h``, which every magic that measures has."""
    for option in reversed((_SETUP, *_RESULT)):
        magic = option(magic)
    return magic
