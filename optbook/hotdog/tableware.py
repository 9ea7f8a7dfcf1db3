"""What lies among hot dogs and on them: plates, napkins, forks, cups, chips."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optbook.hotdog.shapes import Floats, Light, Pose, Tint, box, capsule, ellipse, mix, ramp, rgb, shade
from optbook.hotdog.table import CLOTHS

_PLATES: tuple[Tint, ...] = (
    (0.95, 0.95, 0.94), (0.93, 0.91, 0.85), (0.75, 0.83, 0.88), (0.35, 0.37, 0.40), (0.86, 0.72, 0.52),
)  # fmt: skip
_RIMS: tuple[Tint, ...] = ((0.93, 0.93, 0.92), (0.72, 0.12, 0.12), (0.80, 0.87, 0.90), (0.25, 0.30, 0.42))
_DRINKS: tuple[Tint, ...] = (
    (0.20, 0.09, 0.05), (0.85, 0.55, 0.12), (0.72, 0.08, 0.06), (0.93, 0.76, 0.12), (0.80, 0.86, 0.85),
)  # fmt: skip


@dataclass(frozen=True)
class Plate:
    """Round, oval or, as a tray or paper boat, square; with a rim and now and then a coloured line."""

    pose: Pose
    along: float
    across: float
    tint: Tint
    line: Tint | None
    square: bool

    @classmethod
    def random(cls, pose: Pose, size: float, rng: np.random.Generator) -> Plate:
        square = bool(rng.random() < 0.3)
        return cls(
            pose=pose,
            along=size,
            across=size * (rng.uniform(0.62, 0.95) if square or rng.random() < 0.35 else 1.0),
            tint=_PLATES[rng.choice(len(_PLATES), p=(0.45, 0.2, 0.13, 0.1, 0.12))],
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
        wall = 0.55 * ramp(-np.abs(inner), -0.09 * self.along, 0)
        lip = 0.6 * ramp(outer, -0.045 * self.along, 0)
        slope = lip - wall
        tint = rgb(self.tint)
        if self.line is not None:
            middle = np.abs(outer + 0.09 * self.along)
            tint = mix(
                tint,
                self.line,
                0.85 * ramp(-middle, -0.022 * self.along - 0.5, -0.022 * self.along + 0.5),
            )
        return shade(tint, slope * u / reach, slope * v / reach, self.pose, light, gloss=0.12, sharpness=4)


@dataclass(frozen=True)
class Napkin:
    """A square of cloth or paper, folded once, with a border."""

    pose: Pose
    along: float
    across: float
    tint: Tint

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
        share = 0.4 * ramp(-np.abs(border), -2.2, -0.8)
        tint = mix(self.tint, (0.98, 0.97, 0.95), share)
        fold = 0.3 * ramp(-np.abs(v - 0.2 * self.across), -0.12 * self.across, 0)
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
        handle = capsule(u + 0.3 * size, v, 0.6 * size, 0.035 * size)
        head = box(u - 0.45 * size, v, 0.14 * size, 0.105 * size, 0.07 * size)
        pitch = 0.06 * size
        nearest = np.clip(np.rint(v / pitch + 0.5) - 0.5, -1.5, 1.5) * pitch
        tines = capsule(u - 0.73 * size, v - nearest, 0.2 * size, 0.016 * size + 0.25)
        return np.minimum(np.minimum(handle, head), tines)

    def colour(self, u: Floats, v: Floats, light: Light) -> Floats:
        steel = rgb((0.74, 0.76, 0.79))
        slope = np.clip(v / (0.12 * self.half), -0.8, 0.8)
        lengthwise = 0.25 * np.sin(u * (5 / self.half))
        return shade(steel, lengthwise, slope, self.pose, light, gloss=0.8, sharpness=3)


@dataclass(frozen=True)
class Cup:
    """A cup, glass or bowl of sauce from above: a rim, a wall, something in it."""

    pose: Pose
    radius: float
    rim: Tint
    filling: Tint

    @classmethod
    def random(cls, pose: Pose, size: float, rng: np.random.Generator) -> Cup:
        radius = size * rng.uniform(0.2, 0.32)
        return cls(pose, radius, _RIMS[rng.integers(len(_RIMS))], _DRINKS[rng.integers(len(_DRINKS))])

    @property
    def reach(self) -> tuple[float, float]:
        return self.radius + 2, self.radius + 2

    @property
    def height(self) -> float:
        return self.radius * 0.7

    def distance(self, u: Floats, v: Floats) -> Floats:
        return capsule(u, v, 0, self.radius)

    def colour(self, u: Floats, v: Floats, light: Light) -> Floats:
        reach = np.sqrt(u * u + v * v) + 0.5
        share = reach / self.radius
        lip = 5.5 * (share - 0.93) * ramp(share, 0.8, 0.86)
        slope = np.clip(lip, -0.8, 0.8)
        rim = rgb(self.rim)
        body = shade(rim, slope * u / reach, slope * v / reach, self.pose, light, gloss=0.5, sharpness=4)
        level = ramp(share, 0.1, 0.84)
        drink = mix(self.filling, rgb(self.filling) * 0.55, level)
        spot = np.hypot(u - 0.25 * self.radius, v + 0.3 * self.radius)
        drink = mix(drink, (1.0, 1.0, 0.98), 0.5 * ramp(-spot, -0.2 * self.radius, -0.1 * self.radius))
        return mix(drink, body, ramp(share, 0.82, 0.86))


@dataclass(frozen=True)
class Chip:
    """One fried potato stick."""

    pose: Pose
    half: float
    tint: Tint

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
        slope = np.clip(v / (0.16 * self.half), -1, 1) * 0.5
        end = ramp(np.abs(u), 0.75 * self.half, self.half)
        tint = mix(self.tint, (0.80, 0.52, 0.16), 0.5 * end)
        return shade(tint, np.zeros_like(u), slope, self.pose, light, gloss=0.1, sharpness=3)
