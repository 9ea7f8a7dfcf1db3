"""The exercises of chapter 00."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optbook.workshop.exercises import Exercise, Verdict, choice

_GUESS = choice(
    "00_guess",
    "guess",
    "b",
    {
        "a": "look at the two throughputs: most of a step went into preparing the batch. A network as small "
        "as this one is rarely the expensive part, and only measuring tells",
        "b": "right: preparing the batch takes more than half of a step, so taking it away at least doubles "
        "the speed",
        "c": "two parts are not two equal parts. What a stub brings is the share that the part really took, "
        "and here that is more than half",
    },
    "preparing a batch takes more than half of a step",
)


def _judge_lighter(namespace: Mapping[str, Any]) -> Verdict:
    lighter, shrunk = namespace.get("lighter", ...), namespace.get("shrunk")
    if lighter is ... or lighter is None:
        return Verdict(False, "set lighter to a recipe: shrunk.replace(...)")
    dtype = getattr(lighter, "dtype", None)
    if dtype is None:
        return Verdict(False, f"lighter is a {type(lighter).__name__}, not a recipe: use shrunk.replace(...)")
    if str(dtype) != "torch.float32":
        return Verdict(False, f"lighter.dtype is {dtype}: it should be torch.float32")
    if shrunk is not None and lighter.decode is not shrunk.decode:
        return Verdict(False, "lighter has lost the small pictures: start from shrunk, not from recipe")
    return Verdict(True, "same recipe, numbers half as wide", "Run the next cell to see what it brings here.")


EXERCISES = (_GUESS, Exercise("00_lighter", "lighter = shrunk.replace(dtype=torch.float32)", _judge_lighter))
