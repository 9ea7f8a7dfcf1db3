"""One picture: what lies where, what of it is seen, and how a cheap camera shows it.

The truth is exact. Every thing owns the pixels whose centre lies inside its outline and on which nothing lies
over it. A hot dog is only placed where, in the end, at least `SEEN` of its pixels are in the picture and
uncovered, and where its box's centre keeps `APART` of the picture's longer side from all other centres; its
box is the smallest one around the pixels it owns, in whole pixels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from optbook.hotdog.foods import HotDog, Thing
from optbook.hotdog.lookalikes import random_look_alike
from optbook.hotdog.shapes import (
    Floats,
    Light,
    Patch,
    Pose,
    cloud,
    cover,
    darken,
    extent,
    paint,
    patch,
    ramp,
    rgb,
)
from optbook.hotdog.table import random_table
from optbook.hotdog.tableware import Chip, Cup, Fork, Napkin, Plate

SEEN = 0.93
APART = 0.24
SEAM = 0.35  # width of the dark seam around a thing, as a share of its height
MOST = 4
_TRIES = 60
_COUNTS = (0.14, 0.24, 0.25, 0.21, 0.16)


@dataclass(frozen=True)
class Scene:
    """A drawn picture and its truth."""

    pixels: NDArray[np.uint8]  # (height, width, 3)
    boxes: NDArray[np.float32]  # (n, 4): x, y, width, height of each hot dog's visible part, in whole pixels
    areas: NDArray[np.int64]  # (n,): visible pixels of each hot dog

    @property
    def count(self) -> int:
        return len(self.boxes)


def draw_scene(rng: np.random.Generator, width: int, height: int, *, count: int | None = None) -> Scene:
    """Draw one picture of `width` x `height` pixels with up to `count` hot dogs (random, 0 to 4, by default).

    The same generator state gives the same boxes, and with the same numpy and Pillow the same pixels. Fewer
    hot dogs than asked for are drawn where they don't fit. Raises ValueError for a side below 32 pixels or a
    count that is not 0 to 4.
    """
    if min(width, height) < 32:
        raise ValueError(
            f"a picture of {width}x{height} is too small for hot dogs: make both sides 32 or more"
        )
    if count is not None and not 0 <= count <= MOST:
        raise ValueError(f"{count} hot dogs can't be placed: ask for 0 to {MOST}")
    wanted = int(rng.choice(len(_COUNTS), p=_COUNTS)) if count is None else count
    table = Table(width, height)
    _lay(table, wanted, rng)
    boxes, areas = table.truth()
    light = _random_light(rng)
    return Scene(_photograph(_painted(table, light, rng), light, rng), boxes, areas)


@dataclass(frozen=True)
class _Placed:
    """A thing on the table, the pixels near it and their distance from its outline."""

    thing: Thing
    around: Patch
    distance: Floats
    whole: int  # pixels of the thing, were all of it in view


class Table:
    """What lies in the picture, from the bottom up, and which thing owns each pixel (0: none)."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.placed: list[_Placed] = []
        self.owner = np.zeros(width * height, dtype=np.int16)

    @property
    def longer(self) -> int:
        return max(self.width, self.height)

    def put(self, thing: Thing) -> bool:
        """Lay a thing on top, unless a hot dog would then be seen too little of or lie too near another."""
        along, across = thing.reach
        margin = SEAM * thing.height
        around = patch(thing.pose, (along + margin, across + margin), self.width, self.height)
        distance = thing.distance(around.u, around.v)
        inside = around.index[distance < 0]
        whole = len(inside)
        if isinstance(thing, HotDog) and self._sticks_out(thing):
            whole = _whole_area(thing)
            if len(inside) < SEEN * whole:
                return False
        before = self.owner[inside]
        self.placed.append(_Placed(thing, around, distance, whole))
        self.owner[inside] = len(self.placed)
        if self._is_fair_after(before):
            return True
        self.owner[inside] = before
        self.placed.pop()
        return False

    def _sticks_out(self, thing: Thing) -> bool:
        x, y = extent(thing.pose, thing.reach)
        pose = thing.pose
        return pose.x < x or pose.y < y or pose.x > self.width - x or pose.y > self.height - y

    def hot_dogs(self) -> dict[int, _Placed]:
        return {n: placed for n, placed in enumerate(self.placed, 1) if isinstance(placed.thing, HotDog)}

    def _is_fair_after(self, covered: NDArray[np.int16]) -> bool:
        hot_dogs = self.hot_dogs()
        lost = np.bincount(covered, minlength=len(self.placed) + 1)
        if len(self.placed) not in hot_dogs and not any(lost[number] for number in hot_dogs):
            return True
        boxes, areas = self.truth()
        if any(area < SEEN * placed.whole for area, placed in zip(areas, hot_dogs.values(), strict=True)):
            return False
        centres = boxes[:, :2] + boxes[:, 2:] / 2
        gaps = np.square(centres[:, None] - centres).sum(axis=2)
        np.fill_diagonal(gaps, np.inf)
        return bool((gaps > (APART * self.longer) ** 2).all())

    def truth(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Boxes (n, 4) and visible pixels (n,) of the hot dogs, from the bottom up."""
        boxes, areas = [], []
        for number, placed in self.hot_dogs().items():
            index = placed.around.index
            rows, columns = np.divmod(index[self.owner[index] == number], self.width)
            areas.append(len(rows))
            left, top = columns.min(initial=self.width), rows.min(initial=self.height)
            right, bottom = columns.max(initial=left - 1), rows.max(initial=top - 1)
            boxes.append((left, top, right + 1 - left, bottom + 1 - top))
        return np.array(boxes, dtype=np.float32).reshape(-1, 4), np.array(areas, dtype=np.int64)


def _whole_area(thing: Thing) -> int:
    room = 2 * int(max(thing.reach)) + 4
    centred = Pose(room / 2 + thing.pose.x % 1, room / 2 + thing.pose.y % 1, thing.pose.du, thing.pose.dv)
    everything = patch(centred, thing.reach, room, room)
    return int(np.count_nonzero(thing.distance(everything.u, everything.v) < 0))


def _lay(table: Table, wanted: int, rng: np.random.Generator) -> None:
    longest = {0: 0.5, 1: 0.6, 2: 0.52, 3: 0.47, 4: 0.42, 5: 0.38, 6: 0.36}[wanted]
    size = table.longer * rng.uniform(max(0.29, longest * 0.65), longest)
    _lay_plates(table, size, wanted, rng)
    alike = int(rng.choice(4, p=(0.35, 0.3, 0.2, 0.15))) if wanted < 5 else int(rng.random() < 0.35)
    for _ in range(alike):
        table.put(random_look_alike(_anywhere(table, rng), size * rng.uniform(0.6, 1.15), rng))
    _lay_hot_dogs(table, size, wanted, rng)
    if rng.random() < 0.25:
        _scatter_chips(table, size, rng)
    for kind in (Fork, Cup, Napkin):
        if rng.random() < 0.18:
            table.put(kind.random(_anywhere(table, rng), size, rng))
    if rng.random() < 0.2:
        table.put(random_look_alike(_anywhere(table, rng), size * rng.uniform(0.5, 0.9), rng))


def _lay_plates(table: Table, size: float, wanted: int, rng: np.random.Generator) -> None:
    if rng.random() < 0.25:
        return
    if wanted >= 3 and rng.random() < 0.6:
        middle = Pose(table.width * rng.uniform(0.4, 0.6), table.height * rng.uniform(0.4, 0.6), 1.0, 0.0)
        table.put(Plate.random(middle, table.longer * rng.uniform(0.42, 0.55), rng))
        return
    for _ in range(rng.integers(1, 3)):
        table.put(Plate.random(_anywhere(table, rng, 0.15), size * rng.uniform(0.62, 0.8), rng))


def _lay_hot_dogs(table: Table, size: float, wanted: int, rng: np.random.Generator) -> None:
    """One after the other: on a plate, beside the last one in the same direction, or anywhere."""
    plates = [placed.thing.pose for placed in table.placed if isinstance(placed.thing, Plate)]
    last: Pose | None = None
    for number in range(wanted):
        for _ in range(_TRIES):
            length = size * rng.uniform(0.85, 1.15)
            chance = rng.random()
            if last and chance < 0.45:
                side = 1 if rng.random() < 0.5 else -1
                pose = last.beside(rng.uniform(-0.1, 0.1) * size, side * size * rng.uniform(0.48, 0.62))
            elif number < len(plates) and chance < 0.8:
                pose = Pose.random_direction(plates[number].x, plates[number].y, rng)
            else:
                pose = _anywhere(table, rng, 0.12)
            if table.put(HotDog.random(pose, length, rng)):
                last = pose
                break


def _scatter_chips(table: Table, size: float, rng: np.random.Generator) -> None:
    heap = _anywhere(table, rng)
    for _ in range(rng.integers(4, 12)):
        x, y = heap.x + rng.uniform(-0.2, 0.2) * size, heap.y + rng.uniform(-0.2, 0.2) * size
        table.put(Chip.random(Pose.random_direction(x, y, rng), size, rng))


def _anywhere(table: Table, rng: np.random.Generator, margin: float = 0.0) -> Pose:
    x, y = (side * rng.uniform(margin, 1 - margin) for side in (table.width, table.height))
    return Pose.random_direction(x, y, rng)


def _painted(table: Table, light: Light, rng: np.random.Generator) -> Floats:
    """The table and all on it as an even camera would see it, (3, height, width)."""
    canvas = np.ascontiguousarray(random_table(rng, table.width, table.height)).astype(np.float32)
    flat = canvas.reshape(3, -1)
    hidden = np.zeros(flat.shape[1], dtype=bool)
    for placed in table.placed:
        own = placed.around.index[placed.distance < -1]
        hidden[own] = True
        _throw_shadow(flat, placed, light, hidden, table)
        hidden[own] = False
        kept = placed.distance < 0.5
        around = placed.around.take(kept)
        paint(
            flat, around.index, placed.thing.colour(around.u, around.v, light), cover(placed.distance[kept])
        )
    return canvas


def _throw_shadow(
    flat: Floats, placed: _Placed, light: Light, hidden: NDArray[np.bool_], table: Table
) -> None:
    """A soft shadow away from the light, and a dark seam where the thing touches the table."""
    thing = placed.thing
    along, across = thing.reach
    soft, lift = max(thing.height * light.softness, 1.0), thing.height / light.z
    moved = replace(thing.pose, x=thing.pose.x - lift * light.x, y=thing.pose.y - lift * light.y)
    around = patch(moved, (along + soft, across + soft), table.width, table.height)
    around = around.take(~hidden[around.index])
    distance = thing.distance(around.u, around.v)
    darken(flat, around.index, light.shadow * ramp(-distance, -soft, soft))
    near = placed.distance > -1
    seam = SEAM * thing.height
    darken(flat, placed.around.index[near], 0.3 * ramp(-placed.distance[near], -seam, seam))


def _random_light(rng: np.random.Generator) -> Light:
    z = rng.uniform(0.55, 0.9)
    angle = rng.uniform(0, 2 * math.pi)
    flat = math.sqrt(1 - z * z)
    warmth, green, bright = rng.uniform(-0.09, 0.09), rng.uniform(-0.02, 0.02), rng.uniform(0.76, 1.06)
    return Light(
        x=flat * math.cos(angle),
        y=flat * math.sin(angle),
        z=z,
        ambient=rng.uniform(0.35, 0.6),
        cast=(bright * (1 + warmth), bright * (1 + green), bright * (1 - warmth)),
        shadow=rng.uniform(0.3, 0.6),
        softness=rng.uniform(0.3, 0.9),
    )


def _photograph(canvas: Floats, light: Light, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Coloured, uneven light, dark corners, contrast, some blur, noise: uint8 (height, width, 3)."""
    _, height, width = canvas.shape
    x = np.linspace(-1, 1, width, dtype=np.float32)
    y = np.linspace(-1, 1, height, dtype=np.float32)[:, None]
    contrast = rng.uniform(0.88, 1.15)
    exposure = 255 * contrast * (1 - rng.uniform(0, 0.14) * (x * x + y * y))
    exposure = exposure * (1 + 0.06 * cloud(rng, width, height, max(width, height)))
    seen: Floats = canvas * exposure * rgb(light.cast)[..., None] + 127.5 * (1 - contrast)
    noise = rng.uniform(0, 2) if rng.random() < 0.8 else rng.uniform(2, 6)
    grain = noise * rng.standard_normal((height, width), dtype=np.float32)
    if rng.random() < 0.2:
        blurred = Image.fromarray(_as_bytes(seen)).filter(ImageFilter.GaussianBlur(rng.uniform(0.6, 1.5)))
        seen = np.asarray(blurred, dtype=np.float32).transpose(2, 0, 1)
    return _as_bytes(seen + grain)


def _as_bytes(planes: Floats) -> NDArray[np.uint8]:
    """Planes (3, height, width) from 0 to 255 as a picture (height, width, 3)."""
    return np.ascontiguousarray(np.clip(planes + 0.5, 0, 255).astype(np.uint8).transpose(1, 2, 0))
