"""GPU figures: the real meter, with a stand-in for the hardware underneath."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import optbook
from optbook.benchmark.meters import gpu
from optbook.benchmark.meters.gpu import Gpu, GpuMeter
from optbook.benchmark.meters.nvml import visible
from optbook.benchmark.watch import Watched
from tests.nvml import GIB, FakeAccelerator, FakeCuda, FakeGpu, FakeNvml, fake_torch

A, B, C = "GPU-aaaa1111-0000", "GPU-bbbb2222-0000", "GPU-bbbb3333-0000"


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    gpu.present.cache_clear()
    yield
    gpu.present.cache_clear()


def measured(
    monkeypatch: pytest.MonkeyPatch, nvml: Any, torch: Any = None, looks: int = 1, reset: bool = True
) -> Gpu:
    """What the meter says after ``looks`` looks; the last is the one at its end."""
    install(monkeypatch, nvml, torch)
    with GpuMeter(reset) as meter:
        for _ in range(looks - 1):
            meter.sample()
    return meter.result


def install(monkeypatch: pytest.MonkeyPatch, nvml: Any, torch: Any = None) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setitem(sys.modules, "torch", torch or fake_torch())


@pytest.mark.parametrize("why", ["LIBRARY_NOT_FOUND", "DRIVER_NOT_LOADED"])
def test_no_gpu_is_a_value_and_not_zero(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    assert measured(monkeypatch, FakeNvml(init_fails=why)) == Gpu(name="no GPU")


def test_the_real_library_says_no_gpu_or_names_one() -> None:
    with GpuMeter() as meter:
        pass
    assert meter.result.name
    assert meter.result.name != "no GPU" or meter.result.resident is None


def test_without_torch_there_is_still_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeNvml(FakeGpu(holders={})))
    monkeypatch.delitem(sys.modules, "torch")
    with GpuMeter() as meter:
        pass
    assert meter.result.name == "NVIDIA H200, not used"


def test_every_figure_of_a_gpu_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = fake_torch(FakeCuda([A.removeprefix("GPU-")], [GIB]), "cuda")
    torch.accelerator.peak = 7 * GIB
    device = FakeGpu(resident=[60, 80, 100], reasons=0x4 | 0x1)
    nvml = FakeNvml(device)
    install(monkeypatch, nvml, torch)
    with GpuMeter() as meter:
        torch.accelerator.peak = 5 * GIB
        meter.sample()
        device.holders = {os.getpid(): 12 * GIB, 1: GIB}
        device.used, device.reasons = 13 * GIB, 0
        meter.sample()
        device.used, device.holders = 2 * GIB, {os.getpid(): GIB}
    assert nvml.open == 0
    assert torch.accelerator.resets == 1
    assert meter.result.resident == pytest.approx(0.8)
    assert replace(meter.result, resident=0.8) == Gpu(
        name="NVIDIA H200",
        resident=0.8,
        memory=12 * GIB,
        used=13 * GIB,
        total=140 * GIB,
        allocated=5 * GIB,
        clock=0.75,
        slowed={"power limit": 1 / 3},
    )


def test_a_gpu_that_torch_does_not_use_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeGpu(holders={1: GIB})
    result = measured(monkeypatch, FakeNvml(device), fake_torch(FakeCuda([], [], started=False)), looks=3)
    assert result == Gpu(name="NVIDIA H200, not used")
    assert device.looks == 0


def test_without_torch_nvml_says_who_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = FakeGpu(A, holders={1: GIB}), FakeGpu(B, b"Tesla T4", resident=[50])
    result = measured(monkeypatch, FakeNvml(*devices))
    assert (result.name, result.resident, result.memory) == ("Tesla T4", 0.5, 8 * GIB)


def test_several_gpus_are_summed_and_the_share_is_their_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = [FakeGpu(uuid, resident=[share]) for uuid, share in ((A, 100), (B, 0), (C, 50))]
    cuda = FakeCuda([B[4:], C[4:]], [GIB, GIB])
    result = measured(monkeypatch, FakeNvml(*devices), fake_torch(cuda, "cuda"))
    assert result.name == "2 × NVIDIA H200"
    assert (result.resident, result.memory, result.total) == (0.25, 16 * GIB, 280 * GIB)


@pytest.mark.parametrize(("current", "used"), [(0, "first"), (1, "second")])
def test_the_current_device_counts_before_it_holds_anything(
    monkeypatch: pytest.MonkeyPatch, current: int, used: str
) -> None:
    devices = FakeGpu(A, "first", holders={}), FakeGpu(B, "second", holders={})
    cuda = FakeCuda([A[4:], B[4:]], [0, 0], current)
    assert measured(monkeypatch, FakeNvml(*devices), fake_torch(cuda, "cuda")).name == used


def test_cuda_that_starts_inside_the_workload_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda([A[4:]], [GIB], started=False)
    install(monkeypatch, FakeNvml(FakeGpu()), fake_torch(cuda, "cuda"))
    with GpuMeter() as meter:
        cuda.started = True
    assert meter.result.resident == 0.8


def test_a_container_hides_process_ids_but_not_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeGpu(holders={70123: 8 * GIB})
    result = measured(monkeypatch, FakeNvml(device), fake_torch(FakeCuda([A[4:]], [GIB]), "cuda"))
    assert (result.memory, result.used) == (None, 10 * GIB)


def test_windows_may_not_tell_the_memory_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeGpu(holders={os.getpid(): None})
    assert measured(monkeypatch, FakeNvml(device)).memory is None


@pytest.mark.parametrize("error", ["NO_PERMISSION", "UNKNOWN"])
def test_nvml_that_fails_is_a_note(monkeypatch: pytest.MonkeyPatch, error: str) -> None:
    result = measured(monkeypatch, FakeNvml(init_fails=error))
    assert result.name.startswith("not known (NVML fails: ")
    assert result.notes == (f"GPU: {result.name[11:-1]}",)


def test_what_one_may_not_read_is_not_known_and_the_rest_is(monkeypatch: pytest.MonkeyPatch) -> None:
    fails = {
        "nvmlDeviceGetUtilizationRates": "NO_PERMISSION",
        "nvmlDeviceGetMaxClockInfo": "NOT_SUPPORTED",
        "nvmlDeviceGetCurrentClocksEventReasons": "NOT_SUPPORTED",
    }
    result = measured(monkeypatch, FakeNvml(FakeGpu(fails=fails)), looks=3)
    assert (result.resident, result.clock, result.slowed, result.used) == (None, None, {}, 10 * GIB)
    assert len(result.notes) == 3
    assert "GPU: utilisation not known (No permission)" in result.notes


def test_a_gpu_lost_in_mid_run(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeGpu(resident=[90])
    torch = fake_torch(FakeCuda([A[4:]], [GIB]), "cuda")
    install(monkeypatch, FakeNvml(device), torch)
    with GpuMeter() as meter:
        meter.sample()
        device.fails["nvmlDeviceGetUtilizationRates"] = "GPU_IS_LOST"
        for _ in range(3):
            meter.sample()
    assert (meter.result.resident, meter.result.memory) == (0.9, 8 * GIB)
    assert meter.result.notes == ("GPU: the GPU was lost: its figures end there",)


def test_torch_that_fails_once_the_gpu_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda([A[4:], B[4:]], [GIB, GIB])
    install(monkeypatch, FakeNvml(FakeGpu()), fake_torch(cuda, "cuda"))

    def gone(ordinal: int) -> int:
        raise RuntimeError("CUDA error: unspecified launch failure\nmore lines")

    with GpuMeter() as meter:
        monkeypatch.setattr(cuda, "memory_reserved", gone)
        meter.sample()
    assert "GPU: CUDA error: unspecified launch failure" in meter.result.notes


def test_a_mig_slice_is_read_by_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    fails = {"nvmlDeviceGetUtilizationRates": "NOT_SUPPORTED"}
    part = FakeGpu("MIG-cccc", "NVIDIA H200 MIG 1g.18gb", 18 * GIB, fails=fails)
    cuda = FakeCuda(["cccc-not-listed"], [GIB])
    install(monkeypatch, FakeNvml(FakeGpu(), slices={"MIG-cccc": part}), fake_torch(cuda, "cuda"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-cccc")
    with GpuMeter() as meter:
        meter.sample()
    assert (meter.result.name, meter.result.total) == ("NVIDIA H200 MIG 1g.18gb", 18 * GIB)
    assert meter.result.resident is None


def test_an_old_torch_without_uuids_goes_by_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = FakeGpu(A, "first"), FakeGpu(B, "second")
    install(monkeypatch, FakeNvml(*devices), fake_torch(FakeCuda([], [GIB]), "cuda"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    with GpuMeter() as meter:
        pass
    assert meter.result.name == "second"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("-1", []),
        ("1", [1]),
        ("2, 0", [2, 0]),
        ("0,-1,1", [0]),
        ("0,7,1", [0]),
        ("0,0", []),
        ("NoDevFiles", []),
        (f"{B},{A}", [1, 0]),
        ("GPU-aaaa", [0]),
        ("gpu-AAAA1111", [0]),
        ("GPU-bbbb", []),  # of two devices
        ("GPU-dddd,0", []),
        ("MIG-GPU-bbbb2222-0000/1/0", [1]),
        ("MIG-1234", []),
        (" 1 ,, 0", [1]),
        ("2abc", [2]),
    ],
)
def test_cuda_visible_devices_as_cuda_reads_it(value: str | None, expected: list[int]) -> None:
    assert visible(value, [A, B, C]) == expected


def test_apples_memory_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    held = {"driver": 0, "current": 0}
    mps = SimpleNamespace(
        driver_allocated_memory=lambda: held["driver"], current_allocated_memory=lambda: held["current"]
    )
    install(monkeypatch, FakeNvml(init_fails="LIBRARY_NOT_FOUND"), fake_torch(kind="mps", mps=mps))
    with GpuMeter() as meter:
        held |= {"driver": 3 * GIB, "current": 2 * GIB}
        meter.sample()
        held |= {"driver": GIB, "current": 0}
    assert meter.result == Gpu(name="Apple GPU", allocated=3 * GIB)


def test_the_peak_is_left_alone_when_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = fake_torch(FakeCuda([A[4:]], [GIB]), "cuda")
    torch.accelerator.allocated, torch.accelerator.peak = GIB, 9 * GIB
    result = measured(monkeypatch, FakeNvml(FakeGpu()), torch, reset=False)
    assert torch.accelerator.resets == 0
    assert result.allocated == GIB


def test_other_accelerators_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = fake_torch(kind="xpu", xpu=SimpleNamespace(is_initialized=lambda: True))
    torch.accelerator = FakeAccelerator("xpu", 2)
    torch.accelerator.allocated = GIB
    result = measured(monkeypatch, FakeNvml(init_fails="LIBRARY_NOT_FOUND"), torch)
    assert (result.name, result.allocated) == ("XPU device", 2 * GIB)


def test_the_machines_gpus_come_from_the_driver_where_nvml_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(FakeGpu(), FakeGpu(B, "A100")))
    nowhere = tmp_path / "none"
    assert gpu.present(nowhere, nowhere) == ("A100", "NVIDIA H200")
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(init_fails="UNKNOWN"))
    for number, model in enumerate(("NVIDIA H200", "A100")):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "information").write_text(f"Model: \t\t {model}\nIRQ:   16\n")
    assert gpu.present(tmp_path, tmp_path / "none") == ("A100", "NVIDIA H200")


def test_amds_gpus_are_read_from_their_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(init_fails="LIBRARY_NOT_FOUND"))
    for number, text in enumerate(
        ("simd_count 0\ncpu_cores_count 16\n", "simd_count 384\ndevice_id 29772\n")
    ):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "properties").write_text(text)
    assert gpu.present(tmp_path / "none", tmp_path) == ("AMD GPU 0x744c",)


def test_a_gpu_that_only_torch_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda([], [GIB, GIB])
    result = measured(monkeypatch, FakeNvml(init_fails="LIBRARY_NOT_FOUND"), fake_torch(cuda, "cuda"))
    assert (result.name, result.resident) == ("2 × AMD Radeon", None)


def test_the_power_limit_is_a_figure_and_no_warning() -> None:
    slowed = {"power limit": 1.0, "heat": 0.01}
    assert list(Watched(Gpu("H200", slowed=slowed)).warnings()) == []
    assert len(list(Watched(Gpu("H200", slowed={"heat": 0.2})).warnings())) == 1


def test_a_bench_records_and_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeGpu(resident=[87], reasons=0x40)
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(device))
    experiment = optbook.bench(lambda: None, runs=7)
    assert (experiment.gpu, experiment.gpu_resident) == ("NVIDIA H200", 0.87)
    shown = str(experiment)
    assert "a kernel was resident 87 % of the time; 8.00 GiB of 140 GiB used by this process" in shown
    assert "the GPU's clock was lowered by: heat (hardware) (100 % of the looks)" in shown
    row = optbook.log().iloc[-1]
    assert (row["gpu"], row["gpu_memory"]) == ("NVIDIA H200", 8 * GIB)


def test_a_bench_without_a_gpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(init_fails="LIBRARY_NOT_FOUND"))
    experiment = optbook.bench(lambda: None, runs=7)
    assert experiment.gpu == "no GPU"
    assert experiment.gpu_resident is None
    assert "%" not in str(experiment).partition("GPU")[2].splitlines()[0]
