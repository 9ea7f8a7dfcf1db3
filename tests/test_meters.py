from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from optbook.benchmark.meters import cgroup, cpu, memory

SPIKE = 256 * 2**20


def spin(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_cpu_seconds_of_this_process_and_of_children_that_ended() -> None:
    before = cpu.tree_seconds(), cpu.own_seconds()
    spin(0.1)
    code = "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass"
    subprocess.run([sys.executable, "-S", "-c", code], check=True)
    after = cpu.tree_seconds(), cpu.own_seconds()
    for a, b in zip(before, after, strict=True):
        assert b - a >= 0.29


def test_cpu_seconds_of_a_child_that_lives() -> None:
    busy = "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass\n"
    code = busy + "print(1, flush=True)\ninput()"
    before = cpu.tree_seconds()
    with subprocess.Popen(
        [sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert cpu.tree_seconds() - before >= 0.19
        child.kill()


def test_usable_cores_are_limited_by_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "cpu_quota", lambda: 0.5)
    assert cpu.usable_cores() == 0.5


def short_spike() -> None:
    block = mmap.mmap(-1, SPIKE)
    for page in range(0, SPIKE, mmap.PAGESIZE):
        block[page] = 1
    block.close()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's high-water mark can be reset on Linux only")
def test_a_short_spike_is_caught_exactly() -> None:
    with memory.PeakMemory() as meter:
        short_spike()
    assert meter.result.method == "exact"
    assert meter.result.growth == pytest.approx(SPIKE, rel=0.01)
    with memory.PeakMemory() as meter:
        pass
    assert meter.result.growth is not None
    assert meter.result.growth < SPIKE / 20  # the spike before it is not seen again


def test_without_the_kernels_mark_it_is_sampled_and_says_so() -> None:
    with memory.PeakMemory(reset=False) as meter:
        block = b"x" * SPIKE
        time.sleep(3 * memory.SAMPLE_SECONDS)
        del block
    assert meter.result.method == "sampled"
    assert meter.result.growth == pytest.approx(SPIKE, rel=0.05)


def test_memory_of_children_is_seen() -> None:
    code = f"x = b'x' * {SPIKE}\nprint(1, flush=True)\ninput()"
    with (
        memory.PeakMemory() as meter,
        subprocess.Popen(
            [sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as child,
    ):
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(2.5 * memory.SAMPLE_SECONDS)
        child.kill()
    assert meter.result.children is not None
    assert meter.result.children >= SPIKE


def test_what_cannot_be_read_is_not_known(tmp_path: Path) -> None:
    assert memory.high_water_mark(tmp_path) is None
    assert not memory.reset_high_water_mark(tmp_path / "missing")
    (tmp_path / "status").write_text("VmHWM: nonsense\n")
    assert memory.high_water_mark(tmp_path) is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_workload_that_forks_does_not_stop_the_meter() -> None:
    with memory.PeakMemory() as meter:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    assert meter.result.peak
