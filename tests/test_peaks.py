"""The machine's peaks: several kernels a dtype, kept on disk, and no harm from what lies there."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from optbook.benchmark.machine import cache, kernels, plumbing
from optbook.benchmark.machine import peaks as module
from optbook.benchmark.machine.kernels import Kernel, measured
from optbook.benchmark.machine.peaks import Peak, Peaks, known, peaks
from optbook.settings import OptBook

ONE = Peaks(
    flops={"cpu": {"float32": Peak(240e9, "conv2d 3×3", 6, 64.0), "float64": Peak(80e9, "matmul", 1, 64.0)}},
    bandwidth={"cpu": Peak(12 * 2.0**30, "triad", 2, 64.0)},
    process_start=0.03,
    loopback=None,
    machine="abc",
    threads=2,
    settings="torch <2>",
    measured="2026-12-01T10:00:00+00:00",
    seconds=5.0,
)


@pytest.fixture(autouse=True)
def _quiet() -> None:
    OptBook.instance().progress_bar = False


@pytest.fixture
def measurings(monkeypatch: pytest.MonkeyPatch) -> list[Peaks]:
    """Peaks that are measured in no time, a little higher each time; those that were, in order."""
    done: list[Peaks] = []

    def measure() -> Peaks:
        done.append(dataclasses.replace(ONE, seconds=5.0 + len(done)))
        return done[-1]

    monkeypatch.setattr(module, "_measure", measure)
    return done


def test_measured_once_then_kept(measurings: list[Peaks], tmp_path: Path) -> None:
    assert known(folder=tmp_path) is None
    first = peaks(folder=tmp_path)
    assert peaks(folder=tmp_path) == first
    assert known(folder=tmp_path) == first
    assert len(measurings) == 1
    second = peaks(refresh=True, folder=tmp_path)
    assert (second, len(measurings)) == (measurings[1], 2)
    assert peaks(folder=tmp_path) == second


def test_kept_per_number_of_threads(measurings: list[Peaks], tmp_path: Path) -> None:
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 1):
            torch.set_num_threads(threads)
            peaks(folder=tmp_path)
    finally:
        torch.set_num_threads(before)
    assert len(measurings) == 2


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", '{"key": 1}', "[" * 100_000, "\x00\xff", "x" * 2**21]
)
def test_a_damaged_file_is_measured_again(content: str, measurings: list[Peaks], tmp_path: Path) -> None:
    peaks(folder=tmp_path)
    (kept,) = tmp_path.iterdir()
    kept.write_text(content, encoding="latin-1")
    assert peaks(folder=tmp_path) == measurings[1]
    assert peaks(folder=tmp_path) == measurings[1]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("flops", None),
        ("flops", {"cpu": {"float32": {"rate": -1, "kernel": "", "kernels": 1, "cores": 1}}}),
        ("flops", {"cpu": {"float32": {"rate": "nan", "kernel": "", "kernels": 1, "cores": 1}}}),
        ("flops", {"cpu": [1]}),
        ("bandwidth", {"cpu": {}}),
        ("process_start", "soon"),
        ("seconds", None),
    ],
)
def test_a_value_that_is_no_peak_is_measured_again(
    field: str, value: Any, measurings: list[Peaks], tmp_path: Path
) -> None:
    peaks(folder=tmp_path)
    (kept,) = tmp_path.iterdir()
    whole = json.loads(kept.read_text(encoding="utf-8"))
    whole["value"][field] = value
    kept.write_text(json.dumps(whole), encoding="utf-8")
    assert peaks(folder=tmp_path) == measurings[1]


def test_the_file_of_another_machine_is_not_taken(measurings: list[Peaks], tmp_path: Path) -> None:
    peaks(folder=tmp_path)
    (kept,) = tmp_path.iterdir()
    whole = json.loads(kept.read_text(encoding="utf-8"))
    kept.write_text(json.dumps(whole | {"key": "another"}), encoding="utf-8")
    assert peaks(folder=tmp_path) == measurings[1]


def test_a_folder_that_can_not_be_written_to_costs_only_time(measurings: list[Peaks], tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.write_text("no folder", encoding="utf-8")
    assert peaks(folder=taken) == measurings[0]
    assert peaks(folder=taken) == measurings[1]
    assert not cache.save(taken / "deeper" / "x.json", "key", {})


def test_nothing_half_written_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*paths: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert not cache.save(tmp_path / "x.json", "key", {})
    assert list(tmp_path.iterdir()) == []


def test_the_users_cache_folder_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    import platformdirs

    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name, appauthor: Path("/caches") / name)
    assert cache.path_of("peaks", "key").parent == Path("/caches/optbook")


def test_text_and_html_show_the_same_and_escape() -> None:
    odd = dataclasses.replace(
        ONE, flops={"cpu": {"float32": Peak(240e9, "<b>", 6, 64.0)}}, machine="<script>"
    )
    assert "240 GFLOP/s: the best of 6 kernels: conv2d 3×3, 2 threads" in str(ONE)
    assert "80.0 GFLOP/s: matmul, 2 threads" in str(ONE)
    assert "12.0 GiB/s" in str(ONE)
    assert "30.0 ms" in str(ONE)
    assert "loopback" not in str(ONE)
    html = odd._repr_html_()
    assert "&lt;b&gt;" in html
    assert "<script>" not in html
    assert "var(--jp-" in html


def test_a_dtype_that_was_not_measured_is_unknown() -> None:
    assert ONE.of("float32") == Peak(240e9, "conv2d 3×3", 6, 64.0)
    assert ONE.of("float16") is None
    assert ONE.of("float32", "cuda") is None


def test_peaks_taken_beside_other_work_say_so_and_are_not_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    busy = dataclasses.replace(ONE, flops={"cpu": {"float32": Peak(1e9, "matmul", 6, 0.3)}})
    monkeypatch.setattr(module, "_measure", lambda: busy)
    assert peaks(folder=tmp_path).disturbed
    assert "too low" in str(busy)
    assert known(folder=tmp_path) is None
    assert not ONE.disturbed


# The kernels.


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "KERNEL_SECONDS", 0.0)
    monkeypatch.setattr(kernels, "FEWEST_CALLS", 1)
    monkeypatch.setattr(kernels, "LONGEST_CALL_SECONDS", 0.05)
    monkeypatch.setattr(kernels, "DTYPE_SECONDS", 0.1)
    monkeypatch.setattr(kernels, "COPY_BYTES", 2**20)
    monkeypatch.setattr(plumbing, "STARTS", 1)
    monkeypatch.setattr(plumbing, "SENDINGS", 1)
    monkeypatch.setattr(plumbing, "SENT_BYTES", 2 * plumbing.CHUNK_BYTES)


@pytest.mark.usefixtures("_small")
def test_a_real_measurement_has_all_of_it(tmp_path: Path) -> None:
    found = peaks(folder=tmp_path)
    assert {"float32", "float64"} <= set(found.flops["cpu"])
    assert all(peak.rate > 1e6 for peak in found.flops["cpu"].values())
    assert found.bandwidth["cpu"].rate > 2**20
    assert found.process_start is not None
    assert 1e-3 < found.process_start < 60
    assert found.loopback is not None
    assert found.loopback > 2**20
    assert found.threads == torch.get_num_threads()


@pytest.mark.usefixtures("_small")
def test_without_torch_numpy_measures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    found = peaks(folder=tmp_path)
    assert set(found.flops["cpu"]) == {"float32", "float64"}
    assert "numpy" in found.flops["cpu"]["float32"].kernel
    assert "numpy" in found.settings
    assert "thread" not in found.source(found.flops["cpu"]["float32"], "cpu")
    assert found.bandwidth["cpu"].kernel == "numpy copy, one thread"


@pytest.mark.parametrize("dtype", kernels.DTYPES)
def test_the_work_of_a_kernel_is_what_it_does(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checked on the meta device, which does no arithmetic."""
    from optbook.benchmark.flop_counter import FlopCounter

    for kernel in kernels.arithmetic(dtype, "meta"):
        run = kernel.build()
        counter = FlopCounter()
        with counter.counting():
            run()
        counter.keep()
        assert counter.kept.total == kernel.work


class _Ticking:
    """A clock that moves by what the kernels spend."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = 0.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.time)
        monkeypatch.setattr(time, "process_time", lambda: self.time / 2)

    def kernel(self, name: str, work: float, seconds: Iterator[float]) -> Kernel:
        def run() -> None:
            self.time += next(seconds)

        return Kernel(name, work, lambda: run)


def always(seconds: float) -> Iterator[float]:
    while True:
        yield seconds


def test_the_best_call_counts_and_the_first_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Ticking(monkeypatch)
    kernel = clock.kernel("a", 100.0, iter([0.001, 0.2, 0.1, 0.2, 0.2, 0.2]))
    (found,) = measured([kernel], lambda: None)
    assert found.rate == pytest.approx(1000.0)
    assert found.cores == pytest.approx(0.5)


def test_a_kernel_that_would_take_too_long_or_can_not_run_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = _Ticking(monkeypatch)

    def impossible() -> Callable[[], object]:
        raise RuntimeError("not implemented for 'Half'")

    listed = [
        clock.kernel("small", 1.0, always(0.01)),
        clock.kernel("huge", 1000.0, always(10.0)),
        Kernel("impossible", 1.0, impossible),
        clock.kernel("larger", 3.0, always(0.02)),
    ]
    assert [found.name for found in measured(listed, lambda: None)] == ["small", "larger"]


def test_an_interpreter_that_can_not_start_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert plumbing.process_start() is None


def test_a_machine_without_loopback_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: object, **kwargs: object) -> None:
        raise PermissionError("no sockets here")

    monkeypatch.setattr(socket, "create_server", refused)
    assert plumbing.loopback() is None
