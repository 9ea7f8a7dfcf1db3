"""The exercises of chapter 03; the last is judged by the reader's own ceiling."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from optbook.simplify.kinds import Replay
from optbook.simplify.result import Ceiling, Estimate
from optbook.simplify.stubs import Stub
from optbook.workshop.exercises import Exercise, Verdict, choice

AS_GOOD = 0.05
"""Gains that differ by no more may stand in any order."""
AT_NIGHT = ("order", "fetch", "fry", "pay")


def _judge_stub(namespace: Mapping[str, Any]) -> Verdict:
    given = namespace.get("stand_in", ...)
    if given is ... or given is None:
        return Verdict(False, "set stand_in to a stub: optbook.stub(...)")
    if not isinstance(given, Stub):
        return Verdict(
            False,
            f"stand_in is a {type(given).__name__}, not a stub: set it to what optbook.stub(...) returns",
        )
    recipe = namespace.get("recipe")
    wanted = getattr(recipe, "targets", None)
    if given.component.target is not wanted and not given.name.endswith(("targets", "draw_cell_by_cell")):
        return Verdict(False, f"this one takes the place of {given.name}: name 'recipe.targets'")
    if type(given.kind) is not Replay:
        return Verdict(False, f"its kind is {given.kind.name!r}: for real outputs it should be 'replay'")
    if given.kind.keep != 1:
        return Verdict(
            False, f"it keeps {given.kind.keep} outcomes for each form of the arguments: ask for keep=1"
        )
    return Verdict(True, "a stub, and not in place until a with block begins", "Run the next cell to use it.")


_SLEEP = choice(
    "03_sleep",
    "asleep",
    "b",
    {
        "a": "they would be, if nobody else needed the core. Here a thread does: compare the two throughputs",
        "b": "right: asleep, the step leaves the core and Python's lock to the thread that prepares the next "
        "batch; on a core, it takes them away from it",
        "c": "sleeping wastes the time of whoever sleeps, and gives it to all the others: the thread that "
        "prepares batches gets on better meanwhile",
    },
    "the thread needs the core, and Python's lock, meanwhile",
)
_SHARE = choice(
    "03_share",
    "largest_gain",
    "c",
    {
        "a": "its share is the largest, but without it toast still takes 7 ms at the same time: of the 9 ms "
        "only 2 are won",
        "b": "nobody waits for toast: grill takes longer, and runs at the same time. Free, it brings nothing",
        "c": "right: nothing else runs while a hot dog is wrapped, so all 5 ms are won. Of the 9 ms of grill "
        "only 2 are, since toast takes 7 meanwhile",
    },
    "nothing else runs meanwhile",
)


def _judge_rank(namespace: Mapping[str, Any]) -> Verdict:
    given = namespace.get("ranking", ...)
    if given is ... or given is None:
        return Verdict(False, "set ranking to the four names, the one that brings most first")
    night = namespace.get("night")
    if not isinstance(night, Ceiling):
        return Verdict(False, "take a ceiling of serve_at_night first, and keep it: %%ceiling ... -o night")
    gains = {part.component: part.free for part in night.parts if part.free is not None}
    missing = [name for name in AT_NIGHT if name not in gains]
    if missing:
        return Verdict(False, f"your ceiling does not tell about {', '.join(missing)}: name all four")
    if not isinstance(given, (list, tuple)) or sorted(map(_name, given)) != sorted(AT_NIGHT):
        return Verdict(False, f"ranking should hold each of {', '.join(AT_NIGHT)} once")
    names = [_name(each) for each in given]
    for before, after in itertools.pairwise(names):
        if _is_clearly_more(gains[after], gains[before]):
            return Verdict(
                False,
                f"{after} brings {gains[after].ratio:.2f}×, and {before} only {gains[before].ratio:.2f}×: "
                "read the column 'free', not the column 'a call'",
            )
    found = ", ".join(f"{name} {gains[name].ratio:.2f}×" for name in names)
    hidden = "; ".join(f"{pair.hidden} is hidden by {pair.hiding}" for pair in night.pairs)
    return Verdict(True, f"this is the order: {found}", f"{hidden.capitalize()}." if hidden else "")


def _is_clearly_more(one: Estimate, other: Estimate) -> bool:
    return one.ratio > other.ratio * (1 + AS_GOOD) and one.low > other.low


def _name(given: object) -> str:
    return given if isinstance(given, str) else str(getattr(given, "__name__", given))


_RANK = """\
night = optbook.ceiling(
    lambda: serve_at_night(track(range(GUESTS), unit="hot dog")),
    ["order", "fetch", "fry", "pay"],
    "the stand at night",
    steps=GUESTS,
    budget=MOMENT,
)
ranking = [part.component for part in night.parts]  # the largest gain comes first"""

EXERCISES = (
    Exercise("03_stub", 'stand_in = optbook.stub("recipe.targets", "replay", keep=1)', _judge_stub),
    _SLEEP,
    _SHARE,
    Exercise("03_rank", _RANK, _judge_rank),
)
