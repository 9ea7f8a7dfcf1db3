"""The regression guard: two revisions of a script, measured in turn."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from optbook import cli
from optbook.errors import OptbookError, OptionError
from optbook.optimize.compare import Comparison
from optbook.optimize.guard import Guarded, guard

Commit = Callable[[str], str]
WORK = "import time\ndef work():\n    time.sleep({ms} / 1000)\n"
STEPS = "from optbook import track\nfrom part import work\nfor _ in track(range(8)):\n    work()\n"


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    return subprocess.run(
        ["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    git(root, "init", "--quiet")
    (root / "part.py").write_text(WORK.format(ms=4))
    (root / "steps.py").write_text(STEPS)
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "first")
    return root


def run(root: Path, *arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli.main, ["guard", *arguments, "--budget", "0.5", "--pairs", "8"])
    assert "worktree" not in git(root, "status", "--porcelain")
    assert len(git(root, "worktree", "list").splitlines()) == 1
    return done.exit_code, done.output


def test_a_slowdown_fails_and_says_by_how_much(repository: Path) -> None:
    (repository / "part.py").write_text(WORK.format(ms=8))
    code, told = run(repository, f"{repository}/steps.py", "--against", "HEAD")
    assert code == 1
    assert "FAIL: throughput fell by" in told
    assert "working tree is slower than HEAD" in told


def test_a_gain_and_a_function_of_a_script_pass(repository: Path) -> None:
    (repository / "part.py").write_text(WORK.format(ms=1))
    code, told = run(repository, f"{repository}/part.py::work", "--against", "HEAD")
    assert code == 0
    assert "working tree is faster than HEAD" in told


def test_a_loss_that_is_tolerated_passes(repository: Path) -> None:
    (repository / "part.py").write_text(WORK.format(ms=6))
    code, told = run(repository, f"{repository}/part.py::work", "--against", "HEAD", "--tolerate", "70")
    assert code == 0
    assert "no more than the 70 % that are tolerated" in told


def test_a_script_without_steps_is_timed_as_a_whole(repository: Path) -> None:
    (repository / "whole.py").write_text("import part\nif __name__ == '__main__':\n    part.work()\n")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "whole")
    (repository / "part.py").write_text(WORK.format(ms=20))
    found = guard(repository / "whole.py", "HEAD", budget=0.5, pairs=8)
    assert found.fell
    assert 0.15 < found.comparison.ratio < 0.4


def test_packages_in_src_come_from_each_revision(repository: Path) -> None:
    package = repository / "src" / "inner"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(WORK.format(ms=3))
    (repository / "uses.py").write_text("from inner import work\nwork()\n")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "src")
    (package / "__init__.py").write_text(WORK.format(ms=9))
    assert guard(repository / "uses.py", "HEAD", budget=0.5, pairs=8).fell


@pytest.mark.parametrize(
    ("script", "against", "message"),
    [
        ("steps.py", "no-such-branch", "no revision 'no-such-branch'"),
        ("steps.py", "--help", "no revision '--help'"),
        ("missing.py", "HEAD", "no script"),
        ("new.py", "HEAD", "new.py is not in HEAD"),
        ("part.py::other", "HEAD", "has no function other"),
        ("raises.py", "HEAD", "ZeroDivisionError"),
    ],
)
def test_what_cannot_be_guarded_is_told(repository: Path, script: str, against: str, message: str) -> None:
    (repository / "raises.py").write_text("1 / 0")
    git(repository, "add", "raises.py")
    git(repository, "commit", "--quiet", "-m", "raises")
    (repository / "new.py").write_text("")
    code, told = run(repository, f"{repository}/{script}", f"--against={against}")
    assert code == 2
    assert message in told
    assert told.startswith("Error: ")


def test_outside_of_a_repository(tmp_path: Path) -> None:
    (tmp_path / "alone.py").write_text("")
    with pytest.raises(OptionError, match="not a git repository"):
        guard(tmp_path / "alone.py", "HEAD")


def test_code_that_is_installed_from_the_working_tree_is_no_other_revision(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = "import importlib.util as u, sys\ns = u.spec_from_file_location('part', {path!r})\n"
    loader += "m = u.module_from_spec(s)\nsys.modules['part'] = m\ns.loader.exec_module(m)\nm.work()\n"
    (repository / "fixed.py").write_text(loader.format(path=str(repository / "part.py")))
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "fixed")
    with pytest.raises(OptbookError, match=r"HEAD would run part\.py of the working tree"):
        guard(repository / "fixed.py", "HEAD", budget=0.2, pairs=8)
    assert len(git(repository, "worktree", "list").splitlines()) == 1


@pytest.mark.parametrize("tolerated", [-0.1, 1.0, float("nan")])
def test_a_tolerance_must_be_a_share(repository: Path, tolerated: float) -> None:
    with pytest.raises(OptionError, match="give a share between 0 and 1"):
        guard(repository / "steps.py", "HEAD", tolerated=tolerated)


def test_what_is_tolerated_is_a_loss_of_throughput() -> None:

    lost = Comparison(("a", "b"), "slower", 0.97, 0.96, 0.98, 0.01, 10, 1, 1, ((1.0,), (1.03,)))
    assert Guarded(lost, 0.0).fell
    assert not Guarded(lost, 0.05).fell
    assert not Guarded(replace(lost, verdict="no difference seen"), 0.0).fell
