"""Run a coroutine to its end in an event loop of its own, also where a loop is running already."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from typing import Any


def run(start: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Await ``start()`` in a new event loop and return its result.

    In a notebook the kernel's loop runs in this thread, and a thread has one running loop at most:
    the new loop then gets a thread of its own. What is tied to the kernel's loop can't be awaited
    there. An interrupt cancels the coroutine.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(start())
    return _run_in_thread(start)


def _run_in_thread(start: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    loop = asyncio.new_event_loop()
    result: dict[str, Any] = {}

    def target() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                result["value"] = runner.run(start())
        except BaseException as exception:
            result["exception"] = exception

    thread = threading.Thread(target=contextvars.copy_context().run, args=(target,), name="optbook-await")
    thread.start()
    try:
        thread.join()
    except KeyboardInterrupt:
        loop.call_soon_threadsafe(_cancel_all, loop)
        thread.join()
        raise
    if "exception" in result:
        raise result["exception"]
    return result["value"]


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()
