"""`preflight`: what would spoil a measurement on this machine, in this process, now."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from optbook.benchmark.machine import switches, system
from optbook.benchmark.machine.finding import SEVERITIES, Finding, NotKnownError
from optbook.benchmark.machine.fingerprint import ask, usable_memory
from optbook.benchmark.meters import cgroup, cpu
from optbook.experiments.errors import LogError
from optbook.experiments.location import locate

LOAD_SECONDS = 0.5
STAT = Path("/proc/stat")
_COLOURS = {"severe": "var(--jp-error-color1,#b00020)", "warning": "var(--jp-warn-color1,#a15c00)"}

Checks = Mapping[str, Callable[[], Iterable[Finding]]]


@dataclass(frozen=True)
class Preflight:
    """What was found, the worst first; which checks found nothing, and which could not be made and why."""

    findings: tuple[Finding, ...]
    fine: tuple[str, ...]
    not_known: Mapping[str, str]

    @property
    def severe(self) -> bool:
        """Whether figures taken now are not to be trusted."""
        return any(finding.severity == "severe" for finding in self.findings)

    @property
    def title(self) -> str:
        """What was found, counted."""
        counts = [(sum(f.severity == s for f in self.findings), s) for s in SEVERITIES]
        named = [f"{n} {s if n == 1 or s == 'severe' else s + 's'}" for n, s in counts if n]
        return f"preflight: {', '.join(named)}" if named else "preflight: nothing that spoils measurements"

    def __str__(self) -> str:
        lines = [self.title]
        for finding in self.findings:
            lines += [
                f"  {finding.severity:<8} {finding.what}",
                f"           why: {finding.why}",
                f"           do:  {finding.to_do}",
            ]
        if self.not_known:
            lines.append("  not known: " + ", ".join(f"{k} ({v})" for k, v in self.not_known.items()))
        if self.fine:
            lines.append(f"  fine: {', '.join(self.fine)}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        body = "".join(
            f'<tr><td style="text-align:left;vertical-align:top;color:{_COLOURS.get(f.severity, "inherit")};'
            f'padding:1px 1em 1px 0">{escape(f.severity)}</td>'
            f'<td style="text-align:left;padding:1px 0"><b>{escape(f.what)}</b>: {escape(f.why)}; '
            f"{escape(f.to_do)}</td></tr>"
            for f in self.findings
        )
        rest = [f"not known: {', '.join(self.not_known)}"] if self.not_known else []
        rest += [f"fine: {', '.join(self.fine)}"] if self.fine else []
        return (
            '<div class="optbook-preflight" style="font-family:var(--jp-ui-font-family,system-ui,sans-serif);'
            'font-size:var(--jp-ui-font-size1,13px);color:var(--jp-ui-font-color1,currentColor)">'
            f'<div style="font-weight:600;margin-bottom:2px">{escape(self.title)}</div>'
            f'<table style="border-collapse:collapse;margin:0">{body}</table>'
            f'<div style="color:var(--jp-ui-font-color2,gray)">{escape("; ".join(rest))}</div></div>'
        )

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))


def preflight(seconds: float = LOAD_SECONDS) -> Preflight:
    """Look for what would spoil a measurement; takes ``seconds`` to see what else runs."""
    first = moment()
    time.sleep(seconds)
    return concluded(checks(first, moment()))


def concluded(made: Checks) -> Preflight:
    """Make the checks, and sort what they find."""
    import psutil

    findings: list[Finding] = []
    fine, not_known = [], {}
    for name, check in made.items():
        try:
            found = list(check())
        except (NotKnownError, OSError, psutil.Error) as error:
            not_known[name] = str(error) or type(error).__name__
            continue
        findings += found
        if not found:
            fine.append(name)
    findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    return Preflight(tuple(findings), tuple(fine), not_known)


@dataclass(frozen=True)
class Moment:
    """What the machine's counters say at one moment: seconds, processes, /proc/stat, heat, bytes swapped."""

    time: float
    processes: Mapping[int, tuple[str, float]]
    stat: str
    throttled: int | None
    swapped: float


def moment() -> Moment:
    """Read the counters now; what can't be read is empty."""
    import psutil

    try:
        others = system.processes(system.ours())
    except (OSError, psutil.Error):
        others = {}
    try:
        swap = psutil.swap_memory()
        swapped = float(swap.sin + swap.sout)
    except (OSError, RuntimeError):
        swapped = 0.0
    try:
        stat = STAT.read_text()
    except OSError:
        stat = ""
    return Moment(time.perf_counter(), others, stat, system.throttle_count(), swapped)


def checks(first: Moment, last: Moment) -> Checks:
    """Every check by name, over the time between two moments."""
    cores = cpu.usable_cores()
    seconds = last.time - first.time
    mac = ask("pmset", "-g", "therm") if sys.platform == "darwin" else ""
    return {
        "other load": lambda: system.other_load(first.processes, last.processes, seconds, cores),
        "stolen time": lambda: system.steal(first.stat, last.stat),
        "throttling": lambda: system.throttling(first.throttled, last.throttled, mac),
        "power": lambda: system.power(_battery(), report=system.power_report()),
        "governor": system.governor,
        "quota": lambda: system.quota(cores, _affinity(), cgroup.cpu_quota()),
        "memory": lambda: _memory(last.swapped - first.swapped),
        "threads": lambda: switches.threads(cores),
        "debug settings": switches.debug_settings,
        "denormals": switches.denormals,
        "the log's place": lambda: system.log_place(_log_warning),
    }


def _memory(swapped: float) -> Iterable[Finding]:
    import psutil

    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    return system.memory(usable_memory(), memory.available, cgroup.memory_free(), swap.used, swapped)


def _affinity() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _battery() -> Any:
    import psutil

    read = getattr(psutil, "sensors_battery", None)
    return None if read is None else read()


def _log_warning() -> str:
    try:
        return locate().warning
    except LogError as error:
        return str(error)
