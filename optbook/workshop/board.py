"""The board of a workshop: who is where, what they solved, and how far each came on their own machine."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any

from optbook import formatting as write
from optbook.benchmark.profiles.page import FAINT, STYLE, row, table
from optbook.experiments.goal import Goal
from optbook.experiments.profiles import StoredProfile
from optbook.experiments.render import one_line
from optbook.experiments.solved import Solved
from optbook.repeat.goal import in_force
from optbook.repeat.journey import Journey, journey
from optbook.repeat.progress import known_units
from optbook.repeat.stopping import times
from optbook.workshop.chapters import CHAPTERS, Chapter
from optbook.workshop.room import Room, RoomLog

if TYPE_CHECKING:
    import pandas as pd

LONGEST_NAME, LONGEST_SHOWN = 80, 40
HEAD = ("who", "chapter", "solved", "experiments", "faster", "gap closed")
NOBODY = "Nobody yet: no experiment, no exercise."
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBERS = {chapter.name.partition("_")[0]: chapter for chapter in CHAPTERS}


@dataclass(frozen=True)
class Standing:
    """Where one participant stands.

    Parameters
    ----------
    name
        The nickname; of one who has none, a pseudonym.
    chapter
        That of the latest experiment or exercise that belongs to one; None if none does.
    solved
        How many exercises, each counted once.
    experiments
        How many were recorded, whatever came of them.
    ratio
        The best throughput of the real system ÷ the first, in `unit`, on one machine; NaN if there is none.
    unit
        What that throughput counts; "" if there is none.
    closed
        The share of the way from the first throughput to what is aimed at, 0 to 1; NaN if nothing is.
    aim
        "goal" or "ceiling"; "" if nothing is aimed at.
    """

    name: str
    chapter: Chapter | None = None
    solved: int = 0
    experiments: int = 0
    ratio: float = math.nan
    unit: str = ""
    closed: float = math.nan
    aim: str = ""

    def cells(self, exercises: int) -> tuple[str, ...]:
        """As in the table, under `HEAD`."""
        unit = write.plural(one_line(self.unit, LONGEST_SHOWN))
        faster = f"{times(self.ratio)} ({unit})" if self.unit else write.UNKNOWN
        closed = f"{write.percent(self.closed)} to the {self.aim}" if self.aim else write.UNKNOWN
        where = self.chapter.name.partition("_")[0] + " " + _short(self.chapter) if self.chapter else ""
        solved = f"{self.solved} of {exercises}"
        return (
            one_line(self.name, LONGEST_SHOWN),
            where or write.UNKNOWN,
            solved,
            str(self.experiments),
            faster,
            closed,
        )


@dataclass(frozen=True)
class Board:
    """Everybody, by name; if `ranked`, by what each gained. `exercises` is how many there are in all."""

    standings: tuple[Standing, ...]
    exercises: int
    notes: tuple[str, ...] = ()
    ranked: bool = False

    def _table(self) -> Iterator[tuple[str, ...]]:
        for standing in self.standings:
            cells = standing.cells(self.exercises)
            yield (_place(self.standings, standing), *cells) if self.ranked else cells

    @property
    def _head(self) -> tuple[str, ...]:
        return ("", *HEAD) if self.ranked else HEAD

    def __str__(self) -> str:
        rows = [self._head, *self._table()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, cells, widths)).rstrip() for cells in rows]
        body = lines if self.standings else [NOBODY]
        return "\n".join([*body, *(f"! {note}" for note in self.notes)])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        rows = [row(cells, 0) for cells in self._table()]
        body = table(self._head, 0, rows) if rows else f"<div>{escape(NOBODY)}</div>"
        notes = "".join(f'<div style="{FAINT}">{escape(note)}</div>' for note in self.notes)
        return f'<div class="optbook-board" style="{STYLE}">{body}{notes}</div>'

    def page(self) -> str:
        """The table as a page of its own."""
        return (
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>The room</title>'
            '<meta name="viewport" content="width=device-width"></head>'
            f"<body>{self._repr_html_()}</body></html>\n"
        )


@dataclass(frozen=True)
class _Work:
    """What one participant left in one log."""

    frame: pd.DataFrame
    solved: tuple[Solved, ...]
    goals: tuple[Goal, ...]
    ceilings: tuple[StoredProfile, ...]
    named: bool


def board(room: Room, exercises: Collection[str], *, rank: bool = False) -> Board:
    """The board of these logs.

    Rows with the same nickname are one participant, in whatever log they lie; a row that lies in several logs
    counts once. In a log with one nickname, rows without are of the same person. Otherwise rows without are
    one person per log, in a shared log one per machine.

    Throughputs are held only against others of the same unit and machine, and are not shown. The unit is that
    of the latest goal of one's own, else the one that most experiments have; runs of cells count where there
    is nothing else. Of several machines the one on which most was gained is shown. A goal bears no nickname:
    in a shared log it is nobody's own, and the gap is that to one's own newest ceiling.

    Parameters
    ----------
    exercises
        The names of all exercises; others don't count.
    rank
        Order by `Standing.ratio`, and number the places.
    """
    works: dict[str, list[_Work]] = {}
    notes = list(room.problems)
    seen: set[str] = set()
    for log in room.logs:
        people, lost = _people(log, seen)
        for name, work in people.items():
            works.setdefault(name, []).append(work)
        if lost:
            notes.append(f"{lost} solved without a nickname in a shared log: nobody knows by whom")
    if not all(work.named for each in works.values() for work in each):
        notes.append("guests have no nickname; %config OptBook.participant = 'ann' sets one")
    found = [_standing(name, each, set(exercises)) for name, each in works.items()]
    found.sort(key=lambda standing: standing.name.casefold())
    if rank:
        found.sort(key=lambda standing: -standing.ratio if standing.unit else math.inf)
    return Board(tuple(found), len(exercises), tuple(notes), rank)


def _people(log: RoomLog, seen: set[str]) -> tuple[dict[str, _Work], int]:
    """Who wrote to a log, by name; and how many exercises can't be told whose they are."""
    frame = log.frame[~log.frame["id"].isin(seen)]
    solved = [each for each in log.solved if each.id not in seen]
    seen.update(frame["id"], (each.id for each in solved))
    nicknames = {_nickname(name) for name in (*frame["participant"], *(s.participant for s in solved))} - {""}
    shared = log.shared or len(nicknames) > 1
    sole = next(iter(nicknames)) if len(nicknames) == 1 and not shared else ""

    def key(nickname: str, machine: str) -> tuple[str, str]:
        name = _nickname(nickname) or sole
        return name, machine if shared and not name else ""

    keys = [key(*both) for both in zip(frame["participant"], frame["machine"], strict=True)]
    guests = dict.fromkeys(each for each in keys if not each[0])
    goals = () if shared else log.goals
    exercises: dict[tuple[str, str], list[Solved]] = {}
    lost = 0
    for each in solved:
        whose = key(each.participant, "")
        if not whose[0] and guests:
            if len(guests) > 1:
                lost += 1
                continue
            whose = next(iter(guests))
        exercises.setdefault(whose, []).append(each)
    people = {}
    for whose in dict.fromkeys([*keys, *exercises]):
        own, done = frame[[each == whose for each in keys]], exercises.get(whose, [])
        first = str(own["id"].iloc[0]) if len(own) else done[0].id
        people[whose[0] or _pseudonym(first)] = _Work(
            own, tuple(done), goals, log.ceilings, named=whose[0] != ""
        )
    return people, lost


def _nickname(written: str) -> str:
    return one_line(written, LONGEST_NAME)


def _pseudonym(id: str) -> str:
    """From the id of one's first row: the same in every copy of the log, and it tells nothing."""
    return f"guest {hashlib.sha256(id.encode()).hexdigest()[:6]}"


def _standing(name: str, works: Sequence[_Work], exercises: Collection[str]) -> Standing:
    solved = {each.exercise for work in works for each in work.solved} & set(exercises)
    count = sum(len(work.frame) for work in works)
    chapter = max(_visits(works), key=lambda visit: visit[0], default=(_EPOCH, None))[1]
    best = max(_journeys(works), key=_ratio, default=None)
    if best is None:
        return Standing(name, chapter, len(solved), count)
    closed, aim = _closed(best)
    return Standing(name, chapter, len(solved), count, _ratio(best), best.unit, closed, aim)


def _visits(works: Sequence[_Work]) -> Iterator[tuple[datetime, Chapter]]:
    """When somebody was in which chapter."""
    for work in works:
        for moment, notebook in zip(work.frame["created"], work.frame["notebook"], strict=True):
            for chapter in CHAPTERS:
                if notebook.startswith(chapter.name):
                    yield (moment if moment == moment else _EPOCH), chapter
        for each in work.solved:
            chapter_of = _NUMBERS.get(each.exercise.partition("_")[0])
            if chapter_of is not None:
                yield (each.created if each.created.tzinfo else _EPOCH), chapter_of


def _journeys(works: Sequence[_Work]) -> Iterator[Journey]:
    """One for each machine, in one unit, where something counts."""
    import pandas as pd

    frames = [work.frame for work in works if len(work.frame)]
    if not frames:
        return
    frame = pd.concat(frames, ignore_index=True)
    if len(frames) > 1:  # one log is in order, whatever the clock did
        frame = frame.sort_values("created", kind="stable", ignore_index=True)
    goals = in_force([goal for work in works for goal in work.goals])
    unit, goal = _unit(frame, goals)
    ceilings = [ceiling for work in works for ceiling in work.ceilings]
    if not unit:
        return
    for machine in frame["machine"].unique():
        here = frame[frame["machine"] == machine]
        if unit in known_units(here):
            found = journey(here, unit, goal, ceilings)
            if found.best is not None:
                yield found


def _unit(frame: pd.DataFrame, goals: Sequence[Goal]) -> tuple[str, Goal | None]:
    real = frame[(frame["status"] == "ok") & (frame["stubs"] == "") & (frame["throughput"] > 0)]
    counted = {unit for own, units in zip(real["unit"], real["units"], strict=True) for unit in (own, *units)}
    for goal in reversed(goals):
        if goal.unit in counted:
            return goal.unit, goal
    common = Counter(unit for unit in real["unit"] if unit != "run") or Counter(real["unit"])
    return (common.most_common(1)[0][0] if common else ""), None


def _ratio(found: Journey) -> float:
    return found.best.ratio if found.best is not None else math.nan


def _closed(found: Journey) -> tuple[float, str]:
    """The share of the way from the first throughput to the goal, else to what the ceiling promises."""
    first, best = found.first, found.best
    if first is None or best is None:
        return math.nan, ""
    if found.goal is not None:
        aim, there = "goal", found.goal.target
    elif found.outlook is not None and found.outlook.first is not None:
        aim, there = "ceiling", found.outlook.throughput * found.outlook.first.ratio
    else:
        return math.nan, ""
    if not math.isfinite(there):
        return math.nan, ""
    way = there - first.value
    return (min(1.0, max(0.0, (best.value - first.value) / way)) if way > 0 else 1.0), aim


def _place(standings: Iterable[Standing], one: Standing) -> str:
    """Ties share the better place; who has no ratio has none."""
    if not one.unit:
        return ""
    return f"{1 + sum(other.ratio > one.ratio for other in standings if other.unit)}."


def _short(chapter: Chapter) -> str:
    return chapter.title.partition(":")[0]
