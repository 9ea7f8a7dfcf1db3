"""`optbook run`, `optbook reset` and `optbook doctor --workshop`, on a workbook with tiny chapters."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

import nbformat
import pytest
from click.testing import CliRunner, Result

import optbook
from optbook import cli, cli_workbook
from optbook.errors import OptbookError
from optbook.experiments.store import Store
from optbook.workshop import fresh, headless, readiness
from optbook.workshop.chapters import CHAPTERS, find_chapter

FIRST, SECOND = (chapter.name for chapter in CHAPTERS[:2])


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.main, list(arguments), prog_name="optbook")


def write_notebook(path: Path, *sources: str) -> None:
    cells = [nbformat.v4.new_code_cell(source) for source in sources]  # type: ignore[no-untyped-call]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)  # type: ignore[no-untyped-call]


def read_notebook(path: Path) -> Any:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, with a space in its name, that looks like a clone, and is the working directory."""
    root = tmp_path / "a workbook"
    for folder in ("notebooks", "data/hotdogs"):
        (root / folder).mkdir(parents=True)
    (root / "pyproject.toml").write_text('[project]\nname = "optbook"\n')
    for chapter in CHAPTERS:
        write_notebook(root / "notebooks" / f"{chapter.name}.ipynb", "1 + 1")
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def committed(root: Path) -> Path:
    """The same as a git repository."""
    git(root, "init", "--quiet")
    git(root, "add", "notebooks")
    commit(root)
    return root


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True)


def commit(root: Path) -> None:
    git(root, "-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "--quiet", "-a", "-m", "x")


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """No kernel: chapters pass, but for the second; the list gets those that were run."""
    names: list[str] = []

    def execute(notebook: Any, folder: Path, environment: Any, **options: Any) -> str:
        names.append(environment["JPY_SESSION_NAME"].removesuffix(".ipynb"))
        return "cell [1] 1 + 1: ValueError: no" if names[-1] == SECOND else ""

    monkeypatch.setattr(headless, "execute", execute)
    return names


# --- run -------------------------------------------------------------------------------------


def test_run_with_a_real_kernel(root: Path, log_path: Path, tmp_path: Path) -> None:
    good, bad = (root / "notebooks" / f"{name}.ipynb" for name in (FIRST, SECOND))
    write_notebook(
        good,
        "%load_ext optbook",
        "import os\nprint(os.environ['OPTBOOK_QUICK'], os.getcwd())",
        "%%bench tiny --runs 1\n1 + 1",
        "%check 00_guess",
    )
    write_notebook(bad, "", "fine = 1", "# the guilty one\nraise ValueError('no\\nand more')", "never = 1")
    before = {path: path.read_bytes() for path in (good, bad)}
    out = tmp_path / "out"
    result = run("run", "1", "0", "--quick", "-o", str(out))
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert [line.split()[:2] for line in lines if line.startswith("0")] == [[FIRST, "ok"], [SECOND, "failed"]]
    assert "  cell [2] # the guilty one: ValueError: no and more" in lines
    assert f"Error: failed: {SECOND}." in result.output
    assert {path: path.read_bytes() for path in (good, bad)} == before
    executed = read_notebook(out / good.name)
    assert executed.cells[1].outputs[0].text == f"1 {root / 'notebooks'}\n"
    assert [cell.execution_count for cell in read_notebook(out / bad.name).cells] == [None, 1, 2, None]
    assert not log_path.exists()
    assert Store(out / headless.LOG_NAME).frame()["notebook"].tolist() == [good.name]


def test_ctrl_c_ends_the_run_and_its_kernel(root: Path, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    source = f"import os, time\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"
    write_notebook(root / "notebooks" / f"{FIRST}.ipynb", source)
    command = [sys.executable, "-m", "optbook", "run", "0", "1", "-o", str(tmp_path / "out")]
    process = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: pid.exists() and bool(pid.read_text()))
    process.send_signal(signal.SIGINT)
    printed, told = process.communicate(timeout=60)
    assert process.returncode == 1
    assert (printed, told.strip().splitlines()[-1]) == ("", "Aborted!")
    wait_for(lambda: not is_alive(int(pid.read_text())))


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_kernel_that_dies_is_told(root: Path) -> None:
    notebook = nbformat.v4.new_notebook(  # type: ignore[no-untyped-call]
        cells=[nbformat.v4.new_code_cell("import os\nos._exit(1)")]  # type: ignore[no-untyped-call]
    )
    assert headless.execute(notebook, root, os.environ).startswith("cell [1] import os: the kernel died")


def test_run_runs_all_in_order_and_goes_on_after_a_failure(root: Path, faked: list[str]) -> None:
    result = run("run")
    assert result.exit_code == 1
    assert faked == [chapter.name for chapter in CHAPTERS]
    (folder,) = root.glob("optbook-run-*")
    assert sorted(path.stem for path in folder.glob("*.ipynb")) == faked


def test_run_succeeds_where_all_do(root: Path, faked: list[str]) -> None:
    assert run("run", "02", f"notebooks/{FIRST}.ipynb", "02_profile", "-o", "out").exit_code == 0
    assert faked == [FIRST, "02_profile"]


def test_an_unknown_chapter_runs_nothing(root: Path, faked: list[str]) -> None:
    result = run("run", "0", "77")
    assert result.exit_code == 2
    assert "no chapter '77': there are 00_start_here, " in result.output
    assert faked == []


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_the_readers_notebooks_are_never_the_output(
    root: Path, faked: list[str], force: tuple[str, ...]
) -> None:
    result = run("run", "-o", "notebooks", *force)
    assert result.exit_code == 1
    assert "notebooks holds the chapters themselves" in result.output
    assert faked == []


def test_copies_are_replaced_only_if_asked(root: Path, faked: list[str]) -> None:
    assert run("run", "0", "-o", "out").exit_code == 0
    assert "--force" in run("run", "0", "-o", "out").output
    assert run("run", "2", "-o", "out").exit_code == 0
    assert run("run", "0", "-o", "out", "--force").exit_code == 0


def test_an_output_below_a_file_is_one_line(root: Path, faked: list[str]) -> None:
    result = run("run", "0", "-o", "pyproject.toml/out")
    assert result.exit_code == 1
    assert result.output.startswith("Error: pyproject.toml/out can't be made: ")
    assert result.output.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "told"), [(None, "is missing: `optbook reset 00"), ("{]", "can't be read: ")]
)
def test_a_missing_or_broken_chapter_fails_alone(
    root: Path, faked: list[str], content: str | None, told: str
) -> None:
    path = root / "notebooks" / f"{FIRST}.ipynb"
    path.unlink() if content is None else path.write_text(content)
    result = run("run", "0", "2", "-o", "out")
    assert result.exit_code == 1
    assert told in result.output
    assert faked == ["02_profile"]


def test_without_a_workbook_it_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli_workbook, "__file__", str(tmp_path / "site-packages" / "cli_workbook.py"))
    for arguments in (("run",), ("reset", "0")):
        result = run(*arguments)
        assert result.exit_code == 1
        assert result.output.startswith("Error: no workbook here: ")
        assert result.output.count("\n") == 1


def test_without_the_extra_it_says_what_to_install(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nbclient", None)
    result = run("run", "0", "-o", "out")
    assert result.exit_code == 1
    assert "nbclient is missing, which the workbook needs: pip install 'optbook[workbook]'." in result.output


def test_solved_counts_what_the_checks_said() -> None:
    cell: Callable[..., Any] = nbformat.v4.new_code_cell
    output: Any = nbformat.v4.new_output
    said = {text: [output("execute_result", {"text/plain": text})] for text in ("✓ right", "… set it")}
    cells = [
        cell("%check a", outputs=[output("stream", text="bar"), *said["✓ right"]]),
        cell("%check b", outputs=said["… set it"]),
        cell("%check c"),
        cell("%check"),
        cell("print()", outputs=said["✓ right"]),
    ]
    notebook = nbformat.v4.new_notebook(cells=cells)  # type: ignore[no-untyped-call]
    assert headless.solved(notebook) == {"a": True, "b": False, "c": False}


# --- reset -----------------------------------------------------------------------------------


def test_reset_gives_a_fresh_copy_and_keeps_every_one_of_the_readers(committed: Path) -> None:
    path = committed / "notebooks" / f"{FIRST}.ipynb"
    published = path.read_bytes()
    for mine in (b"first", b"second", b"third"):
        path.write_bytes(mine)
        result = run("reset", "0")
        assert result.exit_code == 0, result.output
        assert path.read_bytes() == published
    kept = {p.name: p.read_bytes() for p in path.parent.glob("*.mine-*")}
    start = f"{FIRST}.mine-{date.today().isoformat()}"
    assert kept == {
        f"{start}.ipynb": b"first",
        f"{start}-2.ipynb": b"second",
        f"{start}-3.ipynb": b"third",
    }
    assert f"{start}-3.ipynb" in result.output
    assert len(list(path.parent.iterdir())) == len(CHAPTERS) + 3


def test_reset_of_an_untouched_chapter_does_nothing(committed: Path) -> None:
    result = run("reset", FIRST)
    assert result.exit_code == 0
    assert "nothing to do" in result.output
    assert len(list((committed / "notebooks").iterdir())) == len(CHAPTERS)


def test_reset_brings_a_deleted_chapter_back(committed: Path) -> None:
    path = committed / "notebooks" / f"{FIRST}.ipynb"
    published = path.read_bytes()
    path.unlink()
    assert run("reset", "00").exit_code == 0
    assert path.read_bytes() == published


def test_reset_from_a_revision_before_ones_own_commits(committed: Path) -> None:
    path = committed / "notebooks" / f"{FIRST}.ipynb"
    published = path.read_bytes()
    path.write_bytes(b"mine")
    commit(committed)
    assert "nothing to do" in run("reset", "0").output
    assert run("reset", "0", "--from", "HEAD~1").exit_code == 0
    assert path.read_bytes() == published


@pytest.mark.parametrize("revision", ["nowhere", "--output=x", ""])
def test_reset_from_an_unknown_revision_changes_nothing(committed: Path, revision: str) -> None:
    path = committed / "notebooks" / f"{FIRST}.ipynb"
    path.write_bytes(b"mine")
    result = run("reset", "0", f"--from={revision}")
    assert result.exit_code == 1
    assert result.output.startswith("Error: no fresh copy of ")
    assert result.output.count("\n") == 1
    assert path.read_bytes() == b"mine"
    assert not list(path.parent.glob("*.mine-*"))


def test_reset_outside_of_a_clone_says_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(root.parent))
    result = run("reset", "0")
    assert result.exit_code == 1
    assert "reset works in a clone" in result.output


def test_reset_without_git_says_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(root))
    result = run("reset", "0")
    assert (result.exit_code, result.output) == (
        1,
        "Error: reset takes the fresh copy from git: install it.\n",
    )


def test_reset_of_an_unknown_chapter_is_a_usage_error(root: Path) -> None:
    assert run("reset", "12_nothing").exit_code == 2
    assert run("reset").exit_code == 2


def test_what_cannot_be_kept_aside_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.ipynb"
    path.write_bytes(b"mine")

    def refuse(*arguments: object) -> Path:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(fresh, "_keep", refuse)
    with pytest.raises(OptbookError, match=r"can't be replaced: Permission denied"):
        fresh.reset(path, b"fresh", date(2026, 12, 1))
    assert path.read_bytes() == b"mine"


@pytest.mark.parametrize(
    "text", ["3", "03", "03_simplify", "03_simplify.ipynb", "notebooks/03_simplify.ipynb"]
)
def test_a_chapter_has_many_names(text: str) -> None:
    assert find_chapter(text).name == "03_simplify"


@pytest.mark.parametrize("text", ["", "3_simplify", "simplify", "003"])
def test_what_is_no_chapter(text: str) -> None:
    with pytest.raises(OptbookError, match="no chapter"):
        find_chapter(text)


# --- doctor --workshop -----------------------------------------------------------------------


def test_the_doctor_says_a_line_each_and_fails_where_one_is_severe(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "kernel", lambda folder: readiness.Line("ok", "kernel: yes"))
    result = run("doctor", "--workshop")
    assert result.exit_code == 1  # no pictures, no weights
    lines = [line.split(maxsplit=2) for line in result.output.splitlines()]
    assert [name.rstrip(":") for _, name, *_ in lines] == [
        *("Python", "libraries", "cores", "memory", "disk", "kernel", "log"),
        *("chapters", "pictures", "weights", "git"),
    ]
    states = {name.rstrip(":"): state for state, name, *_ in lines}
    assert (states["log"], states["chapters"], states["git"]) == ("ok", "ok", "warning")
    assert states["pictures"] == states["weights"] == "severe"


def test_the_doctor_is_content_without_anything_severe(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [readiness.Line("ok", "a: b"), readiness.Line("warning", "c: d")]
    monkeypatch.setattr(readiness, "before_the_day", lambda root: found)
    result = run("doctor", "--workshop")
    assert (result.exit_code, result.output) == (0, "ok       a: b\nwarning  c: d\n")


@pytest.mark.parametrize(
    ("version", "state"), [((3, 11, 0), "ok"), ((3, 14, 1), "ok"), ((3, 10, 9), "severe")]
)
def test_python_against_its_bound(version: tuple[int, ...], state: str) -> None:
    assert readiness.python(version, ">=3.11").state == state


def test_libraries_against_their_bounds() -> None:
    here = {"click": "8.1", "torch": "2.8.1+cpu", "fine": "2.0"}

    def version_of(name: str) -> str:
        try:
            return here[name]
        except KeyError:
            raise metadata.PackageNotFoundError(name) from None

    wanted = [
        "click>=8.1",
        "torch>=2.9; extra == 'hotdog'",
        "jupyterlab>=4; extra == 'workbook'",
        "optbook[hotdog]; extra == 'workbook'",
        "memray; extra == 'bench'",
        "elsewhere; sys_platform == 'none'",
    ]
    line = readiness.libraries(wanted, version_of)
    assert line.state == "severe"
    assert line.what.startswith(
        "libraries: torch is 2.8.1+cpu, not >=2.9, jupyterlab is missing; pip install "
    )
    assert (
        str(readiness.libraries(wanted[:1], version_of)) == "ok       libraries: 1, all within their bounds"
    )


@pytest.mark.parametrize(
    ("line", "state"),
    [
        (readiness.cores(2), "ok"),
        (readiness.cores(0.5), "warning"),
        (readiness.memory(8 * 2**30, 16 * 2**30), "ok"),
        (readiness.memory(2 * 2**30, 16 * 2**30), "warning"),
        (readiness.memory(2**29, 2**30), "severe"),
        (readiness.disk(5 * 2**30, Path("x")), "ok"),
        (readiness.disk(2**30, Path("x")), "warning"),
        (readiness.disk(2**20, Path("x")), "severe"),
    ],
)
def test_where_the_limits_lie(line: readiness.Line, state: str) -> None:
    assert line.state == state


def test_a_kernel_that_cannot_import_is_severe(root: Path) -> None:
    line = readiness.kernel(root, "import nothing_of_that_name")
    assert line.state == "severe"
    assert "ModuleNotFoundError: No module named 'nothing_of_that_name'" in line.what


def test_the_log_is_tried_and_left_empty(log_path: Path) -> None:
    assert readiness.log().state == "ok"
    assert optbook.log().empty
    assert run("log").exit_code == 0


def test_a_foreign_file_for_a_log_is_severe_and_left_alone(log_path: Path) -> None:
    log_path.write_text("not a database")
    assert readiness.log().state == "severe"
    assert log_path.read_text() == "not a database"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://room:s3cret-Pa55@127.0.0.1:1/optbook",
        "nonsense://room:s3cret-Pa55@host/optbook",
        "postgresql+psycopg://room:s3cret-Pa55@127.0.0.1:port/optbook",
    ],
)
def test_a_server_out_of_reach_is_severe_and_no_password_is_shown(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPTBOOK_LOG", url)
    line = readiness.log()
    assert line.state == "severe"
    assert "s3cret" not in line.what
    assert "\n" not in line.what


def test_pictures_are_counted(tmp_path: Path) -> None:
    (tmp_path / "annotations").mkdir()
    for part in ("train", "val"):
        (tmp_path / part).mkdir()
        (tmp_path / "annotations" / f"{part}.json").write_text('{"images": [{"file_name": "0.jpg"}]}')
        (tmp_path / part / "0.jpg").touch()
    assert readiness.pictures(tmp_path) == readiness.Line("ok", "pictures: 2")
    (tmp_path / "val" / "0.jpg").unlink()
    assert readiness.pictures(tmp_path).what.startswith("pictures: 1 of 2 missing")
    for broken in ("{", "[]", '{"images": [{}]}'):
        (tmp_path / "annotations" / "val.json").write_text(broken)
        assert readiness.pictures(tmp_path).state == "severe"


def test_weights_that_are_a_pointer_are_damaged(tmp_path: Path) -> None:
    path = tmp_path / "hotdog.pt"
    assert readiness.weights(path).state == "severe"
    path.write_text("version https://git-lfs")
    assert "damaged" in readiness.weights(path).what
    path.write_bytes(b"PK\x03\x04")
    assert readiness.weights(path).state == "ok"
