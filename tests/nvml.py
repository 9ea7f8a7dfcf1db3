"""A stand-in for NVIDIA's library, as nvidia-ml-py wraps it, and for torch with an accelerator."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

GIB = 2**30
CODES = {
    "NOT_SUPPORTED": 3,
    "NO_PERMISSION": 4,
    "DRIVER_NOT_LOADED": 9,
    "LIBRARY_NOT_FOUND": 12,
    "GPU_IS_LOST": 15,
    "UNKNOWN": 999,
}


class NVMLError(Exception):
    """As in nvidia-ml-py: ``value`` is NVML's code, the text its name."""

    def __init__(self, name: str) -> None:
        super().__init__(name.replace("_", " ").capitalize())
        self.value = CODES[name]


@dataclass
class FakeGpu:
    """One GPU. ``fails`` is call → name of the error that it gives."""

    uuid: str = "GPU-aaaa1111-0000"
    name: str | bytes = "NVIDIA H200"
    total: int = 140 * GIB
    used: int = 10 * GIB
    resident: list[int] = field(default_factory=lambda: [80])
    clock: int = 1500
    reasons: int = 0
    holders: Mapping[int, int | None] = field(default_factory=lambda: {os.getpid(): 8 * GIB})
    fails: dict[str, str] = field(default_factory=dict)
    looks: int = 0


class FakeNvml(ModuleType):
    """The module ``pynvml`` of a machine with these GPUs."""

    NVML_CLOCK_SM = 1
    nvmlClocksEventReasonSwPowerCap = 0x4  # noqa: N815
    nvmlClocksEventReasonHwThermalSlowdown = 0x40  # noqa: N815
    nvmlClocksEventReasonGpuIdle = 0x1  # noqa: N815
    NVMLError = NVMLError

    def __init__(
        self, *gpus: FakeGpu, init_fails: str = "", slices: Mapping[str, FakeGpu] | None = None
    ) -> None:
        super().__init__("pynvml")
        self.gpus = gpus
        self.slices = slices or {}
        self.init_fails = init_fails
        self.open = 0
        for name, code in CODES.items():
            setattr(self, f"NVML_ERROR_{name}", code)

    def nvmlInit(self) -> None:  # noqa: N802
        if self.init_fails:
            raise NVMLError(self.init_fails)
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:  # noqa: N802
        return self.gpus[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeGpu:  # noqa: N802
        return self.slices[uuid]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        answers: dict[str, Callable[[FakeGpu], Any]] = {
            "nvmlDeviceGetUUID": lambda gpu: gpu.uuid,
            "nvmlDeviceGetName": lambda gpu: gpu.name,
            "nvmlDeviceGetMemoryInfo": lambda gpu: SimpleNamespace(total=gpu.total, used=gpu.used),
            "nvmlDeviceGetUtilizationRates": _rates,
            "nvmlDeviceGetClockInfo": lambda gpu: gpu.clock,
            "nvmlDeviceGetMaxClockInfo": lambda gpu: 2000,
            "nvmlDeviceGetCurrentClocksEventReasons": lambda gpu: gpu.reasons,
            "nvmlDeviceGetComputeRunningProcesses": lambda gpu: [
                SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in gpu.holders.items()
            ],
            "nvmlDeviceGetGraphicsRunningProcesses": lambda gpu: [],
        }
        if name not in answers:
            raise AttributeError(name)

        def call(gpu: FakeGpu, *rest: Any) -> Any:
            if name in gpu.fails:
                raise NVMLError(gpu.fails[name])
            return answers[name](gpu)

        return call


def _rates(gpu: FakeGpu) -> SimpleNamespace:
    gpu.looks += 1
    return SimpleNamespace(gpu=gpu.resident[min(gpu.looks, len(gpu.resident)) - 1], memory=0)


class FakeCuda:
    """``torch.cuda`` with one entry of ``reserved`` bytes a visible device."""

    def __init__(self, uuids: list[str], reserved: list[int], current: int = 0, started: bool = True) -> None:
        self.uuids, self.reserved, self.current, self.started = uuids, reserved, current, started

    def is_initialized(self) -> bool:
        return self.started

    def device_count(self) -> int:
        return len(self.reserved)

    def current_device(self) -> int:
        return self.current

    def memory_reserved(self, ordinal: int) -> int:
        return self.reserved[ordinal]

    def get_device_name(self, ordinal: int) -> str:
        return "AMD Radeon"

    def get_device_properties(self, ordinal: int) -> SimpleNamespace:
        return SimpleNamespace(uuid=self.uuids[ordinal]) if self.uuids else SimpleNamespace()


class FakeAccelerator:
    """``torch.accelerator``: an allocator with a present amount and a peak."""

    def __init__(self, kind: str | None, count: int = 1) -> None:
        self.kind, self.count = kind, count
        self.allocated, self.peak = 0, 0
        self.resets = 0

    def is_available(self) -> bool:
        return self.kind is not None

    def current_accelerator(self) -> SimpleNamespace:
        return SimpleNamespace(type=self.kind)

    def device_count(self) -> int:
        return self.count

    def memory_allocated(self, index: int) -> int:
        return self.allocated

    def max_memory_allocated(self, index: int) -> int:
        return self.peak

    def reset_peak_memory_stats(self, index: int) -> None:
        self.resets += 1
        self.peak = self.allocated


def fake_torch(cuda: FakeCuda | None = None, kind: str | None = None, **more: Any) -> Any:
    """A module ``torch`` with just what the meter reads."""
    torch = ModuleType("torch")
    no_cuda = FakeCuda([], [], started=False)
    members = {"cuda": cuda or no_cuda, "accelerator": FakeAccelerator(kind), **more}
    for name, value in members.items():
        setattr(torch, name, value)
    return torch
