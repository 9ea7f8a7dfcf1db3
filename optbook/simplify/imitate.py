"""Imitations of a component that is faster than it is, and what they need to know of it.

Two are tried. *Thinned*: the real component is called in a part of the calls, and replayed in between, so
that what it does to caches, locks and other cores stays that of the real code. *Scaled*: every call is
replayed and takes a part of the time of the real one, on a core where that computed, asleep where it waited.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Hashable, Iterator
from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar

from optbook.simplify import trees
from optbook.simplify.kinds import Kind, Sleeping, Spinning
from optbook.simplify.patching import Constant, Filling, Real
from optbook.simplify.processes import Channel, Telling


@dataclass(frozen=True)
class Cost:
    """What a call takes, in seconds: computing on its own thread's core, and waiting."""

    computing: float
    waiting: float

    @property
    def seconds(self) -> float:
        """Both together."""
        return self.computing + self.waiting

    @property
    def waits(self) -> bool:
        """Whether most of it is waiting."""
        return self.waiting > self.computing


LATER = (Iterator, AsyncIterator, Awaitable)
"""What a call may return before it has done its work."""


class Timed:
    """A filling that calls the component for real, and notes what each call took and returned."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self.costs: list[Cost] = []
        self.running = 0
        self.returned_something = False
        self._tell: Callable[[object], None] | None = None

    def fill(self, real: Real) -> Callable[..., Any]:
        """See `patching.Filling`."""
        call, flavour = real.call, real.flavour

        def timed(*args: Any, **kwargs: Any) -> Any:
            wall, cpu = self._now(), time.thread_time()
            self.running += 1
            try:
                value = call(*args, **kwargs)
            finally:
                self.running -= 1
            if isinstance(value, LATER):  # its work is done later
                self._returned(None, True)
            else:
                self._note(self._now() - wall, time.thread_time() - cpu, value)
            return value

        def started(*args: Any, **kwargs: Any) -> Any:
            self._returned(None, True)
            return call(*args, **kwargs)

        async def awaited(*args: Any, **kwargs: Any) -> Any:
            return await _Driven(call(*args, **kwargs), self._note)

        return {"function": timed, "coroutine": awaited}.get(flavour, started)

    def _note(self, wall: float, cpu: float, value: object) -> None:
        self._returned(Cost(min(cpu, wall), max(0.0, wall - cpu)), value is not None)

    def _returned(self, cost: Cost | None, something: bool) -> None:
        if self._tell is not None:
            self._tell((cost, something))
            return
        self.returned_something |= something
        if cost is not None:
            self.costs.append(cost)

    def __reduce__(self) -> tuple[Any, ...]:
        """One for another process has seen nothing yet."""
        return Timed, (self._now,)

    def tells(self, channel: Channel) -> None:
        """See `processes.Telling`."""
        self._tell = channel.send

    def learns(self, told: Any) -> None:
        """See `processes.Telling`."""
        self._returned(*told)

    @property
    def cost(self) -> Cost | None:
        """The mean over the calls; None without any.

        What a call that computes waits besides is mostly for a lock or a core that others hold, which varies:
        of that only what even the luckier calls had to wait counts.
        """
        if not self.costs:
            return None
        waiting = sorted(cost.waiting for cost in self.costs)
        mean = Cost(fmean(cost.computing for cost in self.costs), fmean(waiting))
        return mean if mean.waits else Cost(mean.computing, waiting[len(waiting) // 5])


class _Driven:
    """An awaitable that passes on what a coroutine awaits, and adds up the CPU time of its own steps."""

    def __init__(self, coroutine: Any, note: Callable[[float, float, object], None]) -> None:
        self._coroutine = coroutine
        self._note = note

    def __await__(self) -> Generator[Any, Any, Any]:
        started, cpu = time.perf_counter(), 0.0
        sent: Any = None
        step: Callable[[Any], Any] = self._coroutine.send
        while True:
            before = time.thread_time()
            try:
                awaited = step(sent)
            except StopIteration as ended:
                self._note(time.perf_counter() - started, cpu + time.thread_time() - before, ended.value)
                return ended.value
            cpu += time.thread_time() - before
            step = self._coroutine.send
            try:
                sent = yield awaited
            except BaseException as error:
                step, sent = self._coroutine.throw, error


class Thinned:
    """A filling that calls the component for real in a random part of the calls.

    They are drawn in blocks, apart for each form of the arguments: of every block the same number of calls is
    real, but which ones is chance, so that costs that alternate are not picked by their turn.

    Args:
        replaying: the filling that gives recorded outputs in the other calls.
        part: the part of the calls that is real, between 0 and 1.
        seed: of the draw.
    """

    def __init__(self, replaying: Filling, part: float, seed: int = 0) -> None:
        self._replaying = replaying
        self._part = part
        self._block = max(2, round(2 / part))
        self._random = random.Random(seed)
        self._drawn: dict[Hashable, list[bool]] = {}
        self._owed: dict[Hashable, float] = {}
        self._lock = threading.Lock()

    def fill(self, real: Real) -> Callable[..., Any]:
        """See `patching.Filling`."""
        replayed = self._replaying.fill(real)
        assert not isinstance(replayed, Constant)
        call = real.call

        def thinned(*args: Any, **kwargs: Any) -> Any:
            if self._is_real(trees.form_of_call(args, kwargs)):
                return call(*args, **kwargs)
            return replayed(*args, **kwargs)

        return thinned

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    def tells(self, channel: Channel) -> None:
        """See `processes.Telling`."""
        self._lock = threading.Lock()
        self._random.seed(os.getpid())
        if isinstance(self._replaying, Telling):
            self._replaying.tells(channel)

    def learns(self, told: Any) -> None:
        """See `processes.Telling`."""
        if isinstance(self._replaying, Telling):
            self._replaying.learns(told)

    @property
    def recording(self) -> object:
        """What the replayed calls give out."""
        return getattr(self._replaying, "recording", None)

    def _is_real(self, key: Hashable) -> bool:
        with self._lock:
            drawn = self._drawn.get(key)
            if not drawn:
                drawn = self._drawn[key] = self._draw(key)
            return drawn.pop()

    def _draw(self, key: Hashable) -> list[bool]:
        owed = self._owed.get(key, 0.5) + self._part * self._block
        number = int(owed)
        self._owed[key] = owed - number
        block = [True] * number + [False] * (self._block - number)
        self._random.shuffle(block)
        return block


class Partly:
    """The time of a replayed call: a part of the real one's, see `recording.Wait`.

    Args:
        cost: of a real call.
        part: the part of it that is left, between 0 and 1.
        holds_gil: whether the real component holds Python's lock while it computes.
        recorded: mean seconds of the calls that were recorded: a replayed call's own cost is in proportion.
    """

    def __init__(self, cost: Cost, part: float, recorded: float, *, holds_gil: bool) -> None:
        self._computing = cost.computing / cost.seconds if cost.seconds else 0.0
        self._factor = part * cost.seconds / recorded if recorded else 0.0
        self._spinning = Spinning(None, holds_gil=holds_gil)
        self._sleeping = Sleeping(None)

    def now(self, measured: float) -> None:
        """Spend it in this thread."""
        computing, waiting = self._split(measured)
        self._spinning.now(computing)
        if waiting > SHORTEST_SLEEP:
            self._sleeping.now(waiting - SHORTEST_SLEEP)

    async def later(self, measured: float) -> None:
        """Spend it in this task."""
        computing, waiting = self._split(measured)
        self._spinning.now(computing)
        if waiting > SHORTEST_SLEEP:
            await self._sleeping.later(waiting - SHORTEST_SLEEP)

    def _split(self, measured: float) -> tuple[float, float]:
        seconds = measured * self._factor
        return seconds * self._computing, seconds * (1 - self._computing)


SHORTEST_SLEEP = 60e-6
"""What a sleep takes longer than it was asked to, on an ordinary system."""


@dataclass(frozen=True)
class Filled(Kind):
    """A kind of stub that does what it is given."""

    what: Filling
    name: ClassVar[str] = "imitation"

    def filling(self, backward: bool) -> tuple[Filling, None]:
        """See `Kind`."""
        return self.what, None


class LockProbe:
    """Tells whether a component lets go of Python's lock: a thread asks for it while the component runs."""

    _ASK_SECONDS = 1e-3
    _LATE_SECONDS = 1e-3

    def __init__(self, running: Callable[[], bool]) -> None:
        self._running = running
        self._ended = threading.Event()
        self._late: list[bool] = []
        self._thread = threading.Thread(target=self._ask, name="optbook-lock", daemon=True)

    def __enter__(self) -> LockProbe:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._thread.join()

    def _ask(self) -> None:
        while not self._ended.is_set():
            inside = self._running()
            asked = time.perf_counter()
            time.sleep(self._ASK_SECONDS)
            late = time.perf_counter() - asked - self._ASK_SECONDS
            if (inside and self._running()) or late > self._LATE_SECONDS:
                self._late.append(late > self._LATE_SECONDS)

    @property
    def holds_gil(self) -> bool:
        """Whether the lock could mostly not be had at once; true where it was never asked for."""
        return not self._late or sum(self._late) >= len(self._late) / 2
