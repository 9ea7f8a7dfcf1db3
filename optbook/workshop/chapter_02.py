"""The exercises of chapter 02, judged by what the reader's own profiles found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optbook import formatting as write
from optbook.benchmark.profiles.calls import CallProfile
from optbook.benchmark.profiles.lines import LineProfile
from optbook.workshop.exercises import Exercise, Verdict

NEARLY = 0.7
"""Two profiles of the same code agree only roughly: so much of the largest share counts as the largest."""

SUSPECTS = {
    "a": ("HotdogNet.forward", "most people suspect the network first, and it is small"),
    "b": ("decode_full_size", "the files are small, and the system keeps in memory what was read once"),
    "c": ("warp", "every pixel of the full-size picture goes through it, and twice"),
    "d": (
        "draw_cell_by_cell",
        "loops in Python look slow, but what counts is the price of a turn times the number of turns",
    ),
}


def _judge_suspect(namespace: Mapping[str, Any]) -> Verdict:
    given = namespace.get("suspect", ...)
    if given is ... or given is None or given == "":
        return Verdict(False, f"set suspect to one of {', '.join(map(repr, SUSPECTS))}")
    letter = str(given).strip().lower()
    if letter not in SUSPECTS:
        return Verdict(False, f"suspect is {given!r}: choose one of {', '.join(map(repr, SUSPECTS))}")
    calls = namespace.get("calls")
    if not isinstance(calls, CallProfile):
        return Verdict(False, "run the cell with '%%profile calls ... -o calls' first: it knows the answer")
    took = {key: _with_calls(calls, name) for key, (name, _) in SUSPECTS.items()}
    most = max(took, key=lambda key: took[key])
    name, remark = SUSPECTS[letter]
    if letter == most:
        return Verdict(True, f"right: {name} took {write.percent(took[letter])} of the time; {remark}")
    return Verdict(
        False,
        f"{name} took {write.percent(took[letter])} of the time, "
        f"{SUSPECTS[most][0]} {write.percent(took[most])}: {remark}",
    )


def _with_calls(calls: CallProfile, name: str) -> float:
    """The share of the time in a function and in all that it called."""
    seconds = sum(f.cumulative for f in calls.functions if not f.thread and f.place.name == name)
    return seconds / calls.total if calls.total else 0.0


def _judge_busiest(namespace: Mapping[str, Any]) -> Verdict:
    given = namespace.get("busiest", ...)
    if given is ... or given is None:
        return Verdict(False, "set busiest to the number of a line: it stands at the left of the line")
    loops = namespace.get("loops")
    if not isinstance(loops, LineProfile):
        return Verdict(False, "run the cell with '%%profile lines ... -o loops' first: it knows the answer")
    lines = {line.number: line for listing in loops.listings for line in listing.lines if line.hits}
    if not isinstance(given, int) or given not in lines:
        return Verdict(False, f"busiest is {given!r}: no line of that number was run")
    line, total = lines[given], sum(line.seconds for line in lines.values())
    share = f"line {given} took {write.percent(line.seconds / total)}"
    if line.seconds >= NEARLY * max(other.seconds for other in lines.values()):
        return Verdict(True, f"{share} of the function's time, and no other took clearly more")
    if line.hits >= max(other.hits for other in lines.values()):
        return Verdict(False, f"{share}: it ran most often, but look for the largest time, not the most hits")
    return Verdict(False, f"{share}: another line took more")


def _judge_heaviest(namespace: Mapping[str, Any]) -> Verdict:
    given = namespace.get("heaviest", ...)
    if given is ... or given is None:
        return Verdict(False, "set heaviest to three functions: {'name': 'what is slow there', ...}")
    if not isinstance(given, dict) or len(given) != 3:
        return Verdict(False, "heaviest should hold three functions: {'name': 'what is slow there', ...}")
    calls = namespace.get("calls")
    if not isinstance(calls, CallProfile):
        return Verdict(False, "run the cell with '%%profile calls ... -o calls' first: it knows the answer")
    shares = heaviest(calls)
    third = min([*shares.values()][:3], default=0.0)
    for name, reason in given.items():
        name = getattr(name, "__qualname__", name)
        found = [share for known, share in shares.items() if known == name or known.endswith(f".{name}")]
        if not found:
            return Verdict(False, f"{name!r} is no function of ours in which this profile saw any time pass")
        if max(found) < NEARLY * third:
            took = f"{write.percent(max(found))} of the time"
            return Verdict(False, f"{name} itself took {took}: look at what it calls, or at others")
        if not isinstance(reason, str) or not reason.strip(". "):
            return Verdict(False, f"say in a few words what is slow in {name}: its heaviest line tells")
    named = ", ".join(f"{name} {write.percent(share)}" for name, share in list(shares.items())[:5])
    return Verdict(True, "these are the three heaviest", f"Your profile found: {named}.")


def heaviest(calls: CallProfile) -> dict[str, float]:
    """The share of the time by function of ours, the largest first.

    It is the time in its own lines and in the libraries that these call.
    """
    spent: dict[str, float] = {}
    for stack, seconds in calls.stacks:
        ours = [place.name for place in stack if place.kind == "your code" and place.line]
        if ours and not ours[-1].startswith("cell "):
            spent[ours[-1]] = spent.get(ours[-1], 0.0) + seconds
    largest = sorted(spent.items(), key=lambda item: -item[1])
    return {name: seconds / calls.total for name, seconds in largest}


_BUSIEST = """\
table = loops.to_frame()
busiest = int(table["line"][table["seconds"].idxmax()])"""

_HEAVIEST = """\
slow = {
    "warp": "blends every pixel in NumPy, at full size, and twice a picture",
    "step_by_step": "backward() notes and checks everything: anomaly detection is on",
    "HotdogNet.forward": "computes with 64-bit numbers",
    "add_noise": "draws a random number for every pixel of the full-size picture",
    "draw_cell_by_cell": "visits every cell of the map for every hot dog, in Python",
}
listed = [name for name in lines.to_frame()["function"].unique() if not name.startswith("cell")]
heaviest = {name: slow.get(name, "to be found out") for name in listed[:3]}"""

EXERCISES = (
    Exercise("02_suspect", 'suspect = "c"  # most of the pixels, most of the work', _judge_suspect),
    Exercise("02_busiest", _BUSIEST, _judge_busiest),
    Exercise("02_heaviest", _HEAVIEST, _judge_heaviest),
)
