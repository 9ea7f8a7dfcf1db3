"""Coroutines under a running loop, as in a notebook, with real interrupts."""

from __future__ import annotations

import _thread
import asyncio
import threading
import traceback
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from optbook.benchmark import coroutines


def in_a_notebook(start: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    async def notebook() -> Any:
        return coroutines.run(start)

    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(notebook())
    finally:
        loop.close()


def leftovers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "optbook-await"]


def test_the_result_and_the_exception_come_back() -> None:
    async def works() -> int:
        await asyncio.sleep(0)
        return 7

    async def fails() -> None:
        await asyncio.sleep(0)
        raise KeyError("k")

    for run in (coroutines.run, in_a_notebook):
        assert run(works) == 7
        with pytest.raises(KeyError, match="k"):
            run(fails)
    assert not leftovers()


def test_an_interrupt_cancels_waits_for_the_end_and_points_into_the_coroutine() -> None:
    ended = []

    async def waits() -> None:
        threading.Timer(0.05, _thread.interrupt_main).start()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)
            ended.append(True)

    with pytest.raises(KeyboardInterrupt) as caught:
        in_a_notebook(waits)
    assert ended
    assert not leftovers()
    assert "waits" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]


def test_an_interrupt_stops_also_what_does_not_await(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coroutines, "CANCEL_SECONDS", 0.05)

    async def spins() -> None:
        threading.Timer(0.05, _thread.interrupt_main).start()
        while True:
            pass

    with pytest.raises(KeyboardInterrupt) as caught:
        in_a_notebook(spins)
    assert not leftovers()
    assert "spins" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
