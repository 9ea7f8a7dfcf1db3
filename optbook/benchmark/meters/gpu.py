"""What the GPUs did during a measurement. Sizes are in bytes, shares between 0 and 1.

NVIDIA's GPUs are asked through NVML while this process uses one; the allocator's peak comes from
torch on any accelerator. torch is not imported, and no device initialised, for any of it.
"""

from __future__ import annotations

import functools
import math
import os
import re
import statistics
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from optbook.benchmark.meters import nvml
from optbook.benchmark.meters.nvml import Device, GpuLostError, Nvml

NO_GPU = "no GPU"
NVIDIA_DRIVER = Path("/proc/driver/nvidia/gpus")
AMD_TOPOLOGY = Path("/sys/class/kfd/kfd/topology/nodes")


@dataclass(frozen=True)
class Gpu:
    """The figures of the GPUs that this process used; None is "not known".

    ``name`` names them, or is "no GPU", or says that there is one that was not used. ``resident`` is
    the share of the time in which a kernel was resident, which says nothing of how much of the GPU
    it used. ``memory`` is this process's peak, ``used`` that of all processes, ``allocated`` the peak
    of torch's allocator. ``clock`` is the mean share of the highest clock, ``slowed`` the share of
    the looks at which something lowered it, by cause.
    """

    name: str = ""
    resident: float | None = None
    memory: float | None = None
    used: float | None = None
    total: float | None = None
    allocated: float | None = None
    clock: float | None = None
    slowed: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass
class _Seen:
    """The readings of one device."""

    device: Device
    highest_clock: float | None
    readings: list[nvml.Reading] = field(default_factory=list)

    def known(self, what: str) -> list[float]:
        return [value for r in self.readings if (value := getattr(r, what)) is not None]


class GpuMeter:
    """Watches the GPUs between entering and leaving a ``with`` block; `result` then holds the figures.

    `sample` looks once; something has to call it now and then, from any thread. ``reset`` allows
    setting back torch's peak of allocated memory; otherwise what is allocated is sampled.
    """

    def __init__(self, reset: bool = True) -> None:
        self.result = Gpu()
        self._reset = reset
        self._stack = ExitStack()
        self._nvml: Nvml | None = None
        self._trouble = ""
        self._devices: list[Device] = []
        self._seen: dict[str, _Seen] = {}
        self._current: set[int] = set()
        self._allocated: float | None = None

    def __enter__(self) -> GpuMeter:
        found = self._stack.enter_context(nvml.opened())
        if isinstance(found, str):
            self._trouble = found
        else:
            self._nvml, self._devices = found, found.devices()
        try:
            if self._reset:
                _reset_allocator()
            self._note_current()
        except RuntimeError as error:
            self._trouble = _short(error)
        return self

    def _note_current(self) -> None:
        """The current device belongs to a thread, so it is noted in the workload's."""
        torch = _cuda_torch()
        if torch is not None:
            self._current.add(int(torch.cuda.current_device()))

    def sample(self) -> None:
        """Look at the devices that this process uses."""
        try:
            self._look()
        except RuntimeError as error:  # torch's, once a device is gone
            self._trouble = self._trouble or _short(error)

    def _look(self) -> None:
        self._allocated = _larger(self._allocated, _allocated_now())
        library = self._nvml
        if library is None:
            return
        for device in self._used(library):
            if device.uuid in library.lost:
                continue
            try:
                if device.uuid not in self._seen:
                    self._seen[device.uuid] = _Seen(device, library.highest_clock(device))
                self._seen[device.uuid].readings.append(library.read(device))
            except GpuLostError:
                library.lost.add(device.uuid)

    def _used(self, library: Nvml) -> list[Device]:
        torch = _cuda_torch()
        if torch is not None:
            return self._used_by_torch(library, torch)
        used = []
        for device in self._devices:
            if device.uuid in library.lost:
                continue
            try:
                if library.holds(device, os.getpid()) is not None:
                    used.append(device)
            except GpuLostError:
                library.lost.add(device.uuid)
        return used

    def _used_by_torch(self, library: Nvml, torch: Any) -> list[Device]:
        found: dict[str, Device] = {}
        for ordinal in range(torch.cuda.device_count()):
            if ordinal in self._current or torch.cuda.memory_reserved(ordinal) > 0:
                device = self._device(library, torch, ordinal)
                if device is not None:
                    found[device.uuid] = device
        return list(found.values())

    def _device(self, library: Nvml, torch: Any, ordinal: int) -> Device | None:
        """torch's device number ``ordinal``: by UUID, else by what CUDA_VISIBLE_DEVICES says."""
        uuid = str(getattr(torch.cuda.get_device_properties(ordinal), "uuid", "")).lower()
        for known in (*self._devices, *(seen.device for seen in self._seen.values())):
            if uuid and known.uuid.lower().endswith(uuid):
                return known
        tokens = [token.strip() for token in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
        try:
            if ordinal < len(tokens) and tokens[ordinal].startswith("MIG-"):
                part = library.slice(tokens[ordinal])
                if part is not None:
                    return part
        except GpuLostError:
            return None
        shown = nvml.visible(os.environ.get("CUDA_VISIBLE_DEVICES"), [d.uuid for d in self._devices])
        return self._devices[shown[ordinal]] if ordinal < len(shown) else None

    def __exit__(self, *exception: object) -> None:
        with self._stack:
            try:
                self._note_current()
                self.sample()
                self.result = self._figures()
            except RuntimeError as error:
                self.result = Gpu(f"not known ({_short(error)})", notes=(f"GPU: {_short(error)}",))

    def _figures(self) -> Gpu:
        seen = [each for each in self._seen.values() if each.readings]
        looks = sum(len(each.readings) for each in seen)
        slowed = Counter(reason for each in seen for reading in each.readings for reason in reading.reasons)
        clocks = [
            statistics.fmean(each.known("clock")) / each.highest_clock
            for each in seen
            if each.highest_clock and each.known("clock")
        ]
        resident = [statistics.fmean(each.known("resident")) for each in seen if each.known("resident")]
        return Gpu(
            name=self._name(seen),
            resident=statistics.fmean(resident) if resident else None,
            memory=_sum_of_peaks(seen, "own"),
            used=_sum_of_peaks(seen, "used"),
            total=_total([each.device.total for each in seen]),
            allocated=_larger(self._allocated, _allocated_peak() if self._reset else None),
            clock=statistics.fmean(clocks) if clocks else None,
            slowed={reason: count / looks for reason, count in slowed.items()},
            notes=tuple(self._notes(seen)),
        )

    def _name(self, seen: list[_Seen]) -> str:
        if seen:
            return counted(each.device.name for each in seen)
        kind = _accelerator()
        if kind is not None and kind != "cuda":
            return "Apple GPU" if kind == "mps" else f"{kind.upper()} device"
        if self._trouble or (self._nvml is not None and self._nvml.problems and not self._devices):
            return f"not known ({self._trouble or next(iter(self._nvml.problems.values()))})"  # type: ignore[union-attr]
        if self._devices and kind == "cuda":
            return f"{counted(d.name for d in self._devices)}; which one is used is not known"
        if self._devices:
            return f"{counted(d.name for d in self._devices)}, not used"
        return _named_by_torch() if kind == "cuda" else NO_GPU

    def _notes(self, seen: list[_Seen]) -> list[str]:
        notes = [self._trouble] if self._trouble else []
        if self._nvml is not None and (seen or not self._devices or self._nvml.lost):
            notes += self._nvml.problems.values()
        return [f"GPU: {note}" for note in notes]


@functools.cache
def present(driver: Path = NVIDIA_DRIVER, topology: Path = AMD_TOPOLOGY) -> tuple[str, ...]:
    """Names of the NVIDIA GPUs of this machine and of AMD's that compute, sorted; asked once per process.

    They are part of the machine's fingerprint, so where NVML fails NVIDIA's driver is asked. AMD's are
    read from its driver, by their PCI device id. Both only on Linux.
    """
    with nvml.opened() as library:
        found = library.devices() if isinstance(library, Nvml) else []
    names = [device.name for device in found]
    for text in () if names else _texts(driver, "*/information"):
        names += [name.strip() for name in re.findall(r"^Model:\s*(.+)$", text, re.MULTILINE)]
    for text in _texts(topology, "*/properties"):
        node = dict(re.findall(r"^(\w+) (\d+)$", text, re.MULTILINE))
        if int(node.get("simd_count", 0)) > 0:
            names.append(f"AMD GPU {int(node.get('device_id', 0)):#06x}")
    return tuple(sorted(names))


def _texts(folder: Path, pattern: str) -> list[str]:
    try:
        return [path.read_text(errors="replace") for path in folder.glob(pattern)]
    except OSError:
        return []


def counted(names: Any) -> str:
    """``A``, ``2 × A``, ``A, 3 × B``."""
    numbers = Counter(names)
    return ", ".join(name if number == 1 else f"{number} × {name}" for name, number in numbers.items())


def _named_by_torch() -> str:
    """What torch calls the devices of a kind that NVML does not know, such as AMD's."""
    cuda: Any = sys.modules["torch"].cuda
    return counted(str(cuda.get_device_name(ordinal)) for ordinal in range(cuda.device_count()))


def _short(error: RuntimeError) -> str:
    """The first line of torch's message."""
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _cuda_torch() -> Any:
    """torch, if it is loaded and has initialised CUDA; else None."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    return torch if cuda is not None and cuda.is_initialized() else None


def _accelerator() -> str | None:
    """The type of the accelerator that torch uses in this process, such as "cuda" or "mps"."""
    torch = sys.modules.get("torch")
    accelerator = getattr(torch, "accelerator", None)
    if torch is None or accelerator is None or not accelerator.is_available():
        return None
    kind = str(accelerator.current_accelerator().type)
    if kind == "mps":
        return kind if torch.mps.driver_allocated_memory() > 0 else None
    started = getattr(getattr(torch, kind, None), "is_initialized", None)
    return kind if started is None or started() else None


def _reset_allocator() -> None:
    kind = _accelerator()
    if kind is None or kind == "mps":
        return
    torch: Any = sys.modules["torch"]
    for index in range(torch.accelerator.device_count()):
        torch.accelerator.reset_peak_memory_stats(index)


def _allocated_now() -> float | None:
    """Bytes that torch holds on the accelerator; on Apple's, with what Metal's driver holds for it."""
    kind = _accelerator()
    if kind is None:
        return None
    torch: Any = sys.modules["torch"]
    if kind == "mps":
        return float(max(torch.mps.current_allocated_memory(), torch.mps.driver_allocated_memory()))
    count = torch.accelerator.device_count()
    return float(sum(torch.accelerator.memory_allocated(index) for index in range(count)))


def _allocated_peak() -> float | None:
    kind = _accelerator()
    if kind is None or kind == "mps":
        return None
    torch: Any = sys.modules["torch"]
    count = torch.accelerator.device_count()
    return float(sum(torch.accelerator.max_memory_allocated(index) for index in range(count)))


def _sum_of_peaks(seen: list[_Seen], what: str) -> float | None:
    return _total([max(each.known(what), default=None) for each in seen])


def _total(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) if known and len(known) == len(values) else None


def _larger(a: float | None, b: float | None) -> float | None:
    return b if a is None else a if b is None else max(a, b)
