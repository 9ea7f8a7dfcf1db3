"""The exercises of chapter 06: what is kept, what is let go, and how much of it there is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from optbook import formatting as write
from optbook.workshop.exercises import Exercise, Verdict, choice
from optbook.workshop.limit import raised

HALF = 0.5
CLOSE = 0.05
"""How far, of the first version's, the losses of the first steps may be apart."""
SAME_TASK = ("batch_size", "input_size", "width", "lr", "seed")
"""Fields that decide what is learned: to change them saves memory, and is another exercise."""

_ROOM = choice(
    "06_room",
    "room",
    "d",
    {
        "a": "the files are compressed: what comes out of a JPEG is some thirty times as large as its file",
        "b": "that is what they could take. The first version keeps the full size, and each byte becomes "
        "eight",
        "c": "as bytes they would: but dividing by 255.0 makes float64 of them, eight bytes for each one",
        "d": "right: some thirty times for the compression, and eight times for numbers of 64 bits",
    },
    "every pixel, three colours, eight bytes each",
)
_HALF = choice(
    "06_half",
    "share",
    "c",
    {
        "a": "the room is for half of them, but not for the right half: what was just used does not come "
        "again before the next epoch, and by then it had to go",
        "b": "that holds for most programs, and not here: what was used lately is the last to come again",
        "c": "right: what came late in the first epoch is kept, and only those of it that come early in the "
        "second are still there. To keep the first to come gives half",
    },
    "what was used last comes again last",
)
_BUFFER = choice(
    "06_buffer",
    "three",
    "c",
    {
        "a": "there was never more than one batch: the loader hands out the same tensors each time, filled "
        "anew",
        "b": "it was the first batch until the second was written over it",
        "c": "right: all three are the same tensors, and they hold what was written into them last",
    },
    "one buffer holds what was written last",
)


def _judge_leak(namespace: Mapping[str, Any]) -> Verdict:
    import torch

    remember = namespace.get("remember_lightly", ...)
    if remember is ... or remember is None:
        return Verdict(False, "set remember_lightly to a function: def remember_lightly(losses): ...")
    if not callable(remember):
        return Verdict(False, f"remember_lightly is a {type(remember).__name__}: it should be a function")
    for _ in range(3):
        heat, sides = torch.rand(2, dtype=torch.float64, requires_grad=True).unbind()
        losses = SimpleNamespace(heat=heat, sides=sides, total=heat + sides)
        total = losses.total.item()
        try:
            kept = remember(losses)
        except Exception as error:
            return Verdict(False, raised(error, "remember_lightly", remember))
        if torch.is_tensor(kept) and (kept.grad_fn is not None or kept.requires_grad):
            return Verdict(False, "what it returns has a grad_fn still: the graph hangs on it")
        if torch.is_tensor(kept) and kept.numel() != 1:
            return Verdict(False, f"it returns a tensor of shape {tuple(kept.shape)}: one number is wanted")
        if not torch.is_tensor(kept) and not isinstance(kept, (int, float)):
            kind = type(kept).__name__
            return Verdict(False, f"it returns a {kind}: it should be a number, or a tensor without a graph")
        if not math.isclose(float(kept), total, rel_tol=1e-6):
            return Verdict(False, f"it returns {float(kept):.6g} where losses.total is {total:.6g}")
    return Verdict(True, "the same number, and nothing hangs on it", _advice(kept))


def _advice(kept: object) -> str:
    if isinstance(kept, (int, float)):
        return (
            "A plain number is known at once on a CPU; on a graphics card, .detach() would not wait for it."
        )
    return "A detached tensor does not wait for a graphics card; read the numbers once, at the end."


def _judge_lean(namespace: Mapping[str, Any]) -> Verdict:
    lean: Any = namespace.get("lean", ...)
    first: Any = namespace.get("recipe")
    if lean is ... or lean is None:
        return Verdict(False, "set lean to a recipe: recipe.replace(...)")
    kind = type(lean)
    if kind.__name__ != "Recipe" or not hasattr(kind, "first"):
        return Verdict(False, f"lean is a {kind.__name__}, not a recipe: use recipe.replace(...)")
    if type(first) is not kind:
        return Verdict(False, "run the cell that sets recipe first: it says what to compare with")
    given = {field: getattr(first, field) for field in SAME_TASK}
    first = kind.first().replace(network=lean.network, **given)
    for field in SAME_TASK:
        given, wanted = getattr(lean, field), getattr(first, field)
        if given != wanted:
            return Verdict(
                False, f"lean.{field} is {given}: leave it at {wanted}, so that it learns the same"
            )
    pictures = _made_up(first.batch_size)
    was, wanted = _tried(first, pictures)
    now, losses = _tried(lean, pictures)
    if any(not math.isclose(a, b, rel_tol=CLOSE) for a, b in zip(wanted, losses, strict=True)):
        told = [", ".join(f"{loss:.4g}" for loss in each) for each in (losses, wanted)]
        return Verdict(
            False, f"it learns something else: the first losses are {told[0]} instead of {told[1]}"
        )
    if now["history"]:
        return Verdict(False, "its history holds on to the graph of each step: which field decides that?")
    share = (now["picture"] + now["batch"]) / (was["picture"] + was["batch"])
    told = [f"{write.bytes_(each['picture'])} + {write.bytes_(each['batch'])}" for each in (now, was)]
    if share > HALF:
        return Verdict(False, f"a picture and a batch take {told[0]} instead of {told[1]}: more than half")
    return Verdict(
        True, f"{write.percent(share)} of what the first version keeps, and the same losses", _sizes(told)
    )


def _sizes(told: Iterable[str]) -> str:
    now, was = told
    return f"A decoded picture and a batch take {now} instead of {was}."


def _made_up(count: int) -> list[Any]:
    """Pictures that are in memory already, with one box each, in two batches."""
    import numpy as np

    rng = np.random.default_rng(6)
    boxes = np.array([[60.0, 50.0, 90.0, 60.0]], dtype=np.float32)
    coarse = rng.integers(0, 256, (2 * count, 8, 12, 3)).astype(np.uint8)
    pixels = coarse.repeat(25, axis=1).repeat(25, axis=2)
    return [SimpleNamespace(path=each, width=300, height=200, boxes=boxes, count=1) for each in pixels]


def _tried(recipe: Any, pictures: list[Any]) -> tuple[dict[str, float], list[float]]:
    """Bytes of one decoded picture and of a batch, whether the history keeps a graph; losses of two steps."""
    import torch

    recipe = recipe.replace(workers=0, log=_say_nothing, anomaly_detection=False)
    learner = recipe.learner(pictures)
    size = 0
    for batch in recipe.loader(pictures, training=False):
        size = sum(tensor.nbytes for tensor in batch)
        recipe.step(learner, batch)
    graph = any(torch.is_tensor(kept) and kept.grad_fn is not None for kept in learner.history)
    image = recipe.decode(pictures[0].path, recipe.input_size)
    return {"picture": image.nbytes, "batch": size, "history": float(graph)}, learner.losses


def _say_nothing(learner: object, losses: object) -> None:
    """In place of the recipe's log."""


_LEAK = """\
def remember_lightly(losses):
    \"\"\"The loss as a plain number: no graph hangs on it.\"\"\"
    return losses.total.item()"""

_LEAN = "lean = recipe.replace(decode=decode_small, dtype=torch.float32, remember=remember_lightly)"

EXERCISES = (
    _ROOM,
    _HALF,
    _BUFFER,
    Exercise("06_leak", _LEAK, _judge_leak),
    Exercise("06_lean", _LEAN, _judge_lean),
)
