"""Whether rows can be written to a log, found out by one that is taken back."""

from __future__ import annotations

import uuid

from optbook.experiments.database import Database
from optbook.experiments.location import Location
from optbook.experiments.schema import tables


class _TakenBackError(Exception):
    pass


def probe(location: Location) -> None:
    """Write a row and take it back. The log is made if it is not there.

    Raises
    ------
    LogError
        It could not be written, or (`AwayError`) its server not be reached.
    """
    import sqlalchemy as sa

    database = Database(location.url)
    try:
        with database.connect(write=True) as connection:
            connection.execute(sa.insert(tables().notes), {"id": uuid.uuid4().hex, "note": "probe"})
            raise _TakenBackError
    except _TakenBackError:
        pass
    finally:
        database.close()
