"""Who was at work from when to when: reads the events of a `Watch` from the first to the last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from optbook.benchmark.profiles.module_watch import END, IN, MARK, OFF, OUT, PROFILE, Event

LOSS, OTHER = "loss", "other"


class Stretch(NamedTuple):
    """A stretch of time and who was at work in it: a module, or the name of something else."""

    whose: Any
    backward: bool
    begin: float
    end: float


class _Frame(NamedTuple):
    whose: Any
    task: int | None
    backward: bool


def stretches(events: Iterable[Event]) -> Iterator[Stretch]:
    """The stretches, without gaps but for the time in which the watch was not running.

    'loss' is what lies between a model's output and the gradient that comes back to it, and what of the
    backward pass belongs to no module. A module called in a backward pass (checkpointing) works for it.
    """
    stack: list[_Frame] = []
    last: float | None = None
    returned = False
    for time, kind, what in events:
        if last is not None and time > last:
            if stack:
                yield Stretch(stack[-1].whose, stack[-1].backward, last, time)
            else:
                yield Stretch(LOSS if returned and kind == MARK else OTHER, False, last, time)
        last = time
        if kind == OFF:
            stack, last, returned = [], None, False
        elif kind == IN:
            returned = returned and (bool(stack) or what == PROFILE)
            stack.append(_Frame(what, None, bool(stack) and stack[-1].backward))
        elif kind == OUT:
            _cut(stack, _found(stack, whose=what))
            returned = returned or (not stack and not isinstance(what, str))
        elif kind == MARK:
            task, owner = what
            _cut(stack, _found(stack, task=task))
            stack.append(_Frame(LOSS if owner is None else owner, task, True))
        elif kind == END:
            _cut(stack, _found(stack, task=what))
            returned = False


def _found(stack: list[_Frame], whose: Any = None, task: int | None = None) -> int:
    """Where the innermost frame of somebody, or of a backward pass, is; the end of the stack if nowhere."""
    for place in range(len(stack) - 1, -1, -1):
        frame = stack[place]
        if (task is not None and frame.task == task) or (
            task is None and frame.task is None and frame.whose is whose
        ):
            return place
    return len(stack)


def _cut(stack: list[_Frame], place: int) -> None:
    del stack[place:]
