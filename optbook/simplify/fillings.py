"""What the kinds of stubs do in a call: give a value, make one up, call another function."""

from __future__ import annotations

import ast
import linecache
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from optbook.errors import OptionError
from optbook.simplify import autograd, compiled, trees
from optbook.simplify.patching import Constant, Real
from optbook.simplify.recording import Awaited, Items, Outcome, Recording, Returned, Wait
from optbook.simplify.replay import Replaying
from optbook.simplify.trampoline import Flavour, arguments_of


@dataclass(frozen=True)
class Giving:
    """Always the same value."""

    value: Any
    copy: bool
    wait: Wait | None

    def fill(self, real: Real) -> Constant | Callable[..., Any]:
        value, wait = self.value, self.wait
        if real.flavour in ("generator", "async generator"):
            return self._iterated(real)
        if wait is None and not self.copy:
            return Constant(value)

        def given(*args: Any, **kwargs: Any) -> Any:
            if wait is not None:
                wait.now(0.0)
            return trees.copied(value) if self.copy else value

        async def given_later(*args: Any, **kwargs: Any) -> Any:
            if wait is not None:
                await wait.later(0.0)
            return trees.copied(value) if self.copy else value

        return given_later if real.flavour == "coroutine" else given

    def _iterated(self, real: Real) -> Callable[..., Any]:
        items = () if self.value is None else self.value
        if not isinstance(items, Iterable) or isinstance(items, Iterator):
            raise OptionError(f"{real.name} is a generator: give a list of what it is to yield")
        wait, give = self.wait, trees.copied if self.copy else _same

        def iterated(*args: Any, **kwargs: Any) -> Iterator[Any]:
            for item in items:
                if wait is not None:
                    wait.now(0.0)
                yield give(item)

        async def iterated_later(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            for item in items:
                if wait is not None:
                    await wait.later(0.0)
                yield give(item)

        return iterated if real.flavour == "generator" else iterated_later


def _same(value: Any) -> Any:
    return value


class MadeUp(Replaying):
    """Made up after what the first call came to."""

    def __init__(self, recording: Recording) -> None:
        super().__init__(recording)
        self._made: Outcome | None = None

    def fill(self, real: Real) -> Constant | Callable[..., Any]:
        self._real = real
        if type(self._made) is Returned and real.flavour == "function" and not self._made.copy:
            return Constant(self._made.value)

        def made_up(*args: Any, **kwargs: Any) -> Any:
            if self._made is None:
                return self._first(real.call, None, args, kwargs)
            return self._made.give(args, kwargs, None)

        return made_up

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_real": None}

    def learns(self, told: Any) -> None:
        if self._made is None and self.recording.learns(told):
            self._made = told.outcome
            self._real.refill()

    def _add(self, key: Hashable, outcome: Outcome, seconds: float, kept: Any) -> None:
        from optbook.simplify.dummy import dummy

        if self._made is None:
            if isinstance(outcome, autograd.Graded):
                self._made = outcome.changed(dummy)
            elif isinstance(outcome, Items):
                self._made = replace(outcome, items=dummy(outcome.items))
            elif isinstance(outcome, (Returned, Awaited)):
                self._made = replace(outcome, value=dummy(outcome.value))
            else:
                self._made = outcome
            super()._add(key, self._made, seconds, kept)
            self._real.refill()


@dataclass(frozen=True)
class Calling:
    """Another function, or the source of its body."""

    body: Callable[..., Any] | str
    namespace: dict[str, Any]

    def __getstate__(self) -> dict[str, Any]:
        """For another process: of the names that the source's other ones live among, those it uses."""
        used = _names_in(self.body) if isinstance(self.body, str) else set()
        names = {name: value for name, value in self.namespace.items() if name in used}
        return {"body": self.body, "namespace": names}

    def fill(self, real: Real) -> Callable[..., Any]:
        body = _compiled(self.body, real, self.namespace) if isinstance(self.body, str) else self.body
        body = compiled.disabled(body)

        def iterated(*args: Any, **kwargs: Any) -> Any:
            return body(*args, **kwargs) or ()

        async def awaited(*args: Any, **kwargs: Any) -> Any:
            result = body(*args, **kwargs)
            return await result if isinstance(result, Awaitable) else result

        async def iterated_later(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            result = body(*args, **kwargs)
            if isinstance(result, AsyncIterable):
                async for item in result:
                    yield item
            else:
                for item in result or ():
                    yield item

        holes: dict[Flavour, Callable[..., Any]] = {
            "function": body,
            "generator": iterated,
            "coroutine": awaited,
            "async generator": iterated_later,
        }
        return holes[real.flavour]


def parsed(source: str) -> ast.Module:
    """The source of a body, read.

    Raises:
        OptionError: it can't be, or there is none.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise OptionError(f"the body can't be read: {error.msg} in line {error.lineno}") from None
    if not tree.body:
        raise OptionError("the body is empty: write what the stub is to do, or use kind='skip'")
    return tree


def _names_in(source: str) -> set[str]:
    return {node.id for node in ast.walk(parsed(source)) if isinstance(node, ast.Name)}


def _compiled(source: str, real: Real, namespace: dict[str, Any]) -> Callable[..., Any]:
    """The function that the source is the body of; or the one that it defines, if that is all it does."""
    tree = parsed(source)
    *_, last = body = tree.body
    given = len(body) == 1 and isinstance(last, (ast.FunctionDef, ast.AsyncFunctionDef))
    if given:
        body = [*body, ast.Return(ast.Name(last.name, ast.Load()))]  # type: ignore[attr-defined]
    else:
        if isinstance(last, ast.Expr) and not isinstance(last.value, (ast.Yield, ast.YieldFrom)):
            body = [*body[:-1], ast.Return(last.value)]
        later = real.flavour in ("coroutine", "async generator")
        kind = ast.AsyncFunctionDef if later else ast.FunctionDef
        body = [
            kind("body", arguments_of(real.call.__code__), body, []),
            ast.Return(ast.Name("body", ast.Load())),
        ]
    outer = ast.FunctionDef("make", ast.arguments([], [ast.arg("real")], None, [], [], None, []), body, [])
    file = f"<stub of {real.name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    made: dict[str, Any] = {}
    module = ast.fix_missing_locations(ast.Module([outer], []))
    try:
        exec(compile(module, file, "exec", dont_inherit=True), namespace, made)
    except SyntaxError as error:
        raise OptionError(f"the body can't be read: {error.msg} in line {error.lineno}") from None
    function: Callable[..., Any] = made["make"](real.call)
    return function
