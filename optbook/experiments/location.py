"""Where the log lies: `OPTBOOK_LOG`, else the workbook one is in, else the working directory."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from optbook.experiments.columns import clean
from optbook.experiments.errors import LogError
from optbook.experiments.imports import import_whole

if TYPE_CHECKING:
    import sqlalchemy as sa

VARIABLE = "OPTBOOK_LOG"
FILE_NAME = "experiments.sqlite"
NETWORK_FILE_SYSTEMS = frozenset(
    [
        "9p",
        "afpfs",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "davfs",
        "fuse.ceph",
        "fuse.davfs2",
        "fuse.gcsfuse",
        "fuse.glusterfs",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "prl_fs",
        "smb2",
        "smb3",
        "smbfs",
        "vboxsf",
        "webdav",
    ]
)
SYNCED_FOLDERS = (
    "dropbox",
    "onedrive",
    "icloud",
    "mobile documents",  # iCloud on macOS
    "cloudstorage",  # macOS's folder of all such services
    "google drive",
    "googledrive",
    "my drive",
    "nextcloud",
    "owncloud",
    "pclouddrive",
)


@dataclass(frozen=True)
class Location:
    """Where the log lies.

    Parameters
    ----------
    url
        A path or an SQLAlchemy URL, as `Store` takes it. It may hold a password: show `shown` instead.
    shown
        The same, with a password masked.
    why
        What decided it, as the end of "the log lies in …, ".
    warning
        What speaks against this place; "" if nothing does.
    """

    url: str
    shown: str
    why: str
    warning: str = ""


def locate(environ: Mapping[str, str] = os.environ, cwd: str | os.PathLike[str] | None = None) -> Location:
    """Where the log lies now.

    Raises
    ------
    LogError
        `OPTBOOK_LOG` is empty or malformed, or the working directory is gone.
    """
    given = environ.get(VARIABLE)
    try:
        here = Path(cwd) if cwd is not None else Path.cwd()
    except FileNotFoundError as error:
        raise LogError(f"the working directory is gone: change to another, or set {VARIABLE}") from error
    if given is not None:
        return _given(given, here)
    root = workbook(here)
    if root is not None:
        path, why = root / "data" / FILE_NAME, "the log of the workbook you are in"
    else:
        path, why = here / FILE_NAME, f"in the working directory, since {VARIABLE} is not set"
    return Location(str(path), str(path), why, place_warning(path))


def _given(given: str, here: Path) -> Location:
    why = f"as {VARIABLE} says"
    if not given.strip():
        raise LogError(f"{VARIABLE} is set, but empty: give it a path or an SQLAlchemy URL, or unset it")
    if "://" not in given and given != ":memory:":
        given = str(here / os.path.expanduser(given))
    try:
        path, _, shown = parse_place(given)
    except LogError as error:
        raise LogError(f"{VARIABLE}: {error}") from error
    return Location(given if path is None else str(path), shown, why, place_warning(path) if path else "")


def parse_place(place: str) -> tuple[Path | None, sa.URL, str]:
    """Path (if it is SQLite's), URL, and the place as it may be shown.

    Raises
    ------
    LogError
        It is neither a path nor a URL of a database whose driver is installed.
    """
    import_whole("sqlalchemy")
    import sqlalchemy as sa

    if not place.strip():
        raise LogError("the place of the log is empty: give a path or an SQLAlchemy URL")
    if "://" not in place:
        url = sa.URL.create("sqlite", database=place)
    else:
        scheme = clean(place.split("://")[0])[:40]
        try:
            url = sa.make_url(place)
            asynchronous = url.get_dialect().is_async
        except (sa.exc.ArgumentError, ImportError, ValueError) as error:
            raise LogError(
                f"{scheme}://… is no URL that SQLAlchemy knows: write a path, sqlite:///path "
                "or postgresql+psycopg://user@host/name"
            ) from error
        if asynchronous:
            raise LogError(f"{scheme}:// is asynchronous: use a synchronous driver")
    if url.get_backend_name() != "sqlite":
        return None, url, url.difference_update_query(["password"]).render_as_string(hide_password=True)
    name = url.database or ""
    if name in ("", ":memory:") or name.startswith("file:") or "\x00" in name:
        raise LogError(f"{clean(place)[:80]!r} does not name a file: write a path, or sqlite:///path")
    path = Path(os.path.abspath(os.path.expanduser(name)))
    return path, url, clean(str(path))


def workbook(folder: Path) -> Path | None:
    """The root of the workbook that the folder lies in; None if it lies in none."""
    folder = folder.absolute()
    return next((root for root in (folder, *folder.parents) if _is_workbook(root)), None)


def _is_workbook(root: Path) -> bool:
    if not ((root / "notebooks").is_dir() and (root / "data" / "hotdogs").is_dir()):
        return False
    try:
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8")).get("project")
    except (OSError, ValueError):
        return False
    return isinstance(project, dict) and project.get("name") == "optbook"


@lru_cache(maxsize=64)
def place_warning(path: Path) -> str:
    """Why SQLite's write-ahead log is in danger at this path; "" if nothing is known."""
    import psutil

    for part in path.parent.parts:
        if part.lower().startswith(SYNCED_FOLDERS):
            return (
                f"the log lies in a synced folder ({clean(part)}), which can damage it: set {VARIABLE} "
                "to a file on this machine's own disk"
            )
    mounts = [(p.mountpoint, p.fstype, p.opts) for p in psutil.disk_partitions(all=True)]
    kind, options = file_system(path, mounts)
    if kind.lower() in NETWORK_FILE_SYSTEMS or "remote" in options.split(","):
        return (
            f"the log lies on a network file system ({kind or 'a network drive'}), where several kernels "
            f"cannot write safely: set {VARIABLE} to a file on this machine's own disk"
        )
    return ""


def file_system(path: Path, mounts: Iterable[tuple[str, str, str]]) -> tuple[str, str]:
    """Type and options of the file system that holds the path: of the longest mount point above it.

    Parameters
    ----------
    mounts
        (mount point, type, options), in the order of mounting: a later one hides an earlier one.
    """
    found, deepest = ("", ""), -1
    above = {path, *path.parents}
    for mount, kind, options in mounts:
        depth = len(Path(mount).parts)
        if Path(mount) in above and depth >= deepest:
            found, deepest = (kind, options), depth
    return found
