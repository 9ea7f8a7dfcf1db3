"""How the line of a magic is read."""

from __future__ import annotations

import difflib
import re
from argparse import Namespace
from typing import Any

from IPython.core.error import UsageError

_OPENING, _CLOSING = "([{", ")]}"


def words(line: str) -> list[str]:
    """Split a magic's line at spaces that are outside quotes and brackets.

    ``--metric acc=f(a, b) "my label"`` gives ``["--metric", "acc=f(a, b)", "my label"]``. A word that
    is one quoted string loses its quotes; quotes inside a word stay. A quote or bracket that is never
    closed is an ordinary character.
    """
    found: list[str] = []
    current, depth, i = "", 0, 0
    while i < len(line):
        character = line[i]
        if character in "\"'":
            end = _end_of_quote(line, i)
            current += line[i:end]
            i = end
            continue
        if character in _OPENING and any(c in line[i:] for c in _CLOSING):
            depth += 1
        elif character in _CLOSING and depth:
            depth -= 1
        if character.isspace() and not depth:
            found.append(current)
            current = ""
        else:
            current += character
        i += 1
    found.append(current)
    return [_unquoted(word) for word in found if word]


def _end_of_quote(line: str, start: int) -> int:
    i = start + 1
    while i < len(line):
        if line[i] == "\\":
            i += 1
        elif line[i] == line[start]:
            return i + 1
        i += 1
    return start + 1


def _unquoted(word: str) -> str:
    if len(word) > 1 and word[0] == word[-1] and word[0] in "\"'" and _end_of_quote(word, 0) == len(word):
        return word[1:-1].replace("\\" + word[0], word[0])
    return word


def parse(magic: Any, line: str) -> Namespace:
    """The options on ``line``, by the arguments declared for ``magic``.

    Raises:
        UsageError: one line that says what is wrong and, for a misspelt option, what was meant.
    """
    parser = magic.parser
    known = [option for action in parser._actions for option in action.option_strings]
    given = words(line.strip().removesuffix(";"))
    for word in given:
        name = word.partition("=")[0]
        if re.match(r"--?[A-Za-z]", name) and not any(option.startswith(name) for option in known):
            near = difflib.get_close_matches(name, known, 1, 0.6)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise UsageError(f"unknown option {name}: {hint}")
    try:
        options: Namespace = parser.parse_intermixed_args(given)
    except UsageError as error:
        raise UsageError(" ".join(str(error).split())) from None
    return options


def assignment(text: str, option: str) -> tuple[str, str]:
    """Split ``name=expression``.

    Raises:
        UsageError: there is no name or no expression.
    """
    name, equals, value = text.partition("=")
    if not equals or not name.strip().isidentifier() or not value.strip():
        raise UsageError(f"{option} got {text!r}: write name=expression, such as acc=accuracy(model)")
    return name.strip(), value.strip()


def two_bodies(cell: str) -> tuple[str, str]:
    """Split a cell at its one line of three or more dashes.

    The second body is padded with blank lines, so that line numbers in tracebacks stay those of the cell.

    Raises:
        UsageError: there is no such line, or more than one.
    """
    lines = cell.splitlines(keepends=True)
    marks = [i for i, line in enumerate(lines) if re.fullmatch(r"-{3,}\s*", line)]
    if len(marks) != 1:
        raise UsageError(f"%%compare found {len(marks)} lines '---': write one, between the two bodies")
    first, second = "".join(lines[: marks[0]]), "".join(lines[marks[0] + 1 :])
    return first, "\n" * (marks[0] + 1) + second
