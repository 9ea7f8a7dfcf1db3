"""Stubs in worker processes: under every start method, counted, recorded, and gone with the last stub."""

from __future__ import annotations

import asyncio
import errno
import multiprocessing
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, cast

import pytest
from torch.utils.data import DataLoader

import optbook
from optbook.simplify import processes, stubs
from optbook.simplify.ceiling import ceiling
from optbook.simplify.listing import Listed, Listing
from optbook.simplify.stubs import Stub, stub
from tests import worker_parts
from tests.worker_data import SIZE, Samples
from tests.worker_parts import REAL, STUB, Thing

METHODS = ("fork", "spawn", "forkserver")
START = BaseProcess.start
WORK = "tests.worker_parts.work"


@pytest.fixture(autouse=True)
def _nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield
    assert stubs.remove_all() == ()
    assert BaseProcess.start is START
    assert list(tmp_path.glob("optbook-stubs-*")) == []
    assert multiprocessing.active_children() == []


def context(method: str) -> Any:
    return multiprocessing.get_context(method)


def pooled(method: str) -> list[Any]:
    with context(method).Pool(2) as pool:
        return cast(list[Any], pool.map(worker_parts.use, range(SIZE)))


def executed(method: str) -> list[Any]:
    with ProcessPoolExecutor(2, mp_context=context(method)) as pool:
        return list(pool.map(worker_parts.use, range(SIZE)))


def loader(method: str, persistent: bool) -> DataLoader[Any]:
    return DataLoader(
        Samples(),
        batch_size=None,
        num_workers=2,
        multiprocessing_context=method,
        persistent_workers=persistent,
    )


def values(batches: DataLoader[Any]) -> list[int]:
    return [int(batch) for batch in batches]


def calls_in_workers(made: Stub) -> int:
    here, *there = made.calls_by_process.items()
    assert here[0] == os.getpid()
    assert here[1] == 0
    return sum(calls for _, calls in there)


# Every start method


@pytest.mark.parametrize("run", [pooled, executed])
@pytest.mark.parametrize("method", METHODS)
def test_pools_have_the_stubs(method: str, run: Callable[[str], Sequence[int]]) -> None:
    with stub(WORK, "value", value=STUB) as made:
        assert run(method) == [STUB] * SIZE
        assert made.calls == calls_in_workers(made) == SIZE
    assert made.calls == SIZE
    assert worker_parts.use(1) == REAL
    if method == "fork":
        assert run(method) == [REAL * x for x in range(SIZE)]
        assert made.calls == SIZE


@pytest.mark.parametrize("method", METHODS)
def test_data_loaders_have_them_and_persistent_workers_are_started_again(method: str) -> None:
    kept = loader(method, persistent=True)
    with stub(WORK, "value", value=STUB) as made:
        assert values(kept) == [STUB] * SIZE
        assert values(kept) == [STUB] * SIZE
        assert made.calls == calls_in_workers(made) == 2 * SIZE
        assert len(made.calls_by_process) == 3
        if method == "fork":
            assert values(loader(method, persistent=False)) == [STUB] * SIZE
    assert multiprocessing.active_children() == []
    if method == "fork":
        assert values(kept) == [REAL * x for x in range(SIZE)]
        with stub(WORK, "value", value=STUB) as made:
            assert values(kept) == [STUB] * SIZE
    del kept


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_workers_have_them_too(method: str) -> None:
    queue = context(method).SimpleQueue()
    with stub(WORK, "value", value=STUB) as made:
        process = context(method).Process(target=worker_parts.nested, args=(method, queue))
        process.start()
        assert queue.get() == [STUB] * 3
        process.join()
        assert made.calls == 3
        assert sorted(made.calls_by_process.values()) == [0, 1, 2]


# What stands for what in processes started afresh


def test_methods_properties_and_built_ins_are_found_by_name_in_a_spawned_process() -> None:
    queue = [Thing(2)]
    with (
        stub(WORK, "body", body="real(x) + 1"),
        stub(Thing.method, "value", value=-1),
        stub(Thing.static, "value", value=-2),
        stub("tests.worker_parts.Thing.value", "value", value=-3),
        stub("math.lcm", "value", value=-4),
        context("spawn").Pool(1) as pool,
    ):
        assert pool.map(worker_parts.use_all, queue) == [(REAL + 1, -1, -2, -3, -4)]


def test_one_object_is_meant_where_it_is_handed_to_the_process() -> None:
    thing = Thing(2)
    queue = context("spawn").SimpleQueue()
    with stub(thing.method, "value", value=STUB) as made:
        process = context("spawn").Process(target=worker_parts.answer, args=(queue, thing))
        process.start()
        assert queue.get() == (STUB, 3)
        process.join()
        assert made.member.declared == ()
        with context("spawn").Pool(1) as pool:
            assert pool.map(worker_parts.use_thing, [Thing(4)]) == [STUB]
        assert any("all of Thing are meant" in note for note in made.declared)


def test_what_cannot_be_sent_is_declared_and_the_others_are() -> None:
    lock = threading.Lock()

    def body(x: int) -> int:
        with lock:
            return STUB

    def local() -> None: ...

    with (
        stub(WORK, body) as locked,
        stub(local, "skip") as nameless,
        stub(Thing.method, "value", value=STUB),
        context("spawn").Pool(1) as pool,
    ):
        assert pool.apply(worker_parts.use, (1,)) == REAL
        assert pool.apply(worker_parts.use_thing, (Thing(),)) == STUB
        assert any("pickle" in note and "\n" not in note for note in locked.declared)
        assert any("not found by a name" in note for note in nameless.declared)


def test_what_is_not_there_in_a_worker_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_here(x: int) -> int:
        return x

    only_here.__qualname__ = "only_here"
    monkeypatch.setattr(worker_parts, "only_here", only_here, raising=False)
    only_here.__module__ = worker_parts.__name__
    with stub(only_here, "skip") as made, context("spawn").Pool(1) as pool:
        assert pool.apply(worker_parts.use, (1,)) == REAL
        assert any("has no only_here there" in note for note in made.declared)


# Recordings


def test_what_one_round_of_workers_records_the_next_replays() -> None:
    with stub(WORK, "replay", keep=2) as made:
        pooled("fork")
        recorded = made.recorded
        assert 2 <= recorded <= 4
        assert made.bytes > 0
        first = pooled("fork")
        assert made.recorded == recorded
        assert len(set(first)) <= 2
        assert worker_parts.work(1) in first
        assert made.calls == 2 * SIZE + 1
        pooled("spawn")
        assert made.recorded == recorded
        assert made.misses == 0


def test_dummy_data_are_made_up_once() -> None:
    with stub(WORK, "dummy") as made:
        assert made.recorded == 0
        pooled("fork")
        recorded = made.recorded
        assert recorded >= 1
        assert len(set(pooled("fork"))) == 1
        assert made.recorded == recorded


def test_misses_in_workers_count() -> None:
    with stub(WORK, "replay", keep=1) as made:
        made.settle()
        pooled("fork")
        assert made.misses == made.calls == SIZE


def test_outcomes_that_cannot_be_passed_on_are_told() -> None:
    with (
        stub(worker_parts.unpicklable, "replay") as unpicklable,
        stub(worker_parts.unreadable, "replay") as unreadable,
        context("fork").Pool(1) as pool,
    ):
        assert pool.map(worker_parts.call_both, [1, 2]) == [1, 2]
        assert any("can't be passed on" in note for note in unpicklable.declared)
        assert any("can't be read here" in note for note in unreadable.declared)
        assert unreadable.recorded == 2


# Workers that run already


def test_workers_that_run_already_are_named_until_they_end() -> None:
    pool = context("fork").Pool(1)
    (worker,) = multiprocessing.active_children()
    with stub(WORK, "value", value=STUB) as made:
        assert pool.apply(worker_parts.use, (1,)) == REAL
        assert any(f"not in worker {worker.pid}, which ran already" in note for note in made.declared)
    pool.terminate()
    pool.join()
    assert made.member.declared == ()
    with stub(WORK, "value", value=STUB) as made:
        pool = context("fork").Pool(1)
    assert pool.apply(worker_parts.use, (1,)) == STUB
    assert any("still in worker" in note for note in made.declared)
    pool.terminate()
    pool.join()
    assert made.member.declared == ()


def test_the_table_tells_where_calls_were() -> None:
    with stub(WORK, "value", value=STUB) as made:
        worker_parts.use(1)
        assert "in this process" not in str(Listing.of([made]))
        pooled("fork")
        here, *workers = made.calls_by_process.items()
        assert here == (os.getpid(), 1)
        there = ", ".join(f"{calls} in worker {pid}" for pid, calls in workers)
        assert f"calls: 1 in this process, {there}" in str(Listing.of(stubs.active()))


def test_many_workers_are_summed() -> None:
    workers = tuple((pid, 4) for pid in range(6))
    listed = Listed("work", "value", 25, 0, 0, 0, (), workers)
    assert "calls: 1 in this process, 24 in 6 workers" in str(Listing((listed,)))


# Bad input


def test_a_worker_that_is_killed_has_counted_until_then() -> None:
    with stub(WORK, "value", value=STUB) as made:
        process = context("fork").Process(target=worker_parts.die, args=(1,))
        process.start()
        process.join()
        assert process.exitcode not in (0, 1)
        assert made.calls == calls_in_workers(made) == 1


def test_locks_that_threads_hold_while_a_process_is_forked_do_not_matter() -> None:
    with stub(WORK, "replay") as made:
        recording = made.recording
        assert recording is not None
        held, leave = threading.Event(), threading.Event()

        def hold() -> None:
            with recording._lock, stubs._REGISTRY.lock:
                held.set()
                leave.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        try:
            process = context("fork").Process(target=worker_parts.use, args=(1,))
            process.start()
            process.join(20)
            assert process.exitcode == 0
        finally:
            leave.set()
            thread.join()
        assert made.calls == 1


def test_without_a_temporary_folder_they_are_there_but_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with stub(WORK, "value", value=STUB) as made:
        assert pooled("fork") == [STUB] * SIZE
        assert made.calls == 0
        assert any("not counted" in note for note in made.declared)


def test_a_folder_that_is_gone_is_told_and_made_again() -> None:
    with stub(WORK, "value", value=STUB) as made, context("fork").Pool(1) as pool:
        pool.apply(worker_parts.use, (1,))
        shutil.rmtree(processes.SESSION.folder)
        assert pool.apply(worker_parts.use, (1,)) == STUB
        assert any("folder is gone" in note for note in made.declared)
        pooled("fork")
        assert made.calls == SIZE


def test_a_full_disk_costs_only_what_would_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with stub(WORK, "replay", keep=2 * SIZE) as made:
        monkeypatch.setattr(processes, "write", full)
        assert pooled("fork") == [REAL * x for x in range(SIZE)]
        assert made.calls == SIZE
        assert made.bytes == 0
        monkeypatch.setattr(processes, "_shared", full)
        pooled("fork")
        assert made.calls == SIZE


def test_an_interrupt_while_workers_run_leaves_nothing() -> None:
    before = worker_parts.work.__code__

    def interrupted() -> None:
        with stub(WORK, "value", value=STUB), context("fork").Pool(2) as pool:
            pool.apply(worker_parts.use, (1,))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert worker_parts.work.__code__ is before


def test_an_own_run_and_a_failing_start_stay_what_they_were() -> None:
    queue = context("fork").SimpleQueue()
    with stub(WORK, "value", value=STUB):
        process = context("fork").Process()
        process.run = own = lambda: queue.put(worker_parts.use(1))
        process.start()
        assert queue.get() == STUB
        process.join()
        assert process.run is own
        with pytest.raises(AssertionError, match="twice"):
            process.start()
        assert process.run is own


# Ceilings


def from_workers() -> None:
    with context("fork").Pool(1) as pool:
        for _ in optbook.track(pool.imap(worker_parts.use, range(SIZE))):
            pass


def test_ceilings_see_components_that_only_workers_call() -> None:
    result = ceiling(from_workers, [WORK], speedup=[2], budget=0.1)
    (part,) = result.parts
    assert not part.error
    assert part.calls >= 1
    assert (part.seconds or 0) > 0
    assert set(part.faster) == {2.0}


# Within the process


def test_threads_and_tasks_see_them() -> None:
    async def main() -> list[Any]:
        return [await asyncio.to_thread(worker_parts.use, 1)]

    with stub(WORK, "value", value=STUB) as made:
        assert asyncio.run(main()) == [STUB]
        assert made.calls == 1


def test_without_a_folder_nothing_is_written_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    channel = processes.Channel("", "token")
    channel.send("a note")
    channel.calls.step()
    assert list(tmp_path.iterdir()) == []
