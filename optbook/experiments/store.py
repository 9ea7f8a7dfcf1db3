"""The log on disk: one row an experiment, appended at once and durably, and never rewritten."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from optbook.experiments.columns import clean, default, from_database, kinds, to_database
from optbook.experiments.database import Database, fetch, raw
from optbook.experiments.errors import AlreadyLoggedError, LogError
from optbook.experiments.goal import Goal
from optbook.experiments.profiles import StoredProfile
from optbook.experiments.record import Experiment, Status
from optbook.experiments.schema import columns_of, tables
from optbook.experiments.solved import Solved

if TYPE_CHECKING:
    import pandas as pd
    import sqlalchemy as sa

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_GOAL_TEXTS = ("id", "created", "unit", "because", "currency")
_GOAL_NUMBERS = ("target", "price", "training")


class Store:
    """The experiments in one database. Threads and forked processes may share it.

    The file is not created before the first `append`; reading a log that is not there gives an empty one.

    Parameters
    ----------
    place
        A path, or an SQLAlchemy URL such as ``postgresql+psycopg://…``.

    Raises
    ------
    LogError
        The place is no usable path or URL. Every method raises it too, when the database cannot be used;
        a file that is damaged or somebody else's is left as it is.
    """

    def __init__(self, place: str | os.PathLike[str]) -> None:
        self._database = Database(os.fspath(place))
        self.path = self._database.path
        self.shown = self._database.shown

    def __repr__(self) -> str:
        return f"Store({self.shown!r})"

    def exists(self) -> bool:
        """Whether there is a log; of a server that is not asked."""
        return self._database.exists()

    def append(self, experiment: Experiment) -> None:
        """Write the experiment and its payload in one transaction; once this returns, they are safe.

        Raises
        ------
        AlreadyLoggedError
            There is an experiment with this id.
        LogError
            It could not be written.
        """
        import sqlalchemy as sa

        all_tables = tables()
        payload, lost = to_database(experiment, payload=True)
        row, more = to_database(experiment)
        if lost or more:
            lines = tuple(str(line) for line in experiment.warnings or ())
            row, _ = to_database(experiment.replace(warnings=(*lines, *more, *lost)))
        try:
            with self._database.connect(write=True) as connection:
                connection.execute(sa.insert(all_tables.experiments), row)
                connection.execute(sa.insert(all_tables.payloads), {"id": row["id"], **payload})
        except sa.exc.IntegrityError as error:
            raise AlreadyLoggedError(f"experiment {experiment.id} is in {self.shown} already") from error

    def note(self, id: str, text: str) -> None:
        """Add a note to an experiment; earlier notes stay.

        Raises
        ------
        LogError
            There is no such experiment, or the note could not be written.
        """
        self._annotate(id, note=clean(text))

    def hide(self, id: str, hidden: bool = True) -> None:
        """Leave an experiment out of `frame` and `latest`, or (``hidden=False``) take it back in.

        Raises
        ------
        LogError
            There is no such experiment, or the flag could not be written.
        """
        self._annotate(id, hidden=hidden)

    def _annotate(self, id: str, **values: Any) -> None:
        import sqlalchemy as sa

        all_tables = tables()
        known = sa.select(all_tables.experiments.c.seq).where(all_tables.experiments.c.id == clean(id))
        missing = LogError(f"no experiment {clean(id)[:40]!r} in {self.shown}: use an id from optbook.log()")
        if not self._database.exists():
            raise missing
        with self._database.connect(write=True) as connection:
            if connection.execute(known).first() is None:
                raise missing
            now = datetime.now(UTC).isoformat(timespec="microseconds")
            connection.execute(sa.insert(all_tables.notes), {"id": clean(id), "created": now, **values})

    def frame(self, hidden: bool = False, pending: Sequence[Experiment] = ()) -> pd.DataFrame:
        """All experiments, oldest first, index 0 … n-1: the record's columns and `note`.

        With ``hidden=True`` hidden experiments are there as well, and a column `hidden` tells them.
        Experiments that are not stored yet may be given as `pending`; their note says so.
        See `optbook.experiments.frames.to_frame` for the dtypes.
        """
        import sqlalchemy as sa

        from optbook.experiments.frames import to_frame, without_collector

        rows: Sequence[Sequence[Any]] = []
        notes: dict[str, str] = {}
        is_hidden: dict[str, bool] = {}
        if self._database.exists():
            with self._database.connect() as connection, without_collector():
                table = tables().experiments
                here = columns_of(connection)
                columns = [raw(table.c[name]) if name in here else sa.null() for name in kinds()]
                rows = fetch(connection, sa.select(*columns).order_by(table.c.seq))
                notes, is_hidden = _annotations(connection)
        at = list(kinds()).index("id")
        if not hidden and is_hidden:
            rows = [row for row in rows if not is_hidden.get(row[at])]
        texts = [notes.get(row[at], "") for row in rows]
        flags = [is_hidden.get(row[at], False) for row in rows] if hidden else None
        return to_frame(rows, texts, flags, pending)

    def get(self, id: str) -> Experiment:
        """The experiment with this id, raw times and source included.

        Raises
        ------
        LogError
            There is none.
        """
        found = self._one(tables().experiments.c.id == clean(id), hidden=True)
        if found is None:
            raise LogError(f"no experiment {clean(id)[:40]!r} in {self.shown}: use an id from optbook.log()")
        return found

    def latest(self, label: str, status: Status | None = None) -> Experiment | None:
        """The newest experiment of this label (and status, if given) that is not hidden; None if none."""
        table = tables().experiments
        condition = table.c.label == clean(label)
        return self._one(
            condition if status is None else condition & (table.c.status == status), hidden=False
        )

    def _one(self, condition: sa.ColumnElement[bool], *, hidden: bool) -> Experiment | None:
        import sqlalchemy as sa

        if not self._database.exists():
            return None
        all_tables = tables()
        table, payloads = all_tables.experiments, all_tables.payloads
        with self._database.connect() as connection:
            here = columns_of(connection)
            names = {**kinds(), **kinds(payload=True)}
            columns = [
                raw((table.c if name in table.c else payloads.c)[name]) if name in here else sa.null()
                for name in names
            ]
            query = (
                sa.select(*columns)
                .select_from(table.outerjoin(payloads, payloads.c.id == table.c.id))
                .where(condition)
                .order_by(table.c.created.desc(), table.c.seq.desc())
            )
            is_hidden = {} if hidden else _annotations(connection)[1]
            at = list(names).index("id")
            for row in fetch(connection, query):
                if not is_hidden.get(row[at]):
                    return _experiment(row)
        return None

    def keep(self, profile: StoredProfile) -> None:
        """Write a profile beside its experiment."""
        import sqlalchemy as sa

        values = {name: clean(getattr(profile, name)) for name in ("label", "kind", "text", "table")}
        created = profile.created.isoformat(timespec="microseconds")
        with self._database.connect(write=True) as connection:
            connection.execute(
                sa.insert(tables().profiles), {"id": profile.experiment, "created": created, **values}
            )

    def profiles(self, label: str | None = None, kind: str | None = None) -> list[StoredProfile]:
        """The stored profiles, oldest first; only those of this label and of this kind, if given."""
        import sqlalchemy as sa

        table = tables().profiles
        if not self._database.exists():
            return []
        names = ("id", "label", "kind", "created", "text", "table")
        query = sa.select(*(raw(table.c[name]) for name in names)).order_by(table.c.seq)
        if label is not None:
            query = query.where(table.c.label == clean(label))
        if kind is not None:
            query = query.where(table.c.kind == clean(kind))
        with self._database.connect() as connection:
            if not sa.inspect(connection).has_table(table.name):
                return []
            rows = fetch(connection, query)
        return [_profile([value if isinstance(value, str) else "" for value in row]) for row in rows]

    def solve(self, solved: Solved) -> None:
        """Write that an exercise was solved."""
        import sqlalchemy as sa

        texts = {name: clean(getattr(solved, name)) for name in ("id", "exercise", "participant")}
        created = solved.created.isoformat(timespec="microseconds")
        with self._database.connect(write=True) as connection:
            connection.execute(sa.insert(tables().solved), {"created": created, **texts})

    def solved(self) -> list[Solved]:
        """What was solved, oldest first; an exercise may be there several times."""
        import sqlalchemy as sa

        table = tables().solved
        if not self._database.exists():
            return []
        names = ("id", "created", "exercise", "participant")
        query = sa.select(*(raw(table.c[name]) for name in names)).order_by(table.c.seq)
        with self._database.connect() as connection:
            if not sa.inspect(connection).has_table(table.name):
                return []
            rows = fetch(connection, query)
        texts = [[value if isinstance(value, str) else "" for value in row] for row in rows]
        return [Solved(id, _moment(created), exercise, who) for id, created, exercise, who in texts]

    def aim(self, goal: Goal) -> None:
        """Write a goal."""
        import sqlalchemy as sa

        values = {name: getattr(goal, name) for name in (*_GOAL_TEXTS, *_GOAL_NUMBERS)}
        values["created"] = goal.created.isoformat(timespec="microseconds")
        row = {name: clean(value) if isinstance(value, str) else value for name, value in values.items()}
        with self._database.connect(write=True) as connection:
            connection.execute(sa.insert(tables().goals), row)

    def goals(self) -> list[Goal]:
        """The goals, in the order in which they arrived; what can't be read is left out."""
        import sqlalchemy as sa

        table = tables().goals
        if not self._database.exists():
            return []
        names = (*_GOAL_TEXTS, *_GOAL_NUMBERS)
        query = sa.select(*(raw(table.c[name]) for name in names)).order_by(table.c.seq)
        with self._database.connect() as connection:
            if not sa.inspect(connection).has_table(table.name):
                return []
            rows = fetch(connection, query)
        return [goal for row in rows if (goal := _goal(dict(zip(names, row, strict=True))))]

    def revision(self) -> int:
        """A number that grows with every experiment, note, flag and goal that anyone adds; cheap."""
        import sqlalchemy as sa

        if not self._database.exists():
            return 0
        with self._database.connect() as connection:
            every = tables()
            has_goals = sa.inspect(connection).has_table(every.goals.name)
            counts = [
                sa.select(sa.func.coalesce(sa.func.max(table.c.seq), 0)).scalar_subquery()
                for table in (every.experiments, every.notes, *([every.goals] if has_goals else []))
            ]
            return sum(connection.execute(sa.select(*counts)).one())

    def close(self) -> None:
        """Close the connections of this process; the store can be used again."""
        self._database.close()


def _annotations(connection: sa.Connection) -> tuple[dict[str, str], dict[str, bool]]:
    """By experiment: its notes, a line each, and whether it is hidden."""
    import sqlalchemy as sa

    table = tables().notes
    notes: dict[str, str] = {}
    hidden: dict[str, bool] = {}
    columns = (raw(column) for column in (table.c.id, table.c.note, table.c.hidden))
    for id, note, flag in fetch(connection, sa.select(*columns).order_by(table.c.seq)):
        if note is not None:
            notes[id] = f"{notes[id]}\n{note}" if id in notes else str(note)
        if flag is not None:
            hidden[id] = bool(flag)
    return notes, hidden


def _profile(row: Sequence[str]) -> StoredProfile:
    id, label, kind, created, text, table = row
    return StoredProfile(id, label, kind, _moment(created), text, table)


def _goal(row: dict[str, Any]) -> Goal | None:
    texts = {name: row[name] if isinstance(row[name], str) else "" for name in _GOAL_TEXTS}
    numbers = {name: row[name] if isinstance(row[name], float) else None for name in _GOAL_NUMBERS}
    if not texts["unit"] or numbers["target"] is None or not 0 < numbers["target"] < math.inf:
        return None
    values: dict[str, Any] = {**texts, **numbers, "created": _moment(texts["created"])}
    return Goal(**values)


def _moment(created: str) -> datetime:
    try:
        return datetime.fromisoformat(created)
    except ValueError:
        return _EPOCH


def _experiment(row: Sequence[Any]) -> Experiment:
    from dataclasses import fields

    values: dict[str, Any] = {}
    problems: list[str] = []
    by_name = {field.name: field for field in fields(Experiment)}
    for (name, kind), value in zip({**kinds(), **kinds(payload=True)}.items(), row, strict=True):
        values[name], problem = from_database(name, kind, value, default(by_name[name]))
        if problem:
            problems.append(problem)
    if values["created"] is None:
        values["created"] = _EPOCH
    values["warnings"] = (*values["warnings"], *problems)
    return Experiment(**values)
