from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from optbook import span, track
from optbook.benchmark.recorder import Recorder, active, recording
from optbook.errors import OptionError
from tests.fakes import FakeClock


def test_track_outside_a_measurement_only_iterates() -> None:
    tracked = track([1, 2, 3])
    assert list(tracked) == [1, 2, 3]
    assert len(tracked) == 3
    assert active() is None


def test_waiting_and_working_are_timed_apart() -> None:
    fake = FakeClock()

    def loader() -> object:
        for item in range(4):
            fake.spend(0.3 if item else 1.0)
            yield item

    with recording(Recorder(fake.clock)) as recorder:
        for _ in track(loader(), unit="batch"):  # type: ignore[arg-type]
            fake.spend(0.2)
    series = recorder.series["batch"]
    assert len(series) == 4
    assert series.startup == pytest.approx(1.0)
    waits = [ready - asked for asked, ready in zip(series.asked, series.ready, strict=True)]
    works = [done - ready for ready, done in zip(series.ready, series.done, strict=True)]
    assert waits == pytest.approx([1.0, 0.3, 0.3, 0.3])
    assert works == pytest.approx([0.2] * 4)


def test_counting_functions_run_outside_the_timed_intervals() -> None:
    fake = FakeClock()

    def samples(item: list[int]) -> int:
        fake.spend(100)
        return len(item)

    with recording(Recorder(fake.clock)) as recorder:
        for _ in track([[1, 2], [3]], sample=samples, token=7):
            fake.spend(1)
    series = recorder.series["batch"]
    assert list(series.counts["sample"]) == [2, 1]
    assert list(series.counts["token"]) == [7, 7]
    assert [done - asked for asked, done in zip(series.asked, series.done, strict=True)] == [1, 1]


def test_a_step_that_is_left_early_does_not_count() -> None:
    with recording(Recorder(FakeClock().clock)) as recorder:
        for item in track(range(10)):
            if item == 3:
                break
    assert len(recorder.series["batch"]) == 3


def test_limit_ends_all_loops_of_the_first_unit_without_fetching_more() -> None:
    fetched = []

    def loader() -> object:
        for item in range(4):
            fetched.append(item)
            yield item

    with recording(Recorder(FakeClock().clock, limit=6)) as recorder:
        for _ in range(3):
            for _ in track(loader()):  # type: ignore[arg-type]
                pass
    assert len(recorder.series["batch"]) == 6
    assert fetched == [0, 1, 2, 3, 0, 1]


def test_the_inner_unit_of_nested_loops_is_not_limited() -> None:
    with recording(Recorder(FakeClock().clock, limit=2)) as recorder:
        for _ in track(range(5), unit="batch"):
            for _ in track(range(3), unit="env_step"):
                pass
    assert {unit: len(series) for unit, series in recorder.series.items()} == {"env_step": 6, "batch": 2}


def test_a_device_is_synchronised_at_the_edges_of_blocks_not_at_every_step() -> None:
    fake = FakeClock(device=True)
    with recording(Recorder(fake.clock)) as recorder:
        for _ in track(range(100)):
            fake.spend(0.01)
            fake.queue(0.01)
    series = recorder.series["batch"]
    assert series.done[-1] == pytest.approx(2.0)
    assert fake.synchronized == len(series.synced) + 1
    assert len(series.synced) < 15


def test_spans_add_up_nested_and_from_threads() -> None:
    @span("whole")
    def work() -> int:
        with span("part"):
            return 3

    with recording(Recorder()) as recorder:
        assert work() == 3
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(recorder.spans["whole"].durations) == 2
    assert sum(recorder.spans["part"].durations) <= sum(recorder.spans["whole"].durations)
    assert work.__name__ == "work"
    assert work() == 3  # outside a measurement


def test_a_span_that_raises_is_counted_and_the_error_passes() -> None:
    with recording(Recorder()) as recorder, pytest.raises(KeyError), span("part"):
        raise KeyError
    assert len(recorder.spans["part"].durations) == 1


@pytest.mark.parametrize("unit", ["", "  ", 3, None])
def test_a_unit_needs_a_name(unit: object) -> None:
    with pytest.raises(ValueError, match="give a name in the singular"):
        track([1], unit=unit)  # type: ignore[arg-type]


def test_what_cannot_be_looped_over_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="int, which cannot be looped over"):
        track(3)  # type: ignore[arg-type]


def test_what_outlives_the_run_adds_nothing_more() -> None:
    loops: list[bool] = []
    with recording(Recorder(FakeClock().clock, on_loop=loops.append)) as recorder:
        left_open = iter(track(range(5)))
        next(left_open)
        next(left_open)
        part = span("part").__enter__()
    assert loops == [True, False]
    assert list(left_open) == [2, 3, 4]
    part.__exit__()
    assert len(recorder.series["batch"]) == 1
    assert not recorder.spans
    assert loops == [True, False]


def test_loops_in_several_threads_are_one_window() -> None:
    loops: list[bool] = []
    both = threading.Barrier(2)

    def work() -> None:
        for turn in track(range(100)):
            if turn == 0:
                both.wait(10)

    with recording(Recorder(on_loop=loops.append)) as recorder:
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert loops == [True, False]
    assert len(recorder.series["batch"]) == 200


@pytest.mark.parametrize(
    ("count", "message"),
    [
        ("3", "'sample' is '3': give a number"),
        (lambda item: float("nan"), "'sample' is nan: give a number"),
        (lambda item: -item, "'sample' is -2: give a number from zero on"),
        (lambda item: 1 / abs(item - 2), "division by zero"),
    ],
)
def test_a_count_that_is_no_number_ends_the_loop_and_leaves_whole_steps(count: Any, message: str) -> None:
    with (
        recording(Recorder(FakeClock().clock)) as recorder,
        pytest.raises((OptionError, ZeroDivisionError), match=message),
    ):
        for _ in track([0, 0, 2, 2], token=7, sample=count):
            pass
    series = recorder.series["batch"]
    assert len(series) == len(series.counts.get("token", ())) <= 2


def test_a_loop_that_does_not_count_a_unit_counts_none_of_it() -> None:
    with recording(Recorder(FakeClock().clock)) as recorder:
        for _ in track([1, 2]):
            pass
        for _ in track([3], sample=32):
            pass
    assert list(recorder.series["batch"].counts["sample"]) == [0, 0, 32]


def test_bookkeeping_between_steps_is_in_no_step() -> None:
    fake = FakeClock()
    with recording(Recorder(fake.clock, on_step=lambda: fake.spend(100))) as recorder:
        for _ in track(range(3)):
            fake.spend(1)
    assert recorder.series["batch"].seconds == 3


def test_a_span_on_a_coroutine_function_times_what_is_awaited() -> None:
    @span("wait")
    async def wait() -> int:
        await asyncio.sleep(0.01)
        return 3

    with recording(Recorder()) as recorder:
        assert asyncio.run(wait()) == 3
    assert recorder.spans["wait"].durations[0] >= 0.009


def test_a_span_on_a_generator_function_is_refused() -> None:
    def batches() -> Iterator[int]:
        yield 1

    with pytest.raises(OptionError, match=r"batches is a generator function.*with span\('load'\)"):
        span("load")(batches)


def test_recordings_of_two_threads_that_end_in_any_order_leave_none_active() -> None:
    first, second = recording(Recorder()), recording(Recorder())
    first.__enter__()
    second.__enter__()
    first.__exit__()
    second.__exit__()
    assert active() is None
