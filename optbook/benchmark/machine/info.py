"""`machine`: what this machine is, what it can do, and what would spoil a measurement on it now."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from importlib import metadata
from typing import TYPE_CHECKING, Any

from optbook import formatting as write
from optbook.benchmark.machine.fingerprint import fingerprint, processor, usable_memory
from optbook.benchmark.meters import cpu, gpu
from optbook.benchmark.meters.gpu import counted

if TYPE_CHECKING:
    from optbook.benchmark.machine.peaks import Peaks
    from optbook.benchmark.machine.preflight import Preflight

LIBRARIES = ("optbook", "torch", "numpy", "pillow")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Machine:
    """This machine, as far as it bears on speed. Memory is in bytes, cores may be a fraction.

    ``fingerprint`` stays the same between kernels and reboots, and is another with another
    processor, other cores, memory, GPUs or operating system; versions and threads are no part of it.
    """

    fingerprint: str
    processor: str
    logical_cores: int
    cores: float
    memory: int
    gpus: tuple[str, ...]
    system: str
    threads: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    peaks: Peaks | None = None
    preflight: Preflight | None = None

    def rows(self) -> list[tuple[str, str]]:
        """Pairs of a name and a written value."""
        return list(self._rows())

    def _rows(self) -> Iterable[tuple[str, str]]:
        yield "processor", self.processor
        yield "cores", f"{self.cores:g} usable of {self.logical_cores}"
        yield "memory", write.bytes_(self.memory)
        yield "GPU", counted(self.gpus) if self.gpus else gpu.NO_GPU
        yield "system", self.system
        if self.threads:
            yield "threads", ", ".join(f"{name} {value}" for name, value in self.threads.items())
        yield "versions", ", ".join(f"{name} {value}" for name, value in self.versions.items())
        if self.peaks is None:
            yield "peaks", "not measured yet: %optbook machine, or optbook.machine(measure=True)"
        else:
            for name, value in self.peaks.rows():
                yield f"peak {name}" if name != "process start" else name, value

    def __str__(self) -> str:
        rows = self.rows()
        width = max(len(name) for name, _ in rows)
        lines = [f"machine {self.fingerprint}", *(f"  {name:<{width}}  {value}" for name, value in rows)]
        if self.preflight is not None:
            lines.append(str(self.preflight))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        body = "".join(
            '<tr><th scope="row" style="text-align:left;font-weight:normal;vertical-align:top;'
            f'color:var(--jp-ui-font-color2,gray);padding:1px 1em 1px 0">{escape(name)}</th>'
            f'<td style="text-align:left;padding:1px 0">{escape(value)}</td></tr>'
            for name, value in self.rows()
        )
        below = "" if self.preflight is None else self.preflight._repr_html_()
        return (
            '<div class="optbook-machine" style="font-family:var(--jp-ui-font-family,system-ui,sans-serif);'
            'font-size:var(--jp-ui-font-size1,13px);color:var(--jp-ui-font-color1,currentColor)">'
            f'<div style="font-weight:600;margin-bottom:2px">machine {escape(self.fingerprint)}</div>'
            f'<table style="border-collapse:collapse;margin:0 0 6px">{body}</table>{below}</div>'
        )

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))


def machine(measure: bool = False, *, check: bool = True) -> Machine:
    """This machine: fingerprint, versions, thread counts, peaks, and what would spoil a measurement now.

    Args:
        measure: measure the peaks if there are no kept ones; takes seconds, and imports torch.
        check: make the preflight as well; takes half a second.
    """
    from optbook.benchmark.machine import peaks as measured
    from optbook.benchmark.machine.preflight import preflight

    # Before the peaks are measured, so that it does not see the load of that.
    found = preflight() if check else None
    return Machine(
        fingerprint=fingerprint(),
        processor=processor(),
        logical_cores=os.cpu_count() or 1,
        cores=cpu.usable_cores(),
        memory=usable_memory(),
        gpus=_gpus(),
        system=f"{platform.system()} {platform.release()}, {platform.machine()}",
        threads=_threads(os.environ),
        versions={"python": platform.python_version()} | dict(_versions()),
        peaks=measured.peaks() if measure else measured.known(),
        preflight=found,
    )


def _gpus() -> tuple[str, ...]:
    name = processor()
    return gpu.present() or ((f"that of the {name}",) if name.startswith("Apple") else ())


def _threads(environ: Mapping[str, str]) -> dict[str, str]:
    found = {name: environ[name] for name in THREAD_VARIABLES if name in environ}
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_num_threads"):
        found["torch"] = str(torch.get_num_threads())
        found["torch inter-op"] = str(torch.get_num_interop_threads())
    return found


def _versions() -> Iterable[tuple[str, str]]:
    for name in LIBRARIES:
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
