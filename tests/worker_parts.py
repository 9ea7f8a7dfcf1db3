"""What worker processes do in tests: in a module of its own without torch, so that they start quickly."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import sys
from typing import Any

REAL, STUB = 10, -1


def work(x: int) -> Any:
    return REAL * x


def use(x: int) -> Any:
    return work(x)


class Thing:
    def __init__(self, factor: int = 1) -> None:
        self.factor = factor

    def method(self, x: int) -> int:
        return self.factor * x

    @staticmethod
    def static(x: int) -> int:
        return x

    @property
    def value(self) -> int:
        return self.factor


def use_thing(thing: Thing) -> int:
    return thing.method(1)


def use_all(thing: Thing) -> tuple[Any, ...]:
    return work(1), thing.method(1), Thing.static(1), thing.value, math.lcm(2, 3)


class Unreadable:
    """Is pickled, but not read again."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("no number",)


def unreadable(x: int) -> Any:
    return Unreadable()


def unpicklable(x: int) -> Any:
    return sys._getframe()


def call_both(x: int) -> int:
    unreadable(x)
    unpicklable(x)
    return x


def die(x: int) -> None:
    work(x)
    os.kill(os.getpid(), signal.SIGKILL)


def answer(queue: Any, thing: Thing) -> None:
    queue.put((use_thing(thing), use_thing(Thing(3))))


def nested(method: str, queue: Any) -> None:
    """A worker that has workers."""
    with multiprocessing.get_context(method).Pool(1) as pool:
        queue.put([use(1), *pool.map(use, range(2))])
