"""The tables of the log, and the steps that bring older ones up to date."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from optbook.experiments.columns import Kind, kinds
from optbook.experiments.errors import LogError

if TYPE_CHECKING:
    import sqlalchemy as sa

    Step = Callable[[sa.Connection], None]

APPLICATION = "optbook"
VERSION = 1
STEPS: Mapping[int, Step] = {}
"""Schema version → the step from it to the next. A column or table that is only added needs no step: all
columns may be empty, so what is missing is added on opening, and an older optbook ignores it."""


class Tables:
    """The seven tables. `experiments` is as wide as the record; `seq` is the order of arrival."""

    def __init__(self) -> None:
        import sqlalchemy as sa

        types: dict[Kind, Any] = {
            "real": sa.Double,
            "count": sa.BigInteger,
            "flag": sa.Boolean,
            "series": sa.LargeBinary,
        }

        def columns(payload: bool) -> list[sa.Column[Any]]:
            return [
                sa.Column(name, types.get(kind, sa.Text))
                for name, kind in kinds(payload=payload).items()
                if name != "id"
            ]

        def seq() -> sa.Column[int]:
            number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
            return sa.Column("seq", number, primary_key=True, autoincrement=True)

        def unique_id() -> sa.Column[str]:
            return sa.Column("id", sa.Text, nullable=False, unique=True)

        self.metadata = sa.MetaData()
        table = self.metadata
        self.experiments = sa.Table(
            "experiments", table, seq(), unique_id(), *columns(False), sqlite_autoincrement=True
        )
        sa.Index("experiments_label", self.experiments.c.label)
        self.payloads = sa.Table(
            "payloads", table, sa.Column("id", sa.Text, primary_key=True), *columns(True)
        )
        self.notes = sa.Table(
            "notes",
            table,
            seq(),
            sa.Column("id", sa.Text, nullable=False),
            sa.Column("created", sa.Text),
            sa.Column("note", sa.Text),
            sa.Column("hidden", sa.Boolean),
            sqlite_autoincrement=True,
        )
        self.profiles = sa.Table(
            "experiment_profiles",
            table,
            seq(),
            sa.Column("id", sa.Text, nullable=False, index=True),
            *(sa.Column(name, sa.Text) for name in ("label", "kind", "created", "text", "table")),
            sqlite_autoincrement=True,
        )
        self.solved = sa.Table(
            "exercises_solved",
            table,
            seq(),
            unique_id(),
            *(sa.Column(name, sa.Text) for name in ("created", "exercise", "participant")),
            sqlite_autoincrement=True,
        )
        self.goals = sa.Table(
            "throughput_goals",
            table,
            seq(),
            unique_id(),
            *(sa.Column(name, sa.Text) for name in ("created", "unit", "because", "currency")),
            *(sa.Column(name, sa.Double) for name in ("target", "price", "training")),
            sqlite_autoincrement=True,
        )
        self.meta = sa.Table(
            "meta", table, sa.Column("key", sa.Text, primary_key=True), sa.Column("value", sa.Text)
        )


@cache
def tables() -> Tables:
    """The tables, described once."""
    return Tables()


def version_of(connection: sa.Connection, shown: str, newest: int = VERSION) -> int:
    """The schema version of an open database; 0 if it holds no log yet.

    Raises
    ------
    LogError
        The database has tables of the same names that are not ours, or comes from a newer optbook.
    """
    import sqlalchemy as sa

    meta = tables().meta
    inspector = sa.inspect(connection)
    taken = sorted(set(inspector.get_table_names()) & set(tables().metadata.tables))
    if not taken:
        return 0
    foreign = LogError(
        f"{shown} has a table {taken[0]!r} that is not optbook's: set OPTBOOK_LOG to another place"
    )
    if "meta" not in taken or {"key", "value"} - {c["name"] for c in inspector.get_columns("meta")}:
        raise foreign
    found = dict(connection.execute(sa.select(meta.c.key, meta.c.value)).all())
    if found.get("application") != APPLICATION:
        raise foreign
    version = found.get("schema_version") or ""
    if not (version.isascii() and version.isdigit()):
        raise LogError(f"{shown} has the unknown schema version {version!r}: is it damaged?")
    if int(version) > newest:
        raise LogError(
            f"{shown} was written by a newer optbook (schema {version}, this one knows {newest}): "
            "update optbook, or set OPTBOOK_LOG to another file"
        )
    return int(version)


def prepare(
    connection: sa.Connection, shown: str, newest: int = VERSION, steps: Mapping[int, Step] = STEPS
) -> None:
    """Create the tables, or bring them up to date, inside the transaction that is open.

    Raises
    ------
    LogError
        See `version_of`.
    """
    import sqlalchemy as sa

    all_tables = tables()
    meta = all_tables.meta
    version = version_of(connection, shown, newest)
    all_tables.metadata.create_all(connection)
    if version == 0:
        connection.execute(
            sa.insert(meta),
            [{"key": "application", "value": APPLICATION}, {"key": "schema_version", "value": str(newest)}],
        )
        return
    for number in range(version, newest):
        steps[number](connection)
    if version < newest:
        connection.execute(sa.update(meta).where(meta.c.key == "schema_version").values(value=str(newest)))
    for table in (all_tables.experiments, all_tables.payloads):
        for column in missing_columns(connection, table):
            kind = column.type.compile(connection.dialect)
            name = connection.dialect.identifier_preparer.quote(column.name)
            connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {name} {kind}")


def missing_columns(connection: sa.Connection, table: sa.Table) -> list[sa.Column[Any]]:
    """Columns that the record has and this database does not have yet."""
    import sqlalchemy as sa

    there = {column["name"] for column in sa.inspect(connection).get_columns(table.name)}
    return [column for column in table.columns if column.name not in there]


def columns_of(connection: sa.Connection) -> set[str]:
    """The names of the columns that this database has for the record and its payload."""
    import sqlalchemy as sa

    inspector = sa.inspect(connection)
    return {c["name"] for table in ("experiments", "payloads") for c in inspector.get_columns(table)}
