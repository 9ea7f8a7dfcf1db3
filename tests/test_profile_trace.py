"""The trace profile: what events add up to, what is written, and what a trace leaves behind."""

from __future__ import annotations

import functools
import gzip
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import optbook
from optbook.benchmark.bench import bench, runnable
from optbook.benchmark.profiles import trace, tracer
from optbook.benchmark.profiles.request import Request
from optbook.benchmark.profiles.trace import TraceProfile, trace_profile, trace_ready
from optbook.benchmark.profiles.trace_events import read
from optbook.benchmark.profiles.trace_summary import Summary, summarise
from optbook.benchmark.profiles.tracer import Tracer
from optbook.benchmark.runner import Workload
from optbook.errors import OptbookError, OptionError
from optbook.experiments.record import Experiment
from tests.shells import shell_with_optbook

MAIN, ENGINE = 100, 101
HOST = {"pid": 1, "tid": MAIN}


def entry(category: str, name: str, start: float, end: float, **further: Any) -> dict[str, Any]:
    """An event as Kineto writes it; times in milliseconds."""
    place = {key: further.pop(key, default) for key, default in HOST.items()}
    times = {"ts": 1e9 + 1e3 * start, "dur": 1e3 * (end - start)}
    return {"ph": "X", "cat": category, "name": name, **place, **times, "args": further}


operator = functools.partial(entry, "cpu_op")
annotation = functools.partial(entry, "user_annotation")
kernel = functools.partial(entry, "kernel", pid=0, tid=7, device=0)
copy = functools.partial(entry, "gpu_memcpy", pid=0, tid=7, device=0)


def whole(start: float, end: float) -> dict[str, Any]:
    return entry("Trace", "PyTorch Profiler (0)", start, end, pid="Spans", tid="PyTorch Profiler")


def summary(tmp_path: Path, *entries: dict[str, Any]) -> Summary:
    path = tmp_path / "made.json.gz"
    flow = {"ph": "s", "cat": "ac2g", "name": "ac2g", "ts": 1.0, "pid": 1, "tid": MAIN, "id": 1}
    with gzip.open(path, "wt") as file:
        json.dump({"schemaVersion": 1, "traceEvents": [flow, *entries], "traceName": "made"}, file, indent=2)
    return summarise(read(path), MAIN)


GPU_STEP = (
    whole(0, 110),
    annotation("ProfilerStep#0", 10, 110),
    annotation("augment", 61, 99),
    operator("aten::linear", 10, 30, **{"External id": 1}),
    operator("aten::addmm", 12, 28, **{"External id": 2}),
    entry("cuda_runtime", "cudaLaunchKernel", 20, 24, **{"External id": 2}),
    operator("autograd::engine::evaluate_function: AddmmBackward0", 40, 60, tid=ENGINE),
    operator("aten::copy_", 100, 105, **{"External id": 3}),
    kernel("<gemm>", 25, 45, **{"External id": 2}),
    kernel("relu", 40, 50, tid=8, **{"External id": 2}),
    kernel("orphan", 70, 75),
    copy("Memcpy HtoD (Pageable -> Device)", 60, 64, bytes=1000, **{"External id": 3}),
    copy("Memcpy HtoD (Pageable -> Device)", 64, 66, bytes=24),
    copy("Memcpy HtoD (Pinned -> Device)", 66, 67, bytes=5),
    copy("Memcpy DtoH (Device -> Pinned)", 80, 83),
    copy("Memcpy DtoD (Device -> Device)", 90, 91, bytes=7),
)


def test_own_time_is_that_outside_of_inner_operators(tmp_path: Path) -> None:
    s = summary(
        tmp_path,
        whole(0, 100),
        operator("aten::to", 0, 50),
        operator("aten::to", 10, 40),
        operator("aten::copy_", 20, 30),
        operator("aten::to", 60, 70, tid=ENGINE),
        operator("aten::copy_", 90, 100, finished=False),
    )
    found = {o.name: (o.calls, round(1e3 * o.own), round(1e3 * o.total)) for o in s.operators}
    assert found == {"aten::to": (3, 50, 60), "aten::copy_": (1, 10, 10)}
    assert s.operators[0].name == "aten::to"
    assert s.seconds == pytest.approx(0.1)
    assert (s.steps, s.events) == (0, 5)
    assert s.cpu_busy == pytest.approx(0.5)
    assert s.gpus == ()


def test_only_what_is_in_a_step_counts(tmp_path: Path) -> None:
    s = summary(
        tmp_path,
        whole(0, 100),
        annotation("ProfilerStep#0", 10, 20),
        annotation("ProfilerStep#1", 20.05, 30),
        annotation("ProfilerStep#2", 50, 900, finished=False),
        operator("before", 5, 8),
        operator("in", 18, 22),
        operator("between", 35, 45),
        operator("in", 60, 70),
        operator("after", 200, 300),
    )
    assert [o.name for o in s.operators] == ["in"]
    assert s.seconds == pytest.approx(0.070)
    assert s.cpu_busy == pytest.approx(14 / 70)
    first, second, third, *_ = s.gaps
    assert (first.before, first.after, first.inside) == ("in", "the end", "ProfilerStep#2")
    assert (second.before, second.after) == ("the start", "in")
    assert 1e3 * third.seconds == pytest.approx(8)


def test_a_gpu_is_idle_where_no_kernel_runs(tmp_path: Path) -> None:
    s = summary(tmp_path, *GPU_STEP, kernel("other", 10, 110, device=1))
    assert [(g.index, round(g.idle, 6)) for g in s.gpus] == [(0, 0.7), (1, 0.0)]


def test_device_time_belongs_to_the_operator_that_asked_for_it(tmp_path: Path) -> None:
    s = summary(tmp_path, *GPU_STEP)
    device = {o.name: round(1e3 * o.device) for o in s.operators}
    assert device["aten::addmm"] == 30
    assert device["aten::linear"] == 0
    assert device["aten::copy_"] == 4
    assert device["orphan"] == 5
    own = {o.name: (o.calls, round(1e3 * o.own)) for o in s.operators}
    assert own["aten::addmm"] == (1, 12)
    assert own["cudaLaunchKernel"] == (1, 4)
    assert own["orphan"] == (1, 0)
    assert s.operators[0].name == "aten::addmm"


def test_copies_by_direction_and_memory(tmp_path: Path) -> None:
    s = summary(tmp_path, *GPU_STEP)
    found = [(c.what, c.pinned, c.count, round(1e3 * c.seconds), c.size) for c in s.copies]
    assert found == [
        ("host to device", False, 2, 6, 1024),
        ("device to host", True, 1, 3, None),
        ("host to device", True, 1, 1, 5),
        ("device to device", None, 1, 1, 7),
    ]


def test_a_copy_of_an_unknown_kind_keeps_its_name(tmp_path: Path) -> None:
    s = summary(tmp_path, whole(0, 9), copy("Memcpy Unknown", 1, 2))
    assert [(c.what, c.pinned) for c in s.copies] == [("Memcpy Unknown", None)]


def test_gaps_say_what_came_before_and_after(tmp_path: Path) -> None:
    s = summary(tmp_path, *GPU_STEP)
    cpu = [gap for gap in s.gaps if gap.where == "CPU"]
    assert (cpu[0].before, cpu[0].after, cpu[0].inside) == (
        "autograd::engine::evaluate_function: AddmmBackward0",
        "aten::copy_",
        "augment",
    )
    assert 1e3 * cpu[0].start == pytest.approx(50)
    assert 1e3 * cpu[0].seconds == pytest.approx(40)
    gpu = [gap for gap in s.gaps if gap.where == "GPU 0"]
    assert (gpu[0].before, gpu[0].after) == ("Memcpy DtoD (Device -> Device)", "the end")
    assert len(gpu) == 5


def test_a_trace_is_read_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = summary(tmp_path, *GPU_STEP)
    for size in (1, 7, 64):
        monkeypatch.setattr("optbook.benchmark.profiles.trace_events.CHUNK", size)
        assert summary(tmp_path, *GPU_STEP) == expected


@pytest.mark.parametrize("text", ["", "{}", '{"traceEvents": [{"ph": "X"', '{"traceEvents": [1]}', "\x00"])
def test_what_is_no_trace_is_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(OptbookError, match=r"broken\.json is no trace that can be read") as raised:
        list(read(path))
    assert "\n" not in str(raised.value)


# with PyTorch itself


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))


def training(model: nn.Module, steps: int = 8) -> Callable[[], None]:
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    data = [torch.randn(16, 32) for _ in range(steps)]

    def train() -> None:
        for batch in optbook.track(data):
            with optbook.span("<augment>"):
                batch = batch.flip(-1)
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()

    return train


def request(work: Callable[[], object], out: object, **measured: Any) -> Request:
    experiment = bench(work, "a <b>trace</b>/..", **{"budget": 0.02, **measured})
    return Request(Workload(runnable(work)), work, experiment, options={"out": out})


def traced(work: Callable[[], object], out: object, **measured: Any) -> TraceProfile:
    return trace_profile(request(work, out, **measured))


def nothing_is_on() -> bool:
    return not tracer._others()


def entries(profile: TraceProfile) -> list[dict[str, Any]]:
    with gzip.open(profile.file, "rt") as file:
        found: list[dict[str, Any]] = json.load(file)["traceEvents"]
    return found


def test_a_training_step(model: nn.Module, tmp_path: Path) -> None:
    p = traced(training(model), tmp_path)
    s = p.summary
    assert s.steps == p.run.steps == 8
    calls = {o.name: o.calls for o in s.operators}
    assert calls["aten::linear"] == 16
    assert calls["aten::flip"] == 8
    assert "aten::randn" not in calls
    assert 0 < s.cpu_busy < 1
    assert sum(o.own for o in s.operators) <= s.seconds
    assert p.gpu == "no GPU"
    assert not s.gpus
    assert not s.copies
    assert p.evidence == {}
    assert {gap.where for gap in s.gaps} == {"CPU"}
    names = {e["name"] for e in entries(p) if e.get("cat") == "user_annotation"}
    assert {"<augment>", "ProfilerStep#0", "ProfilerStep#7"} <= names
    assert "ProfilerStep#8" not in names
    assert nothing_is_on()


def test_the_file_lies_where_tensorboards_plugin_looks(model: nn.Module, tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    first, second = (traced(training(model, 2), out) for _ in range(2))
    assert first.file.parent != second.file.parent
    assert first.file.parent.parent == second.file.parent.parent == first.logdir == out
    assert first.file.parent.name.startswith("a-b-trace-b_")
    assert first.file.name.endswith(".pt.trace.json.gz")


def test_the_folder_is_beside_the_log(model: nn.Module, tmp_path: Path, log_path: Path) -> None:
    assert traced(training(model, 2), None).logdir == log_path.parent / "traces"


def test_without_a_file_as_log_the_folder_is_here(
    model: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = request(training(model, 2), None)
    monkeypatch.setenv("OPTBOOK_LOG", "")
    assert trace_profile(asked).logdir == tmp_path / "traces"


def test_a_run_is_a_step_where_none_are_tracked(tmp_path: Path) -> None:
    p = traced(lambda: torch.ones(3).sum(), tmp_path, runs=4)
    assert p.run.steps == 0
    assert p.summary.steps == p.run.executions == 3
    assert p.executions == 7
    assert {o.name: o.calls for o in p.summary.operators}["aten::ones"] == 3
    assert p.overhead is not None


def test_how_it_is_shown(model: nn.Module, tmp_path: Path) -> None:
    p = traced(training(model), tmp_path)
    text, page = str(p), p._repr_html_()
    assert "8 steps in" in text
    assert "no GPU" in text
    assert "aten::" in text
    assert f'%tensorboard --logdir "{tmp_path}"' in text
    for shown in (text, page):
        assert str(p.file) in shown
        assert "ui.perfetto.dev" in shown
    assert "<b>trace" not in page
    assert "<augment>" not in page
    assert "<script" not in page
    frame = p.to_frame()
    assert list(frame) == ["operator", "calls", "own", "total", "device", "share", "device_share"]
    assert len(frame) == len(p.summary.operators)
    assert frame["share"].sum() <= 1


def test_a_gpu_and_its_copies_are_shown(tmp_path: Path) -> None:
    s = summary(tmp_path, *GPU_STEP)
    whole = traced(lambda: torch.ones(3).sum(), tmp_path, runs=2)
    p = TraceProfile(
        whole.experiment, whole.run, s, whole.file, whole.logdir, trace._gpu(s), 1, ("a <i>note</i>",)
    )
    assert p.gpu == "GPU 0 idle 70 % of the time"
    assert p.evidence == {"gpu_resident": pytest.approx(0.3), "copy_share": pytest.approx(0.1)}
    assert "1.00 KiB" in str(p)
    assert "not pinned" in str(p)
    page = p._repr_html_()
    assert "host to device" in page
    assert "<i>note" not in page
    assert "run 0" in str(p)


def test_a_gpu_that_was_not_used_is_no_idle_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    for kind, said in (("cuda", "not used"), ("mps", "does not see what the GPU (mps) does")):
        there = torch.device(kind)
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda there=there: there)
        assert said in trace._gpu(Summary())


def test_a_cell_that_raises_ends_the_trace(tmp_path: Path) -> None:
    calls = []

    def fails() -> None:
        torch.ones(3).sum()
        calls.append(1)
        if len(calls) > 2:
            raise KeyError("mine")

    asked = request(fails, tmp_path / "out", runs=2)
    with pytest.raises(KeyError, match="mine"):
        trace_profile(asked)
    assert nothing_is_on()
    assert not (tmp_path / "out").exists()
    assert len(traced(lambda: torch.ones(3).sum(), tmp_path, runs=2).summary.operators) > 0


def test_another_profiler_is_on(tmp_path: Path) -> None:
    asked = request(lambda: torch.ones(3).sum(), tmp_path, runs=1)
    with torch.profiler.profile(), pytest.raises(OptbookError, match="another torch profiler is on"):
        trace_ready(asked)
    with torch.profiler.profile() as theirs:
        with pytest.raises(OptbookError, match="another torch profiler is on"):
            trace_profile(asked)
        torch.ones(3).sum()
    assert any(event.key == "aten::sum" for event in theirs.key_averages())
    trace_ready(asked)


@pytest.mark.parametrize("kind", [torch.profiler.profile, torch.autograd.profiler.profile])
def test_a_workload_with_a_profiler_of_its_own(kind: Any, tmp_path: Path) -> None:
    def work() -> None:
        with kind():
            torch.ones(3).sum()

    with pytest.raises(OptbookError, match="starts a torch profiler of its own"):
        traced(work, tmp_path, runs=1)
    assert nothing_is_on()
    work()


def test_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = request(lambda: sum(range(100)), tmp_path / "out", runs=1)
    with pytest.raises(OptbookError, match="no torch operator ran in the workload"):
        trace_profile(asked)
    assert list((tmp_path / "out").iterdir()) == []
    monkeypatch.delitem(sys.modules, "torch")
    with pytest.raises(OptbookError, match="does not use torch"):
        trace_profile(asked)


@pytest.mark.parametrize("out", ["", "  ", 3, "a\x00b"])
def test_an_out_that_is_no_path(out: object) -> None:
    with pytest.raises(OptionError, match=r"out got .*give a folder"):
        trace_ready(Request(Workload(int), int, Experiment(label=""), options={"out": out}))


def ready(out: Path) -> None:
    trace_ready(Request(Workload(int), int, Experiment(label=""), options={"out": str(out)}))


def test_folders_that_can_and_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("kept")
    with pytest.raises(OptionError, match="is a file: give a folder"):
        ready(tmp_path / "file")
    with pytest.raises(OptionError, match="is a file: give a folder"):
        ready(tmp_path / "file" / "inside")
    with pytest.raises(OptionError, match="the trace gets a name of its own"):
        ready(tmp_path / "trace.json.gz")
    ready(tmp_path)
    ready(tmp_path / "missing" / "deeper")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]

    def denied(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", denied)
    with pytest.raises(OptionError, match=r"nothing can be written \(Permission denied\)"):
        ready(tmp_path)


def test_a_trace_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = request(lambda: torch.ones(3).sum(), tmp_path / "out", runs=1)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("torch.profiler.profile.export_chrome_trace", full)
    with pytest.raises(OptbookError, match=r"could not be written to .*No space left"):
        trace_profile(asked)
    assert nothing_is_on()


def loop_until(ended: Callable[[], bool]) -> None:
    until = time.perf_counter() + 20
    while not ended() and time.perf_counter() < until:
        torch.ones(3).add_(1)


def test_a_trace_that_gets_too_large_ends_inside_a_run() -> None:
    instrument = Tracer(tracked=False, sure=0.02, most=-1.0)
    instrument.start()
    instrument.running(True)
    loop_until(lambda: bool(instrument.notes))
    after = torch.zeros(7).cosh()
    instrument.running(False)
    instrument.stop()
    assert nothing_is_on()
    assert "more would need too much memory" in instrument.notes[0]
    names = {event.name for event in instrument.profiler.events()}
    assert "aten::add_" in names
    assert "aten::cosh" not in names
    assert after.shape == (7,)


def test_in_another_thread_it_ends_at_a_step() -> None:
    instrument = Tracer(tracked=True, sure=0.02, longest=0.0)

    def work() -> None:
        instrument.start()
        loop_until(lambda: instrument._due)
        with instrument._annotation("batch 0", 0):
            torch.zeros(7).cosh()
        instrument.stop()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(instrument.notes) == 1
    assert "aten::cosh" not in {event.name for event in instrument.profiler.events()}


def test_a_summary_of_an_ended_trace_is_of_what_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "Tracer", functools.partial(Tracer, sure=0.05, longest=0.0))

    def work() -> None:
        until = time.perf_counter() + 0.5
        while time.perf_counter() < until:
            torch.ones(3).add_(1)

    p = traced(work, tmp_path, runs=1)
    assert p.notes[0].startswith("the trace ends after")
    assert 0 < p.summary.seconds < p.run.total


def test_a_compiled_model(model: nn.Module, tmp_path: Path) -> None:
    def backend(module: Any, inputs: Any) -> Any:
        return module.forward

    compiled = torch.compile(model, backend=backend)
    compiled(torch.randn(16, 32))
    p = traced(lambda: compiled(torch.randn(16, 32)).sum().backward(), tmp_path, runs=3)
    names = {o.name for o in p.summary.operators}
    assert "aten::linear" in names
    assert any("Compiled" in name for name in names)


@pytest.fixture
def shell() -> Iterator[Any]:
    with shell_with_optbook() as shell:
        yield shell


def test_the_magic(shell: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shell.run_cell("import torch\nx = torch.ones(3)")
    cell = f"%%profile trace my label --runs 2 --out {tmp_path} -o p\nx.add_(1)"
    result = shell.run_cell(cell)
    assert result.success
    profile = shell.user_ns["p"]
    assert profile.experiment.label == "my label"
    assert profile.file.is_relative_to(tmp_path)
    assert "USDT" not in capfd.readouterr().err
