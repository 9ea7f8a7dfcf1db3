# mypy: disable-error-code="no-untyped-call"
"""NVIDIA's management library, as far as a measurement needs it. Sizes are in bytes, clocks in MHz."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

POWER_LIMIT = "power limit"
_REASONS = {
    "SwPowerCap": POWER_LIMIT,
    "HwSlowdown": "hardware slowdown",
    "SyncBoost": "held to the clock of another GPU",
    "SwThermalSlowdown": "heat",
    "HwThermalSlowdown": "heat (hardware)",
    "HwPowerBrakeSlowdown": "power brake",
    "DisplayClockSetting": "display clock setting",
    "ApplicationsClocksSetting": "clock set by hand",
}
"""NVML's names of what lowers the clock (nvmlClocksEventReason…), but for idleness."""


@dataclass(frozen=True)
class Device:
    """One GPU, or one MIG slice of one."""

    handle: Any = field(repr=False)
    uuid: str
    name: str
    total: float | None


@dataclass(frozen=True)
class Reading:
    """One look at a device. ``resident`` is the share of NVML's last sampling period in which a kernel
    was resident; ``own`` the memory of this process, ``used`` that of all. None is "not known"."""

    resident: float | None
    own: float | None
    used: float | None
    clock: float | None
    reasons: tuple[str, ...]


@dataclass
class Nvml:
    """The library, opened. ``problems`` is what could not be read, once each; ``lost`` the devices gone."""

    library: Any
    problems: dict[str, str] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)

    def ask(self, what: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """The answer of one call, or None if NVML has none."""
        try:
            return call(*arguments)
        except self.library.NVMLError as error:
            if error.value == self.library.NVML_ERROR_GPU_IS_LOST:
                self.problems.setdefault("lost", "the GPU was lost: its figures end there")
                raise GpuLostError from error
            self.problems.setdefault(what, f"{what} not known ({error})")
            return None

    def devices(self) -> list[Device]:
        """All GPUs that can be opened."""
        library = self.library
        found = []
        for index in range(self.ask("the number of GPUs", library.nvmlDeviceGetCount) or 0):
            try:
                handle = self.ask(f"GPU {index}", library.nvmlDeviceGetHandleByIndex, index)
                if handle is not None:
                    found.append(self._described(handle))
            except GpuLostError:
                continue
        return found

    def _described(self, handle: Any) -> Device:
        library = self.library
        memory = self.ask("device memory", library.nvmlDeviceGetMemoryInfo, handle)
        return Device(
            handle,
            _text(self.ask("the GPU's UUID", library.nvmlDeviceGetUUID, handle)),
            _text(self.ask("the GPU's name", library.nvmlDeviceGetName, handle)) or "NVIDIA GPU",
            None if memory is None else float(memory.total),
        )

    def slice(self, uuid: str) -> Device | None:
        """The MIG slice with this UUID (``MIG-…``)."""
        handle = self.ask("the MIG slice", self.library.nvmlDeviceGetHandleByUUID, uuid)
        return None if handle is None else self._described(handle)

    def holds(self, device: Device, pid: int) -> float | None:
        """Device memory of the process; None if it has none there, NaN if NVML can't tell how much."""
        library = self.library
        seen: list[float] = []
        for call in (
            library.nvmlDeviceGetComputeRunningProcesses,
            library.nvmlDeviceGetGraphicsRunningProcesses,
        ):
            for process in self.ask("memory per process", call, device.handle) or ():
                if process.pid == pid:
                    used = process.usedGpuMemory
                    seen.append(float("nan") if used is None else float(used))
        return max(seen, default=None)

    def read(self, device: Device) -> Reading:
        """Look at the device now.

        Raises:
            GpuLostError: it is gone.
        """
        library, handle = self.library, device.handle
        rates = self.ask("utilisation", library.nvmlDeviceGetUtilizationRates, handle)
        memory = self.ask("device memory", library.nvmlDeviceGetMemoryInfo, handle)
        clock = self.ask("the clock", library.nvmlDeviceGetClockInfo, handle, library.NVML_CLOCK_SM)
        own = self.holds(device, os.getpid())
        return Reading(
            resident=None if rates is None else rates.gpu / 100,
            own=None if own is None or own != own else own,
            used=None if memory is None else float(memory.used),
            clock=None if clock is None else float(clock),
            reasons=tuple(self._reasons(handle)),
        )

    def highest_clock(self, device: Device) -> float | None:
        library = self.library
        clock = self.ask(
            "the highest clock", library.nvmlDeviceGetMaxClockInfo, device.handle, library.NVML_CLOCK_SM
        )
        return float(clock) if clock else None

    def _reasons(self, handle: Any) -> Iterator[str]:
        library = self.library
        read = getattr(library, "nvmlDeviceGetCurrentClocksEventReasons", None)
        read = read or library.nvmlDeviceGetCurrentClocksThrottleReasons
        answer = self.ask("what lowers the clock", read, handle)
        mask = 0 if answer is None else int(answer)
        for name, words in _REASONS.items():
            bit = int(getattr(library, f"nvmlClocksEventReason{name}", 0))
            if mask & (bit or int(getattr(library, f"nvmlClocksThrottleReason{name}", 0))):
                yield words


class GpuLostError(Exception):
    """The GPU fell off the bus."""


@contextmanager
def opened() -> Iterator[Nvml | str]:
    """NVML inside a ``with`` block; or why it can't be used, "" where there is no NVIDIA GPU."""
    import pynvml

    absent = (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        yield "" if error.value in absent else f"NVML fails: {error}"
        return
    try:
        yield Nvml(pynvml)
    finally:
        with suppress(pynvml.NVMLError):  # a lost GPU can't be closed either
            pynvml.nvmlShutdown()


def visible(value: str | None, uuids: Sequence[str]) -> list[int]:
    """Positions of the devices that ``CUDA_VISIBLE_DEVICES`` leaves, in its order.

    As CUDA reads it (CUDA C++ Programming Guide, environment variables): comma-separated ordinals or
    UUIDs, of which the start is enough; the first that is none ends the list; a device named twice
    empties it. A MIG slice stands for the GPU that it is on where its name tells (``MIG-GPU-<uuid>/1/0``).

    Args:
        value: the variable; None if it is not set.
        uuids: of all devices, in CUDA's order.
    """
    if value is None:
        return list(range(len(uuids)))
    found: list[int] = []
    for token in value.split(","):
        position = _position(token.strip(), uuids)
        if position is None:
            break
        if position in found:
            return []
        found.append(position)
    return found


def _position(token: str, uuids: Sequence[str]) -> int | None:
    ordinal = re.match(r"\+?(\d+)", token)
    if ordinal:
        position = int(ordinal.group(1))
        return position if position < len(uuids) else None
    start = token.removeprefix("MIG-").partition("/")[0].lower()
    if not start.startswith("gpu-"):
        return None
    matches = [i for i, uuid in enumerate(uuids) if uuid.lower().startswith(start)]
    return matches[0] if len(matches) == 1 else None


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")
