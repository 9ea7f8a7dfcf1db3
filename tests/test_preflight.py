"""The preflight: every reader with the files and values of machines that we don't have."""

from __future__ import annotations

import gc
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from click.testing import CliRunner

import optbook
from optbook import cli
from optbook.benchmark.machine import preflight as whole
from optbook.benchmark.machine import switches, system
from optbook.benchmark.machine.finding import Finding, NotKnownError, Severity
from optbook.benchmark.machine.preflight import Moment, Preflight, concluded
from optbook.benchmark.machine.switches import oversubscribed

GIB = 2.0**30


def severities(findings: Iterable[Finding]) -> list[Severity]:
    return [finding.severity for finding in findings]


def only(findings: Iterable[Finding]) -> Finding:
    (finding,) = findings
    return finding


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_other_load_is_named() -> None:
    before = {1: ("firefox", 10.0), 2: ("idle", 1.0), 3: ("gone", 1.0), 4: ("reused", 1.0)}
    after = {1: ("firefox", 10.4), 2: ("idle", 1.0), 4: ("other", 9.0), 5: ("new", 3.0)}
    finding = only(system.other_load(before, after, 0.5, cores=8))
    assert finding.severity == "warning"
    assert finding.what == "other processes keep 0.8 cores busy (firefox [1] 0.8)"
    assert severities(system.other_load(before, after, 0.5, cores=2)) == ["severe"]
    assert severities(system.other_load(before, before, 0.5, cores=2)) == []
    with pytest.raises(NotKnownError):
        list(system.other_load({}, {}, 0.5, cores=2))


def test_processes_of_our_own_are_no_other_load() -> None:
    ours = system.ours()
    assert not ours & system.processes(ours).keys()
    assert system.processes(set()).keys() & ours


def stat(steal: int, total: int = 1000) -> str:
    return f"cpu  {total - steal} 0 0 0 0 0 0 {steal} 0 0\ncpu0 1 2 3\n"


@pytest.mark.parametrize(("stolen", "expected"), [(0, []), (5, []), (20, ["warning"]), (300, ["severe"])])
def test_stolen_time(tmp_path: Path, stolen: int, expected: list[str]) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    assert severities(system.steal(stat(0), stat(stolen, 2000), cpuinfo)) == expected
    cpuinfo.write_text("flags\t\t: fpu hypervisor sse\n")
    assert severities(system.steal(stat(0), stat(stolen, 2000), cpuinfo)) == (expected or ["note"])


@pytest.mark.parametrize("text", ["", "intr 1 2 3\n", "cpu 1 2\n"])
def test_stolen_time_that_is_not_told(text: str) -> None:
    with pytest.raises(NotKnownError):
        list(system.steal(text, text))


def test_throttling(tmp_path: Path) -> None:
    assert system.throttle_count(tmp_path) is None
    files = {
        "cpu0/thermal_throttle/core_throttle_count": "3",
        "cpu1/thermal_throttle/core_throttle_count": "4",
        "cpu1/thermal_throttle/package_throttle_count": "",
    }
    assert system.throttle_count(write(tmp_path, files)) == 7
    assert severities(system.throttling(7, 8)) == ["severe"]
    assert severities(system.throttling(7, 7)) == ["note"]
    assert severities(system.throttling(0, 0)) == []
    with pytest.raises(NotKnownError):
        list(system.throttling(None, None))


@pytest.mark.parametrize(("limit", "expected"), [(100, []), (62, ["severe"])])
def test_throttling_on_a_mac(limit: int, expected: list[str]) -> None:
    report = f"CPU_Scheduler_Limit \t= 100\nCPU_Available_CPUs \t= 8\nCPU_Speed_Limit \t= {limit}\n"
    assert severities(system.throttling(None, None, report)) == expected


def battery(plugged: bool | None) -> SimpleNamespace:
    return SimpleNamespace(percent=41.0, secsleft=3600, power_plugged=plugged)


@pytest.mark.parametrize(
    ("plugged", "profile", "report", "expected"),
    [
        (True, "balanced", "", []),
        (None, "performance", "", []),
        (False, "balanced", "", ["running on battery (41 %)"]),
        (True, "low-power", "", ["the power saver is on"]),
        (True, "", " powermode 0\n lowpowermode         1\n", ["the power saver is on"]),
        (True, "", " lowpowermode         0\n", []),
        (
            True,
            "",
            "Power Scheme GUID: A1841308-3541-4FAB-BC81-F71556F20B4A  (Power saver)",
            ["the power saver is on"],
        ),
        (True, "", "Power Scheme GUID: 381b4222-f694-41f0-9685-ff5bb260df2e  (Balanced)", []),
    ],
)
def test_power(tmp_path: Path, plugged: bool | None, profile: str, report: str, expected: list[str]) -> None:
    file = write(tmp_path, {"profile": profile}) / "profile"
    assert [f.what for f in system.power(battery(plugged), file, report)] == expected


def test_a_desktop_has_no_battery(tmp_path: Path) -> None:
    assert severities(system.power(None, tmp_path / "none")) == []


def policy(driver: str, governor: str, preference: str = "", highest: str = "3000000") -> dict[str, str]:
    folder = "cpufreq/policy0/"
    return {
        folder + "scaling_driver": driver + "\n",
        folder + "scaling_governor": governor + "\n",
        folder + "energy_performance_preference": preference + "\n",
        folder + "scaling_max_freq": highest,
        folder + "cpuinfo_max_freq": "3000000",
    }


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (policy("acpi-cpufreq", "performance"), []),
        (policy("acpi-cpufreq", "powersave"), ["warning"]),
        (policy("acpi-cpufreq", "conservative"), ["warning"]),
        (policy("acpi-cpufreq", "schedutil"), ["note"]),
        (policy("intel_pstate", "powersave", "balance_performance"), []),
        (policy("amd-pstate-epp", "powersave", "power"), ["warning"]),
        (policy("intel_pstate", "performance", highest="1200000"), ["warning"]),
    ],
)
def test_the_clocks_governor(tmp_path: Path, files: dict[str, str], expected: list[str]) -> None:
    assert severities(system.governor(write(tmp_path, files))) == expected


def test_a_governor_that_is_not_told(tmp_path: Path) -> None:
    with pytest.raises(NotKnownError):
        list(system.governor(tmp_path))


def test_a_quota() -> None:
    assert severities(system.quota(8, 8, None)) == []
    assert severities(system.quota(8, 8, 8.0)) == []
    half = only(system.quota(0.5, 8, 0.5))
    assert (half.severity, half.what) == ("severe", "a quota allows 0.5 of 8 cores")
    assert "threads" not in half.to_do
    two = only(system.quota(2.5, 8, 2.5))
    assert two.severity == "warning"
    assert two.to_do.endswith("at most 2 threads")


@pytest.mark.parametrize(
    ("available", "left", "swap", "swapped", "expected"),
    [
        (8, None, 0, 0, []),
        (8, 6, 0, 0, []),
        (2, None, 0, 0, ["warning"]),
        (0.5, None, 0, 0, ["severe"]),
        (8, 0.1, 0, 0, ["severe"]),
        (8, None, 4, 0, ["note"]),
        (8, None, 4, 0.1, ["severe"]),
    ],
)
def test_memory(
    available: float, left: float | None, swap: float, swapped: float, expected: list[str]
) -> None:
    limit = None if left is None else left * GIB
    found = system.memory(16 * GIB, available * GIB, limit, swap * GIB, swapped * GIB)
    assert severities(found) == expected


def test_the_logs_place() -> None:
    warned = "the log lies in a synced folder (Dropbox), which can damage it: set OPTBOOK_LOG"
    finding = only(system.log_place(lambda: warned))
    assert finding.what == "the log lies in a synced folder (Dropbox), which can damage it"
    assert finding.to_do == "set OPTBOOK_LOG"
    assert severities(system.log_place(lambda: "")) == []


@pytest.mark.parametrize(
    ("workers", "threads", "cores", "fits"),
    [
        (2, 1, 2, True),
        (3, 1, 2, False),
        (4, 2, 8, True),
        (4, 3, 8, False),
        (1, 1, 0.5, True),
        (1, 2, 0.5, False),
    ],
)
def test_oversubscription(workers: int, threads: int, cores: float, fits: bool) -> None:
    assert (oversubscribed(workers, threads, cores) == "") is fits


def test_oversubscription_says_what_to_do() -> None:
    assert oversubscribed(4, 3, 8).startswith("4 processes × 3 threads compute on 8 cores: ")
    assert oversubscribed(4, 3, 8).endswith("try num_workers=2")
    assert oversubscribed(1, 8, 2.5).endswith("try torch.set_num_threads(2)")


def test_more_threads_than_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    assert severities(switches.threads(4, {})) == []
    assert severities(switches.threads(3, {})) == ["warning"]
    assert "torch.set_num_threads(1)" in only(switches.threads(0.5, {})).to_do
    monkeypatch.delitem(sys.modules, "torch")
    assert severities(switches.threads(2, {"OMP_NUM_THREADS": "16,2"})) == ["severe"]
    assert severities(switches.threads(2, {"OMP_NUM_THREADS": "many"})) == []


def test_threads_that_were_left_over() -> None:
    done = threading.Event()
    started = [threading.Thread(target=done.wait) for _ in range(51)]
    try:
        for thread in started:
            thread.start()
        assert "note" in severities(switches.threads(64, {}))
    finally:
        done.set()
        for thread in started:
            thread.join()


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("CUDA_LAUNCH_BLOCKING", "1", 1),
        ("CUDA_LAUNCH_BLOCKING", "0", 0),
        ("TORCH_SHOW_CPP_STACKTRACES", "1", 1),
        ("TORCH_CPP_LOG_LEVEL", "INFO", 1),
        ("TORCH_CPP_LOG_LEVEL", "ERROR", 0),
        ("TORCH_DISTRIBUTED_DEBUG", "DETAIL", 1),
        ("TORCH_DISTRIBUTED_DEBUG", "OFF", 0),
        ("PYTHONMALLOC", "debug", 1),
        ("LD_PRELOAD", "/usr/lib/libjemalloc.so.2", 0),
        ("LD_PRELOAD", "/usr/lib/libspy.so", 1),
        ("HOME", "1", 0),
    ],
)
def test_environment_variables(name: str, value: str, expected: int) -> None:
    found = list(switches.variables({name: value}))
    assert len(found) == expected
    assert all(name in finding.what for finding in found)


def test_switches_of_torch_and_python(monkeypatch: pytest.MonkeyPatch) -> None:
    assert switches.process_switches() == []
    monkeypatch.setattr(
        torch, "are_deterministic_algorithms_enabled", lambda: True
    )  # the real switch is slow
    tracemalloc.start()
    gc.disable()
    try:
        with torch.autograd.set_detect_anomaly(True):
            found = {finding.what for finding in switches.debug_settings({})}
    finally:
        tracemalloc.stop()
        gc.enable()
        monkeypatch.undo()
    assert found >= {
        "anomaly detection is on",
        "deterministic mode is on",
        "tracemalloc is on",
        "garbage collection is off",
    }
    assert switches.process_switches() == []


def nothing() -> None:
    return None


class FakeMonitoring:
    """``sys.monitoring`` (Python 3.12 on) with one tool."""

    def __init__(self, events: int) -> None:
        self.events = events

    def get_tool(self, tool: int) -> str | None:
        return "coverage.py" if tool == 1 else None

    def get_events(self, tool: int) -> int:
        return self.events


class Coverage:
    def __call__(self, *event: Any) -> None: ...


Coverage.__module__ = "coverage.pytracer"


def test_what_watches_every_line() -> None:
    assert severities(switches.tracers(nothing, nothing, FakeMonitoring(0))) == []
    assert [f.what for f in switches.tracers(Coverage, nothing, FakeMonitoring(0))] == [
        "coverage is watching this process"
    ]
    watching = list(switches.tracers(nothing, nothing, FakeMonitoring(1)))
    assert [f.what for f in watching] == ["coverage.py is watching this process"]
    assert watching[0].to_do == "stop it, or sys.monitoring.free_tool_id(1)"


def test_a_profiler_that_really_runs() -> None:
    before = sys.getprofile()
    sys.setprofile(lambda *event: None)
    try:
        found = list(switches.tracers(nothing))
    finally:
        sys.setprofile(before)
    assert severities(found) == ["severe"]
    with torch.autograd.profiler.profile(use_kineto=False):
        found = list(switches.tracers(nothing, nothing, FakeMonitoring(0)))
    assert [finding.what for finding in found] == ["torch's profiler is on"]


def test_denormals() -> None:
    assert severities(switches.denormals(lambda: 1.2)) == []
    assert "30 times slower" in only(switches.denormals(lambda: 30.0)).what
    assert 0.1 < switches.denormal_slowdown(tries=5) < 1000


def test_the_numbers_of_the_denormal_check_are_denormal() -> None:
    assert 0 < np.float32(1e-40) < np.finfo(np.float32).tiny


FINDING = Finding("warning", "w", "why", "do")


def unknown() -> Iterable[Finding]:
    raise NotKnownError("no file")


def unreadable() -> Iterable[Finding]:
    raise PermissionError(13, "Permission denied")


def vanished() -> Iterable[Finding]:
    raise psutil.NoSuchProcess(1)


CHECKS: dict[str, Callable[[], Iterable[Finding]]] = {
    "first": lambda: [FINDING],
    "second": lambda: [Finding("note", "<n>", "", ""), Finding("severe", "s", "", "")],
    "third": list,
    "fourth": unknown,
    "fifth": unreadable,
    "sixth": vanished,
}


def test_the_worst_comes_first_and_nothing_crashes() -> None:
    found = concluded(CHECKS)
    assert severities(found.findings) == ["severe", "warning", "note"]
    assert found.fine == ("third",)
    assert found.not_known.keys() == {"fourth", "fifth", "sixth"}
    assert found.not_known["fourth"] == "no file"
    assert found.severe
    assert not concluded({"first": CHECKS["first"]}).severe


def test_text_and_html_say_the_same() -> None:
    found = concluded(CHECKS)
    text, html = str(found), found._repr_html_()
    assert text.splitlines()[0] == "preflight: 1 severe, 1 warning, 1 note"
    assert "&lt;n&gt;" in html
    assert "<n>" not in html
    for words in (found.title, "not known: fourth", "fine: third"):
        assert words in text
        assert words in html
    assert str(concluded({})) == "preflight: nothing that spoils measurements"


def test_this_machine() -> None:
    found = whole.preflight(seconds=0.01)
    names = set(found.fine) | found.not_known.keys()
    assert "power" in names or any("power" in f.what or "battery" in f.what for f in found.findings)


def test_an_unreadable_proc_is_not_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*arguments: object, **named: object) -> Any:
        raise PermissionError(13, "Permission denied", "/proc")

    for name in ("process_iter", "virtual_memory", "swap_memory"):
        monkeypatch.setattr(psutil, name, refuse)
    monkeypatch.setattr(whole, "STAT", tmp_path / "none")
    monkeypatch.setattr(whole, "usable_memory", lambda: 2**30)
    first = whole.moment()
    found = concluded(whole.checks(first, whole.moment()))
    assert {"other load", "stolen time", "memory"} <= found.not_known.keys()


@pytest.mark.parametrize(("severity", "code"), [("severe", 1), ("warning", 0)])
def test_the_doctors_exit_code(monkeypatch: pytest.MonkeyPatch, severity: Severity, code: int) -> None:
    found = Preflight((Finding(severity, "it is hot", "times grow", "cool it"),), ("memory",), {})
    monkeypatch.setattr(whole, "preflight", lambda: found)
    result = CliRunner().invoke(cli.main, ["doctor"])
    assert result.exit_code == code
    assert result.output == f"{found}\n"
    assert "why: times grow" in result.output


def test_a_debug_setting_inside_the_workload_is_named_in_the_experiment() -> None:
    def loop() -> None:
        for _ in optbook.track(range(3)):
            with torch.autograd.set_detect_anomaly(True):
                seen.wait(0.15)

    seen = threading.Event()
    experiment = optbook.bench(loop)
    assert any(warning.startswith("anomaly detection is on: ") for warning in experiment.warnings)
    assert not torch.is_anomaly_enabled()


def test_moments_can_be_compared() -> None:
    first, last = Moment(0.0, {}, "", None, 0.0), Moment(1.0, {}, "", None, 0.0)
    assert concluded(whole.checks(first, last)).not_known.keys() >= {"other load", "stolen time"}
