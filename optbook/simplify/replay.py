"""Calls a component for real until enough is recorded, and gives out what was recorded from then on."""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Hashable, Iterator
from typing import Any

from optbook.benchmark.clock import Clock
from optbook.formatting import bytes_
from optbook.simplify import autograd, trees
from optbook.simplify.patching import Constant, Real
from optbook.simplify.processes import Channel
from optbook.simplify.recording import ITEMS, AsyncItems, Awaited, Items, Outcome, Recording, Returned, Wait

_form = trees.form_of_call


class Replaying:
    """The filling of a stub that replays.

    What the real call returned decides: a value, an iterator (its items are recorded), an awaitable (what
    it comes to is), an async iterator.

    Args:
        recording: where outcomes are kept.
        wait: spends time in a replayed call; None: none is spent.
        clock: times the real calls.
    """

    def __init__(self, recording: Recording, wait: Wait | None = None, clock: Clock | None = None) -> None:
        self.recording = recording
        self._wait = wait
        self._clock = clock or Clock()
        self._thread = threading.local()
        self._gradients: dict[Hashable, autograd.Gradients] = {}

    def taking(self, wait: Wait | None) -> Replaying:
        """The same recording given out, with other time spent in a replayed call."""
        other = copy.copy(self)
        other._wait = wait
        return other

    @property
    def is_graded(self) -> bool:
        """Whether outputs have a graph behind them: a replayed one stands for forward and backward."""
        return bool(self._gradients)

    def __getstate__(self) -> dict[str, Any]:
        """For another process; see `processes`."""
        return {**self.__dict__, "_thread": None, "_gradients": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._thread = threading.local()

    def tells(self, channel: Channel) -> None:
        """See `processes.Telling`."""
        self._thread = threading.local()
        self.recording.tells(channel)

    def learns(self, told: Any) -> None:
        """See `processes.Telling`."""
        self.recording.learns(told)

    def fill(self, real: Real) -> Constant | Callable[..., Any]:
        """See `patching.Filling`."""
        ready, wait, call = self.recording.ready, self._wait, real.call

        def replayed(*args: Any, **kwargs: Any) -> Any:
            key = _form(args, kwargs)
            try:
                outcome = ready[key]()
            except KeyError:
                return self._first(call, key, args, kwargs)
            return outcome.give(args, kwargs, wait)

        if wait is not None:
            return replayed
        values = self.recording.values

        def replayed_at_once(*args: Any, **kwargs: Any) -> Any:
            try:
                return values[_form(args, kwargs)]()
            except KeyError:
                return replayed(*args, **kwargs)

        return replayed_at_once

    def _first(
        self, real: Callable[..., Any], key: Hashable, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A real call, recorded unless it is a miss, or is made by the component itself while it runs."""
        if getattr(self._thread, "busy", False):
            return real(*args, **kwargs)
        if not self.recording.starts(key):
            return real(*args, **kwargs)
        self._thread.busy = True
        try:
            return self._recorded(real, key, args, kwargs)
        except BaseException:
            self.recording.failed(key)
            raise
        finally:
            self._thread.busy = False

    def _recorded(
        self, real: Callable[..., Any], key: Hashable, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        graph = autograd.Inputs(args, kwargs) if autograd.is_on() else None
        start = self._now()
        result = real(*args, **kwargs)
        if isinstance(result, Iterator):
            return self._items(key, result)
        if isinstance(result, AsyncIterator):
            return self._async_items(key, result)
        if isinstance(result, Awaitable) and not hasattr(result, "done"):
            return self._awaited(key, result)
        seconds = self._now() - start
        if graph is not None and graph.reaches(result):
            gradients = self._gradients.setdefault(key, autograd.Gradients())
            bridged = graph.bridged(result, gradients, seconds, self.recording)
            if bridged is not None:
                result, graded, kept = bridged
                self._add(key, graded, seconds, kept)
                return result
        value, copy = self._kept(result)
        self._add(key, Returned(value, seconds, copy), seconds, value)
        return result

    def _now(self) -> float:
        if "torch" in sys.modules:
            self._clock.synchronize()
        return self._clock.now()

    def _kept(self, value: Any) -> tuple[Any, bool]:
        value, copy = self.recording.copied(value)
        return autograd.cut(value), copy

    def _add(self, key: Hashable, outcome: Outcome, seconds: float, kept: Any) -> None:
        self.recording.add(key, outcome, seconds, kept)

    def _items(self, key: Hashable, iterator: Any) -> Generator[Any, Any, Any]:
        taken, sent = _Taken(self.recording), None
        try:
            while True:
                start = self._now()
                try:
                    item = next(iterator) if sent is None else iterator.send(sent)
                except StopIteration as stop:
                    taken.ended, taken.result = True, stop.value
                    return stop.value
                taken.add(item, self._now() - start)
                sent = yield item
        except GeneratorExit:
            taken.ended = True
            taken.left()
            raise
        finally:
            self._add_items(key, taken, Items)

    async def _async_items(self, key: Hashable, iterator: AsyncIterator[Any]) -> AsyncIterator[Any]:
        taken = _Taken(self.recording)
        try:
            while True:
                start = self._now()
                try:
                    item = await anext(iterator)
                except StopAsyncIteration:
                    taken.ended = True
                    return
                taken.add(item, self._now() - start)
                yield item
        except GeneratorExit:
            taken.ended = True
            taken.left()
            raise
        finally:
            self._add_items(key, taken, AsyncItems)

    def _add_items(self, key: Hashable, taken: _Taken, kind: type[Items]) -> None:
        if not taken.ended or (taken.number and not taken.items):
            if taken.ended:
                self.recording.note(f"an item takes more than the limit of {bytes_(self.recording.limit)}")
            self.recording.failed(key)
            return
        mean = taken.seconds / max(1, taken.number)
        outcome = kind(tuple(taken.items), taken.number, mean, taken.result, taken.copy)
        self._add(key, outcome, taken.seconds, taken.items)

    async def _awaited(self, key: Hashable, awaitable: Awaitable[Any]) -> Any:
        start = self._now()
        try:
            result = await awaitable
        except BaseException:
            self.recording.failed(key)
            raise
        seconds = self._now() - start
        value, copy = self._kept(result)
        self._add(key, Awaited(value, seconds, copy), seconds, value)
        return result


class _Taken:
    """What an iterator has given so far: the first items, as far as there is room for them."""

    def __init__(self, recording: Recording) -> None:
        self.items: list[Any] = []
        self.number = 0
        self.seconds = 0.0
        self.copy = False
        self.ended = False
        self.result: Any = None
        self._recording = recording
        self._room = recording.limit - recording.bytes

    def add(self, item: Any, seconds: float) -> None:
        """An item that was given after so many seconds."""
        self.number += 1
        self.seconds += seconds
        if len(self.items) == ITEMS or self._room <= 0:
            return
        self._room -= trees.size(item)
        if self._room >= 0:
            value, self.copy = self._recording.copied(item)
            self.items.append(autograd.cut(value))

    def left(self) -> None:
        """The iterator was left before it ended."""
        if self.number:
            self._recording.note(f"an iterator was left after {self.number} items: replayed ones end there")


class ReplayingBackward(Replaying):
    """Replays `backward`: what it returns is nothing, what it does is to add gradients to parameters."""

    def _recorded(
        self, real: Callable[..., Any], key: Hashable, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        parameters = autograd.parameters_of(args, kwargs)
        start = self._now()
        gradients = autograd.added(parameters, lambda: real(*args, **kwargs))
        seconds = self._now() - start
        outcome = autograd.Accumulated(parameters, gradients, seconds)
        self._add(key, outcome, seconds, gradients)
