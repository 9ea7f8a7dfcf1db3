"""The command line, and how JupyterLab is started."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import optbook
from optbook import cli, lab
from optbook.experiments.record import Experiment
from optbook.experiments.store import Store

NAMES = {"bench", "board", "doctor", "guard", "lab", "log", "report", "reset", "run"}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.main, list(arguments), prog_name="optbook")


@pytest.fixture
def workbook(tmp_path: Path) -> Path:
    """A folder, with a space in its name, that looks like a clone."""
    root = tmp_path / "a workbook"
    for folder in ("notebooks", "data/hotdogs"):
        (root / folder).mkdir(parents=True)
    (root / "pyproject.toml").write_text('[project]\nname = "optbook"\n')
    (root / lab.FIRST_NOTEBOOK).write_text("{}")
    return root


@pytest.fixture
def benchmarks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tests" / "benchmarks"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent):
        (package / "__init__.py").touch()
    shutil.copy(Path(__file__).with_name("benchmarks") / "run.py", folder)
    monkeypatch.setattr(cli, "BENCHMARKS", folder)
    return folder


def write_benchmark(folder: Path, name: str, body: str) -> None:
    source = f"from tests.benchmarks.run import Row\n\n\ndef measure():\n    {body}\n"
    (folder / f"bench_{name}.py").write_text(source)


def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "optbook", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"optbook {optbook.__version__}\n")


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_lists_every_command(option: str) -> None:
    result = run(option)
    assert result.exit_code == 0
    assert {line.split()[0] for line in result.output.partition("Commands:\n")[2].splitlines()} == NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_each_command_has_help(name: str) -> None:
    result = run(name, "--help")
    assert result.exit_code == 0
    assert result.output.startswith(f"Usage: optbook {name}")


def test_an_unknown_command_is_a_usage_error() -> None:
    result = run("labb")
    assert result.exit_code == 2
    assert "labb" in result.output


def test_log_shows_the_last_rows(log_path: Path) -> None:
    store = Store(log_path)
    for index in range(3):
        store.append(Experiment(label=f"try {index}", unit="batch", throughput=12.3456 + index, seconds=0.1))
    result = run("log", "--rows", "2")
    assert result.exit_code == 0, result.output
    assert "try 0" not in result.output
    assert [word in result.output for word in ("try 1", "try 2", "14.35", "batch", "ok")] == [True] * 5


def test_an_empty_log_says_how_to_fill_it(log_path: Path) -> None:
    result = run("log")
    assert result.exit_code == 0
    assert result.output.startswith(f"No experiments in {log_path} yet: ")
    assert not log_path.exists()


def test_a_foreign_file_for_a_log_is_one_line(log_path: Path) -> None:
    log_path.write_text("not a database")
    result = run("log")
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")
    assert result.output.count("\n") == 1
    assert log_path.read_text() == "not a database"


def test_bench_runs_prints_and_writes(benchmarks: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_benchmark(benchmarks, "one", 'return [Row("cost", 1.5, "< 2", True, {"others": 3})]')
    write_benchmark(benchmarks, "two", 'return [Row("error", "4 %", "2 %", False)]')
    result = run("bench")
    assert result.exit_code == 0, result.output
    printed = capfd.readouterr().out
    assert "others 3" in printed
    assert "NO" in printed
    row = {"what": "cost", "measured": 1.5, "target": "< 2", "holds": True, "peers": {"others": 3}}
    assert json.loads((benchmarks / "results" / "one.json").read_text()) == [row]


def test_bench_runs_only_the_one_named(benchmarks: Path) -> None:
    write_benchmark(benchmarks, "one", "return []")
    write_benchmark(benchmarks, "two", "raise SystemExit(3)")
    assert run("bench", "one").exit_code == 0
    assert [path.name for path in (benchmarks / "results").iterdir()] == ["one.json"]


def test_bench_goes_on_after_a_failure_and_names_it(benchmarks: Path) -> None:
    write_benchmark(benchmarks, "bad", "raise ValueError('no')")
    write_benchmark(benchmarks, "good", "return []")
    result = run("bench")
    assert result.exit_code == 1
    assert "failed: bad." in result.output
    assert (benchmarks / "results" / "good.json").exists()


def test_bench_names_what_there_is(benchmarks: Path) -> None:
    write_benchmark(benchmarks, "one", "return []")
    result = run("bench", "three")
    assert result.exit_code == 2
    assert "'three' is none of one" in result.output


def test_bench_without_a_clone_says_so(benchmarks: Path) -> None:
    result = run("bench")
    assert result.exit_code == 1
    assert "clone" in result.output


def test_the_workbook_is_found_from_below(workbook: Path) -> None:
    assert lab.find_workbook(workbook / "notebooks") == workbook


def test_no_workbook_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lab, "__file__", str(tmp_path / "site-packages" / "optbook" / "lab.py"))
    result = run("lab")
    assert result.exit_code == 1
    assert result.output.startswith("Error: no workbook here: ")
    assert result.output.count("\n") == 1


def test_missing_jupyterlab_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jupyterlab.labapp", None)
    with pytest.raises(lab.LabError, match=r"pip install 'optbook\[workbook\]'"):
        lab.start(lab.Launch((), {}))


def test_lab_starts_with_the_options_given(workbook: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[lab.Launch] = []
    monkeypatch.chdir(workbook)
    monkeypatch.setattr(lab, "start", started.append)
    assert run("lab", "--no-browser", "--port", "9000").exit_code == 0
    arguments = started[0].arguments
    assert f"--ServerApp.root_dir={workbook}" in arguments
    assert {"--no-browser", "--ServerApp.port=9000", "--ServerApp.port_retries=0"} <= set(arguments)


@pytest.mark.parametrize("port", ["0", "65536", "http"])
def test_a_bad_port_is_a_usage_error(port: str) -> None:
    assert run("lab", "--port", port).exit_code == 2


@pytest.mark.parametrize(
    ("environ", "platform", "expected"),
    [
        ({}, "linux", False),
        ({"DISPLAY": ""}, "linux", False),
        ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
        ({"WSL_DISTRO_NAME": "Debian"}, "linux", True),
        ({}, "darwin", True),
        ({"SSH_CONNECTION": "x"}, "darwin", False),
        ({}, "win32", True),
    ],
)
def test_where_there_is_a_display(environ: dict[str, str], platform: str, expected: bool) -> None:
    assert lab.has_display(environ, platform) is expected


@pytest.mark.parametrize("superuser", [False, True])
@pytest.mark.parametrize("browser", [False, True])
def test_flags_only_where_asked(workbook: Path, browser: bool, superuser: bool) -> None:
    arguments = lab.plan(workbook, {}, browser=browser, superuser=superuser).arguments
    assert ("--no-browser" in arguments) is not browser
    assert ("--allow-root" in arguments) is superuser
    assert not any("port" in argument for argument in arguments)


def in_lab(workbook: Path, code: str, **environ: str) -> str:
    """What the code prints in a process with the environment that JupyterLab gets."""
    environment = {**os.environ, **environ}
    environment |= lab.plan(workbook, environment, browser=False).environment
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_kernel_is_this_environments(workbook: Path, tmp_path: Path) -> None:
    for place in ("home/.local/share/jupyter", "theirs"):
        spec = tmp_path / place / "kernels" / "python3" / "kernel.json"
        spec.parent.mkdir(parents=True)
        spec.write_text(json.dumps({"argv": ["/not/ours"], "display_name": "x", "language": "python"}))
    code = (
        "from jupyter_client.kernelspec import KernelSpecManager\n"
        "print(KernelSpecManager().get_kernel_spec('python3').argv)"
    )
    home, theirs = str(tmp_path / "home"), str(tmp_path / "theirs")
    assert "/not/ours" not in in_lab(workbook, code, HOME=home, JUPYTER_PATH=theirs, VIRTUAL_ENV="")


def test_the_news_prompt_is_off_and_the_users_settings_stay(workbook: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs" / "labconfig" / "default_setting_overrides.json"
    theirs.parent.mkdir(parents=True)
    theirs.write_text('{"a:theme": {"theme": "dark"}}')
    code = (
        "from jupyter_server.services.config.manager import ConfigManager\n"
        "import json\n"
        "print(json.dumps(ConfigManager(config_dir_name='labconfig').get('default_setting_overrides')))"
    )
    found = json.loads(in_lab(workbook, code, JUPYTER_CONFIG_PATH=str(theirs.parent.parent)))
    assert found["@jupyterlab/apputils-extension:notification"]["fetchNews"] == "false"
    assert found["a:theme"] == {"theme": "dark"}


def test_window_layouts_stay_with_the_workbook(workbook: Path) -> None:
    environment = lab.plan(workbook, {}, browser=False).environment
    assert environment["JUPYTERLAB_WORKSPACES_DIR"] == str(workbook / ".jupyter" / "workspaces")
