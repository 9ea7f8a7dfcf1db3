"""Where the tasks of an event loop wait while the loop has nothing to do."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import CoroutineType, FrameType, GeneratorType
from typing import Any

FARTHEST = 3
"""So many frames at most lie between an idle loop's own and the innermost: those of its selector."""


def waiting_tasks(frame: FrameType) -> tuple[FrameType, Sequence[Sequence[FrameType]]] | None:
    """The loop's own frame, and for each task that waits for something outside the frames of its coroutines.

    Tasks that wait for other tasks are left out: those are what takes the time.

    Args:
        frame: the innermost of a thread.

    Returns:
        Frames from the outermost on; None if the thread is not in an idle event loop, or nothing waits there.
    """
    asyncio = sys.modules.get("asyncio")
    own = _loop_frame(frame, asyncio) if asyncio is not None else None
    if asyncio is None or own is None:
        return None
    found = []
    for task in asyncio.all_tasks(own.f_locals["self"]):
        if not _waits_for_tasks(task, asyncio):
            found.append(_frames(task.get_coro()))
    found = [frames for frames in found if frames]
    return (own, found) if found else None


def _loop_frame(frame: FrameType | None, asyncio: Any) -> FrameType | None:
    code = asyncio.BaseEventLoop._run_once.__code__
    for _ in range(FARTHEST):
        if frame is None:
            return None
        if frame.f_code is code:
            return frame
        if "select" not in frame.f_code.co_qualname.lower():
            return None
        frame = frame.f_back
    return None


def _waits_for_tasks(task: Any, asyncio: Any) -> bool:
    awaited = getattr(task, "_fut_waiter", None)
    return isinstance(awaited, asyncio.Task) or hasattr(awaited, "_children")


def _frames(awaited: Any) -> list[FrameType]:
    found: list[FrameType] = []
    while True:
        if isinstance(awaited, CoroutineType):
            frame, awaited = awaited.cr_frame, awaited.cr_await
        elif isinstance(awaited, GeneratorType):
            frame, awaited = awaited.gi_frame, awaited.gi_yieldfrom
        else:
            return found
        if frame is not None:
            found.append(frame)
