"""Connections to the database of the log: one kept by each process, and errors told in one line."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optbook.experiments import sqlite
from optbook.experiments.errors import AwayError, LogError
from optbook.experiments.location import parse_place
from optbook.experiments.schema import prepare, version_of

if TYPE_CHECKING:
    import sqlalchemy as sa

CONNECT_SECONDS = 5
LIBPQ = ("psycopg", "psycopg2")
"""Drivers that take ``connect_timeout``."""
PREPARING = 0x6F707462
"""The number of the lock that is held while tables are created."""


class Database:
    """The database at one place; see `Store`."""

    def __init__(self, place: str) -> None:
        self.path, self._url, self.shown = parse_place(place)
        self._engines: dict[tuple[int, bool], tuple[sa.Engine, tuple[int, int] | None]] = {}

    def close(self) -> None:
        """Close the connections of this process; they open again when needed."""
        for key in [key for key in self._engines if key[0] == os.getpid()]:
            self._engines.pop(key)[0].dispose()

    def exists(self) -> bool:
        return self.path is None or sqlite.inspect_file(self.path, self.shown)

    @contextmanager
    def connect(self, *, write: bool = False) -> Iterator[sa.Connection]:
        """A connection inside a transaction; every error of the database leaves as a LogError."""
        import sqlalchemy as sa

        try:
            with self._engine(write).begin() as connection:
                yield connection
        except sa.exc.IntegrityError:
            raise
        except (sa.exc.DBAPIError, sqlite3.Error) as error:
            raise self._explain(error) from (error if self._url.password is None else None)

    def _explain(self, error: sa.exc.DBAPIError | sqlite3.Error) -> LogError:
        import sqlalchemy as sa

        found = str(sqlite.explain(error, self.shown))
        secret = self._url.password
        said = found.replace(str(secret), "***") if secret else found
        lost = isinstance(error, (sa.exc.OperationalError, sa.exc.InterfaceError))
        return AwayError(said) if lost and self.path is None else LogError(said)

    def _engine(self, write: bool) -> sa.Engine:
        """This process's engine. One connection is kept, since closing the last one of a SQLite file moves
        its whole write-ahead log into it (20 ms here); a forked child must neither use nor close it, so it
        makes its own and leaves the parent's alone. A file that was deleted or replaced is opened anew."""
        key = os.getpid(), write
        now = None if self.path is None else sqlite.identity(self.path)
        if key in self._engines:
            engine, then = self._engines[key]
            if now == then:
                return engine
            self._engines.pop(key, None)
            engine.dispose()
        engine = self._open(write)
        opened = engine, None if self.path is None else sqlite.identity(self.path)
        if key in self._engines and self._engines[key][1] == opened[1]:  # another thread was quicker
            engine.dispose()
        return self._engines.setdefault(key, opened)[0]

    def _open(self, write: bool) -> sa.Engine:
        if self.path is not None:
            return self._open_file(self.path, write)
        import sqlalchemy as sa

        try:
            waits = {"connect_timeout": CONNECT_SECONDS} if self._url.get_driver_name() in LIBPQ else {}
            engine = sa.create_engine(self._url, pool_pre_ping=True, connect_args=waits)
        except (ImportError, sa.exc.ArgumentError) as error:
            raise AwayError(
                f"{self.shown} needs a database driver that is missing ({error}): for PostgreSQL, "
                'pip install "optbook[postgresql]"'
            ) from error
        with engine.begin() as connection:
            if engine.dialect.name == "postgresql":  # a room full of kernels creates the tables once
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({PREPARING})")
            prepare(connection, self.shown)
        return engine

    def _open_file(self, path: Path, write: bool) -> sa.Engine:
        import sqlalchemy as sa

        exists = sqlite.inspect_file(path, self.shown)
        if write and not exists:
            sqlite.make_parents(path, self.shown)
        engine = sa.create_engine(
            "sqlite://",
            creator=lambda: sqlite.connect(path, write=write),
            poolclass=sa.pool.QueuePool,
            pool_size=1,
            max_overflow=64,
        )
        begin = "BEGIN IMMEDIATE" if write else "BEGIN"
        sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin) and None)
        try:
            with engine.begin() as connection:
                if exists:
                    sqlite.check(connection.connection.driver_connection, path)  # type: ignore[arg-type]
                if write:
                    prepare(connection, self.shown)
                    if not exists:
                        sqlite.mark(connection)
                elif version_of(connection, self.shown) == 0:
                    raise LogError(f"{self.shown} is damaged: its tables are missing")
            if write:
                sqlite.use_wal(path)
        except BaseException:
            engine.dispose()
            raise
        return engine


def raw(column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    """The column as the driver gives it: whether it is of its type is looked at later, value by value."""
    import sqlalchemy as sa

    return sa.type_coerce(column, sa.types.NullType())


def fetch(connection: sa.Connection, query: sa.Select[Any]) -> Sequence[Sequence[Any]]:
    """All rows; text that is not UTF-8 does not stop the others from being read."""
    import sqlalchemy as sa

    def rows() -> Sequence[Sequence[Any]]:
        cursor = connection.execute(query).cursor
        assert cursor is not None
        return cursor.fetchall()  # plain tuples: a tenth of the time is spent on wrapping them otherwise

    try:
        return rows()
    except (sa.exc.OperationalError, sqlite3.OperationalError) as error:
        if "decode" not in str(error).lower():
            raise
    raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    sqlite.lenient_text(raw)
    return rows()
