"""What waits in an event loop is seen where it waits, and proposed by a ceiling without names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import optbook
from optbook import track
from optbook.benchmark.profiles.calls import CallProfile

pytestmark = pytest.mark.usefixtures("log_path")


async def fetch(i: int) -> int:
    await asyncio.sleep(0.006)
    return i


async def look(i: int) -> int:
    await asyncio.sleep(0.002)
    return i


async def one_by_one() -> None:
    for i in track(range(20)):
        await look(await fetch(i))


async def together() -> None:
    for i in track(range(20)):
        await asyncio.gather(*(fetch(i) for _ in range(3)))
        await look(i)


def serial() -> None:
    asyncio.run(one_by_one())


def concurrent() -> None:
    asyncio.run(together())


def waited(profile: CallProfile, name: str) -> float:
    """The share of the time below a function."""
    return sum(f.cumulative for f in profile.functions if f.place.name == name) / profile.total


@pytest.mark.parametrize("workload", [serial, concurrent])
def test_a_call_profile_says_which_coroutine_waits(workload: Callable[[], None]) -> None:
    profile = optbook.profile(workload, "calls")
    assert isinstance(profile, CallProfile)
    assert waited(profile, "fetch") == pytest.approx(0.7, abs=0.2)
    assert waited(profile, "look") == pytest.approx(0.3, abs=0.2)
    assert profile.share("waiting") > 0.8


@pytest.mark.parametrize("workload", [serial, concurrent])
def test_a_ceiling_without_names_finds_what_waits(workload: Callable[[], None]) -> None:
    found = optbook.ceiling(workload, None, steps=10, budget=1)
    assert [part.component.rpartition(".")[2] for part in found.parts] == ["fetch", "look"]
    assert found.bottleneck is not None


def test_tasks_that_wait_for_tasks_are_not_where_the_time_goes() -> None:
    profile = optbook.profile(concurrent, "calls")
    assert isinstance(profile, CallProfile)
    innermost = {stack[-1].name for stack, _ in profile.stacks}
    assert "together" not in innermost
