"""The exercises of chapter 04: fewer turns of Python, nothing computed twice, and a stage of one's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from optbook.benchmark.clock import Clock
from optbook.optimize.outputs import same_outputs
from optbook.workshop.exercises import Exercise, Verdict, choice
from optbook.workshop.fill_in import Inputs, Same, fill_in, open_ended

SIZE, GRID = 128, 32
"""Pixels a side of what the network sees, and cells a side of its answer."""
ABOUT = partial(same_outputs, strict=False)
"""Equal within the coarser of two data types' tolerances: a stage may compute in float32."""


def _boxes(rng: np.random.Generator, most: int = 8, within: float = SIZE) -> Any:
    """None at all to ``most`` boxes, (n, 4): x, y, width, height; some reach over the border."""
    count = rng.integers(0, most + 1)
    corners = rng.uniform(-0.05, 0.9, (count, 2)) * within
    return np.concatenate([corners, rng.uniform(0.05, 0.5, (count, 2)) * within], axis=1)


def _some_boxes(rng: np.random.Generator) -> tuple[Any, int]:
    return _boxes(rng), int(rng.choice([GRID // 2, GRID]))


def _six_boxes(rng: np.random.Generator) -> tuple[Any, int]:
    return np.concatenate([_boxes(rng, 0), rng.uniform(10, 60, (6, 4))]), GRID


_LOOPS = choice(
    "04_loops",
    "with_arrays",
    "b",
    {
        "a": "the arithmetic is the same, and it was never the large part: most of a turn goes into Python "
        "itself, which looks up names and makes an object of every number",
        "b": "right: what is gone is Python's part of each turn, and that was nearly all of it",
        "c": "NumPy does this on one core. What is gone is Python's part of each turn, not the waiting for "
        "one core",
    },
    "Python's part of each turn is gone",
)
_CELLS = fill_in(
    "04_cells",
    "draw_at_once",
    """\
def draw_at_once(boxes, grid):
    heat, sides, close = np.zeros((1, grid, grid)), np.zeros((4, grid, grid)), np.zeros((1, grid, grid))
    xs = np.arange(grid)
    ys = np.arange(grid)[:, None]
    middle_x, middle_y = (xs + 0.5) * STRIDE, (ys + 0.5) * STRIDE
    for left, top, width, height in boxes:
        centre_x = min(int((left + width / 2) / STRIDE), grid - 1)
        centre_y = min(int((top + height / 2) / STRIDE), grid - 1)
        spread_x = max(width / STRIDE * SPREAD, LEAST_SPREAD)
        spread_y = max(height / STRIDE * SPREAD, LEAST_SPREAD)
        distance = ((xs - centre_x) / spread_x) ** 2 + ((ys - centre_y) / spread_y) ** 2
        value = np.exp(-distance / 2)
        hotter = value > heat[0]
        near = hotter & (value > CLOSE_ENOUGH)
        heat[0] = np.where(hotter, value, heat[0])
        ways = (middle_x - left, middle_y - top, left + width - middle_x, top + height - middle_y)
        for side, way in zip(sides, ways, strict=True):
            side[near] = np.broadcast_to(way, near.shape)[near]
        close[0][near] = 1
    return Targets(heat, sides, close)""",
    inputs=_some_boxes,
    timed=_six_boxes,
    reference="optbook.hotdog.targets:draw_cell_by_cell",
    same=ABOUT,
    rounds=8,
)
_KEEP = choice(
    "04_keep",
    "may_be_kept",
    "a",
    {
        "a": "right: a file decodes to the same pixels every time. What comes after it is drawn anew in each "
        "epoch",
        "b": "augmentation changes a picture in another way in each epoch, and that is what it is for. Kept, "
        "the network would see the same few pictures again and again",
        "c": "the boxes turn and grow with the picture that they belong to, differently in each epoch, and "
        "the targets are drawn from the changed boxes",
    },
    "what is random must be drawn anew",
)
_CORES = choice(
    "04_cores",
    "on_all_cores",
    "b",
    {
        "a": "only what is shared out gets faster. The rest of the step runs on one core, and takes what it "
        "took: look at the curve",
        "b": "right: a part of the step runs on one core whatever there is, and threads must also wait for "
        "each other. (With a single core there is nothing to share)",
        "c": "Python code can, but torch's operations are C++ with threads of their own: look at the curve",
    },
    "a part of the step runs on one core",
)


@dataclass(frozen=True)
class _Stage:
    """What the first version does there, what it is given, and what counts as the same result."""

    first: str
    inputs: Inputs
    same: Same = ABOUT
    lists: int = 1  # so many of the arguments belong to one picture, and are lists for a whole batch


def _picture(rng: np.random.Generator, height: int = 150, width: int = 200) -> Any:
    """(height, width, 3) of bytes, with shapes in it and not only noise."""
    coarse = rng.integers(0, 256, (height // 10, width // 10, 3))
    smooth = coarse.repeat(10, axis=0).repeat(10, axis=1)
    return (0.9 * smooth + rng.uniform(0, 25, smooth.shape)).astype(np.uint8)


def _hot_cells(rng: np.random.Generator) -> tuple[Any, ...]:
    import torch

    heat = torch.from_numpy(rng.uniform(0, 1, (1, GRID, GRID)) ** 6)
    return heat, torch.from_numpy(rng.uniform(1, 40, (4, GRID, GRID))), 0.45


def _overlapping(rng: np.random.Generator) -> tuple[Any, ...]:
    import torch

    corners = rng.uniform(0, 80, (rng.integers(0, 40), 2))
    boxes = np.concatenate([corners, corners + rng.uniform(10, 40, corners.shape)], axis=1)
    return torch.from_numpy(boxes), torch.from_numpy(rng.uniform(0.5, 1, len(boxes))), 0.5


STAGES: Mapping[str, _Stage] = MappingProxyType(
    {
        "augment": _Stage(
            "optbook.hotdog.augment:augment_step_by_step",
            lambda rng: (
                _picture(rng) / 255,
                _boxes(rng, within=150),
                np.random.default_rng(rng.integers(2**31)),
            ),
            partial(ABOUT, atol=1e-3),
            lists=3,
        ),
        "resize": _Stage(
            "optbook.hotdog.pixels:resize_through_bytes",
            lambda rng: (_picture(rng) / 255, _boxes(rng, within=150), SIZE),
            partial(ABOUT, atol=1 / 255),
            lists=2,
        ),
        "normalise": _Stage("optbook.hotdog.pixels:normalise", lambda rng: (_picture(rng, 130, 130) / 255,)),
        "targets": _Stage("optbook.hotdog.targets:draw_cell_by_cell", _some_boxes),
        "find": _Stage("optbook.hotdog.detect:every_hot_cell", _hot_cells, lists=0),
        "suppress": _Stage("optbook.hotdog.detect:suppress_one_by_one", _overlapping, lists=0),
    }
)
"""The stages that may be chosen."""


def _judge_mine(namespace: Mapping[str, Any]) -> Verdict:
    found = _chosen(namespace.get("mine", ...))
    if isinstance(found, Verdict):
        return found
    stage, function = found
    if str(getattr(function, "__module__", "")).startswith("optbook."):
        return Verdict(False, f"{stage} is {function.__name__}, the workbook's own: write one yourself")
    return _task(stage).judge({stage: function})


def _gain_of_mine(namespace: Mapping[str, Any], clock: Clock | None) -> str:
    found = _chosen(namespace["mine"])
    if isinstance(found, Verdict):
        return found.message
    stage, function = found
    gain = _task(stage).gain
    return gain({stage: function}, clock) if gain is not None else ""


def _chosen(mine: Any) -> tuple[str, Callable[..., Any]] | Verdict:
    """The stage that the reader changed, and their function; or what is wrong with the recipe."""
    example = "Recipe.first().replace(normalise=my_normalise)"
    if mine is ... or mine is None:
        return Verdict(False, f"set mine to a recipe with a stage of yours: {example}")
    if type(mine).__name__ != "Recipe" or not hasattr(type(mine), "first"):
        return Verdict(False, f"mine is a {type(mine).__name__}, not a recipe: write {example}")
    first = type(mine).first()
    changed = [name for name in STAGES if getattr(mine, name) is not getattr(first, name)]
    if len(changed) == 1:
        return changed[0], getattr(mine, changed[0])
    if changed:
        return Verdict(False, f"{', '.join(changed)} are changed: change one of them, and leave the others")
    return Verdict(False, f"mine has a function of yours in none of {', '.join(STAGES)}: write {example}")


def _task(stage: str) -> Exercise:
    known = STAGES[stage]
    return open_ended(
        "04_mine",
        stage,
        "",
        inputs=known.inputs,
        reference=known.first,
        same=known.same,
        call=partial(_called, known.lists),
    )


def _called(lists: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a stage for one picture; one for whole batches gets lists of one."""
    if not lists or not getattr(function, "for_a_batch", False):
        return function(*arguments)
    result = function(*([each] for each in arguments[:lists]), *arguments[lists:])
    return tuple(part[0] for part in result) if isinstance(result, tuple) else result[0]


_MINE = """\
def my_find(heat, sides, threshold):
    ys, xs = (heat[0] > threshold).nonzero(as_tuple=True)
    middles = (torch.stack([xs, ys]) + 0.5) * STRIDE
    low, high = middles - sides[:2, ys, xs], middles + sides[2:, ys, xs]
    return torch.cat([low, high]).T, heat[0, ys, xs]


mine = Recipe.first().replace(find=my_find)"""

EXERCISES = (_LOOPS, _CELLS, _KEEP, _CORES, Exercise("04_mine", _MINE, _judge_mine, _gain_of_mine))
