"""The part of the store that knows SQLite: opening a file safely, and what its errors mean."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import pathname2url

from optbook.experiments.errors import LogError

if TYPE_CHECKING:
    import sqlalchemy as sa

APPLICATION_ID = 0x6F707462  # "optb", in the header of every log
BUSY_SECONDS = 10.0
PAUSES = (0.0, 0.01, 0.1)
"""Seconds between attempts to open a file that another program may be opening or closing just now."""
_CHECK_BELOW = 16 * 2**20


def inspect_file(path: Path, shown: str) -> bool:
    """Whether a log is there; looks at the header only, so a foreign file is left as it is.

    Raises
    ------
    LogError
        The path is a folder, not a database, or a database of another program.
    """
    try:
        if path.is_dir():
            raise LogError(f"{shown} is a folder: name a file in it, such as {path / 'experiments.sqlite'}")
        if not path.exists() or path.stat().st_size == 0:
            return False
        if not path.is_file():
            raise LogError(f"{shown} is not a file: set OPTBOOK_LOG to a file")
        found = _application_id(path)
    except (OSError, ValueError) as error:
        raise LogError(
            f"{shown} cannot be read ({_reason(error)}): set OPTBOOK_LOG to another file"
        ) from error
    except sqlite3.DatabaseError as error:
        if _name(error).startswith("SQLITE_CORRUPT"):  # damaged, or being created just now: opening it tells
            return True
        raise explain(error, shown) from error
    if found != APPLICATION_ID:
        raise LogError(f"{shown} is a database of another program: set OPTBOOK_LOG to another file")
    return True


def _application_id(path: Path) -> int:
    """The mark in the header, read through SQLite and without a lock.

    Reading it with ``open`` would be simpler, and ruinous: when a process closes any descriptor of a file,
    POSIX drops all its locks on that file, those of its SQLite connections too. Another process then takes
    itself for the last one and deletes the write-ahead log in use here. SQLite keeps such descriptors open
    until its locks are gone (https://www.sqlite.org/howtocorrupt.html, section 2.2).
    """
    url = "file:" + pathname2url(str(path)) + "?mode=ro&immutable=1"
    with closing(sqlite3.connect(url, uri=True)) as connection:
        (mark,) = connection.execute("PRAGMA application_id").fetchone()
    return int(mark)


def make_parents(path: Path, shown: str) -> None:
    """Create the folders above the file.

    Raises
    ------
    LogError
        They cannot be created.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise LogError(
            f"the folder of {shown} cannot be created ({_reason(error)}): set OPTBOOK_LOG to another file"
        ) from error


def identity(path: Path) -> tuple[int, int] | None:
    """What tells this file from one that took its place; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def connect(path: Path, *, write: bool) -> sqlite3.Connection:
    """A connection as the store uses it: transactions are begun by hand, any thread may use it.

    ``synchronous=FULL`` flushes the write-ahead log at every commit, so that an acknowledged row outlives
    a power cut as well as a ``kill -9`` (``NORMAL`` would give up the former to save about a millisecond).
    """
    url = "file:" + pathname2url(str(path))
    if not write:
        return _connect_to_read(path, url)
    connection = sqlite3.connect(
        url + "?mode=rwc", uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA synchronous=FULL")
    return connection


def _connect_to_read(path: Path, url: str) -> sqlite3.Connection:
    """Reading works where nothing can be written, too, if no other program is writing."""

    def attempt(options: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            url + options, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    writable = _may_write(path) and _may_write(path.parent)
    for pause in PAUSES if writable else ():
        time.sleep(pause)
        with suppress(sqlite3.OperationalError):
            return attempt("?mode=rw")
    try:
        return attempt("?mode=rw" if os.access(path, os.W_OK) else "?mode=ro")
    except sqlite3.OperationalError as error:
        wal = path.with_name(path.name + "-wal")
        blocked = _name(error).startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY"))
        if writable or not blocked or (wal.exists() and wal.stat().st_size):
            raise  # opened as immutable, it would never show what is added
        return attempt("?mode=ro&immutable=1")


def _may_write(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def check(connection: sqlite3.Connection, path: Path) -> None:
    """Look through a file of ordinary size for damage (about 1 ms a MiB).

    Raises
    ------
    sqlite3.DatabaseError
        It is damaged.
    """
    if path.stat().st_size < _CHECK_BELOW:
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise sqlite3.DatabaseError(f"database disk image is malformed: {found.splitlines()[-1]}")


def mark(connection: Any) -> None:
    """Put our mark into the header; to be called in the transaction that creates the tables."""
    connection.exec_driver_sql(f"PRAGMA application_id={APPLICATION_ID}")


def use_wal(path: Path) -> None:
    """Switch to the write-ahead log, which needs a moment when nobody else has the file open.

    Where the file system cannot do it the log keeps its rollback journal: slower, and as safe.
    """
    with closing(connect(path, write=True)) as connection:
        for pause in (0.0, 0.01, 0.05, 0.1, 0.5):
            time.sleep(pause)
            try:
                connection.execute("PRAGMA journal_mode=WAL").fetchall()
            except sqlite3.OperationalError as error:
                if _name(error).startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                    continue
                raise
            return


def lenient_text(connection: sqlite3.Connection) -> None:
    """From now on, text that is not UTF-8 is read with replacement characters."""
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _name(error: BaseException) -> str:
    return getattr(error, "sqlite_errorname", None) or ""


_MEANINGS = (
    # SQLite's error name, text of drivers that give none, what to say
    ("SQLITE_FULL", "is full", "the disk is full: {shown} could not be written; free some space and go on"),
    (
        "SQLITE_READONLY",
        "readonly",
        "{shown} or its folder is read-only: change that, or set OPTBOOK_LOG to another file",
    ),
    (
        "SQLITE_CANTOPEN",
        "unable to open",
        "{shown} cannot be opened: is its folder writable? If not, set OPTBOOK_LOG to another file",
    ),
    ("SQLITE_NOTADB", "not a database", "{shown} is not a database: set OPTBOOK_LOG to another file"),
    (
        "SQLITE_CORRUPT",
        "malformed",
        "{shown} is damaged: move it away (sqlite3's .recover may save its rows), "
        "or set OPTBOOK_LOG to another file",
    ),
    ("SQLITE_BUSY", "is locked", "{shown} is locked by another program: close that, then try again"),
    ("SQLITE_LOCKED", "is locked", "{shown} is locked by another program: close that, then try again"),
    (
        "SQLITE_IOERR",
        "disk i/o error",
        "{shown} could not be read or written (disk error): is the disk well?",
    ),
)


def explain(error: sa.exc.DBAPIError | sqlite3.Error | OSError, shown: str) -> LogError:
    """An error of the database in one line of ours."""
    cause = getattr(error, "orig", None) or error
    name, text = _name(cause), str(cause)
    for prefix, words, meaning in _MEANINGS:
        if name.startswith(prefix) or (not name and words in text.lower()):
            return LogError(meaning.format(shown=shown))
    line = text.strip().splitlines()[0] if text.strip() else type(cause).__name__
    return LogError(f"{shown} cannot be used: {line}")
