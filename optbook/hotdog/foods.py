"""Hot dogs, and what may be taken for one: bare sausages, buns, carrots, bananas, baguettes, cucumbers.

Each is a frozen dataclass with a pose, a `reach` (along, across) that holds all of it, a `height` that throws
the shadow, a signed `distance` in its own coordinates, and the `colour` of its pixels under a light.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from optbook.hotdog.shapes import Colour, Floats, Light, Pose, bend, capsule, dome, ellipse, mix, ramp, shade

SAUSAGES = ((0.74, 0.30, 0.17), (0.66, 0.23, 0.13), (0.80, 0.38, 0.22), (0.56, 0.21, 0.12), (0.78, 0.29, 0.22))
CRUSTS = ((0.80, 0.50, 0.20), (0.72, 0.41, 0.15), (0.86, 0.60, 0.29), (0.76, 0.46, 0.22))
CRUMB = (0.97, 0.89, 0.70)
MUSTARD = (0.96, 0.77, 0.08)
KETCHUP = (0.78, 0.07, 0.05)
MAYONNAISE = (0.97, 0.95, 0.86)


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
class Sauce:
    """A line of sauce squeezed along a sausage: a wave of this amplitude, as shares of the sausage's radius."""

    colour: tuple[float, float, float]
    amplitude: float
    wavelength: float
    thickness: float
    phase: float

    def lay(self, below: Floats, u: Floats, v: Floats, half: float, radius: float, pose: Pose, light: Light) -> Floats:
        turn = np.float32(2 * np.pi / (self.wavelength * radius))
        amplitude = np.float32(self.amplitude * radius)
        angle = turn * u + np.float32(self.phase)
        off = v - amplitude * np.sin(angle)
        slope = amplitude * turn * np.cos(angle)
        wobble = 1 + np.float32(0.22) * np.sin(angle * np.float32(0.37) + 1)
        thick = np.float32(self.thickness * radius) * wobble
        across = off / np.sqrt(1 + slope * slope)
        beyond = np.maximum(np.abs(u) - np.float32(half), 0)
        distance = np.sqrt(across * across + beyond * beyond) - thick
        side = np.clip(across / thick, -0.95, 0.95)
        lean = np.sqrt(1 + slope * slope)
        body = shade(
            np.broadcast_to(np.asarray(self.colour, dtype=np.float32), below.shape),
            -side * slope / lean,
            side / lean,
            pose,
            light,
            gloss=0.5,
            sharpness=4,
        )
        dark = mix(below, np.asarray(below * np.float32(0.72), dtype=np.float32), ramp(-distance, -0.12 * radius - 1, 0))
        return mix(dark, body, np.clip(np.float32(0.5) - distance, 0, 1))


def sausage_colour(
    base: Colour, u: Floats, v: Floats, half: float, radius: float, grill: float, pose: Pose, light: Light
) -> Floats:
    """Glossy skin; `grill` (0 to 1) is how dark the diagonal grill marks are."""
    beyond = np.sign(u) * np.maximum(np.abs(u) - np.float32(half), 0)
    slope_u = np.clip(beyond / np.float32(radius), -0.98, 0.98)
    slope_v = dome(v, radius, v)
    rim = ramp(slope_u * slope_u + slope_v * slope_v, 0.35, 1.0)
    skin = mix(base, np.asarray(base, dtype=np.float32) * np.float32(0.62), rim)
    blotch = np.sin(u * np.float32(2.1 / radius) + 1) * np.sin(v * np.float32(2.7 / radius) + u * np.float32(0.7 / radius))
    skin = np.asarray(skin * (1 + np.float32(0.06) * blotch)[:, None], dtype=np.float32)
    if grill:
        stripe = np.sin((u + np.float32(0.5) * v) * np.float32(3.4 / radius))
        skin = mix(skin, (0.20, 0.08, 0.05), np.float32(grill) * ramp(stripe, 0.62, 0.95))
    tip = ramp(np.abs(beyond), 0.45 * radius, 0.95 * radius)
    skin = mix(skin, (0.36, 0.13, 0.08), np.float32(0.6) * tip)
    return shade(skin, slope_u, slope_v, pose, light, gloss=0.75, sharpness=5)


def crust_colour(
    base: Colour, u: Floats, v: Floats, half: float, radius: float, seed: float, pose: Pose, light: Light
) -> Floats:
    """Baked crust of a rounded bar: darkest on its back, paler down its sides, a dull highlight."""
    beyond = np.sign(u) * np.maximum(np.abs(u) - np.float32(half), 0)
    slope_u = np.clip(beyond / np.float32(radius), -0.97, 0.97)
    slope_v = dome(v, radius, v)
    side = slope_u * slope_u + slope_v * slope_v
    pale = np.asarray(base, dtype=np.float32) * np.float32(0.55) + np.float32(0.45) * np.asarray(
        (0.97, 0.80, 0.52), dtype=np.float32
    )
    mottle = np.sin(u * np.float32(5.0 / radius) + seed) * np.sin(v * np.float32(4.3 / radius) + 2 * seed)
    mottle = mottle + np.float32(0.6) * np.sin(u * np.float32(1.7 / radius) + 3 * seed)
    crust = mix(base, pale, ramp(side + np.float32(0.07) * mottle, 0.25, 1.0))
    crust = np.asarray(crust * (1 + np.float32(0.035) * mottle)[:, None], dtype=np.float32)
    return shade(crust, slope_u * np.float32(0.8), slope_v * np.float32(0.8), pose, light, gloss=0.22, sharpness=3)


@dataclass(frozen=True)
class HotDog:
    """A sausage in a bun of two halves, from above; `near` and `far` are the halves' (offset, radius)."""

    pose: Pose
    half: float  # half the sausage's length
    radius: float  # of the sausage
    curve: float
    bun: float  # half the bun's length
    near: tuple[float, float]
    far: tuple[float, float]
    sausage: tuple[float, float, float]
    crust: tuple[float, float, float]
    grill: float
    sauces: tuple[Sauce, ...]
    relish: float  # 0: none
    seed: float

    @classmethod
    def random(cls, pose: Pose, length: float, rng: np.random.Generator) -> HotDog:
        half = length / 2
        radius = half * rng.uniform(0.17, 0.215)
        view = rng.uniform(-0.22, 0.22)
        width = rng.uniform(0.95, 1.2)
        near, far = (
            (radius * width * (1.05 + tilt), radius * width * (1.0 + 0.75 * tilt)) for tilt in (view, -view)
        )
        return cls(
            pose=pose,
            half=half,
            radius=radius,
            curve=rng.uniform(-0.16, 0.16) / half,
            bun=half * rng.uniform(0.84, 0.93),
            near=near,
            far=far,
            sausage=_varied(SAUSAGES, rng),
            crust=_varied(CRUSTS, rng),
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
        return np.minimum(
            capsule(u, v, self.half - self.radius, self.radius),
            np.minimum(self._half(u, v, 1, self.near), self._half(u, v, -1, self.far)),
        )

    def _half(self, u: Floats, v: Floats, side: int, half: tuple[float, float]) -> Floats:
        offset, radius = half
        return capsule(u, v - np.float32(side * offset), self.bun - radius, radius)

    def colour(self, u: Floats, v: Floats, light: Light) -> Floats:
        v = bend(u, v, self.curve)
        shown = np.zeros((len(u), 3), dtype=np.float32)
        for side, (offset, radius) in ((-1, self.far), (1, self.near)):
            mine = v * side >= 0
            shown[mine] = self._bread(u[mine], v[mine], side, offset, radius, light)
        return self._filling(shown, u, v, light)

    def _bread(self, u: Floats, v: Floats, side: int, offset: float, radius: float, light: Light) -> Floats:
        across = v - np.float32(side * offset)
        bread = crust_colour(self.crust, u, across, self.bun - radius, radius, self.seed + side, self.pose, light)
        torn = np.float32(0.09 * radius) * np.sin(u * np.float32(6.3 / radius) + self.seed)
        torn += np.float32(0.05 * radius) * np.sin(u * np.float32(15 / radius) + 2 * self.seed)
        cut = np.float32(offset - 0.12 * radius) + torn - np.abs(v)
        grain = np.sin(u * np.float32(21 / radius)) * np.sin(v * np.float32(19 / radius) + self.seed)
        crumb = np.asarray(CRUMB, dtype=np.float32) * (
            (np.float32(light.ambient + 0.45) + np.float32(0.05) * grain)[:, None]
        )
        return mix(bread, np.minimum(crumb, 1), np.clip(cut / np.float32(0.12 * radius + 0.5) + np.float32(0.5), 0, 1))

    def _filling(self, below: Floats, u: Floats, v: Floats, light: Light) -> Floats:
        inner = self.half - self.radius
        distance = capsule(u, v, inner, self.radius)
        in_bun = ramp(np.float32(self.bun) - np.abs(u), -2, 2)
        gloom = np.float32(0.6) * ramp(-distance, -0.5 * self.radius, 0) * in_bun
        below = np.asarray(below * (1 - gloom)[:, None], dtype=np.float32)
        skin = sausage_colour(self.sausage, u, v, inner, self.radius, self.grill, self.pose, light)
        shown = mix(below, skin, np.clip(np.float32(0.5) - distance, 0, 1))
        if self.relish:
            bits = np.sin(u * np.float32(9 / self.radius) + self.seed) * np.sin(
                v * np.float32(8 / self.radius) + u * np.float32(3 / self.radius)
            )
            where = ramp(bits, 1 - self.relish, 1.1 - self.relish)
            where = where * ramp(np.float32(0.8 * inner) - np.abs(u), 0, self.radius)
            where = where * ramp(np.float32(0.85 * self.radius) - np.abs(v), 0, 0.2 * self.radius)
            green = np.asarray((0.42, 0.56, 0.16), dtype=np.float32) * (np.float32(0.8) + np.float32(0.5) * bits)[:, None]
            shown = mix(shown, green, where)
        for sauce in self.sauces:
            shown = sauce.lay(shown, u, v, inner * 0.93, self.radius, self.pose, light)
        return shown


def random_sauces(rng: np.random.Generator) -> tuple[Sauce, ...]:
    """Mostly mustard, often ketchup, sometimes both, mayonnaise or none."""
    kinds: tuple[tuple[tuple[float, float, float], ...], ...] = (
        (MUSTARD,), (KETCHUP,), (KETCHUP, MUSTARD), (MAYONNAISE,), (MAYONNAISE, KETCHUP), (),
    )  # fmt: skip
    colours = kinds[rng.choice(len(kinds), p=(0.42, 0.17, 0.18, 0.05, 0.05, 0.13))]
    straight = rng.random() < 0.15
    sauces = []
    for number, colour in enumerate(colours):
        sauces.append(
            Sauce(
                colour=colour,
                amplitude=rng.uniform(0.05, 0.15) if straight else rng.uniform(0.55, 0.95),
                wavelength=rng.uniform(1.5, 2.6),
                thickness=rng.uniform(0.19, 0.28),
                phase=rng.uniform(0, 6.28) + 2.2 * number,
            )
        )
    return tuple(sauces)


def _varied(colours: tuple[tuple[float, float, float], ...], rng: np.random.Generator) -> tuple[float, float, float]:
    red, green, blue = colours[rng.integers(len(colours))]
    bright, warm = rng.uniform(0.9, 1.08), rng.uniform(0.95, 1.05)
    return red * bright, green * bright * warm, blue * bright * warm


@dataclass(frozen=True)
class Sausage:
    """A sausage without a bun."""

    pose: Pose
    half: float
    radius: float
    curve: float
    skin: tuple[float, float, float]
    grill: float
    sauces: tuple[Sauce, ...]

    @classmethod
    def random(cls, pose: Pose, length: float, rng: np.random.Generator) -> Sausage:
        half = length / 2
        return cls(
            pose=pose,
            half=half,
            radius=half * rng.uniform(0.16, 0.22),
            curve=rng.uniform(-0.3, 0.3) / half,
            skin=_varied(SAUSAGES, rng),
            grill=rng.uniform(0.3, 0.9) if rng.random() < 0.5 else 0.0,
            sauces=random_sauces(rng) if rng.random() < 0.25 else (),
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
        shown = sausage_colour(self.skin, u, v, inner, self.radius, self.grill, self.pose, light)
        for sauce in self.sauces:
            shown = sauce.lay(shown, u, v, inner * 0.9, self.radius, self.pose, light)
        return shown


@dataclass(frozen=True)
class Bread:
    """A closed bun or a baguette: crust all over, with a seam or slashes."""

    pose: Pose
    half: float
    radius: float
    crust: tuple[float, float, float]
    slashes: bool
    seed: float

    @classmethod
    def random(cls, pose: Pose, length: float, rng: np.random.Generator) -> Bread:
        slashes = bool(rng.random() < 0.65)
        return cls(
            pose=pose,
            half=length / 2,
            radius=length / 2 * (rng.uniform(0.17, 0.25) if slashes else rng.uniform(0.3, 0.4)),
            crust=_varied(CRUSTS, rng),
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
        if not self.slashes:
            return capsule(u, v, self.half - self.radius, self.radius)
        taper = u / np.float32(self.half)
        return capsule(u, v, self.half - self.radius, self.radius) + np.float32(0.25 * self.radius) * taper * taper

    def colour(self, u: Floats, v: Floats, light: Light) -> Floats:
        shown = crust_colour(self.crust, u, v, self.half - self.radius, self.radius, self.seed, self.pose, light)
        if not self.slashes:
            return shown
        period = np.float32(1.5 * self.radius)
        place = (u + np.float32(0.9) * v) / period + np.float32(self.seed)
        middle = np.abs(place - np.floor(place) - np.float32(0.5)) * period
        inside = ramp(np.float32(0.62 * self.radius) - np.abs(v), 0, 0.25 * self.radius)
        inside = inside * ramp(np.float32(0.86 * self.half) - np.abs(u), 0, self.radius * 0.3)
        pale = np.asarray(shown * np.float32(0.35) + np.float32(0.62) * np.asarray((0.98, 0.86, 0.62), np.float32))
        shown = mix(shown, pale, inside * ramp(-middle, -0.3 * self.radius, -0.16 * self.radius))
        edge = ramp(-np.abs(middle - np.float32(0.3 * self.radius)), -0.07 * self.radius - 0.6, 0)
        return mix(shown, (0.42, 0.22, 0.09), np.float32(0.55) * inside * edge)


@dataclass(frozen=True)
class Carrot:
    """Tapered and ringed, with leaves at its thick end (negative u)."""

    pose: Pose
    half: float
    radius: float
    leaves: tuple[tuple[float, float], ...]  # (sideways, length) of each leaf
    seed: float

    @classmethod
    def random(cls, pose: Pose, length: float, rng: np.random.Generator) -> Carrot:
        half = length / 2
        leaves = tuple((rng.uniform(-0.45, 0.45), half * rng.uniform(0.3, 0.6)) for _ in range(rng.integers(4, 8)))
        return cls(pose, half, half * rng.uniform(0.16, 0.24), leaves if rng.random() < 0.8 else (), rng.uniform(0, 6))

    @property
    def reach(self) -> tuple[float, float]:
        return self.half * 1.65, self.radius + (0.35 * self.half if self.leaves else 0) + 2

    @property
    def height(self) -> float:
        return self.radius * 0.9

    def _width(self, u: Floats) -> Floats:
        t = np.clip((u / np.float32(self.half) + 1) / 2, 0, 1)
        return np.asarray(np.float32(self.radius) * (1 - np.float32(0.25) * t - np.float32(0.6) * t * t * t), np.float32)

    def _root(self, u: Floats, v: Floats) -> Floats:
        shoulder = np.float32(self.radius * 0.7)
        beyond = np.maximum(np.abs(u) - np.float32(self.half - self.radius * 0.7), 0)
        narrow = np.sqrt(np.maximum(1 - np.square(np.minimum(beyond / shoulder, 1)), 0))
        return np.maximum(np.abs(v) - self._width(u) * narrow, np.abs(u) - np.float32(self.half))

    def _green(self, u: Floats, v: Floats) -> Floats:
        nearest = np.full_like(u, 1e3)
        start = np.float32(-self.half * 0.94)
        for sideways, long in self.leaves:
            along = start - u
            across = v - np.float32(sideways) * along
            nearest = np.minimum(nearest, ellipse(along - np.float32(long / 2), across, long / 2, self.radius * 0.26))
        return nearest

    def distance(self, u: Floats, v: Floats) -> Floats:
        return np.minimum(self._root(u, v), self._green(u, v))

    def colour(self, u: Floats, v: Floats, light: Light) -> Floats:
        side = np.clip(v / np.maximum(self._width(u), 1), -0.97, 0.97)
        ring = np.sin(u * np.float32(4.6 / self.radius) + 2 * np.sin(u * np.float32(1.3 / self.radius) + self.seed))
        skin = mix((0.93, 0.47, 0.10), (0.72, 0.30, 0.05), np.float32(0.75) * ramp(ring, 0.80, 0.99))
        root = shade(skin, np.zeros_like(u), side, self.pose, light, gloss=0.2, sharpness=4)
        vein = np.float32(0.8) + np.float32(0.25) * np.sin(v * np.float32(9 / self.radius) + u * np.float32(5 / self.radius))
        leaf = np.asarray((0.27, 0.52, 0.14), dtype=np.float32) * vein[:, None]
        return mix(leaf, root, np.clip(np.float32(0.5) - self._root(u, v), 0, 1))


@dataclass(frozen=True)
class Banana:
    """Strongly bent, tapered, with dark ends and ridges."""

    pose: Pose
    half: float
    radius: float
    curve: float
    ripe: float
    seed: float

    @classmethod
    def random(cls, pose: Pose, length: float, rng: np.random.Generator) -> Banana:
        half = length / 2
        curve = rng.uniform(0.35, 0.55) / half * (1 if rng.random() < 0.5 else -1)
        return cls(pose, half, half * rng.uniform(0.19, 0.25), curve, rng.uniform(0, 1), rng.uniform(0, 6))

    @property
    def reach(self) -> tuple[float, float]:
        return self.half + 2, self.radius + abs(self.curve) * self.half**2 + 2

    @property
    def height(self) -> float:
        return self.radius * 0.9

    def _straight(self, u: Floats, v: Floats) -> Floats:
        middle = np.float32(self.curve * self.half**2 / 2)
        return bend(u, v + middle, self.curve)

    def _width(self, u: Floats) -> Floats:
        t = np.minimum(np.abs(u) / np.float32(self.half), 1)
        t = t * t
        return np.asarray(np.float32(self.radius) * (1 - np.float32(0.3) * t - np.float32(0.48) * t * t * t), np.float32)

    def distance(self, u: Floats, v: Floats) -> Floats:
        return np.maximum(np.abs(self._straight(u, v)) - self._width(u), np.abs(u) - np.float32(self.half))

    def colour(self, u: Floats, v: Floats, light: Light) -> Floats:
        v = self._straight(u, v)
        side = np.clip(v / np.maximum(self._width(u), 1), -0.97, 0.97)
        skin = mix((0.95, 0.80, 0.16), (0.86, 0.66, 0.10), ramp(np.sin(side * np.float32(5) + self.seed), 0.5, 1))
        spots = np.sin(u * np.float32(5.1 / self.radius) + self.seed) * np.sin(side * 4 + u * np.float32(2.3 / self.radius))
        skin = mix(skin, (0.40, 0.24, 0.08), np.float32(0.8 * self.ripe) * ramp(spots, 0.84, 0.97))
        green = ramp(np.abs(u), 0.72 * self.half, 0.95 * self.half)
        skin = mix(skin, (0.66, 0.66, 0.16), np.float32(0.6) * green)
        skin = mix(skin, (0.20, 0.14, 0.07), ramp(np.abs(u), 0.90 * self.half, 0.95 * self.half))
        return shade(skin, np.zeros_like(u), side * np.float32(0.85), self.pose, light, gloss=0.15, sharpness=4)


@dataclass(frozen=True)
class Cucumber:
    """A green bar with pale stripes."""

    pose: Pose
    half: float
    radius: float
    curve: float
    seed: float

    @classmethod
    def random(cls, pose: Pose, length: float, rng: np.random.Generator) -> Cucumber:
        half = length / 2
        return cls(pose, half, half * rng.uniform(0.18, 0.26), rng.uniform(-0.2, 0.2) / half, rng.uniform(0, 6))

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
        beyond = np.sign(u) * np.maximum(np.abs(u) - np.float32(self.half - self.radius), 0)
        side = dome(v, self.radius, v)
        stripe = np.sin(side * np.float32(9) + self.seed + np.float32(0.5) * np.sin(u * np.float32(3 / self.radius)))
        skin = mix((0.20, 0.38, 0.12), (0.44, 0.58, 0.24), np.float32(0.7) * ramp(stripe, 0.3, 1))
        return shade(skin, np.clip(beyond / np.float32(self.radius), -0.97, 0.97), side, self.pose, light, 0.35, 4)


LOOK_ALIKES = (Sausage, Bread, Carrot, Banana, Cucumber)
