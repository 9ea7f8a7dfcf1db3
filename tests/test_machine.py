"""The machine's description, its fingerprint, and the limits of control groups."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

import optbook
from optbook.benchmark.machine import fingerprint as identity
from optbook.benchmark.machine import info, peaks, preflight
from optbook.benchmark.machine.finding import Finding
from optbook.benchmark.machine.info import Machine
from optbook.benchmark.machine.peaks import Peak, Peaks
from optbook.benchmark.machine.preflight import Preflight
from optbook.benchmark.meters import cgroup

GIB = 2**30
HERE: dict[str, Any] = {
    "processor": "AMD EPYC",
    "logical": 8,
    "usable": 8.0,
    "memory": 31 * GIB,
    "gpus": (),
    "system": "Linux x86_64",
}
CHANGES: dict[str, Any] = {
    "processor": "Intel Xeon",
    "logical": 16,
    "usable": 0.5,
    "memory": 15 * GIB,
    "gpus": ("NVIDIA H200",),
    "system": "Darwin arm64",
}
PEAKS = Peaks(
    flops={"cpu": {"float32": Peak(2.4e11, "convolution", 3, 2.0)}},
    bandwidth={"cpu": Peak(2e10, "copy", 2, 2.0)},
    process_start=0.02,
    loopback=None,
    machine="abc",
    threads=2,
    settings="torch",
    measured="2026-12-01T00:00:00",
    seconds=3.0,
)
FOUND = Preflight((Finding("severe", "<b>heat</b>", "it slows", "cool it"),), ("memory",), {"power": "no"})
MACHINE = Machine(
    fingerprint="0123456789ab",
    processor="A <processor>",
    logical_cores=8,
    cores=0.5,
    memory=16 * GIB,
    gpus=("NVIDIA H200", "NVIDIA H200"),
    system="Linux 6.1, x86_64",
    threads={"torch": "4"},
    versions={"python": "3.11.7"},
    peaks=PEAKS,
    preflight=FOUND,
)


@pytest.mark.parametrize("what", sorted(CHANGES))
def test_the_fingerprint_changes_with_the_hardware(what: str) -> None:
    assert identity.digest(**HERE) == identity.digest(**HERE)
    assert identity.digest(**HERE | {what: CHANGES[what]}) != identity.digest(**HERE)


def test_two_gpus_are_not_one() -> None:
    one, two = (identity.digest(**HERE | {"gpus": ("T4",) * count}) for count in (1, 2))
    assert one != two


@pytest.mark.parametrize(
    ("installed", "reported"),
    [
        (8, [7.5, 7.66, 7.78]),
        (16, [15.2, 15.5, 15.8]),
        (64, [61.9, 62.7, 62.8]),
        (12, [11.5, 11.7]),
        (6, [6.0]),
    ],
)
def test_the_fingerprint_survives_another_kernel(installed: int, reported: list[float]) -> None:
    assert {identity.rounded(int(gib * GIB)) for gib in reported} == {installed * GIB}


def test_it_is_the_same_in_another_process() -> None:
    code = "from optbook.benchmark.machine.fingerprint import fingerprint; print(fingerprint())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == identity.fingerprint()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity to set")
def test_fewer_cores_are_another_machine() -> None:
    before, cores = identity.fingerprint(), os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(cores)})
        assert identity.fingerprint() != before or len(cores) == 1
    finally:
        os.sched_setaffinity(0, cores)
    assert identity.fingerprint() == before


def test_a_limit_of_the_container_is_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "memory_limit", lambda: 2**20)
    assert identity.usable_memory() == 2**20


def test_the_processor_where_nothing_names_it(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\n")
    assert identity.processor(tmp_path / "cpuinfo") == "Some CPU @ 3 GHz"
    assert identity.processor(tmp_path / "none")


def test_a_command_that_is_not_there() -> None:
    assert identity.ask("no-such-command-here") == ""
    assert identity.ask(sys.executable, "-c", "print(' yes ')") == "yes"
    assert identity.ask(sys.executable, "-c", "raise SystemExit(1)") == ""


def group(tmp_path: Path, membership: str, files: dict[str, str]) -> tuple[Path, Path]:
    """Files of a fake machine: /proc/self/cgroup, and those below /sys/fs/cgroup."""
    own, root = tmp_path / "cgroup", tmp_path / "fs"
    own.write_text(membership)
    root.mkdir()
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return own, root


V2 = {"cgroup.controllers": "cpu memory"}


@pytest.mark.parametrize(
    ("membership", "files", "cores"),
    [
        ("0::/\n", V2 | {"cpu.max": "50000 100000\n"}, 0.5),
        ("0::/\n", V2 | {"cpu.max": "max 100000\n"}, None),
        ("0::/\n", V2 | {"cpu.max": ""}, None),
        ("0::/\n", V2 | {"cpu.max": "1 0"}, None),
        ("0::/a/b\n", V2 | {"a/cpu.max": "300000 100000", "a/b/cpu.max": "max 100000"}, 3.0),
        ("0::/a/b\n", V2 | {"a/cpu.max": "300000 100000", "a/b/cpu.max": "150000 100000"}, 1.5),
        ("0::/host/path/that/is/hidden\n", V2 | {"cpu.max": "200000 100000"}, 2.0),
        (
            "4:cpu,cpuacct:/x\n0::/\n",
            {"cpu/x/cpu.cfs_quota_us": "150000", "cpu/x/cpu.cfs_period_us": "100000"},
            1.5,
        ),
        ("4:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ("", {}, None),
        ("nonsense\n:\n", {}, None),
    ],
)
def test_cpu_quotas_of_every_kind(
    tmp_path: Path, membership: str, files: dict[str, str], cores: float | None
) -> None:
    assert cgroup.cpu_quota(*group(tmp_path, membership, files)) == cores


@pytest.mark.parametrize(
    ("membership", "files", "limit", "free"),
    [
        (
            "0::/a\n",
            V2
            | {"memory.max": "max", "a/memory.max": "1000", "a/memory.current": "700"}
            | {"a/memory.stat": "anon 1\ninactive_file 200\n"},
            1000,
            500,
        ),
        (
            "3:memory:/\n",
            {"memory/memory.limit_in_bytes": "4000", "memory/memory.usage_in_bytes": "5000"},
            4000,
            0,
        ),
        ("3:memory:/\n", {"memory/memory.limit_in_bytes": str(2**63 - 4096)}, None, None),
        ("0::/\n", V2 | {"memory.max": "max"}, None, None),
        ("0::/\n", V2 | {"memory.max": "1000"}, 1000, None),
        ("", {}, None, None),
    ],
)
def test_memory_limits_of_every_kind(
    tmp_path: Path, membership: str, files: dict[str, str], limit: int | None, free: int | None
) -> None:
    paths = group(tmp_path, membership, files)
    assert (cgroup.memory_limit(*paths), cgroup.memory_free(*paths)) == (limit, free)


def test_files_that_may_not_be_read(tmp_path: Path) -> None:
    assert cgroup.cpu_quota(tmp_path, tmp_path) is None
    assert cgroup.memory_limit(tmp_path / "none", tmp_path / "none") is None


def test_shown_as_text() -> None:
    assert str(MACHINE).splitlines() == [
        "machine 0123456789ab",
        "  processor            A <processor>",
        "  cores                0.5 usable of 8",
        "  memory               16.0 GiB",
        "  GPU                  2 × NVIDIA H200",
        "  system               Linux 6.1, x86_64",
        "  threads              torch 4",
        "  versions             python 3.11.7",
        "  peak float32 on cpu  240 GFLOP/s: the best of 3 kernels: convolution, 2 threads",
        "  peak memory of cpu   18.6 GiB/s: the best of 2 kernels: copy, 2 threads",
        "  process start        20.0 ms",
        *str(FOUND).splitlines(),
    ]


def test_shown_as_html_everything_is_escaped_and_says_the_same() -> None:
    html = MACHINE._repr_html_()
    assert "A &lt;processor&gt;" in html
    assert "&lt;b&gt;heat&lt;/b&gt;" in html
    assert "<b>heat" not in html
    for name, value in MACHINE.rows()[1:]:
        assert name in html
        assert value in html


def test_without_a_gpu_and_without_peaks() -> None:
    shown = str(dataclasses.replace(MACHINE, gpus=(), peaks=None, preflight=None))
    assert "no GPU" in shown
    assert "not measured yet" in shown
    assert "preflight" not in shown


def test_it_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        MACHINE.cores = 4  # type: ignore[misc]


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "preflight", lambda: FOUND)
    monkeypatch.setattr(peaks, "known", lambda: None)
    monkeypatch.setattr(peaks, "peaks", lambda: PEAKS)


@pytest.mark.usefixtures("_quick")
def test_this_machine() -> None:
    here = optbook.machine()
    assert here.fingerprint == identity.fingerprint()
    assert here.peaks is None
    assert 0 < here.cores <= here.logical_cores
    assert here.versions["optbook"] == optbook.__version__
    assert here.preflight is FOUND
    assert optbook.machine(check=False).preflight is None


@pytest.mark.usefixtures("_quick")
def test_the_magic_measures_the_peaks() -> None:
    shell = InteractiveShell.instance()
    try:
        shell.run_line_magic("load_ext", "optbook")
        found = shell.run_line_magic("optbook", "machine")
    finally:
        shell.run_line_magic("unload_ext", "optbook")
        InteractiveShell.clear_instance()
    assert isinstance(found, Machine)
    assert found.peaks is PEAKS


def test_threads_that_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert info._threads({"OMP_NUM_THREADS": "2", "HOME": "x"}) == {"OMP_NUM_THREADS": "2"}
