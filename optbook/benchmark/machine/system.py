"""What in this machine spoils measurements: other load, heat, power saving, limits, full memory.

Every reader takes its files or values as parameters. It raises NotKnownError where the system does
not tell. Linux's files are those of its Documentation (admin-guide/pm/cpufreq, filesystems/proc).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from optbook import formatting as write
from optbook.benchmark.machine.finding import Finding, NotKnownError
from optbook.benchmark.machine.fingerprint import ask

CPUS = Path("/sys/devices/system/cpu")
PLATFORM_PROFILE = Path("/sys/firmware/acpi/platform_profile")
CPUINFO = Path("/proc/cpuinfo")
BUSY_CORES, VERY_BUSY_SHARE = 0.15, 0.25
STOLEN, MUCH_STOLEN = 0.01, 0.1
LITTLE_MEMORY, VERY_LITTLE_MEMORY = 0.15, 0.05
_WINDOWS_POWER_SAVER = "a1841308-3541-4fab-bc81-f71556f20b4a"


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def processes(ours: Collection[int]) -> dict[int, tuple[str, float]]:
    """Name and CPU seconds so far of every process that can be seen, but for ``ours``."""
    import psutil

    found = {}
    for process in psutil.process_iter(["name", "cpu_times"]):
        times = process.info["cpu_times"]
        if times is not None and process.pid not in ours:
            found[process.pid] = (str(process.info["name"]), times.user + times.system)
    return found


def ours() -> set[int]:
    """This process and its descendants."""
    import psutil

    me = psutil.Process()
    return {me.pid, *(child.pid for child in me.children(recursive=True))}


def other_load(
    before: Mapping[int, tuple[str, float]],
    after: Mapping[int, tuple[str, float]],
    seconds: float,
    cores: float,
) -> Iterable[Finding]:
    """Other processes that compute, the busiest named.

    Args:
        before: name and CPU seconds by process id, as `processes` gives them.
        after: the same, ``seconds`` later.
        seconds: what lies between.
        cores: how many this process may use.
    """
    if seconds <= 0 or not after:
        raise NotKnownError("other processes can't be seen")
    busy = [
        ((used - before[pid][1]) / seconds, f"{name} [{pid}]")
        for pid, (name, used) in after.items()
        if pid in before and before[pid][0] == name
    ]
    total = sum(share for share, _ in busy)
    if total < BUSY_CORES:
        return
    named = ", ".join(f"{name} {share:.1f}" for share, name in sorted(busy, reverse=True)[:3] if share > 0.05)
    yield Finding(
        "severe" if total >= max(0.5, VERY_BUSY_SHARE * cores) else "warning",
        f"other processes keep {total:.1f} cores busy ({named or 'many small ones'})",
        "they take cores, caches and memory bandwidth, and not evenly",
        "close them, or measure when they are done",
    )


def steal(before: str, after: str, cpuinfo: Path = CPUINFO) -> Iterable[Finding]:
    """Whether a hypervisor gave this machine's time to others.

    Args:
        before: the text of ``/proc/stat``.
        after: the same, a little later.
        cpuinfo: where Linux describes the processors.
    """
    first, second = _ticks(before), _ticks(after)
    if first is None or second is None:
        raise NotKnownError("/proc/stat can't be read")
    passed = sum(second) - sum(first)
    share = (second[7] - first[7]) / passed if passed > 0 else 0.0
    if share >= STOLEN:
        yield Finding(
            "severe" if share >= MUCH_STOLEN else "warning",
            f"the host took {write.percent(share)} of this virtual machine's CPU time",
            "runs are stopped at moments of its choosing",
            "measure at another time, or on a machine of your own; compare only interleaved runs",
        )
    elif re.search(r"^flags\s*:.*\bhypervisor\b", _text(cpuinfo), re.MULTILINE):
        yield Finding(
            "note",
            "this is a virtual machine",
            "its neighbours on the same host can slow it down unseen",
            "trust interleaved comparisons more than runs of different days",
        )


def _ticks(stat: str) -> list[int] | None:
    """The first eight counters of /proc/stat's first line, the eighth being steal (man 5 proc)."""
    found = re.match(r"cpu\s+((?:\d+\s+){7}\d+)", stat)
    return [int(number) for number in found.group(1).split()] if found else None


def throttle_count(cpus: Path = CPUS) -> int | None:
    """How often heat has lowered a clock since the machine started (Intel on Linux)."""
    texts = [_text(path) for path in cpus.glob("cpu[0-9]*/thermal_throttle/*_throttle_count")]
    counts = [int(text) for text in texts if text.isdigit()]
    return sum(counts) if counts else None


def throttling(before: int | None, after: int | None, mac: str = "") -> Iterable[Finding]:
    """Whether heat lowers the clock now. ``mac`` is what ``pmset -g therm`` prints on macOS."""
    limit = re.search(r"CPU_Speed_Limit\s*=\s*(\d+)", mac)
    if before is None or after is None:
        if not mac:
            raise NotKnownError("no counter of thermal throttling can be read")
        if limit and int(limit.group(1)) < 100:
            yield _hot(f"heat has lowered the clock to {limit.group(1)} %")
    elif after > before:
        yield _hot("heat is lowering the clock now")
    elif after > 0:
        yield Finding(
            "note",
            f"heat has lowered the clock {after} times since the machine started",
            "long measurements may be slower than short ones",
            "watch for drift",
        )


def _hot(what: str) -> Finding:
    why = "times get longer the longer you measure"
    return Finding("severe", what, why, "let the machine cool down, and free its vents")


def power(battery: Any, profile: Path = PLATFORM_PROFILE, report: str = "") -> Iterable[Finding]:
    """Whether the machine saves power.

    Args:
        battery: as psutil.sensors_battery() gives it; None where there is none.
        profile: where Linux says how firmware trades power for speed.
        report: what ``pmset -g`` (macOS) or ``powercfg /getactivescheme`` (Windows) prints.
    """
    if battery is not None and battery.power_plugged is False:
        yield Finding(
            "warning",
            f"running on battery ({battery.percent:.0f} %)",
            "clocks are lower, and change with the charge",
            "plug it in",
        )
    saving = _text(profile) in ("low-power", "quiet", "cool") or bool(
        re.search(r"^\s*lowpowermode\s+1\b", report, re.MULTILINE) or _WINDOWS_POWER_SAVER in report.lower()
    )
    if saving:
        yield Finding(
            "warning",
            "the power saver is on",
            "clocks are held low",
            "choose balanced or performance in the system's power settings",
        )


def power_report(platform: str = sys.platform) -> str:
    """What the system's own tool says of power saving; "" on Linux, where files say it."""
    if platform == "darwin":
        return ask("pmset", "-g")
    return ask("powercfg", "/getactivescheme") if platform == "win32" else ""


def governor(cpus: Path = CPUS) -> Iterable[Finding]:
    """How Linux chooses the clock, and whether something holds it below what the processor can do."""
    policies = sorted((cpus / "cpufreq").glob("policy[0-9]*"))
    governors = {_text(policy / "scaling_governor") for policy in policies} - {""}
    if not governors:
        raise NotKnownError("the clock's governor can't be read")
    drivers = {_text(policy / "scaling_driver") for policy in policies}
    preferences = {_text(policy / "energy_performance_preference") for policy in policies}
    # With these drivers "powersave" is the usual setting, which goes up to the highest clock.
    itself = bool(drivers & {"intel_pstate", "amd-pstate-epp", "amd_pstate_epp"})
    low = governors & ({"userspace"} if itself else {"powersave", "conservative", "userspace"})
    if low or "power" in preferences:
        yield Finding(
            "warning",
            f"the clock's governor is {', '.join(sorted(low)) or 'set to save power'}",
            "it holds the clock low, or raises it late",
            "sudo cpupower frequency-set -g performance",
        )
    elif governors & {"ondemand", "schedutil"}:
        yield Finding(
            "note",
            f"the clock's governor is {', '.join(sorted(governors))}",
            "the clock rises only while there is work, so first runs are slower",
            "warm up, as %%bench does; or sudo cpupower frequency-set -g performance",
        )
    yield from _capped(policies)


def _capped(policies: Iterable[Path]) -> Iterable[Finding]:
    shares = []
    for policy in policies:
        allowed, possible = _text(policy / "scaling_max_freq"), _text(policy / "cpuinfo_max_freq")
        if allowed.isdigit() and possible.isdigit() and int(possible) > 0:
            shares.append(int(allowed) / int(possible))
    if shares and min(shares) < 0.95:
        yield Finding(
            "warning",
            f"the clock is limited to {write.percent(min(shares))} of what the processor can do",
            "figures are below those of the same processor elsewhere",
            "look at scaling_max_freq, or the power settings",
        )


def quota(cores: float, affinity: int, limit: float | None) -> Iterable[Finding]:
    """A container's CPU quota: ``limit`` cores, of ``affinity`` that the process may run on."""
    if limit is None or limit >= affinity:
        return
    yield Finding(
        "severe" if cores < 1 else "warning",
        f"a quota allows {limit:g} of {affinity} cores",
        "whoever has used it up is stopped until the next period (mostly 100 ms), so times come in jumps",
        "give the container whole cores of its own (--cpuset-cpus)"
        + (f", or compute with at most {int(limit)} threads" if limit >= 1 else ""),
    )


def memory(
    total: float, available: float, left: float | None, swap_used: float, swapped: float
) -> Iterable[Finding]:
    """Memory that is nearly full, and swapping. All in bytes.

    Args:
        total: of this machine or container.
        available: what the machine can still give.
        left: what the control group can still give; None if it has no limit.
        swap_used: what lies in swap.
        swapped: what moved to or from swap during the check.
    """
    free = available if left is None else min(available, left)
    if total > 0 and free < LITTLE_MEMORY * total:
        yield Finding(
            "severe" if free < VERY_LITTLE_MEMORY * total else "warning",
            f"only {write.bytes_(free)} of {write.bytes_(total)} memory are free",
            "what does not fit is swapped out or killed, and files are read again instead of cached",
            "close what you don't need, restart other kernels",
        )
    if swapped > 0:
        yield Finding(
            "severe",
            f"{write.bytes_(swapped)} moved to or from swap just now",
            "a page that must come back from disk takes as long as 10 000 that need not",
            "free memory until it stops",
        )
    elif total > 0 and swap_used > 0.1 * total:
        yield Finding(
            "note",
            f"{write.bytes_(swap_used)} lie in swap",
            "what is touched first has to come back from disk",
            "warm up, as %%bench does",
        )


def log_place(warning: Callable[[], str]) -> Iterable[Finding]:
    """Whether the log lies where it is slow or in danger."""
    found = warning()
    if found:
        what, _, cure = found.partition(": ")
        why = "appending may be slow, and rows may be lost"
        yield Finding("warning", what, why, cure or "choose another place")
