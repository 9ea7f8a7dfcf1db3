"""What is done to whole logs: bring another one's rows into this one, and delete experiments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from optbook.experiments.columns import clean
from optbook.experiments.database import Database, fetch, raw
from optbook.experiments.errors import LogError
from optbook.experiments.schema import tables, version_of

if TYPE_CHECKING:
    import sqlalchemy as sa

AT_ONCE = 200
TRIES = 3
Row = dict[str, Any]


@dataclass(frozen=True)
class Merged:
    """What came into a log from another: how many rows of each kind, and how many experiments were there."""

    experiments: int
    notes: int
    profiles: int
    solved: int
    goals: int
    known: int

    def __str__(self) -> str:
        kinds = ("experiment", "note", "profile", "solved exercise", "goal")
        counts = (self.experiments, self.notes, self.profiles, self.solved, self.goals)
        parts = [
            _counted(n, kind) for n, kind in zip(counts, kinds, strict=True) if n or kind == "experiment"
        ]
        return f"{', '.join(parts)} added; {_counted(self.known, 'experiment')} known already"


def merge(into: str, other: str) -> Merged:
    """Bring what another log has, and this one doesn't, into this one; the other is left as it is.

    Experiments and solved exercises are told apart by their ids, notes and profiles by what they hold, so
    that merging again adds nothing. Goals come along only for units that have none here. All of it is written
    in one transaction.

    Parameters
    ----------
    into, other
        Paths or SQLAlchemy URLs.

    Raises
    ------
    LogError
        There is no log at `other`, the two are one, or one of them can't be used.
    """
    import sqlalchemy as sa

    source, target = Database(other), Database(into)
    try:
        if source.shown == target.shown:
            raise LogError(f"{source.shown} is the log to merge into: name another one")
        if not source.exists():
            raise LogError(f"there is no log in {source.shown}: name a log, such as that of another machine")
        for attempt in range(TRIES):
            try:
                with source.connect() as reader, target.connect(write=True) as writer:
                    if version_of(reader, source.shown) == 0:
                        raise LogError(f"there is no log in {source.shown}: its tables are missing")
                    return _merge(reader, writer)
            except sa.exc.IntegrityError as error:  # another process added one of the rows meanwhile
                if attempt + 1 == TRIES:
                    raise LogError(f"{target.shown} changes all the time: merge again later") from error
    finally:
        source.close()
        target.close()
    raise AssertionError


def delete(place: str, ids: Sequence[str]) -> int:
    """Delete experiments, with their times, notes and profiles; how many there were.

    Raises
    ------
    LogError
        The log can't be written.
    """
    import sqlalchemy as sa

    database, every = Database(place), tables()
    deleted = 0
    try:
        with database.connect(write=True) as connection:
            for some in _chunks(ids):
                for table in (every.payloads, every.notes, every.profiles):
                    connection.execute(sa.delete(table).where(table.c.id.in_(some)))
                gone = sa.delete(every.experiments).where(every.experiments.c.id.in_(some))
                deleted += connection.execute(gone).rowcount
    finally:
        database.close()
    return deleted


def _merge(reader: sa.Connection, writer: sa.Connection) -> Merged:
    every = tables()
    there, here = _ids(reader, every.experiments), set(_ids(writer, every.experiments))
    new = [id for id in dict.fromkeys(there) if id not in here]
    for some in _chunks(new):
        for table in (every.experiments, every.payloads):
            _insert(writer, table, _rows(reader, table, some))
    solved = set(_ids(writer, every.solved))
    units = {row["unit"] for row in _rows(writer, every.goals)}
    notes = _distinct(writer, every.notes, ("id", "created", "note", "hidden"))
    profiles = _distinct(writer, every.profiles, ("id", "label", "kind", "created"))
    return Merged(
        experiments=len(new),
        notes=_bring(reader, writer, every.notes, notes),
        profiles=_bring(reader, writer, every.profiles, profiles),
        solved=_bring(reader, writer, every.solved, lambda row: row["id"] not in solved),
        goals=_bring(reader, writer, every.goals, lambda row: row["unit"] not in units),
        known=len(there) - len(new),
    )


def _bring(
    reader: sa.Connection, writer: sa.Connection, table: sa.Table, is_new: Callable[[Row], bool]
) -> int:
    rows = [row for row in _rows(reader, table) if is_new(row)]
    _insert(writer, table, rows)
    return len(rows)


def _distinct(writer: sa.Connection, table: sa.Table, names: Sequence[str]) -> Callable[[Row], bool]:
    """Whether a row holds something else than those that are there."""

    def key(row: Row) -> tuple[Any, ...]:
        return tuple(None if row[name] is None else str(row[name]) for name in names)

    known = {key(row) for row in _rows(writer, table)}
    return lambda row: key(row) not in known


def _insert(writer: sa.Connection, table: sa.Table, rows: Sequence[Row]) -> None:
    import sqlalchemy as sa

    for some in _chunks(rows):
        writer.execute(sa.insert(table), some)


def _ids(connection: sa.Connection, table: sa.Table) -> list[str]:
    return [row["id"] for row in _rows(connection, table, names=("id",)) if row["id"]]


def _rows(
    connection: sa.Connection,
    table: sa.Table,
    ids: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
) -> list[Row]:
    """The rows (of these ids) in their order, every column but `seq`; None for what can't be read."""
    import sqlalchemy as sa

    inspector = sa.inspect(connection)
    if not inspector.has_table(table.name):
        return []
    there = {column["name"] for column in inspector.get_columns(table.name)}
    wanted = [column for column in table.columns if column.name != "seq" and names in (None, (column.name,))]
    query = sa.select(*(raw(column) if column.name in there else sa.null() for column in wanted))
    if "seq" in table.c:
        query = query.order_by(table.c.seq)
    if ids is not None:
        query = query.where(table.c.id.in_(ids))
    kinds = [column.type.python_type for column in wanted]
    return [
        {c.name: _fitting(kind, value) for c, kind, value in zip(wanted, kinds, values, strict=True)}
        for values in fetch(connection, query)
    ]


def _fitting(kind: type, value: Any) -> Any:
    """The value, if a column of this kind can hold it everywhere; else None."""
    if kind is bool:
        return bool(value) if value in (0, 1) else None
    if kind is float:
        return float(value) if type(value) in (float, int) else None
    if kind is str:
        return clean(value) if isinstance(value, str) else None
    return value if isinstance(value, kind) else None


def _chunks(items: Sequence[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(items), AT_ONCE):
        yield list(items[start : start + AT_ONCE])


def _counted(number: int, kind: str) -> str:
    return f"{number} {kind}{'' if number == 1 else 's'}"
