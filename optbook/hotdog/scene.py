"""One picture: what lies where, what of it is seen, and how a cheap camera shows it.

The truth is exact. Every thing owns the pixels whose centre lies inside its outline and on which nothing lies
over it. A hot dog is only placed where, in the end, at least `SEEN` of its pixels are in the picture and
uncovered, and where its box's centre keeps `APART` of the picture's longer side from all other centres; its
box is the smallest one around the pixels it owns, in whole pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from optbook.hotdog.foods import LOOK_ALIKES, HotDog, Thing
from optbook.hotdog.shapes import Floats, Light, Pose, cloud, cover, darken, paint, patch, ramp
from optbook.hotdog.table import Chip, Cup, Fork, Napkin, Plate, random_table

SEEN = 0.55
APART = 0.11
MOST = 6
_TRIES = 60
_COUNTS = (0.12, 0.2, 0.2, 0.17, 0.13, 0.1, 0.08)


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
    """Draw one picture of `width` x `height` pixels with up to `count` hot dogs (random, 0 to 6, by default).

    The same generator state gives the same boxes, and with the same numpy and Pillow the same pixels. Fewer
    hot dogs than asked for are drawn where they don't fit. Raises ValueError for a side below 32 pixels or a
    count that is not 0 to 6.
    """
    if min(width, height) < 32:
        raise ValueError(f"a picture of {width}x{height} is too small for hot dogs: make both sides 32 or more")
    if count is not None and not 0 <= count <= MOST:
        raise ValueError(f"{count} hot dogs can't be placed: ask for 0 to {MOST}")
    wanted = int(rng.choice(len(_COUNTS), p=_COUNTS)) if count is None else count
    table = _Table(width, height)
    _lay(table, wanted, rng)
    boxes, areas = table.truth()
    return Scene(_photograph(_painted(table, rng), rng), boxes, areas)


class _Table:
    """What lies in the picture, from the bottom up, and which thing owns each pixel (0: none)."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.things: list[Thing] = []
        self.whole: list[int] = []  # pixels of each thing, were all of it in view
        self.owner = np.zeros(width * height, dtype=np.int16)

    @property
    def longer(self) -> int:
        return max(self.width, self.height)

    def put(self, thing: Thing) -> bool:
        """Lay a thing on top, unless it hides too much of a hot dog or is one that is hardly seen."""
        around = patch(thing.pose, thing.reach, self.width, self.height)
        inside = around.index[thing.distance(around.u, around.v) < 0]
        before = self.owner[inside]
        self.owner[inside] = len(self.things) + 1
        self.things.append(thing)
        self.whole.append(_whole_area(thing))
        if self._holds(set(np.unique(before).tolist())):
            return True
        self.owner[inside] = before
        self.things.pop()
        self.whole.pop()
        return False

    def _holds(self, touched: set[int]) -> bool:
        owners = [n for n, thing in enumerate(self.things, 1) if isinstance(thing, HotDog)]
        newest = len(self.things)
        if newest not in owners and not touched & set(owners):
            return True
        seen = np.bincount(self.owner, minlength=newest + 1)
        if any(seen[n] < SEEN * self.whole[n - 1] for n in owners):
            return False
        boxes, _ = self.truth()
        centres = boxes[:, :2] + boxes[:, 2:] / 2
        gaps = np.square(centres[:, None] - centres).sum(axis=2)
        np.fill_diagonal(gaps, np.inf)
        return bool((gaps > (APART * self.longer) ** 2).all())

    def truth(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        owner = self.owner.reshape(self.height, self.width)
        boxes, areas = [], []
        for number, thing in enumerate(self.things, 1):
            if isinstance(thing, HotDog):
                mine = owner == number
                columns, rows = np.flatnonzero(mine.any(axis=0)), np.flatnonzero(mine.any(axis=1))
                left, top = columns[0], rows[0]
                boxes.append((left, top, columns[-1] + 1 - left, rows[-1] + 1 - top))
                areas.append(int(mine.sum()))
        return np.array(boxes, dtype=np.float32).reshape(-1, 4), np.array(areas, dtype=np.int64)


def _whole_area(thing: Thing) -> int:
    room = 2 * int(max(thing.reach)) + 4
    centred = Pose(room / 2, room / 2, thing.pose.du, thing.pose.dv)
    everything = patch(centred, thing.reach, room, room)
    return int(np.count_nonzero(thing.distance(everything.u, everything.v) < 0))


def _lay(table: _Table, wanted: int, rng: np.random.Generator) -> None:
    longest = {0: 0.5, 1: 0.7, 2: 0.56, 3: 0.48, 4: 0.42, 5: 0.38, 6: 0.35}[wanted]
    size = table.longer * rng.uniform(max(0.26, longest * 0.6), longest)
    _lay_plates(table, size, wanted, rng)
    alike = int(rng.choice(4, p=(0.35, 0.3, 0.2, 0.15))) if wanted < 5 else int(rng.random() < 0.35)
    for _ in range(alike):
        kind = LOOK_ALIKES[rng.integers(len(LOOK_ALIKES))]
        table.put(kind.random(_anywhere(table, rng), size * rng.uniform(0.6, 1.15), rng))
    _lay_hot_dogs(table, size, wanted, rng)
    if rng.random() < 0.3:
        spot = _anywhere(table, rng)
        for _ in range(rng.integers(4, 12)):
            x, y = spot.x + rng.uniform(-0.2, 0.2) * size, spot.y + rng.uniform(-0.2, 0.2) * size
            table.put(Chip.random(Pose.random_direction(x, y, rng), size, rng))
    for kind_over in (Fork, Cup, Napkin):
        if rng.random() < 0.22:
            table.put(kind_over.random(_anywhere(table, rng), size, rng))
    if rng.random() < 0.25:
        kind = LOOK_ALIKES[rng.integers(len(LOOK_ALIKES))]
        table.put(kind.random(_anywhere(table, rng), size * rng.uniform(0.5, 0.9), rng))


def _lay_plates(table: _Table, size: float, wanted: int, rng: np.random.Generator) -> None:
    if rng.random() < 0.25:
        return
    if wanted >= 3 and rng.random() < 0.6:
        middle = Pose(table.width * rng.uniform(0.4, 0.6), table.height * rng.uniform(0.4, 0.6), 1.0, 0.0)
        table.put(Plate.random(middle, table.longer * rng.uniform(0.42, 0.55), rng))
        return
    for _ in range(rng.integers(1, 3)):
        table.put(Plate.random(_anywhere(table, rng), size * rng.uniform(0.62, 0.8), rng))


def _lay_hot_dogs(table: _Table, size: float, wanted: int, rng: np.random.Generator) -> None:
    """One after the other: on a plate, beside the last one in the same direction, or anywhere."""
    placed: list[HotDog] = []
    plates = [thing for thing in table.things if isinstance(thing, Plate)]
    for number in range(wanted):
        for _ in range(_TRIES):
            length = size * rng.uniform(0.85, 1.15)
            chance = rng.random()
            if placed and chance < 0.45:
                side = 1 if rng.random() < 0.5 else -1
                pose = placed[-1].pose.beside(rng.uniform(-0.1, 0.1) * size, side * size * rng.uniform(0.4, 0.55))
            elif number < len(plates) and chance < 0.8:
                plate = plates[number].pose
                pose = Pose.random_direction(plate.x, plate.y, rng)
            else:
                pose = _anywhere(table, rng)
            hot_dog = HotDog.random(pose, length, rng)
            if table.put(hot_dog):
                placed.append(hot_dog)
                break


def _anywhere(table: _Table, rng: np.random.Generator) -> Pose:
    return Pose.random_direction(rng.uniform(0, table.width), rng.uniform(0, table.height), rng)


def _painted(table: _Table, rng: np.random.Generator) -> Floats:
    light = _random_light(rng)
    canvas = np.ascontiguousarray(random_table(rng, table.width, table.height))
    for thing in table.things:
        _throw_shadow(canvas, thing, light)
        around = patch(thing.pose, thing.reach, table.width, table.height)
        distance = thing.distance(around.u, around.v)
        kept = distance < 0.5
        around = around.take(kept)
        paint(canvas, around.index, thing.colour(around.u, around.v, light), cover(distance[kept]))
    warm = cloud(rng, table.width, table.height, table.longer)[..., None] * np.float32(0.06)
    return np.asarray(canvas * np.asarray(light.cast, dtype=np.float32) * (1 + warm), dtype=np.float32)


def _throw_shadow(canvas: Floats, thing: Thing, light: Light) -> None:
    height, width = canvas.shape[:2]
    soft = max(thing.height * light.softness, 1.0)
    along, across = thing.reach
    for lift, edge, strength in ((thing.height / light.z, soft, light.shadow), (0.0, thing.height * 0.35, 0.3)):
        moved = Pose(thing.pose.x - lift * light.x, thing.pose.y - lift * light.y, thing.pose.du, thing.pose.dv)
        around = patch(moved, (along + edge, across + edge), width, height)
        distance = thing.distance(around.u, around.v)
        darken(canvas, around.index, np.float32(strength) * ramp(-distance, -edge, edge))


def _random_light(rng: np.random.Generator) -> Light:
    z = rng.uniform(0.55, 0.9)
    angle = rng.uniform(0, 2 * np.pi)
    flat = np.sqrt(1 - z * z)
    warmth, green = rng.uniform(-0.09, 0.09), rng.uniform(-0.02, 0.02)
    bright = rng.uniform(0.72, 1.12)
    return Light(
        x=float(flat * np.cos(angle)),
        y=float(flat * np.sin(angle)),
        z=z,
        ambient=rng.uniform(0.35, 0.6),
        cast=(bright * (1 + warmth), bright * (1 + green), bright * (1 - warmth)),
        shadow=rng.uniform(0.3, 0.6),
        softness=rng.uniform(0.3, 0.9),
    )


def _photograph(canvas: Floats, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Dark corners, blur, noise of the sensor, a curve of contrast."""
    height, width = canvas.shape[:2]
    x = np.linspace(-1, 1, width, dtype=np.float32)
    y = np.linspace(-1, 1, height, dtype=np.float32)[:, None]
    canvas = canvas * (1 - np.float32(rng.uniform(0, 0.28)) * (x * x + y * y) / 2)[..., None]
    contrast = np.float32(rng.uniform(0.85, 1.15))
    canvas = (canvas - np.float32(0.5)) * contrast + np.float32(0.5)
    blur = rng.uniform(0.25, 0.6) if rng.random() < 0.8 else rng.uniform(0.6, 1.5)
    image = Image.fromarray(_as_bytes(canvas)).filter(ImageFilter.GaussianBlur(blur))
    noise = rng.uniform(0, 2.5) if rng.random() < 0.8 else rng.uniform(2.5, 7)
    grain = rng.standard_normal((height, width, 1), dtype=np.float32) * np.float32(noise)
    colour_grain = rng.standard_normal((height, width, 3), dtype=np.float32) * np.float32(noise * 0.4)
    return _as_bytes((np.asarray(image, dtype=np.float32) + grain + colour_grain) / 255)


def _as_bytes(canvas: Floats) -> NDArray[np.uint8]:
    return (np.clip(canvas, 0, 1) * 255 + 0.5).astype(np.uint8)


def contact_sheet(pictures: Sequence[NDArray[np.uint8]], columns: int, cell: int = 160) -> Image.Image:
    """Pictures side by side, each fitted into a square of `cell` pixels."""
    rows = -(-len(pictures) // columns)
    sheet = Image.new("RGB", (columns * cell, rows * cell), (30, 30, 30))
    for number, pixels in enumerate(pictures):
        image = Image.fromarray(pixels)
        image.thumbnail((cell - 2, cell - 2), Image.Resampling.LANCZOS)
        sheet.paste(image, (number % columns * cell + 1, number // columns * cell + 1))
    return sheet
