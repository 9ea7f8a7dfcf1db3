"""Long things that are no hot dogs: carrots, bananas, cucumbers, and from `foods` sausages and bread."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optbook.hotdog.foods import Bread, Sausage, Thing
from optbook.hotdog.shapes import Floats, Light, Pose, bend, capsule, cover, ellipse, mix, ramp, rgb, shade
from optbook.hotdog.surfaces import past, rounded


@dataclass(frozen=True)
class Carrot:
    """Tapered and ringed, with leaves at its thick end (negative u)."""

    pose: Pose
    half: float
    radius: float
    leaves: tuple[tuple[float, float], ...]  # (sideways, length) of each
    seed: float

    @classmethod
    def random(cls, pose: Pose, length: float, rng: np.random.Generator) -> Carrot:
        half, amount = length / 2, int(rng.integers(4, 8)) if rng.random() < 0.8 else 0
        leaves = tuple((rng.uniform(-0.45, 0.45), half * rng.uniform(0.3, 0.6)) for _ in range(amount))
        return cls(pose, half, half * rng.uniform(0.16, 0.24), leaves, rng.uniform(0, 6))

    @property
    def reach(self) -> tuple[float, float]:
        return self.half * 1.65, self.radius + (0.35 * self.half if self.leaves else 0) + 2

    @property
    def height(self) -> float:
        return self.radius * 0.9

    def _width(self, u: Floats) -> Floats:
        t = np.clip((u / self.half + 1) / 2, 0, 1)
        return self.radius * (1 - 0.25 * t - 0.6 * t * t * t)

    def _root(self, u: Floats, v: Floats) -> Floats:
        shoulder = np.minimum(np.abs(past(u, self.half - 0.7 * self.radius)) / (0.7 * self.radius), 1)
        narrow = np.sqrt(1 - shoulder * shoulder)
        root: Floats = np.maximum(np.abs(v) - self._width(u) * narrow, np.abs(u) - self.half)
        return root

    def distance(self, u: Floats, v: Floats) -> Floats:
        nearest = self._root(u, v)
        along = -0.94 * self.half - u
        for sideways, long in self.leaves:
            leaf = ellipse(along - long / 2, v - sideways * along, long / 2, 0.26 * self.radius)
            nearest = np.minimum(nearest, leaf)
        return nearest

    def colour(self, u: Floats, v: Floats, light: Light) -> Floats:
        side = np.clip(v / np.maximum(self._width(u), 1), -0.97, 0.97)
        ring = np.sin(u * (4.6 / self.radius) + 2 * np.sin(u * (1.3 / self.radius) + self.seed))
        skin = mix((0.95, 0.48, 0.10), (0.74, 0.31, 0.05), 0.75 * ramp(ring, 0.80, 0.99))
        root = shade(skin, np.zeros_like(u), side, self.pose, light, gloss=0.2, sharpness=4)
        vein = 0.8 + 0.25 * np.sin(v * (9 / self.radius) + u * (5 / self.radius))
        return mix(rgb((0.27, 0.52, 0.14)) * vein, root, cover(self._root(u, v)))


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
        return bend(u, v + self.curve * self.half * self.half / 2, self.curve)

    def _width(self, u: Floats) -> Floats:
        t = np.minimum(np.abs(u) / self.half, 1)
        t = t * t
        return self.radius * (1 - 0.3 * t - 0.48 * t * t * t)

    def distance(self, u: Floats, v: Floats) -> Floats:
        return np.maximum(np.abs(self._straight(u, v)) - self._width(u), np.abs(u) - self.half)

    def colour(self, u: Floats, v: Floats, light: Light) -> Floats:
        side = np.clip(self._straight(u, v) / np.maximum(self._width(u), 1), -0.97, 0.97)
        skin = mix((0.97, 0.82, 0.18), (0.88, 0.68, 0.11), ramp(np.sin(side * 5 + self.seed), 0.5, 1))
        spots = np.sin(u * (5.1 / self.radius) + self.seed) * np.sin(side * 4 + u * (2.3 / self.radius))
        skin = mix(skin, (0.40, 0.24, 0.08), 0.8 * self.ripe * ramp(spots, 0.84, 0.97))
        end = np.abs(u) / self.half
        skin = mix(skin, (0.66, 0.66, 0.16), 0.6 * ramp(end, 0.72, 0.95))
        skin = mix(skin, (0.20, 0.14, 0.07), ramp(end, 0.90, 0.95))
        return shade(skin, np.zeros_like(u), side * 0.85, self.pose, light, gloss=0.15, sharpness=4)


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
        radius, curve = half * rng.uniform(0.18, 0.26), rng.uniform(-0.2, 0.2) / half
        return cls(pose, half, radius, curve, rng.uniform(0, 6))

    @property
    def reach(self) -> tuple[float, float]:
        return self.half + 2, self.radius + abs(self.curve) * self.half**2 + 2

    @property
    def height(self) -> float:
        return self.radius

    def distance(self, u: Floats, v: Floats) -> Floats:
        return capsule(u, bend(u, v, self.curve), self.half - self.radius, self.radius)

    def colour(self, u: Floats, v: Floats, light: Light) -> Floats:
        side = rounded(bend(u, v, self.curve), self.radius)
        end = rounded(past(u, self.half - self.radius), self.radius)
        stripe = np.sin(side * 9 + self.seed + 0.5 * np.sin(u * (3 / self.radius)))
        skin = mix((0.20, 0.38, 0.12), (0.44, 0.58, 0.24), 0.7 * ramp(stripe, 0.3, 1))
        return shade(skin, end, side, self.pose, light, gloss=0.35, sharpness=4)


_KINDS = (Sausage, Sausage, Bread, Bread, Carrot, Banana, Cucumber)


def random_look_alike(pose: Pose, length: float, rng: np.random.Generator) -> Thing:
    """A sausage, bread, carrot, banana or cucumber of about this length."""
    return _KINDS[rng.integers(len(_KINDS))].random(pose, length, rng)
