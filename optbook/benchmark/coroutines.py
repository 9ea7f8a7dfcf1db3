"""Run a coroutine to its end in an event loop of its own, also where a loop is running already."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import threading
from collections.abc import Callable, Coroutine
from typing import Any

LOOK_EVERY_SECONDS = 0.1
"""Windows delivers an interrupt only between two waits."""
CANCEL_SECONDS = 1.0


def run(start: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Await ``start()`` in a new event loop and return its result.

    In a notebook the kernel's loop runs in this thread, and a thread has one running loop at most:
    the new loop then gets a thread of its own. What is tied to the kernel's loop can't be awaited
    there. An interrupt cancels the coroutine, and stops it where it does not await either.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(start())
    return _run_in_thread(start)


def _run_in_thread(start: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    loop = asyncio.new_event_loop()
    result: dict[str, Any] = {}
    finished = threading.Event()

    async def main() -> Any:
        result["task"] = asyncio.current_task()
        return await start()

    def target() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                try:
                    result["value"] = runner.run(main())
                except BaseException as exception:
                    result["exception"] = exception
        finally:
            finished.set()

    thread = threading.Thread(target=contextvars.copy_context().run, args=(target,), name="optbook-await")
    thread.start()
    try:
        _wait_for(finished)
    except KeyboardInterrupt as interrupt:
        if "task" in result:
            with contextlib.suppress(RuntimeError):  # the loop may have ended and be closed by now
                loop.call_soon_threadsafe(result["task"].cancel)
        if not finished.wait(CANCEL_SECONDS):
            _raise_inside(thread)
            _wait_for(finished)
        if "exception" in result:
            interrupt.__traceback__ = result["exception"].__traceback__
        raise
    if "exception" in result:
        raise result["exception"]
    return result["value"]


def _wait_for(event: threading.Event) -> None:
    """Wait; unlike ``Thread.join`` this may be interrupted and called again (before Python 3.13)."""
    while not event.wait(LOOK_EVERY_SECONDS):
        pass


def _raise_inside(thread: threading.Thread) -> None:
    """Raise KeyboardInterrupt in a thread that runs Python code."""
    interrupt = ctypes.py_object(KeyboardInterrupt)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), interrupt)
