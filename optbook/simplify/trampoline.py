"""Makes the code that a stub puts in the place of a function's own.

It takes the same arguments (so signatures, defaults and errors for wrong calls stay), has the same free
variables (so it fits closures), and is a generator or coroutine function if the original is one. What it
calls are constants of the code, since the function's globals are not ours.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType
from typing import Any, Literal

Flavour = Literal["function", "generator", "coroutine", "async generator"]

_KEPT_FLAGS = inspect.CO_NESTED | inspect.CO_ITERABLE_COROUTINE


@dataclass(frozen=True, slots=True)
class Choice:
    """Which calls are meant, by their first argument: all, those for one object, those for a class's."""

    by: Literal["all", "instance", "class"] = "all"
    chosen: object = None


@dataclass(frozen=True)
class _Layout:
    """The arguments of a function, as its code lists them."""

    names: tuple[str, ...]
    before_slash: int
    positional: int
    keyword_only: int
    star: bool
    stars: bool


def flavour_of(code: CodeType) -> Flavour:
    """What a call of a function with this code returns."""
    if code.co_flags & inspect.CO_ASYNC_GENERATOR:
        return "async generator"
    if code.co_flags & inspect.CO_COROUTINE:
        return "coroutine"
    return "generator" if code.co_flags & inspect.CO_GENERATOR else "function"


def calling(
    code: CodeType,
    count: Callable[[], object],
    hole: Callable[..., Any],
    real: Callable[..., Any],
    choice: Choice,
) -> CodeType:
    """Code that counts and gives the arguments to ``hole``; to ``real`` where the call is not meant.

    ``hole`` returns what the function would; for coroutine functions an awaitable, for generators and
    async generators something to iterate over.
    """
    return _made(code, choice, {"count": count, "hole": hole, "real": real})


def returning(
    code: CodeType, count: Callable[[], object], value: object, real: Callable[..., Any], choice: Choice
) -> CodeType:
    """Code that counts and returns ``value``, of a function or coroutine function."""
    return _made(code, choice, {"count": count, "value": value, "real": real})


def forwarding(real: Callable[..., Any], name: str) -> FunctionType:
    """A Python function that does what ``real`` does."""
    code = _made(_any_arguments.__code__, Choice(), {"real": real})
    return FunctionType(code.replace(co_name=name, co_qualname=name), {}, name)


def arguments_of(code: CodeType) -> ast.arguments:
    """The arguments that functions with this code take, without defaults."""
    return _arguments(_layout(code))


def can_choose(code: CodeType) -> bool:
    """Whether functions with this code take a first argument."""
    return bool(code.co_argcount or code.co_flags & inspect.CO_VARARGS)


def _any_arguments(*args: Any, **kwargs: Any) -> None: ...


def _made(code: CodeType, choice: Choice, constants: Mapping[str, object]) -> CodeType:
    template = _template(tuple(constants), choice.by, flavour_of(code), _layout(code))
    chosen = MethodType(type.__instancecheck__, choice.chosen) if choice.by == "class" else choice.chosen
    values = {_mark(name): value for name, value in {**constants, "chosen": chosen}.items()}
    return template.replace(
        co_consts=tuple(values.get(c, c) if type(c) is str else c for c in template.co_consts),
        co_freevars=code.co_freevars,
        co_filename=code.co_filename,
        co_name=code.co_name,
        co_qualname=code.co_qualname,
        co_firstlineno=code.co_firstlineno,
        co_flags=template.co_flags | code.co_flags & _KEPT_FLAGS,
    )


def _layout(code: CodeType) -> _Layout:
    star, stars = bool(code.co_flags & inspect.CO_VARARGS), bool(code.co_flags & inspect.CO_VARKEYWORDS)
    positional, keyword_only = code.co_argcount, code.co_kwonlyargcount
    names = code.co_varnames[: positional + keyword_only + star + stars]
    return _Layout(names, code.co_posonlyargcount, positional, keyword_only, star, stars)


def _mark(name: str) -> str:
    """The constant, and the local name, that stands for one of ours until the code is made."""
    return f"<optbook {name}>"


def _load(name: str) -> ast.expr:
    return ast.Name(name, ast.Load())


def _arguments(layout: _Layout) -> ast.arguments:
    names, positional, middle = layout.names, layout.positional, layout.positional + layout.keyword_only
    rest = [ast.arg(name) for name in names[middle:]]
    return ast.arguments(
        posonlyargs=[ast.arg(name) for name in names[: layout.before_slash]],
        args=[ast.arg(name) for name in names[layout.before_slash : positional]],
        vararg=rest[0] if layout.star else None,
        kwonlyargs=[ast.arg(name) for name in names[positional:middle]],
        kw_defaults=[None] * layout.keyword_only,
        kwarg=rest[-1] if layout.stars else None,
        defaults=[],
    )


@functools.lru_cache(256)
def _template(parts: tuple[str, ...], by: str, flavour: Flavour, layout: _Layout) -> CodeType:
    """The code with marks where constants go."""
    names, positional, middle = layout.names, layout.positional, layout.positional + layout.keyword_only
    arguments = _arguments(layout)
    passed = [_load(name) for name in names[:positional]]
    keywords = [ast.keyword(name, _load(name)) for name in names[positional:middle]]
    if layout.star:
        passed.append(ast.Starred(_load(names[middle]), ast.Load()))
    if layout.stars:
        keywords.append(ast.keyword(None, _load(names[-1])))

    def ended(what: str) -> list[ast.stmt]:
        return _ending(flavour, ast.Call(_load(_mark(what)), passed, keywords))

    counted: list[ast.stmt] = [ast.Expr(ast.Call(_load(_mark("count")), [], []))]
    if "hole" in parts:
        body = counted + ended("hole")
    else:
        body = [*counted, ast.Return(_load(_mark("value")))] if "value" in parts else ended("real")
    if by != "all":
        body = [ast.If(_test(by, layout), body, ended("real"))]
    used = {node.id for statement in body for node in ast.walk(statement) if isinstance(node, ast.Name)}
    given: list[ast.stmt] = [
        ast.Assign([ast.Name(mark, ast.Store())], ast.Constant(mark))
        for mark in map(_mark, (*parts, "chosen"))
        if mark in used
    ]
    function = (ast.AsyncFunctionDef if flavour.startswith(("co", "async")) else ast.FunctionDef)(
        "stub", arguments, given + body, []
    )
    module = ast.fix_missing_locations(ast.Module([function], []))
    compiled = compile(module, "<stub>", "exec", dont_inherit=True)
    return next(constant for constant in compiled.co_consts if isinstance(constant, CodeType))


def _ending(flavour: Flavour, call: ast.expr) -> list[ast.stmt]:
    if flavour == "generator":
        return [ast.Return(ast.YieldFrom(call))]
    if flavour == "coroutine":
        return [ast.Return(ast.Await(call))]
    if flavour == "async generator":
        item = _mark("item")
        each: list[ast.stmt] = [ast.Expr(ast.Yield(_load(item)))]
        return [ast.AsyncFor(ast.Name(item, ast.Store()), call, each, [])]
    return [ast.Return(call)]


def _test(by: str, layout: _Layout) -> ast.expr:
    chosen = _load(_mark("chosen"))
    there: list[ast.expr] = []
    if layout.positional:
        first = _load(layout.names[0])
    else:
        there = [_load(layout.names[layout.keyword_only])]
        first = ast.Subscript(there[0], ast.Constant(0), ast.Load())
    if by == "instance":
        test: ast.expr = ast.Compare(first, [ast.Is()], [chosen])
    else:
        test = ast.Call(chosen, [first], [])
    return ast.BoolOp(ast.And(), [*there, test]) if there else test
