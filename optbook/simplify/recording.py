"""What real calls of a component returned: kept by the form of their arguments, given out in turn."""

from __future__ import annotations

import itertools
import pickle
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Protocol

from optbook.errors import OptionError
from optbook.formatting import bytes_
from optbook.simplify import trees
from optbook.simplify.patching import Counter
from optbook.simplify.processes import UNPICKLED, Channel

LIMIT = 512 * 2**20
KEEP = 4
ITEMS = 32


class Wait(Protocol):
    """Spends time in place of a component, given the seconds that the real one took."""

    def now(self, measured: float) -> None:
        """In a call."""

    async def later(self, measured: float) -> None:
        """In something that is awaited."""


class Outcome(Protocol):
    """What one real call came to."""

    def give(self, args: tuple[Any, ...], kwargs: dict[str, Any], wait: Wait | None) -> Any:
        """What a call with these arguments gets instead."""


@dataclass(frozen=True, slots=True, eq=False)
class Returned:
    """A value that was returned."""

    value: Any
    seconds: float
    copy: bool = False

    def give(self, args: tuple[Any, ...], kwargs: dict[str, Any], wait: Wait | None) -> Any:
        if wait is not None:
            wait.now(self.seconds)
        return trees.copied(self.value) if self.copy else self.value


@dataclass(frozen=True, slots=True, eq=False)
class Awaited:
    """A value that was awaited."""

    value: Any
    seconds: float
    copy: bool = False

    async def give(self, args: tuple[Any, ...], kwargs: dict[str, Any], wait: Wait | None) -> Any:
        if wait is not None:
            await wait.later(self.seconds)
        return trees.copied(self.value) if self.copy else self.value


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """What an iterator gave: the first items, how many there were, the mean seconds of each, its result."""

    items: tuple[Any, ...]
    number: int
    seconds: float
    result: Any = None
    copy: bool = False

    def give(self, args: tuple[Any, ...], kwargs: dict[str, Any], wait: Wait | None) -> Any:
        for item in itertools.islice(itertools.cycle(self.items), self.number):
            if wait is not None:
                wait.now(self.seconds)
            yield trees.copied(item) if self.copy else item
        return self.result


@dataclass(frozen=True, slots=True, eq=False)
class AsyncItems(Items):
    """The same of an async iterator."""

    async def give(self, args: tuple[Any, ...], kwargs: dict[str, Any], wait: Wait | None) -> Any:
        for item in itertools.islice(itertools.cycle(self.items), self.number):
            if wait is not None:
                await wait.later(self.seconds)
            yield trees.copied(item) if self.copy else item


@dataclass(eq=False)
class Series:
    """The outcomes of calls whose arguments have the same form; ``started`` counts those under way too."""

    outcomes: list[Outcome] = field(default_factory=list)
    started: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Told:
    """An outcome that another process recorded: of what form the arguments were, its seconds and bytes."""

    key: Hashable
    outcome: Outcome
    seconds: float
    needed: int


class Recording:
    """Outcomes of real calls.

    Args:
        keep: how many outcomes are kept for each form of the arguments.
        limit: how many bytes they may take together.
        copy: keep copies and give copies, since those who get them change them.

    Attributes:
        ready: for each form that is recorded, gives the next outcome.
        values: the same, where outcomes are nothing but values: gives the next value.

    Raises:
        OptionError: a number is out of range.
    """

    def __init__(self, keep: int = KEEP, limit: float = LIMIT, *, copy: bool = False) -> None:
        number: object = keep
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise OptionError(f"keep is {keep!r}: give a whole number from 1 on")
        most: object = limit
        if not isinstance(most, (int, float)) or not most > 0:
            raise OptionError(f"limit is {limit!r}: give a number of bytes, such as 2**28")
        self.keep = keep
        self.limit = limit
        self.copy = copy
        self.bytes = 0
        self.closed = False
        self.notes: dict[str, None] = {}
        self.misses = Counter()
        self.recorded = Counter()
        self.ready: dict[Hashable, Callable[[], Outcome]] = {}
        self.values: dict[Hashable, Callable[[], Any]] = {}
        self._series: dict[Hashable, Series] = {}
        self._lock = threading.Lock()
        self._tell: Callable[[object], None] | None = None

    def close(self) -> None:
        """Record no more: a call without a match is a miss from now on."""
        with self._lock:
            self.closed = True
            for key, series in self._series.items():
                if series.outcomes:
                    self._get_ready(key, series)

    def settle(self) -> None:
        """Give out what was recorded from now on; of a form not met so far, one more call is recorded."""
        with self._lock:
            self.keep = 1
            for key, series in self._series.items():
                if series.outcomes:
                    self._get_ready(key, series)

    @property
    def forms(self) -> int:
        """How many forms of arguments were met."""
        return len(self._series)

    @property
    def mean_seconds(self) -> float | None:
        """Mean seconds of the real calls recorded; None without any."""
        done = [series for series in self._series.values() if series.outcomes]
        number = sum(len(series.outcomes) for series in done)
        return sum(series.seconds for series in done) / number if number else None

    def starts(self, key: Hashable) -> bool:
        """Whether a call that is about to be made is to be recorded; counts it as a miss otherwise."""
        with self._lock:
            series = self._series.setdefault(key, Series())
            if self.closed or series.started >= self.keep:
                self.misses.step()
                return False
            series.started += 1
        self.recorded.step()
        return True

    def failed(self, key: Hashable) -> None:
        """A call that was to be recorded came to nothing that can be."""
        with self._lock:
            self._series[key].started -= 1

    def add(self, key: Hashable, outcome: Outcome, seconds: float, kept: Any) -> None:
        """Keep what a call came to in so many seconds; ``kept`` is what it holds in memory.

        What an iterator gave is given out from the first time on, other outcomes once there are enough.
        """
        self._add(key, outcome, seconds, trees.size(kept))

    def _add(self, key: Hashable, outcome: Outcome, seconds: float, needed: int) -> None:
        if self.bytes + needed > self.limit:
            self.note(
                f"no more than {bytes_(self.bytes)} of outputs are kept, of a limit of {bytes_(self.limit)}"
            )
            self.close()
            return
        with self._lock:
            series = self._series[key]
            self.bytes += needed
            series.outcomes.append(outcome)
            series.seconds += seconds
            if len(series.outcomes) >= self.keep or isinstance(outcome, Items):
                self._get_ready(key, series)
        if self._tell is not None:
            if type(outcome) in _FOR_OTHERS:
                self._tell(Told(key, outcome, seconds, needed))
            else:
                self.note("what a worker records under autograd stays there")

    def note(self, text: str) -> None:
        """Something to know about what was recorded."""
        if text not in self.notes:
            self.notes[text] = None
            if self._tell is not None:
                self._tell(text)

    # In other processes

    def tells(self, channel: Channel) -> None:
        """In a worker: tell what is recorded from now on; locks are free, whichever thread held them."""
        self._lock = threading.Lock()
        self._tell = channel.send
        self.misses, self.recorded = channel.misses, channel.recorded

    def learns(self, told: Told) -> bool:
        """Keep what a worker recorded; False if there was enough already."""
        with self._lock:
            series = self._series.setdefault(told.key, Series())
            if self.closed or series.started >= self.keep:
                return False
            series.started += 1
        self._add(told.key, told.outcome, told.seconds, told.needed)
        return True

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy for another process, with the outcomes that can be pickled."""
        told: list[bytes] = []
        with self._lock:
            for key, series in self._series.items():
                for outcome in series.outcomes:
                    if type(outcome) in _FOR_OTHERS:
                        mean = series.seconds / len(series.outcomes)
                        told += _pickled(Told(key, outcome, mean, trees.size(outcome)))
        return _recording, (self.keep, self.limit, self.copy, self.closed, told)

    def copied(self, value: Any) -> tuple[Any, bool]:
        """What to keep of a value, and whether to give out copies of it."""
        if not self.copy:
            return value, False
        try:
            return trees.copied(value), True
        except trees.NotCopiedError as error:
            self.note(f"{error}: the same one is given out each time")
            return value, False

    def _get_ready(self, key: Hashable, series: Series) -> None:
        if key in self.ready:
            return
        outcomes = tuple(series.outcomes)
        if all(type(outcome) is Returned and not outcome.copy for outcome in outcomes):
            self.values[key] = itertools.cycle([outcome.value for outcome in outcomes]).__next__  # type: ignore[attr-defined]
        self.ready[key] = itertools.cycle(outcomes).__next__


_FOR_OTHERS = (Returned, Awaited, Items, AsyncItems)


def _pickled(told: Told) -> list[bytes]:
    """It, or nothing where it can't be pickled."""
    try:
        return [pickle.dumps(told, pickle.HIGHEST_PROTOCOL)]
    except UNPICKLED:
        return []


def _recording(keep: int, limit: float, copy: bool, closed: bool, told: list[bytes]) -> Recording:
    recording = Recording(keep, limit, copy=copy)
    for each in told:
        try:
            recording.learns(pickle.loads(each))
        except UNPICKLED as error:
            recording.note(f"some of what was recorded can't be read in a worker ({error})")
    if closed:
        recording.close()
    return recording
