"""A trace in TensorBoard: the real server, asked over HTTP, and its own magic in a shell."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from optbook.benchmark.bench import bench, runnable
from optbook.benchmark.profiles.request import Request
from optbook.benchmark.profiles.trace import TraceProfile, trace_profile
from optbook.benchmark.runner import Workload
from tests.shells import shell_with_optbook

START_SECONDS = 120


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> TraceProfile:
    folder = tmp_path_factory.mktemp("trace")
    weights = torch.ones(8, 8, requires_grad=True)

    def work() -> None:
        torch.autograd.backward((weights @ weights).sum())

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPTBOOK_LOG", str(folder / "experiments.sqlite"))
        experiment = bench(work, "shown <b>in</b> TensorBoard", runs=4)
        return trace_profile(Request(Workload(runnable(work)), work, experiment))


@pytest.fixture(scope="module")
def server(profile: TraceProfile, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """TensorBoard's address; its server has ended after the tests, also when they fail."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = tmp_path_factory.mktemp("server") / "told"
    command = ["tensorboard.main", "--logdir", str(profile.logdir), "--port", str(port), "--load_fast=false"]
    with told.open("w") as output:
        process = subprocess.Popen([sys.executable, "-m", *command], stdout=output, stderr=output)
        try:
            address = f"http://127.0.0.1:{port}/data"
            wait_for(lambda: asked(f"{address}/environment") is not None, told)
            yield address
        finally:
            process.kill()
            process.wait(20)


def asked(address: str) -> Any:
    """What the server answers, read as JSON where it is; None where it doesn't answer."""
    try:
        with urllib.request.urlopen(address, timeout=20) as response:
            return json.load(response)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return None


def wait_for(holds: Any, told: Path | None = None) -> None:
    until = time.monotonic() + START_SECONDS
    while not holds():
        if time.monotonic() > until:
            raise AssertionError(told.read_text() if told is not None else "not in time")
        time.sleep(0.2)


def test_pytorchs_plugin_lists_the_run_and_its_operators(profile: TraceProfile, server: str) -> None:
    plugin, run = f"{server}/plugin/pytorch_profiler", profile.file.parent.name
    wait_for(lambda: run in (asked(f"{plugin}/runs") or {}).get("runs", []))
    views = asked(f"{plugin}/views?{urllib.parse.urlencode({'run': run})}")
    assert {"Overview", "Operator", "Trace"} <= set(views)
    which = {"run": run, "view": "Operator"}
    (which["worker"],) = asked(f"{plugin}/workers?{urllib.parse.urlencode(which)}")
    which["span"] = asked(f"{plugin}/spans?{urllib.parse.urlencode(which)}")[0]
    query = urllib.parse.urlencode(which | {"group_by": "Operation"})
    table = asked(f"{plugin}/operation/table?{query}")
    assert "aten::mm" in {row["name"] for row in table["data"]}
    overview = asked(f"{plugin}/overview?{query}")
    assert len(overview["steps"]["rows"]) == profile.summary.steps == 3


def test_the_tables_are_on_the_page_of_texts(profile: TraceProfile, server: str) -> None:
    run = profile.file.parent.name
    wait_for(lambda: len((asked(f"{server}/plugin/text/tags") or {}).get(run, [])) >= 3)
    tags = asked(f"{server}/plugin/text/tags")[run]
    told = ""
    for tag in tags:
        query = urllib.parse.urlencode({"run": run, "tag": tag})
        told += "".join(each["text"] for each in asked(f"{server}/plugin/text/text?{query}"))
    assert "<td>aten::mm</td>" in told.replace(' style="text-align: left;"', "")
    assert "<b>in</b>" not in told
    assert "no GPU" in told


def test_the_magic_that_is_given_shows_the_folder(profile: TraceProfile, tmp_path: Path) -> None:
    """TensorBoard's own magic, in a shell: it starts a server for the folder, which is ended here."""
    from tensorboard import manager

    with shell_with_optbook() as shell, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path))
        patch.setattr("tempfile.tempdir", str(tmp_path))
        patch.setenv("TENSORBOARD_BINARY", "")  # so that what the cell sets is undone
        patch.delenv("TENSORBOARD_BINARY")
        shown = [line for line in str(profile).splitlines() if "%tensorboard" in line]
        magics = re.findall(r"%\w+ .*?(?=  %|$)", shown[0])
        assert magics[0] == "%load_ext tensorboard"
        magics[-1] += " --port 0 --load_fast=false"
        try:
            assert shell.run_cell("\n".join(magics)).success
            (info,) = manager.get_all()
            assert info.logdir == str(profile.logdir)
            assert asked(f"http://127.0.0.1:{info.port}/data/environment") is not None
        finally:
            for info in manager.get_all():
                os.kill(info.pid, 15)
