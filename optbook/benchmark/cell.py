"""A notebook cell as a workload: compiled once, run in the user's namespace."""

from __future__ import annotations

import ast
import copy
import inspect
import itertools
from collections.abc import Callable
from types import CodeType
from typing import Any

from optbook.benchmark import coroutines
from optbook.errors import OptionError


class Cell:
    """The code of a cell. Calling it runs the cell; the value of a last expression is shown once.

    Line numbers in tracebacks are those of the notebook cell, whose first line is the magic.

    Args:
        source: the cell below its magic line.
        shell: IPython's shell.
        silent: whether the value of a last expression is not shown.

    Raises:
        SyntaxError: the code can't be compiled.
        OptionError: the cell is empty.
    """

    def __init__(self, source: str, shell: Any, *, silent: bool = False) -> None:
        if not source.strip():
            raise OptionError("the cell is empty: write the code to measure below the magic's line")
        code = _line_for_line(source, shell)
        name = shell.compile.cache(code, prompt_number(shell), raw_code=code)
        tree = ast.parse(code, name)
        self.python = code
        self._namespace: dict[str, Any] = shell.user_ns
        self._silent = silent or source.rstrip().endswith(";")
        self._shown = False
        self._parts: list[CodeType] = []
        self._value: CodeType | None = None
        *body, last = tree.body or [ast.Pass()]
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | shell.compile.flags
        if not isinstance(last, ast.Expr):
            body = tree.body
        if body:
            module = ast.Module(body, tree.type_ignores)
            self._parts.append(compile(module, name, "exec", flags=flags, dont_inherit=True))
        if isinstance(last, ast.Expr):
            expression = ast.Expression(last.value)
            self._value = compile(expression, name, "eval", flags=flags, dont_inherit=True)

    @property
    def namespace(self) -> dict[str, Any]:
        """Where the cell's names live."""
        return self._namespace

    @property
    def code(self) -> tuple[CodeType, ...]:
        """The compiled parts of the cell."""
        return (*self._parts, *(() if self._value is None else (self._value,)))

    def within(self, namespace: dict[str, Any]) -> Cell:
        """The same cell, to run in another namespace; nothing is shown."""
        other = copy.copy(self)
        other._namespace, other._shown = namespace, True
        return other

    def recoded(self, change: Callable[[CodeType], CodeType]) -> Cell:
        """The same cell with its compiled parts changed; nothing is shown."""
        other = self.within(self._namespace)
        other._parts = [change(code) for code in self._parts]
        other._value = None if self._value is None else change(self._value)
        return other

    def __call__(self) -> None:
        """Run the cell once in the user's namespace."""
        for code in self._parts:
            self._run(code)
        if self._value is not None:
            value = self._run(self._value)
            if not self._shown and not self._silent and value is not None:
                from IPython.display import display

                display(value)  # type: ignore[no-untyped-call]
        self._shown = True

    def _run(self, code: CodeType) -> Any:
        if code.co_flags & inspect.CO_COROUTINE:
            return coroutines.run(lambda: eval(code, self._namespace))
        return eval(code, self._namespace)


def prompt_number(shell: Any) -> int:
    """The number of the cell that runs now, as In[…] shows it; IPython counts on before or after a run."""
    return int(shell.displayhook.prompt_count)


def _line_for_line(source: str, shell: Any) -> str:
    """The cell as Python, padded so that its line numbers are those in the notebook.

    The magic itself is the first line, and IPython's transformation drops leading blank lines.
    """
    blank = len(list(itertools.takewhile(lambda line: not line.strip(), source.splitlines())))
    return "\n" * (1 + blank) + str(shell.transform_cell(source))


def evaluated(text: str, namespace: dict[str, Any], option: str) -> Any:
    """The value of ``text`` in ``namespace`` now.

    Raises:
        OptionError: ``text`` is not an expression, or it raised.
    """
    value = expression(text, namespace, option)
    if not callable(value):
        return value
    try:
        return value()
    except Exception as exception:
        raise OptionError(f"{option} got {text!r}: {type(exception).__name__}: {exception}") from None


def expression(text: str, namespace: dict[str, Any], option: str) -> float | Callable[[], Any]:
    """The value of a number, or a function that evaluates ``text`` in ``namespace`` each time it is called.

    Raises:
        OptionError: ``text`` is not an expression.
    """
    try:
        code = compile(text.strip(), f"<{option}>", "eval")
    except (SyntaxError, ValueError):
        raise OptionError(
            f"{option} got {text!r}: give a number or an expression, such as len(loader)"
        ) from None
    try:
        literal = ast.literal_eval(text.strip())
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return lambda: eval(code, namespace)
    return literal  # type: ignore[no-any-return]
