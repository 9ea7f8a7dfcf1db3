"""Where the log lies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from optbook.experiments.errors import LogError
from optbook.experiments.location import file_system, locate, place_warning, workbook


def make_workbook(root: Path, project: str = '[project]\nname = "optbook"\n') -> Path:
    (root / "notebooks").mkdir(parents=True)
    (root / "data" / "hotdogs").mkdir(parents=True)
    (root / "pyproject.toml").write_text(project)
    return root


def test_the_variable_comes_first(tmp_path: Path) -> None:
    root = make_workbook(tmp_path)
    found = locate({"OPTBOOK_LOG": str(tmp_path / "mine.sqlite")}, root)
    assert found.url == found.shown == str(tmp_path / "mine.sqlite")
    assert "OPTBOOK_LOG" in found.why


def test_a_relative_path_counts_from_the_working_directory(tmp_path: Path) -> None:
    assert locate({"OPTBOOK_LOG": "logs/a.sqlite"}, tmp_path).url == str(tmp_path / "logs" / "a.sqlite")


def test_a_tilde_is_the_home_folder(tmp_path: Path) -> None:
    assert locate({"OPTBOOK_LOG": "~/a.sqlite"}, tmp_path).url == os.path.expanduser("~/a.sqlite")


def test_then_the_workbook_one_is_in(tmp_path: Path) -> None:
    root = make_workbook(tmp_path / "book")
    for folder in (root, root / "notebooks", root / "data" / "hotdogs"):
        found = locate({}, folder)
        assert found.url == str(root / "data" / "experiments.sqlite")
        assert "workbook" in found.why


def test_else_the_working_directory(tmp_path: Path) -> None:
    found = locate({}, tmp_path)
    assert found.url == str(tmp_path / "experiments.sqlite")
    assert "working directory" in found.why


def test_the_defaults_are_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPTBOOK_LOG")
    monkeypatch.chdir(tmp_path)
    assert locate().url == str(tmp_path / "experiments.sqlite")


@pytest.mark.parametrize(
    "project",
    ['[project]\nname = "other"\n', "not [ toml", "", 'project = "optbook"\n', '[tool]\nname = "optbook"\n'],
)
def test_another_project_is_no_workbook(tmp_path: Path, project: str) -> None:
    assert workbook(make_workbook(tmp_path, project)) is None


def test_a_project_without_its_folders_is_no_workbook(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "optbook"\n')
    assert workbook(tmp_path) is None


@pytest.mark.parametrize(
    "given", ["", "  ", "://", "nodb://x/y", "sqlite://", ":memory:", "sqlite:///:memory:"]
)
def test_a_malformed_variable_is_one_clear_line(tmp_path: Path, given: str) -> None:
    with pytest.raises(LogError, match="OPTBOOK_LOG") as caught:
        locate({"OPTBOOK_LOG": given}, tmp_path)
    assert "\n" not in str(caught.value)


def test_an_asynchronous_driver_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

    monkeypatch.setattr(SQLiteDialect_pysqlite, "is_async", True)
    with pytest.raises(LogError, match="asynchronous"):
        locate({"OPTBOOK_LOG": "sqlite:///a.sqlite"}, tmp_path)


def test_passwords_are_never_shown(tmp_path: Path) -> None:
    given = "mysql+pymysql://ann:s3cret@host/room"
    try:
        shown = locate({"OPTBOOK_LOG": given}, tmp_path).shown
    except LogError as error:  # the driver is not installed
        shown = str(error)
    assert "s3cret" not in shown
    with pytest.raises(LogError) as caught:
        locate({"OPTBOOK_LOG": "nodb://ann:s3cret@host/room"}, tmp_path)
    assert "s3cret" not in str(caught.value)


def test_a_working_directory_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> Path:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "cwd", gone)
    with pytest.raises(LogError, match="working directory is gone"):
        locate({})


@pytest.mark.parametrize(
    "folder", ["Dropbox", "OneDrive - Company", "Mobile Documents", "iCloudDrive", "Nextcloud"]
)
def test_a_synced_folder_gets_a_warning(tmp_path: Path, folder: str) -> None:
    warning = locate({}, tmp_path / folder / "work").warning
    assert folder in warning
    assert "synced" in warning


def test_a_file_that_is_called_so_gets_none(tmp_path: Path) -> None:
    assert place_warning(tmp_path / "dropbox.sqlite") == ""


def test_a_network_file_system_gets_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    import psutil

    def mounts(all: bool) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(mountpoint="/", fstype="ext4", opts="rw"),
            SimpleNamespace(mountpoint=str(tmp_path / "share"), fstype="nfs4", opts="rw"),
            SimpleNamespace(mountpoint=str(tmp_path / "drive"), fstype="", opts="rw,remote"),
        ]

    monkeypatch.setattr(psutil, "disk_partitions", mounts)
    assert "nfs4" in place_warning(tmp_path / "share" / "a.sqlite")
    assert "network drive" in place_warning(tmp_path / "drive" / "a.sqlite")
    assert place_warning(tmp_path / "here" / "a.sqlite") == ""


def test_the_longest_mount_point_decides(tmp_path: Path) -> None:
    mounts = [
        (str(tmp_path / "a"), "nfs", "rw"),
        ("/", "ext4", "rw"),
        (str(tmp_path), "xfs", "rw"),
        (str(tmp_path / "a" / "b"), "ext4", "rw"),
        (str(tmp_path / "a" / "b"), "cifs", "rw"),  # mounted over the one before
    ]
    assert file_system(tmp_path / "a" / "x.sqlite", mounts) == ("nfs", "rw")
    assert file_system(tmp_path / "ab" / "x.sqlite", mounts) == ("xfs", "rw")
    assert file_system(tmp_path / "a" / "b" / "c" / "x.sqlite", mounts) == ("cifs", "rw")
    assert file_system(tmp_path / "x.sqlite", []) == ("", "")
