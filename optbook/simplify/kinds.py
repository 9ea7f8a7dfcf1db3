"""The kinds of stubs: what each returns, and how long it takes."""

from __future__ import annotations

import ast
import asyncio
import hashlib
import linecache
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from optbook.errors import OptionError
from optbook.simplify import autograd, compiled, trees
from optbook.simplify.patching import Constant, Filling, Real
from optbook.simplify.recording import KEEP, LIMIT, Awaited, Items, Outcome, Recording, Returned, Wait
from optbook.simplify.replay import Replaying, ReplayingBackward
from optbook.simplify.trampoline import Flavour, arguments_of

# The originals, whatever is stubbed.
_sleep, _thread_time = time.sleep, time.thread_time
_async_sleep = asyncio.sleep
_BLOCK = bytes(1 << 14)


class _Replayed:
    def __repr__(self) -> str:
        return "what was recorded"


REPLAYED = _Replayed()


class Kind:
    """What a stub does, as it was asked for: frozen, so that it can be sent to other processes."""

    name: ClassVar[str]

    def filling(self, backward: bool) -> tuple[Filling, Recording | None]:
        """What does it in one process, and what that records; ``backward``: the component is autograd's."""
        raise NotImplementedError


@dataclass(frozen=True)
class Value(Kind):
    """Returns ``value``; a generator gives its items."""

    value: Any = None
    copy: bool = False
    name: ClassVar[str] = "value"

    def filling(self, backward: bool) -> tuple[Filling, None]:
        return _Giving(self.value, self.copy, None), None


@dataclass(frozen=True)
class Skip(Kind):
    """Returns None; a generator gives nothing."""

    name: ClassVar[str] = "skip"

    def filling(self, backward: bool) -> tuple[Filling, None]:
        return _Giving(None, False, None), None


@dataclass(frozen=True)
class Dummy(Kind):
    """Returns data made up after ``like``, or after what the first call really returns; see `dummy`."""

    like: Any = REPLAYED
    copy: bool = False
    name: ClassVar[str] = "dummy"

    def filling(self, backward: bool) -> tuple[Filling, Recording | None]:
        from optbook.simplify.dummy import dummy

        if self.like is not REPLAYED:
            return _Giving(dummy(self.like), self.copy, None), None
        recording = Recording(keep=1, copy=self.copy)
        return _MadeUp(recording), recording


@dataclass(frozen=True)
class Replay(Kind):
    """Gives out what real calls returned; the first calls are real, ``keep`` for each form of arguments.

    Args:
        keep: how many outputs are recorded for each form of the arguments.
        limit: bytes that recorded outputs may take.
        copy: give copies, where those who get the outputs change them.
    """

    keep: int = KEEP
    limit: float = LIMIT
    copy: bool = False
    name: ClassVar[str] = "replay"

    def __post_init__(self) -> None:
        Recording(self.keep, self.limit)

    def filling(self, backward: bool) -> tuple[Filling, Recording | None]:
        recording = Recording(self.keep, self.limit, copy=self.copy)
        return self._replaying(recording, backward, None), recording

    def _replaying(self, recording: Recording, backward: bool, wait: Wait | None) -> Replaying:
        return (ReplayingBackward if backward else Replaying)(recording, wait)


@dataclass(frozen=True)
class Sleep(Replay):
    """Waits, then gives out what real calls returned, or ``value``.

    Args:
        seconds: how long a call takes; None: as long as the real call whose output is given out.
        speedup: that time is divided by it.
        value: what is returned instead of a recorded output.
    """

    seconds: float | None = None
    speedup: float = 1.0
    value: Any = REPLAYED
    name: ClassVar[str] = "sleep"

    def __post_init__(self) -> None:
        super().__post_init__()
        seconds: object = self.seconds
        if seconds is not None and not (isinstance(seconds, (int, float)) and 0 <= seconds < 86_400):
            raise OptionError(f"seconds is {seconds!r}: give a number from 0 on, such as 0.01")
        speedup: object = self.speedup
        if not (isinstance(speedup, (int, float)) and speedup > 0):
            raise OptionError(f"speedup is {self.speedup!r}: give a number above 0, such as 2")
        if self.value is not REPLAYED and self.seconds is None:
            raise OptionError(
                f"{self.name} with a value calls nothing whose time it could take: give seconds=…"
            )

    def filling(self, backward: bool) -> tuple[Filling, Recording | None]:
        if self.value is not REPLAYED:
            return _Giving(self.value, self.copy, self._wait()), None
        recording = Recording(self.keep, self.limit, copy=self.copy)
        return self._replaying(recording, backward, self._wait()), recording

    def _wait(self) -> Wait:
        return Sleeping(self.seconds, self.speedup)


@dataclass(frozen=True)
class Spin(Sleep):
    """Like `Sleep`, but keeps a core busy all the while.

    Args:
        holds_gil: whether other threads can't run Python meanwhile, as with a component written in Python;
            one that computes in C, as NumPy and torch do, lets them.
    """

    holds_gil: bool = True
    name: ClassVar[str] = "spin"

    def _wait(self) -> Wait:
        return Spinning(self.seconds, self.speedup, self.holds_gil)


@dataclass(frozen=True)
class Body(Kind):
    """Calls another function with the same arguments.

    Args:
        body: the function; or the source of its body, in which the component's arguments have their names
            and ``real`` is the component; the value of a last expression is returned.
        namespace: where the source's other names live.
    """

    body: Callable[..., Any] | str
    namespace: dict[str, Any] = field(default_factory=dict)
    name: ClassVar[str] = "body"

    def __post_init__(self) -> None:
        if isinstance(self.body, str):
            _parsed(self.body)
        elif not callable(self.body):
            raise OptionError(f"the body is {self.body!r}: give a function, or the source of one")

    def filling(self, backward: bool) -> tuple[Filling, None]:
        return _Calling(self.body, self.namespace), None


@dataclass(frozen=True)
class Sleeping:
    """Waits without using a core."""

    seconds: float | None
    speedup: float = 1.0

    def now(self, measured: float) -> None:
        _sleep(self._time(measured))

    async def later(self, measured: float) -> None:
        await _async_sleep(self._time(measured))

    def _time(self, measured: float) -> float:
        return (measured if self.seconds is None else self.seconds) / self.speedup


@dataclass(frozen=True)
class Spinning(Sleeping):
    """Uses up so many seconds of a core: where cores are short it takes longer, as real work does."""

    holds_gil: bool = True

    def now(self, measured: float) -> None:
        end = _thread_time() + self._time(measured)
        if self.holds_gil:
            while _thread_time() < end:
                pass
        else:
            while _thread_time() < end:
                hashlib.sha1(_BLOCK, usedforsecurity=False)

    async def later(self, measured: float) -> None:
        self.now(measured)


# Fillings


@dataclass(frozen=True)
class _Giving:
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


class _MadeUp(Replaying):
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
class _Calling:
    """Another function, or the source of its body."""

    body: Callable[..., Any] | str
    namespace: dict[str, Any]

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


def _parsed(source: str) -> ast.Module:
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise OptionError(f"the body can't be read: {error.msg} in line {error.lineno}") from None
    if not tree.body:
        raise OptionError("the body is empty: write what the stub is to do, or use kind='skip'")
    return tree


def _compiled(source: str, real: Real, namespace: dict[str, Any]) -> Callable[..., Any]:
    """The function that the source is the body of; or the one that it defines, if that is all it does."""
    tree = _parsed(source)
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
