"""The most that this machine was seen to do: FLOP/s per dtype, memory bandwidth, process start, loopback.

A peak is measured, not looked up, and is the best of several kernels: which one comes out best differs from
machine to machine and from dtype to dtype.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

from optbook import formatting as write
from optbook.benchmark.machine import cache, kernels, plumbing
from optbook.benchmark.machine.fingerprint import fingerprint

FORMAT = 1
DISTURBED_SHARE = 0.85


@dataclass(frozen=True)
class Peak:
    """The best rate seen, per second, the kernel that reached it, and of how many it was the best.

    ``cores`` is how many cores this process got while the kernels ran, at most.
    """

    rate: float
    kernel: str
    kernels: int
    cores: float


@dataclass(frozen=True)
class Peaks:
    """What this machine was seen to do at most.

    ``flops`` is device type → dtype → FLOP/s of one device of that type; ``bandwidth`` is device type →
    bytes/s read and written; ``process_start`` is seconds, ``loopback`` bytes/s; None is not known.
    ``threads`` are torch's; 0 without torch, since NumPy does not tell its own.
    """

    flops: Mapping[str, Mapping[str, Peak]]
    bandwidth: Mapping[str, Peak]
    process_start: float | None
    loopback: float | None
    machine: str
    threads: int
    settings: str
    measured: str
    seconds: float

    def of(self, dtype: str, device: str = "cpu") -> Peak | None:
        """The peak FLOP/s of a dtype on one device of a type, or None if there is none."""
        return self.flops.get(device, {}).get(dtype)

    @property
    def disturbed(self) -> bool:
        """Whether other work took part of the cores meanwhile: the peaks are too low then, and not kept."""
        from optbook.benchmark.meters import cpu

        got = max((peak.cores for peak in self.flops.get("cpu", {}).values()), default=0.0)
        return got < DISTURBED_SHARE * min(max(1, self.threads), cpu.usable_cores())

    def rows(self) -> list[tuple[str, str]]:
        """Pairs of a name and a written value."""
        found = []
        for device, dtypes in self.flops.items():
            for dtype, peak in dtypes.items():
                found.append(
                    (f"{dtype} on {device}", f"{write.flops(peak.rate)}: {self.source(peak, device)}")
                )
        for device, peak in self.bandwidth.items():
            found.append((f"memory of {device}", f"{write.bytes_(peak.rate)}/s: {self.source(peak, device)}"))
        if self.process_start is not None:
            found.append(("process start", write.seconds(self.process_start)))
        if self.loopback is not None:
            found.append(("loopback TCP", f"{write.bytes_(self.loopback)}/s"))
        if self.disturbed:
            found.append(("disturbed", "other work took part of the cores: these are too low, and not kept"))
        return found

    def source(self, peak: Peak, device: str) -> str:
        """Where a peak comes from, in words."""
        threads = f", {self.threads} {'thread' if self.threads == 1 else 'threads'}"
        if device != "cpu" or not self.threads:
            threads = ""
        several = f"the best of {peak.kernels} kernels: " if peak.kernels > 1 else ""
        return f"{several}{peak.kernel}{threads}"

    def _title(self) -> str:
        return (
            f"peaks of machine {self.machine}, measured {self.measured[:10]} in {write.seconds(self.seconds)}"
        )

    def __str__(self) -> str:
        rows = self.rows()
        width = max((len(name) for name, _ in rows), default=0)
        return "\n".join([self._title(), *(f"  {name:<{width}}  {value}" for name, value in rows)])

    def _repr_html_(self) -> str:
        body = "".join(
            '<tr><th scope="row" style="text-align:left;font-weight:normal;'
            f'color:var(--jp-ui-font-color2,gray);padding:1px 1em 1px 0">{escape(name)}</th>'
            f'<td style="text-align:left;padding:1px 0">{escape(value)}</td></tr>'
            for name, value in self.rows()
        )
        return (
            '<div class="optbook-peaks" style="font-family:var(--jp-ui-font-family,system-ui,sans-serif);'
            'font-size:var(--jp-ui-font-size1,13px);color:var(--jp-ui-font-color1,currentColor)">'
            f'<div style="font-weight:600;margin-bottom:2px">{escape(self._title())}</div>'
            f'<table style="border-collapse:collapse;margin:0">{body}</table></div>'
        )

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))


def peaks(refresh: bool = False, *, folder: Path | None = None) -> Peaks:
    """The peaks of this machine, with the threads and settings now in force; measured in seconds, then kept.

    Args:
        refresh: measure again, although there are kept ones.
        folder: where to keep them; the user's cache folder if None.
    """
    key, found = _key(), None
    path = cache.path_of("peaks", key, folder)
    if not refresh:
        found = _read(cache.load(path, key))
    if found is None:
        found = _measure()
        if not found.disturbed:
            cache.save(path, key, asdict(found))
    return found


def known(*, folder: Path | None = None) -> Peaks | None:
    """The kept peaks of this machine as it is now, or None if they are to be measured first."""
    key = _key()
    return _read(cache.load(cache.path_of("peaks", key, folder), key))


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch


def _accelerator(torch: Any) -> str | None:
    """The type of the accelerator in use, such as "cuda" or "mps"; None without one."""
    found = getattr(torch, "accelerator", None)
    if found is None or not found.is_available():
        return None
    return str(found.current_accelerator().type)


def _settings(torch: Any) -> str:
    """Versions and switches that the speed of a kernel depends on."""
    import numpy as np

    if torch is None:
        return f"numpy {np.__version__}"
    device = _accelerator(torch)
    name = ""
    if device is not None:
        module: Any = getattr(torch, device, None)
        name = module.get_device_name() if hasattr(module, "get_device_name") else device
    precision = torch.get_float32_matmul_precision()
    tf32 = torch.backends.cudnn.allow_tf32
    return f"torch {torch.__version__}, precision {precision}, cudnn TF32 {tf32}, {name or 'no accelerator'}"


def _threads(torch: Any) -> int:
    return int(torch.get_num_threads()) if torch is not None else 0


def _key() -> str:
    torch = _torch()
    return f"{FORMAT}|{fingerprint()}|{_threads(torch)}|{_settings(torch)}"


def _measure() -> Peaks:
    torch = _torch()
    begun = time.perf_counter()
    devices = ["cpu"] + ([device] if torch is not None and (device := _accelerator(torch)) else [])
    work = [(device, dtype) for device in devices for dtype in kernels.DTYPES]
    flops: dict[str, dict[str, Peak]] = {}
    bandwidth: dict[str, Peak] = {}
    with _bar(len(work) + len(devices) + 2) as bar:
        for device, dtype in work:
            bar.set_postfix_str(f"{dtype} on {device}")
            listed = kernels.arithmetic(dtype, device) if torch else kernels.arithmetic_without_torch(dtype)
            peak = _best(listed, _synchronizer(torch, device))
            if peak is not None:
                flops.setdefault(device, {})[dtype] = peak
            bar.update()
        for device in devices:
            bar.set_postfix_str(f"memory of {device}")
            listed = kernels.moving(device) if torch else kernels.moving_without_torch()
            peak = _best(listed, _synchronizer(torch, device))
            if peak is not None:
                bandwidth[device] = peak
            bar.update()
        bar.set_postfix_str("process start")
        start = plumbing.process_start()
        bar.update()
        bar.set_postfix_str("loopback")
        loopback = plumbing.loopback()
        bar.update()
    return Peaks(
        flops=flops,
        bandwidth=bandwidth,
        process_start=start,
        loopback=loopback,
        machine=fingerprint(),
        threads=_threads(torch),
        settings=_settings(torch),
        measured=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=time.perf_counter() - begun,
    )


def _best(listed: list[kernels.Kernel], synchronize: Callable[[], None]) -> Peak | None:
    found = sorted(kernels.measured(listed, synchronize), key=lambda each: each.rate)
    if not found:
        return None
    cores = max(each.cores for each in found)
    return Peak(rate=found[-1].rate, kernel=found[-1].name, kernels=len(found), cores=cores)


def _synchronizer(torch: Any, device: str) -> Callable[[], None]:
    if torch is None or device == "cpu":
        return lambda: None
    synchronize: Callable[[], None] = torch.accelerator.synchronize
    return synchronize


def _bar(total: int) -> Any:
    from tqdm.auto import tqdm

    from optbook.settings import settings

    return tqdm(
        desc="measuring this machine's peaks",
        total=total,
        leave=False,
        disable=not settings().progress_bar,
        file=sys.stderr,
    )


def _read(kept: dict[str, Any] | None) -> Peaks | None:
    """The peaks in a cached value; None if it is not what was written there."""
    if kept is None:
        return None
    try:
        flops = {
            str(device): {str(dtype): _peak(peak) for dtype, peak in dtypes.items()}
            for device, dtypes in kept["flops"].items()
        }
        return Peaks(
            flops=flops,
            bandwidth={str(device): _peak(peak) for device, peak in kept["bandwidth"].items()},
            process_start=_positive(kept["process_start"]),
            loopback=_positive(kept["loopback"]),
            machine=str(kept["machine"]),
            threads=int(kept["threads"]),
            settings=str(kept["settings"]),
            measured=str(kept["measured"]),
            seconds=float(kept["seconds"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _peak(kept: Mapping[str, Any]) -> Peak:
    rate = _positive(kept["rate"])
    if rate is None:
        raise ValueError("a peak without a rate")
    return Peak(rate, str(kept["kernel"]), int(kept["kernels"]), float(kept["cores"]))


def _positive(value: Any) -> float | None:
    if value is None:
        return None
    number = float(value)
    if not 0 < number < float("inf"):
        raise ValueError(f"{number} is no rate")
    return number
