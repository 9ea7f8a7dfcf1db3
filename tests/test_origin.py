from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

import pytest

from optbook.benchmark import origin


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


def test_revision_and_uncommitted_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert origin.origin()["git_revision"] == ""
    assert origin.origin()["git_dirty"] is None
    git(tmp_path, "init", "-q")
    (tmp_path / "f.py").write_text("a = 1\n")
    git(tmp_path, "add", "f.py")
    git(tmp_path, "commit", "-qm", "first")
    assert len(origin.origin()["git_revision"]) == 40
    assert origin.origin()["git_dirty"] is False
    (tmp_path / "f.py").write_text("a = 2\n")
    assert origin.origin()["git_dirty"] is True


def test_without_git_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert origin.origin()["git_revision"] == ""


def test_the_hash_follows_local_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert origin.origin()["modules_hash"] == ""
    file = tmp_path / "mine.py"
    module = types.ModuleType("mine")
    module.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "mine", module)
    hashes = set()
    for text in ("a = 1", "a = 2"):
        file.write_text(text)
        hashes.add(origin.origin()["modules_hash"])
    file.unlink()
    assert len(hashes) == 2
    assert origin.origin()["modules_hash"] == ""


def test_the_notebook_is_named_without_its_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPTBOOK_NOTEBOOK", raising=False)
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/someone/private/03_simplify.ipynb")
    assert origin.notebook_name() == "03_simplify.ipynb"
    monkeypatch.setenv("OPTBOOK_NOTEBOOK", "other.ipynb")
    assert origin.notebook_name() == "other.ipynb"


def test_torch_is_described_only_where_it_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    found = origin.origin()
    assert "threads" not in found["flags"]
    assert found["seed"] is None
    monkeypatch.undo()
    import torch

    torch.manual_seed(2**64 - 5)
    found = origin.origin()
    assert found["seed"] == -5
    assert found["flags"]["threads"] == str(torch.get_num_threads())
    assert found["versions"]["torch"].startswith("2.")


def test_a_working_directory_that_is_gone_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    found = origin.origin()
    assert (found["git_revision"], found["git_dirty"], found["modules_hash"]) == ("", None, "")
