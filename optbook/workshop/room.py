"""The logs of a room: every SQLite file of a folder, or one database that all write to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from optbook.errors import OptionError
from optbook.experiments.errors import LogError
from optbook.experiments.goal import Goal
from optbook.experiments.location import parse_place
from optbook.experiments.profiles import StoredProfile
from optbook.experiments.render import one_line
from optbook.experiments.solved import Solved
from optbook.experiments.store import Store
from optbook.repeat.journey import CEILING

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class RoomLog:
    """What one log holds.

    Parameters
    ----------
    frame
        Its experiments, as `optbook.log` gives them; oldest first.
    solved
        The exercises solved.
    goals, ceilings
        The goals and the stored ceilings, oldest first.
    shared
        Whether several people write to it, so that a goal, which bears no nickname, is nobody's own.
    """

    frame: pd.DataFrame
    solved: tuple[Solved, ...] = ()
    goals: tuple[Goal, ...] = ()
    ceilings: tuple[StoredProfile, ...] = ()
    shared: bool = False


@dataclass(frozen=True)
class Room:
    """The logs that could be read, and a line about each that could not."""

    logs: tuple[RoomLog, ...]
    problems: tuple[str, ...] = ()


def read_room(place: str) -> Room:
    """Read every ``*.sqlite`` of a folder (or one such file), or the database at a URL.

    Nothing is written to files; a database that is empty gets the tables of a log.

    Raises
    ------
    OptionError
        There is no such folder, or no log in it.
    LogError
        The URL can't be used, or its server is away.
    """
    if "://" in place:
        return _read(place, [place])
    folder = Path(place).expanduser()
    if folder.is_file():
        return _read(place, [str(folder)])
    if not folder.is_dir():
        raise OptionError(
            f"there is no folder {_shown(place)!r}: name one with logs in it, or a database's URL"
        )
    files = sorted(str(path) for path in folder.absolute().glob("*.sqlite"))
    if not files:
        raise OptionError(
            f"no log in {_shown(place)!r}: put everybody's experiments.sqlite there, "
            "each under a name of its own, such as ann.sqlite"
        )
    return _read(place, files)


def _shown(place: str) -> str:
    """What isn't a URL may have been meant as one: what may be a password is left out."""
    return one_line(place if "@" not in place else f"…@{place.rpartition('@')[2]}", 80)


def _read(place: str, sources: Iterable[str]) -> Room:
    logs, problems = [], []
    for source in sources:
        try:
            logs.append(_log(source))
        except LogError as error:
            if "://" in place:
                raise
            problems.append(f"left out: {error}")
            continue
        if logs[-1].frame.empty and not logs[-1].solved:
            problems.append(f"{parse_place(source)[2]} is empty: no experiment, no exercise yet")
    return Room(tuple(logs), tuple(problems))


def _log(source: str) -> RoomLog:
    store = Store(source)
    try:
        return RoomLog(
            store.frame(),
            tuple(store.solved()),
            tuple(store.goals()),
            tuple(store.profiles(kind=CEILING)),
            shared=store.path is None,
        )
    finally:
        store.close()
