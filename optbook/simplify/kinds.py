"""The kinds of stubs: what each returns, and how long it takes."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from optbook.errors import OptionError
from optbook.simplify.fillings import Calling, Giving, MadeUp, parsed
from optbook.simplify.patching import Filling
from optbook.simplify.recording import KEEP, LIMIT, Recording, Wait
from optbook.simplify.replay import Replaying, ReplayingBackward

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
        return Giving(self.value, self.copy, None), None


@dataclass(frozen=True)
class Skip(Kind):
    """Returns None; a generator gives nothing."""

    name: ClassVar[str] = "skip"

    def filling(self, backward: bool) -> tuple[Filling, None]:
        return Giving(None, False, None), None


@dataclass(frozen=True)
class Dummy(Kind):
    """Returns data made up after ``like``, or after what the first call really returns; see `dummy`."""

    like: Any = REPLAYED
    copy: bool = False
    name: ClassVar[str] = "dummy"

    def filling(self, backward: bool) -> tuple[Filling, Recording | None]:
        from optbook.simplify.dummy import dummy

        if self.like is not REPLAYED:
            return Giving(dummy(self.like), self.copy, None), None
        recording = Recording(keep=1, copy=self.copy)
        return MadeUp(recording), recording


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
            return Giving(self.value, self.copy, self._wait()), None
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
            parsed(self.body)
        elif not callable(self.body):
            raise OptionError(f"the body is {self.body!r}: give a function, or the source of one")

    def filling(self, backward: bool) -> tuple[Filling, None]:
        return Calling(self.body, self.namespace), None


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
