"""Hot dogs, and what they are made of lying about alone: sausages and bread.

Each is a frozen dataclass with a pose, a `reach` (along, across) that holds all of it, a `height` that throws
the shadow, a signed `distance` in its own coordinates, and the `colour` (3, n) of its pixels under a light.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from optbook.hotdog.shapes import Floats, Light, Pose, Tint, bend, capsule, cover, mix, ramp, rgb
from optbook.hotdog.surfaces import CRUSTS, SAUSAGES, Sauce, crust_colour, random_sauces, skin_colour, varied


class Thing(Protocol):
    """Anything that lies on the table."""

    @property
    def pose(self) -> Pose: ...
    @property
    def reach(self) -> tuple[float, float]: ...
    @property
    def height(self) -> float: ...
    def distance(self, u: Floats, v: Floats) -> Floats: ...
    def colour(self, u: Floats, v: Floats, light: Light) -> Floats: ...


@dataclass(frozen=True)
class HotDog:
    """A sausage in a bun of two halves, from above; each half has an (offset, radius)."""

    pose: Pose
    half: float  # half the sausage's length
    radius: float  # of the sausage
    curve: float
    bun: float  # half the bun's length
    near: tuple[float, float]
    far: tuple[float, float]
    skin: Tint
    crust: Tint
    grill: float
    sauces: tuple[Sauce, ...]
    relish: float  # 0: none
    seed: float

    @classmethod
    def random(cls, pose: Pose, length: float, rng: np.random.Generator) -> HotDog:
        half = length / 2
        radius = half * rng.uniform(0.165, 0.205)
        view, width = rng.uniform(-0.22, 0.22), rng.uniform(0.97, 1.17)
        near, far = (
            (radius * width * (1.2 + lean), radius * width * (1 + 0.75 * lean)) for lean in (view, -view)
        )
        return cls(
            pose=pose,
            half=half,
            radius=radius,
            curve=rng.uniform(-0.16, 0.16) / half,
            bun=half * rng.uniform(0.84, 0.93),
            near=near,
            far=far,
            skin=varied(SAUSAGES, rng),
            crust=varied(CRUSTS, rng),
            grill=rng.uniform(0.3, 0.8) if rng.random() < 0.3 else 0.0,
            sauces=random_sauces(rng),
            relish=rng.uniform(0.3, 0.7) if rng.random() < 0.15 else 0.0,
            seed=rng.uniform(0, 6),
        )

    @property
    def reach(self) -> tuple[float, float]:
        widest = max(offset + radius for offset, radius in (self.near, self.far))
        return self.half + 2, widest + abs(self.curve) * self.half**2 + 2

    @property
    def height(self) -> float:
        return self.radius * 1.3

    def distance(self, u: Floats, v: Floats) -> Floats:
        v = bend(u, v, self.curve)
        (near, near_radius), (far, far_radius) = self.near, self.far
        sausage = capsule(u, v, self.half - self.radius, self.radius)
        halves = np.minimum(
            capsule(u, v - near, self.bun - near_radius, near_radius),
            capsule(u, v + far, self.bun - far_radius, far_radius),
        )
        return np.minimum(sausage, halves)

    def colour(self, u: Floats, v: Floats, light: Light) -> Floats:
        v = bend(u, v, self.curve)
        shown = np.zeros((3, len(u)), dtype=np.float32)
        for side, half in ((-1, self.far), (1, self.near)):
            mine = v * side >= 0
            shown[:, mine] = self._bread(u[mine], v[mine], side, half, light)
        return self._filled(shown, u, v, light)

    def _bread(self, u: Floats, v: Floats, side: int, half: tuple[float, float], light: Light) -> Floats:
        offset, radius = half
        crust = crust_colour(
            self.crust, u, v - side * offset, self.bun - radius, radius, self.seed + side, self.pose, light
        )
        torn = 0.07 * np.sin(u * (4.3 / radius) + self.seed) + 0.04 * np.sin(u * (9 / radius) + 2 * self.seed)
        cut = offset + radius * (torn - 0.02) - np.abs(v)
        grain = np.sin(u * (19 / radius) + self.seed) * np.sin(v * (17 / radius) + self.seed)
        crumb = rgb((0.98, 0.90, 0.71)) * np.minimum(light.ambient + 0.45 + 0.06 * grain, 1.05)
        return mix(crust, crumb, cover(-cut, 0.16 * radius + 1))

    def _filled(self, below: Floats, u: Floats, v: Floats, light: Light) -> Floats:
        inner = self.half - self.radius
        distance = capsule(u, v, inner, self.radius)
        gloom = 0.55 * ramp(-distance, -0.3 * self.radius - 1, 0) * ramp(self.bun - np.abs(u), -2, 2)
        skin = skin_colour(self.skin, u, v, inner, self.radius, self.grill, self.pose, light)
        shown = mix(below * (1 - gloom), skin, cover(distance))
        if self.relish:
            shown = self._relished(shown, u, v, inner)
        for sauce in self.sauces:
            shown = sauce.over(shown, u, v, inner * 0.93, self.radius, self.pose, light)
        return shown

    def _relished(self, below: Floats, u: Floats, v: Floats, inner: float) -> Floats:
        turn = 1 / self.radius
        bits = np.sin(u * (9 * turn) + self.seed) * np.sin(v * (8 * turn) + u * (3 * turn))
        where = ramp(bits, 1 - self.relish, 1.1 - self.relish)
        where = where * ramp(0.8 * inner - np.abs(u), 0, self.radius)
        where = where * ramp(0.85 * self.radius - np.abs(v), 0, 0.2 * self.radius)
        return mix(below, rgb((0.42, 0.56, 0.16)) * (0.8 + 0.5 * bits), where)


@dataclass(frozen=True)
class Sausage:
    """A sausage without a bun."""

    pose: Pose
    half: float
    radius: float
    curve: float
    skin: Tint
    grill: float

    @classmethod
    def random(cls, pose: Pose, length: float, rng: np.random.Generator) -> Sausage:
        half = length / 2
        return cls(
            pose=pose,
            half=half,
            radius=half * rng.uniform(0.16, 0.22),
            curve=rng.uniform(-0.3, 0.3) / half,
            skin=varied(SAUSAGES, rng),
            grill=rng.uniform(0.3, 0.9) if rng.random() < 0.5 else 0.0,
        )

    @property
    def reach(self) -> tuple[float, float]:
        return self.half + 2, self.radius + abs(self.curve) * self.half**2 + 2

    @property
    def height(self) -> float:
        return self.radius

    def distance(self, u: Floats, v: Floats) -> Floats:
        return capsule(u, bend(u, v, self.curve), self.half - self.radius, self.radius)

    def colour(self, u: Floats, v: Floats, light: Light) -> Floats:
        v = bend(u, v, self.curve)
        inner = self.half - self.radius
        return skin_colour(self.skin, u, v, inner, self.radius, self.grill, self.pose, light)


@dataclass(frozen=True)
class Bread:
    """A closed bun, or a baguette with slashes."""

    pose: Pose
    half: float
    radius: float
    crust: Tint
    slashes: bool
    seed: float

    @classmethod
    def random(cls, pose: Pose, length: float, rng: np.random.Generator) -> Bread:
        slashes = bool(rng.random() < 0.65)
        return cls(
            pose=pose,
            half=length / 2,
            radius=length / 2 * (rng.uniform(0.17, 0.25) if slashes else rng.uniform(0.3, 0.4)),
            crust=varied(CRUSTS, rng),
            slashes=slashes,
            seed=rng.uniform(0, 6),
        )

    @property
    def reach(self) -> tuple[float, float]:
        return self.half + 2, self.radius + 2

    @property
    def height(self) -> float:
        return self.radius

    def distance(self, u: Floats, v: Floats) -> Floats:
        bar = capsule(u, v, self.half - self.radius, self.radius)
        if not self.slashes:
            return bar
        along = u / self.half
        return bar + 0.25 * self.radius * along * along

    def colour(self, u: Floats, v: Floats, light: Light) -> Floats:
        inner = self.half - self.radius
        crust = crust_colour(self.crust, u, v, inner, self.radius, self.seed, self.pose, light)
        return self._slashed(crust, u, v) if self.slashes else crust

    def _slashed(self, crust: Floats, u: Floats, v: Floats) -> Floats:
        period = 1.5 * self.radius
        place = (u + 0.9 * v) / period + self.seed
        middle = np.abs(place - np.floor(place) - 0.5) * period
        inside = ramp(0.62 * self.radius - np.abs(v), 0, 0.25 * self.radius)
        inside = inside * ramp(0.86 * self.half - np.abs(u), 0, 0.3 * self.radius)
        pale = 0.35 * crust + 0.62 * rgb((0.98, 0.86, 0.62))
        shown = mix(crust, pale, inside * ramp(-middle, -0.3 * self.radius, -0.16 * self.radius))
        edge = ramp(-np.abs(middle - 0.3 * self.radius), -0.07 * self.radius - 0.6, 0)
        return mix(shown, (0.42, 0.22, 0.09), 0.55 * inside * edge)
