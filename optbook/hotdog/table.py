"""What hot dogs lie on and among: tables and cloths, plates, napkins, forks, cups, chips."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from optbook.hotdog.shapes import Colour, Floats, Light, Pose, box, capsule, cloud, ellipse, mix, ramp, shade, streaks

CLOTHS = ((0.75, 0.13, 0.12), (0.16, 0.33, 0.62), (0.18, 0.50, 0.32), (0.86, 0.62, 0.16), (0.25, 0.25, 0.28))
WOODS = ((0.60, 0.42, 0.26), (0.45, 0.29, 0.17), (0.74, 0.58, 0.40), (0.36, 0.25, 0.18), (0.62, 0.55, 0.47))
STONES = ((0.55, 0.55, 0.56), (0.26, 0.27, 0.29), (0.80, 0.78, 0.74), (0.40, 0.45, 0.48))
PLAINS = ((0.85, 0.83, 0.78), (0.42, 0.55, 0.60), (0.62, 0.68, 0.55), (0.30, 0.34, 0.42), (0.80, 0.66, 0.62))


def random_table(rng: np.random.Generator, width: int, height: int) -> Floats:
    """A surface (height, width, 3) that fills the picture."""
    kinds: tuple[Callable[[np.random.Generator, int, int], Floats], ...] = (_planks, _checked, _stone, _cloth, _grass)
    surface = kinds[rng.choice(len(kinds), p=(0.32, 0.26, 0.16, 0.2, 0.06))](rng, width, height)
    uneven = cloud(rng, width, height, max(width, height) / 2)
    return np.asarray(surface * (1 + np.float32(0.07) * uneven)[..., None], dtype=np.float32)


def _turned(rng: np.random.Generator, width: int, height: int, most: float) -> tuple[Floats, Floats]:
    """Coordinates of each pixel, turned by up to `most` radians."""
    angle = rng.uniform(-most, most)
    cos, sin = np.float32(np.cos(angle)), np.float32(np.sin(angle))
    x = np.arange(width, dtype=np.float32) - np.float32(rng.uniform(0, 200))
    y = (np.arange(height, dtype=np.float32) - np.float32(rng.uniform(0, 200)))[:, None]
    return x * cos + y * sin, y * cos - x * sin


def _pick(colours: tuple[tuple[float, float, float], ...], rng: np.random.Generator) -> Floats:
    colour = np.asarray(colours[rng.integers(len(colours))]) * rng.uniform(0.85, 1.12)
    return np.asarray(colour * rng.uniform(0.95, 1.05, size=3), dtype=np.float32)


def _planks(rng: np.random.Generator, width: int, height: int) -> Floats:
    upright = rng.random() < 0.35
    long, deep = (height, width) if upright else (width, height)
    wood = _pick(WOODS, rng)
    plank = rng.uniform(0.14, 0.3) * max(width, height)
    rows = np.arange(deep, dtype=np.float32) + np.float32(rng.uniform(0, plank))
    number = (rows / np.float32(plank)).astype(np.intp)
    tone = rng.uniform(0.86, 1.1, size=int(number.max()) + 1).astype(np.float32)[number]
    grain = streaks(rng, long, deep, 90, 2.2) * np.float32(0.10) + streaks(rng, long, deep, 200, 7) * np.float32(0.09)
    off_edge = np.abs(rows / np.float32(plank) - number - np.float32(0.5))
    gap = ramp(off_edge * np.float32(plank), plank / 2 - 1.8, plank / 2 - 0.3)
    level = (tone * (1 - np.float32(0.6) * gap))[:, None] * (1 + grain)
    surface = np.asarray(level[..., None] * wood, dtype=np.float32)
    return np.ascontiguousarray(surface.transpose(1, 0, 2)) if upright else surface


def _checked(rng: np.random.Generator, width: int, height: int) -> Floats:
    """Gingham: two sets of stripes, dark where they cross."""
    u, v = _turned(rng, width, height, 0.8)
    period = np.float32(rng.uniform(0.07, 0.16) * max(width, height))
    stripes = rng.random() < 0.25
    across = _square_wave(u, period)
    along = across if stripes else _square_wave(v, period)
    weave = np.float32(0.02) * np.sin(u * np.float32(2.6)) * np.sin(v * np.float32(2.6))
    pale = np.asarray((0.95, 0.94, 0.91), dtype=np.float32)
    share = ((across + along) / 2).ravel()
    surface = mix(pale, _pick(CLOTHS, rng), share).reshape(height, width, 3)
    return np.asarray(surface * (1 + weave)[..., None], dtype=np.float32)


def _square_wave(values: Floats, period: np.float32) -> Floats:
    place = values / period
    triangle = np.abs(place - np.floor(place) - np.float32(0.5)) * period
    return ramp(triangle, float(period) / 4 - 0.8, float(period) / 4 + 0.8)


def _stone(rng: np.random.Generator, width: int, height: int) -> Floats:
    fine = cloud(rng, width, height, 3, 1) * np.float32(0.07)
    rough = cloud(rng, width, height, 40, 3) * np.float32(0.09)
    return np.asarray((1 + fine + rough)[..., None] * _pick(STONES, rng), dtype=np.float32)


def _cloth(rng: np.random.Generator, width: int, height: int) -> Floats:
    u, v = _turned(rng, width, height, 0.8)
    weave = np.float32(0.025) * (np.sin(u * np.float32(1.9)) + np.sin(v * np.float32(1.9)))
    folds = cloud(rng, width, height, max(width, height) / 3, 2) * np.float32(0.10)
    return np.asarray((1 + weave + folds)[..., None] * _pick(PLAINS, rng), dtype=np.float32)


def _grass(rng: np.random.Generator, width: int, height: int) -> Floats:
    blades = streaks(rng, height, width, 9, 1.8).T * np.float32(0.28) + cloud(rng, width, height, 50, 2) * np.float32(0.16)
    return np.asarray((1 + blades)[..., None] * np.asarray((0.30, 0.47, 0.16), dtype=np.float32), dtype=np.float32)


@dataclass(frozen=True)
class Plate:
    """Round, oval or, as a tray or paper boat, square; with a rim and now and then a coloured line."""

    pose: Pose
    along: float
    across: float
    tint: tuple[float, float, float]
    line: tuple[float, float, float] | None
    square: bool

    @classmethod
    def random(cls, pose: Pose, size: float, rng: np.random.Generator) -> Plate:
        square = bool(rng.random() < 0.3)
        tints = ((0.95, 0.95, 0.94), (0.93, 0.91, 0.85), (0.75, 0.83, 0.88), (0.35, 0.37, 0.40), (0.86, 0.72, 0.52))
        return cls(
            pose=pose,
            along=size,
            across=size * (rng.uniform(0.62, 0.95) if square or rng.random() < 0.35 else 1.0),
            tint=tints[rng.choice(len(tints), p=(0.45, 0.2, 0.13, 0.1, 0.12))],
            line=CLOTHS[rng.integers(len(CLOTHS))] if rng.random() < 0.35 else None,
            square=square,
        )

    @property
    def reach(self) -> tuple[float, float]:
        return self.along + 2, self.across + 2

    @property
    def height(self) -> float:
        return self.along * 0.045

    def _inset(self, u: Floats, v: Floats, by: float) -> Floats:
        along, across = self.along - by, self.across - by
        return box(u, v, along, across, 0.18 * across) if self.square else ellipse(u, v, along, across)

    def distance(self, u: Floats, v: Floats) -> Floats:
        return self._inset(u, v, 0)

    def colour(self, u: Floats, v: Floats, light: Light) -> Floats:
        rim = 0.2 * self.along
        outer, inner = self._inset(u, v, 0), self._inset(u, v, rim)
        reach = np.sqrt(u * u + v * v) + 1
        wall = np.float32(0.55) * ramp(-np.abs(inner), -0.09 * self.along, 0)
        lip = np.float32(0.6) * ramp(outer, -0.045 * self.along, 0)
        slope = lip - wall
        tint = np.broadcast_to(np.asarray(self.tint, dtype=np.float32), (len(u), 3))
        if self.line is not None:
            middle = np.abs(outer + np.float32(0.09 * self.along))
            tint = mix(tint, self.line, np.float32(0.85) * ramp(-middle, -0.022 * self.along - 0.5, -0.022 * self.along + 0.5))
        return shade(tint, slope * u / reach, slope * v / reach, self.pose, light, gloss=0.12, sharpness=4)


@dataclass(frozen=True)
class Napkin:
    """A square of cloth or paper, folded once, with a border."""

    pose: Pose
    along: float
    across: float
    tint: tuple[float, float, float]

    @classmethod
    def random(cls, pose: Pose, size: float, rng: np.random.Generator) -> Napkin:
        tints = ((0.95, 0.95, 0.93), *CLOTHS)
        return cls(pose, size * 0.5, size * rng.uniform(0.25, 0.5), tints[rng.integers(len(tints))])

    @property
    def reach(self) -> tuple[float, float]:
        return self.along + 2, self.across + 2

    @property
    def height(self) -> float:
        return self.across * 0.06

    def distance(self, u: Floats, v: Floats) -> Floats:
        return box(u, v, self.along, self.across, 1.5)

    def colour(self, u: Floats, v: Floats, light: Light) -> Floats:
        border = box(u, v, self.along * 0.86, self.across * 0.82)
        share = np.float32(0.4) * ramp(-np.abs(border), -2.2, -0.8)
        tint = mix(self.tint, (0.98, 0.97, 0.95), share)
        fold = np.float32(0.3) * ramp(-np.abs(v - np.float32(0.2 * self.across)), -0.12 * self.across, 0)
        return shade(tint, np.zeros_like(u), fold, self.pose, light, gloss=0.0)


@dataclass(frozen=True)
class Fork:
    """Four tines and a long shining handle."""

    pose: Pose
    half: float

    @classmethod
    def random(cls, pose: Pose, size: float, rng: np.random.Generator) -> Fork:
        return cls(pose, size * rng.uniform(0.5, 0.7))

    @property
    def reach(self) -> tuple[float, float]:
        return self.half + 2, self.half * 0.14 + 2

    @property
    def height(self) -> float:
        return self.half * 0.05

    def distance(self, u: Floats, v: Floats) -> Floats:
        size = self.half
        handle = capsule(u + np.float32(0.3 * size), v, 0.6 * size, 0.035 * size)
        head = box(u - np.float32(0.45 * size), v, 0.14 * size, 0.105 * size, 0.07 * size)
        pitch = np.float32(0.06 * size)
        nearest = np.clip(np.rint(v / pitch + np.float32(0.5)) - np.float32(0.5), -1.5, 1.5) * pitch
        tines = capsule(u - np.float32(0.73 * size), v - nearest, 0.2 * size, 0.016 * size + 0.25)
        return np.minimum(np.minimum(handle, head), tines)

    def colour(self, u: Floats, v: Floats, light: Light) -> Floats:
        steel = np.broadcast_to(np.asarray((0.74, 0.76, 0.79), dtype=np.float32), (len(u), 3))
        slope = np.clip(v / np.float32(0.12 * self.half), -0.8, 0.8)
        lengthwise = np.float32(0.25) * np.sin(u * np.float32(5 / self.half))
        return shade(steel, lengthwise, slope, self.pose, light, gloss=0.8, sharpness=3)


@dataclass(frozen=True)
class Cup:
    """A cup, glass or bowl of sauce from above: a rim, a wall, something in it."""

    pose: Pose
    radius: float
    rim: tuple[float, float, float]
    filling: tuple[float, float, float]

    @classmethod
    def random(cls, pose: Pose, size: float, rng: np.random.Generator) -> Cup:
        rims = ((0.93, 0.93, 0.92), (0.72, 0.12, 0.12), (0.80, 0.87, 0.90), (0.25, 0.30, 0.42))
        fillings = ((0.20, 0.09, 0.05), (0.85, 0.55, 0.12), (0.72, 0.08, 0.06), (0.93, 0.76, 0.12), (0.80, 0.86, 0.85))
        radius = size * rng.uniform(0.2, 0.32)
        return cls(pose, radius, rims[rng.integers(len(rims))], fillings[rng.integers(len(fillings))])

    @property
    def reach(self) -> tuple[float, float]:
        return self.radius + 2, self.radius + 2

    @property
    def height(self) -> float:
        return self.radius * 0.7

    def distance(self, u: Floats, v: Floats) -> Floats:
        return np.asarray(np.sqrt(u * u + v * v) - np.float32(self.radius), dtype=np.float32)

    def colour(self, u: Floats, v: Floats, light: Light) -> Floats:
        reach = np.sqrt(u * u + v * v) + np.float32(0.5)
        share = reach / np.float32(self.radius)
        lip = np.float32(5.5) * (share - np.float32(0.93)) * ramp(share, 0.8, 0.86)
        slope = np.clip(lip, -0.8, 0.8)
        rim = np.broadcast_to(np.asarray(self.rim, dtype=np.float32), (len(u), 3))
        body = shade(rim, slope * u / reach, slope * v / reach, self.pose, light, gloss=0.5, sharpness=4)
        level = ramp(share, 0.1, 0.84)
        drink = mix(self.filling, np.asarray(self.filling, dtype=np.float32) * np.float32(0.55), level)
        spot = np.hypot(u - np.float32(0.25 * self.radius), v + np.float32(0.3 * self.radius))
        drink = mix(drink, (1.0, 1.0, 0.98), np.float32(0.5) * ramp(-spot, -0.2 * self.radius, -0.1 * self.radius))
        return mix(drink, body, ramp(share, 0.82, 0.86))


@dataclass(frozen=True)
class Chip:
    """One fried potato stick."""

    pose: Pose
    half: float
    tint: Colour

    @classmethod
    def random(cls, pose: Pose, size: float, rng: np.random.Generator) -> Chip:
        shade_of = rng.uniform(0.86, 1.05)
        return cls(pose, size * rng.uniform(0.16, 0.3), (0.95 * shade_of, 0.76 * shade_of, 0.32 * shade_of))

    @property
    def reach(self) -> tuple[float, float]:
        return self.half + 2, self.half * 0.2 + 2

    @property
    def height(self) -> float:
        return self.half * 0.2

    def distance(self, u: Floats, v: Floats) -> Floats:
        return box(u, v, self.half, self.half * 0.16, self.half * 0.05)

    def colour(self, u: Floats, v: Floats, light: Light) -> Floats:
        slope = np.clip(v / np.float32(0.16 * self.half), -1, 1) * np.float32(0.5)
        end = ramp(np.abs(u), 0.75 * self.half, self.half)
        tint = mix(self.tint, (0.80, 0.52, 0.16), np.float32(0.5) * end)
        return shade(tint, np.zeros_like(u), slope, self.pose, light, gloss=0.1, sharpness=3)
