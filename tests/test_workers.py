"""Memory and CPU time of worker processes. What runs in a worker lies in modules of its own."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

import optbook
from optbook.benchmark.meters import memory, workers
from optbook.benchmark.meters.workers import WorkerInit, WorkerMemory, most_at_once
from tests.loaders import Items, sets_threads
from tests.spikes import SPIKE, spike, spike_of_worker, stays

pytestmark = pytest.mark.skipif(
    sys.platform != "linux",
    reason="other systems can't set the high-water mark back, so nothing is exact there",
)


def loader(**given: Any) -> DataLoader[Any]:
    options: dict[str, Any] = {"num_workers": 2, "batch_size": 2, "multiprocessing_context": "fork"} | given
    return DataLoader(Items(options.pop("items", 8), options.pop("work", spike)), **options)


def measured(loaded: DataLoader[Any], steps: int | None = None) -> workers.Workers:
    """What the meter says of a loop over the loader, ended after so many steps."""
    with WorkerMemory() as meter:
        with meter.starting(loaded):
            iterator = iter(loaded)
        for index, _ in enumerate(iterator, 1):
            if index == steps:
                break
        del iterator
    return meter.result


@pytest.mark.parametrize("steps", [None, 3])
def test_a_short_spike_in_a_worker_is_seen(steps: int | None) -> None:
    result = measured(loader(), steps)
    assert result.growth == pytest.approx(SPIKE, rel=0.03)
    assert (result.count, result.unknown, result.asked, result.threads) == (2, 0, 2, 1)


def test_it_is_seen_under_spawn_as_well() -> None:
    with WorkerMemory() as meter:
        process = multiprocessing.get_context("spawn").Process(
            target=WorkerInit(meter.folder, spike_of_worker), args=(0,)
        )
        process.start()
        process.join()
    assert meter.result.growth == pytest.approx(SPIKE, rel=0.03)
    assert meter.result.count == 1


def test_a_worker_that_needs_nothing_grows_by_next_to_nothing() -> None:
    result = measured(loader(work=None))
    assert result.growth is not None
    assert result.growth < SPIKE / 30


def test_the_loaders_own_init_runs_and_is_put_back() -> None:
    loaded = loader(worker_init_fn=sets_threads)
    assert measured(loaded).threads == 3
    assert loaded.worker_init_fn is sets_threads


def test_an_init_that_cannot_start_is_put_back_too() -> None:
    loaded = loader(worker_init_fn=sets_threads)
    with WorkerMemory() as meter, pytest.raises(ZeroDivisionError), meter.starting(loaded):
        raise ZeroDivisionError
    assert loaded.worker_init_fn is sets_threads


def test_what_goes_to_a_worker_can_be_pickled() -> None:
    init = WorkerInit("folder", sets_threads)
    assert pickle.loads(pickle.dumps(init)) == init


def test_persistent_workers_are_measured_again_where_the_system_allows(tmp_path: Path) -> None:
    loaded = loader(persistent_workers=True)
    for _ in range(2):
        assert measured(loaded).growth == pytest.approx(SPIKE, rel=0.03)
    with WorkerMemory(proc=tmp_path) as meter, meter.starting(loaded):
        pass
    assert (meter.result.growth, meter.result.unknown, meter.result.count) == (None, 2, 2)


def test_any_forked_worker_is_measured() -> None:
    context = multiprocessing.get_context("fork")
    with WorkerMemory() as meter:
        process = context.Process(target=spike)
        process.start()
        process.join()
    assert meter.result.growth == pytest.approx(SPIKE, rel=0.03)
    after = context.Process(target=spike)
    after.start()
    after.join()
    assert after.exitcode == 0
    assert meter.result.count == 1


def test_a_killed_worker_is_known_by_its_last_reading() -> None:
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    with WorkerMemory() as meter:
        process = context.Process(target=stays, args=(ready,))
        process.start()
        ready.wait(20)
        meter.sample()
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    assert meter.result.growth == pytest.approx(SPIKE, rel=0.03)


def test_workers_that_follow_each_other_are_not_added_up() -> None:
    def life(began: float, ended: float | None, growth: float | None) -> workers._Life:
        return workers._Life(began, 0.0, ended, growth)

    assert most_at_once([]) is None
    assert most_at_once([life(0, 1, None)]) is None
    assert most_at_once([life(0, 1, 5.0), life(1, 2, 6.0), life(2, None, 4.0)]) == 6
    assert most_at_once([life(0, 2, 5.0), life(1, 3, 6.0), life(2.5, None, 4.0)]) == 11


def test_the_mark_is_left_alone_when_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "reset_high_water_mark", pytest.fail)
    loaded = loader(work=None)
    with WorkerMemory(reset=False) as meter, meter.starting(loaded):
        assert loaded.worker_init_fn is None
    assert meter.result == workers.Workers(asked=2)


def test_nothing_is_left_behind() -> None:
    with WorkerMemory() as meter:
        folder = Path(meter.folder)
        assert folder.is_dir()
    assert not folder.exists()


def test_a_bench_of_a_tracked_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optbook.benchmark.meters.cpu.usable_cores", lambda: 2.0)
    loaded = loader(worker_init_fn=sets_threads, items=20)

    def loop() -> None:
        for _ in optbook.track(loaded):
            pass

    experiment = optbook.bench(loop)
    gc.collect()
    assert experiment.memory_workers == pytest.approx(SPIKE, rel=0.03)
    assert experiment.startup_seconds
    assert "at most: the sum of each worker's own peak growth" in str(experiment)
    assert "the loader's workers: 2 processes × 3 threads compute on 2 cores" in str(experiment)
    assert loaded.worker_init_fn is sets_threads


def test_cpu_time_of_workers_is_counted() -> None:
    seconds = 0.05
    loaded = loader(items=10, batch_size=1, work=Spin(seconds))

    def loop() -> None:
        for _ in optbook.track(loaded):
            pass

    started = time.perf_counter()
    experiment = optbook.bench(loop)
    elapsed = time.perf_counter() - started
    assert experiment.cpu_cores is not None
    assert experiment.cpu_cores * elapsed >= 10 * seconds * 0.9
    assert experiment.cpu_cores <= 2.5


class Spin:
    """Holds a core for so many CPU seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self) -> None:
        end = time.process_time() + self.seconds
        while time.process_time() < end:
            pass
