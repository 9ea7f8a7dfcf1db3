"""The log of this session: record now, and nothing is lost when the store cannot be reached."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, TypeVar

from optbook.experiments.errors import AlreadyLoggedError, AwayError, LogError
from optbook.experiments.location import Location, locate
from optbook.experiments.profiles import StoredProfile
from optbook.experiments.record import Experiment, Status
from optbook.experiments.solved import Solved

if TYPE_CHECKING:
    import pandas as pd

    from optbook.experiments.store import Store

AWAY_SECONDS = 30.0
"""For so long a server that was away is not asked again."""
T = TypeVar("T")


class Log:
    """What a session writes to and reads from: the store of the place that is in force now.

    Where the store is a server that is away, they go to the local file instead, see `local`. Experiments that
    could not be stored at all wait in memory, and go to the store (wherever it is by then) with the next one,
    or when the process ends.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._stores: dict[str, Store] = {}
        self._pending: list[Experiment] = []
        self._profiles: list[StoredProfile] = []
        self._solved: list[Solved] = []
        self._at_exit = False
        self._away_until = 0.0

    def _own(self) -> AbstractContextManager[object]:
        """The lock; a forked child begins anew, so that the parent's waiting rows are delivered once."""
        if self._pid != os.getpid():
            self._begin()
        return self._lock

    @property
    def location(self) -> Location:
        """Where the log lies, and why."""
        return locate()

    @property
    def store(self) -> Store:
        """The store there.

        Raises
        ------
        LogError
            `OPTBOOK_LOG` is empty or malformed.
        """
        return self._store(locate().url)

    @property
    def local(self) -> Store | None:
        """Where rows go while the log's server is away; None where the log is a file."""
        return None if self.store.path is not None else self._store(locate({}).url)

    def _store(self, place: str) -> Store:
        from optbook.experiments.store import Store

        with self._own():
            if place not in self._stores:
                self._stores[place] = Store(place)
            return self._stores[place]

    @property
    def pending(self) -> tuple[Experiment, ...]:
        """Experiments that are not in the store yet, oldest first."""
        with self._own():
            return tuple(self._pending)

    def record(self, experiment: Experiment) -> str:
        """Store the experiment, after those that wait. Returns "" or one line about what went wrong."""
        with self._own():
            self._pending.append(experiment)
            try:
                return self.deliver()
            except LogError as error:
                self._deliver_later()
                waiting = len(self._pending)
                those = "it waits" if waiting == 1 else f"{waiting} experiments wait"
                return f"not in the log yet, {those} in memory and will be stored with the next: {error}"

    def deliver(self) -> str:
        """Store what waits, in the local file while the log's server is away; "", or one line that says so.

        Raises
        ------
        LogError
            The store cannot be used; what is left still waits.
        """
        with self._own():
            try:
                if time.monotonic() < self._away_until:
                    raise AwayError(f"{self.store.shown} did not answer a moment ago")
                self._deliver_to(self.store)
            except AwayError as error:
                self._away_until = max(self._away_until, time.monotonic() + AWAY_SECONDS)
                local = self.local
                assert local is not None
                self._deliver_to(local)
                return (
                    f"kept in {local.shown}, as the log's server is away; once it is back, bring it there "
                    f'with: optbook log merge "{local.shown}" ({error})'
                )
        return ""

    def _deliver_to(self, store: Store) -> None:
        while self._pending:
            with suppress(AlreadyLoggedError):  # after an interrupt between storing and this line's end
                store.append(self._pending[0])
            del self._pending[0]
        while self._profiles:
            store.keep(self._profiles[0])
            del self._profiles[0]
        while self._solved:
            store.solve(self._solved[0])
            del self._solved[0]

    def _read(self, ask: Callable[[Store], T]) -> T:
        """What the store answers; the local file, with a warning, where the log's server is away."""
        try:
            return ask(self.store)
        except AwayError as error:
            local = self.local
            if local is None or not local.exists():
                raise
            warnings.warn(f"only what is in {local.shown} is shown: {error}", stacklevel=4)
            return ask(local)

    def keep(self, profile: StoredProfile) -> None:
        """Store a profile with its experiment; if that is not possible now, it waits as experiments do."""
        with self._own():
            self._profiles.append(profile)
            with suppress(
                LogError
            ):  # said already when its experiment had to wait, and at exit if it is lost
                self.deliver()

    def profiles(self, label: str | None = None, kind: str | None = None) -> list[StoredProfile]:
        """The stored profiles and those that wait, oldest first; see `Store.profiles`.

        Raises
        ------
        LogError
            The store cannot be read.
        """
        waiting = [p for p in self._profiles if label in (None, p.label) and kind in (None, p.kind)]
        return [*self._read(lambda store: store.profiles(label, kind)), *waiting]

    def solve(self, solved: Solved) -> str:
        """Store that an exercise was solved. Returns "" or one line about what went wrong; it waits then."""
        with self._own():
            self._solved.append(solved)
            try:
                self.deliver()
            except LogError as error:
                self._deliver_later()
                return f"That it is solved is not in the log yet, it will be stored later: {error}"
        return ""

    def solved(self) -> list[Solved]:
        """What was solved, oldest first, what waits included.

        Raises
        ------
        LogError
            The store cannot be read.
        """
        return [*self._read(lambda store: store.solved()), *self._solved]

    def _deliver_later(self) -> None:
        if not self._at_exit:
            self._at_exit = True
            atexit.register(self._deliver_at_exit)

    def _deliver_at_exit(self) -> None:
        if self._pid != os.getpid():
            return
        try:
            self.deliver()
        except LogError as error:
            lost = len(self._pending) + len(self._profiles) + len(self._solved)
            print(f"optbook: {lost} experiments, profiles or exercises are lost: {error}", file=sys.stderr)

    def frame(self, hidden: bool = False) -> pd.DataFrame:
        """All experiments, those that wait included; see `Store.frame`.

        Raises
        ------
        LogError
            The store cannot be read and nothing waits (if something does, it is shown, with a warning).
        """
        waiting = self.pending
        try:
            return self._read(lambda store: store.frame(hidden, waiting))
        except LogError as error:
            if not waiting:
                raise
            warnings.warn(f"only what waits in memory is shown: {error}", stacklevel=3)
        from optbook.experiments.frames import to_frame

        return to_frame([], [], [] if hidden else None, waiting)

    def get(self, id: str) -> Experiment:
        """The experiment with this id.

        Raises
        ------
        LogError
            There is none, or the log cannot be read.
        """
        waiting = {experiment.id: experiment for experiment in self.pending}
        return waiting[id] if id in waiting else self._read(lambda store: store.get(id))

    def latest(self, label: str, status: Status | None = None) -> Experiment | None:
        """The newest experiment of this label (and status, if given) that is not hidden; None if none."""
        for experiment in reversed(self.pending):
            if experiment.label == label and status in (None, experiment.status):
                return experiment
        return self._read(lambda store: store.latest(label, status))

    def close(self) -> None:
        """Close the stores of this process; they open again when needed."""
        with self._own():
            for store in self._stores.values():
                store.close()


_SESSION = Log()
"""The one log of this process: the only state that this package keeps at module level."""


def session() -> Log:
    """The log of this process."""
    return _SESSION


def record(experiment: Experiment) -> str:
    """Store an experiment; "" or one line about what went wrong (it is kept, and stored with the next)."""
    return _SESSION.record(experiment)


def log(hidden: bool = False) -> pd.DataFrame:
    """All recorded experiments as a DataFrame, oldest first.

    Columns are those of `optbook.experiments.record.Experiment` (`column_docs` tells what they mean), and
    `note`; times in seconds, memory in bytes, "not known" is NaN (or None). With ``hidden=True`` hidden
    experiments are there as well, with a column `hidden`.

    Raises
    ------
    LogError
        The log cannot be read.
    """
    return _SESSION.frame(hidden)


def record_profile(profile: StoredProfile) -> None:
    """Store a profile with its experiment."""
    _SESSION.keep(profile)


def profiles(label: str | None = None) -> list[StoredProfile]:
    """The profiles in the log, oldest first; only of experiments with this label if one is given.

    Raises
    ------
    LogError
        The log cannot be read.
    """
    return _SESSION.profiles(label)


def record_solved(solved: Solved) -> str:
    """Store that an exercise was solved; "" or one line about what went wrong (it is stored later then)."""
    return _SESSION.solve(solved)


def solved() -> pd.DataFrame:
    """Who solved which exercise: columns `participant`, `exercise`, `solved` (when first, UTC); oldest first.

    Raises
    ------
    LogError
        The log cannot be read.
    """
    import pandas as pd

    rows = [(each.participant, each.exercise, each.created) for each in _SESSION.solved()]
    frame = pd.DataFrame(rows, columns=["participant", "exercise", "solved"])
    frame["solved"] = pd.to_datetime(frame["solved"], utc=True)
    frame = frame.sort_values("solved", kind="stable")
    return frame.drop_duplicates(["participant", "exercise"], ignore_index=True)


def column_docs() -> dict[str, str]:
    """What each column of `log` means."""
    from optbook.experiments.record import column_fields

    docs = {field.name: str(field.metadata["doc"]) for field in column_fields()}
    return {**docs, "note": "notes added later, a line each"}


def add_note(id: str, text: str) -> None:
    """Add a note to the experiment with this id (column `id` of `log`); earlier notes stay.

    Raises
    ------
    LogError
        There is no such experiment, or it could not be written.
    """
    _SESSION.store.note(id, text)


def hide(id: str, hidden: bool = True) -> None:
    """Leave an experiment out of the log's views; ``hidden=False`` takes it back in. Nothing is deleted.

    Raises
    ------
    LogError
        There is no such experiment, or it could not be written.
    """
    _SESSION.store.hide(id, hidden)
