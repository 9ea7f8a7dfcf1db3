"""What a place in a stack is called, and whose it is: your code, a library, or waiting."""

from __future__ import annotations

import ast
import dis
import functools
import linecache
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Literal

Kind = Literal["your code", "library", "waiting"]
KINDS: tuple[Kind, ...] = ("your code", "library", "waiting")
WAITS = frozenset(
    {
        *("sleep", "acquire", "wait", "waitpid", "synchronize", "select", "poll", "kqueue"),
        *("recv", "recv_into", "recvfrom", "recvmsg", "accept", "connect", "sendall"),
    }
)
"""Calls into C that do nothing but wait."""
WAITS_IN = frozenset({("connection.py", "read"), ("synchronize.py", "self._semlock.acquire")})
"""The same, where the name alone does not say it: a pipe between processes."""
_MEASURING = Path(__file__).parent.parent
_INSTALLED = ("site-packages", "dist-packages")


@dataclass(frozen=True)
class Place:
    """A function, or a call into C made from one (``line`` is then 0)."""

    name: str
    file: str
    line: int
    kind: Kind

    @property
    def where(self) -> str:
        """File and line, as short as a person would write it."""
        short = self.file if self.file.startswith("<") else Path(self.file).name
        return f"{short}:{self.line}" if self.line else short


@functools.cache
def _stdlib() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    return tuple({Path(paths[name]).resolve() for name in ("stdlib", "platstdlib")})


def is_measuring(file: str) -> bool:
    """Whether a file is part of the instrument."""
    return Path(file).is_relative_to(_MEASURING)


@functools.lru_cache(maxsize=4096)
def is_yours(file: str) -> bool:
    """Whether a file is neither installed, nor part of Python, nor of the instrument.

    A cell's file is yours; code that was made from a string is its library's.
    """
    if file.startswith("<"):
        return file.startswith("<ipython-input")
    path = Path(file)
    if is_measuring(file) or set(_INSTALLED) & set(path.parts):
        return False
    return not any(path.is_relative_to(place) for place in _stdlib())


def cell_name(file: str) -> str | None:
    """``In[3]`` for the file under which IPython keeps that cell's code; None for any other."""
    interactive = sys.modules.get("IPython.core.getipython")
    shell = None if interactive is None else interactive.get_ipython()
    named = None if shell is None else shell.compile.format_code_name(file)
    return None if named is None else str(named[1])


def of_code(code: CodeType) -> Place:
    """The place of a function's code."""
    cell = cell_name(code.co_filename)
    file = cell or code.co_filename
    name = code.co_qualname.replace("<locals>.", "")
    if name == "<module>":
        name = f"cell {file}" if cell else f"module {Path(file).stem}"
    return Place(name, file, code.co_firstlineno, "your code" if is_yours(code.co_filename) else "library")


def of_call(code: CodeType, offset: int, namespace: dict[str, Any], own: Kind) -> Place | None:
    """The call into C that an instruction of ``code`` makes; None if it makes none, or no name is known.

    It is a library's if a module of its own name is called; else it belongs to the calling line.
    """
    written = _written_call(code, offset)
    if written is None:
        return None
    kind = own
    if written.rpartition(".")[2] in WAITS or (Path(code.co_filename).name, written) in WAITS_IN:
        kind = "waiting"
    elif _top_module(written, namespace) not in {*sys.stdlib_module_names, ""}:
        kind = "library"
    return Place(f"{written}()", "built-in", 0, kind)


@functools.lru_cache(maxsize=4096)
def _written_call(code: CodeType, offset: int) -> str | None:
    """``time.sleep`` where the instruction at ``offset`` is the call in ``time.sleep(1)``."""
    for instruction in dis.get_instructions(code):
        if instruction.offset != offset:
            continue
        position = instruction.positions
        if "CALL" not in instruction.opname or position is None or position.lineno != position.end_lineno:
            return None
        line = linecache.getline(code.co_filename, position.lineno or 0).encode()
        try:
            text = line[position.col_offset : position.end_col_offset].decode()
            tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError):
            return None
        return ast.unparse(tree.func) if isinstance(tree, ast.Call) and _is_name(tree.func) else None
    return None


def _is_name(tree: ast.expr) -> bool:
    while isinstance(tree, ast.Attribute):
        tree = tree.value
    return isinstance(tree, ast.Name)


def _top_module(written: str, namespace: dict[str, Any]) -> str:
    """The package behind a dotted name, where its first part is bound to a module or to its function."""
    first, *rest = written.split(".")
    value = namespace.get(first)
    for name in rest:
        if not isinstance(value, ModuleType):
            return ""
        value = vars(value).get(name, value)
    if isinstance(value, ModuleType):
        return value.__name__.partition(".")[0]
    module = getattr(value, "__module__", None) if callable(value) else None
    return module.partition(".")[0] if isinstance(module, str) and not isinstance(value, type) else ""
