"""What hot dogs lie on: planks, cloths, stone, grass."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from optbook.hotdog.shapes import Floats, Tint, cloud, mix, ramp, rgb, streaks

CLOTHS = ((0.75, 0.13, 0.12), (0.16, 0.33, 0.62), (0.18, 0.50, 0.32), (0.86, 0.62, 0.16), (0.25, 0.25, 0.28))
WOODS = ((0.60, 0.42, 0.26), (0.45, 0.29, 0.17), (0.74, 0.58, 0.40), (0.36, 0.25, 0.18), (0.62, 0.55, 0.47))
STONES = ((0.55, 0.55, 0.56), (0.26, 0.27, 0.29), (0.80, 0.78, 0.74), (0.40, 0.45, 0.48))
PLAINS = ((0.85, 0.83, 0.78), (0.42, 0.55, 0.60), (0.62, 0.68, 0.55), (0.30, 0.34, 0.42), (0.80, 0.66, 0.62))

_Surface = Callable[[np.random.Generator, int, int], Floats]


def random_table(rng: np.random.Generator, width: int, height: int) -> Floats:
    """A surface (3, height, width) that fills the picture."""
    kinds: tuple[_Surface, ...] = (_planks, _checked, _stone, _cloth, _grass)
    surface = kinds[rng.choice(len(kinds), p=(0.32, 0.26, 0.16, 0.2, 0.06))](rng, width, height)
    uneven = cloud(rng, width, height, max(width, height) / 2)
    return surface * (1 + 0.07 * uneven)


def _turned(rng: np.random.Generator, width: int, height: int, most: float) -> tuple[Floats, Floats]:
    """Coordinates of each pixel, turned by up to `most` radians."""
    angle = rng.uniform(-most, most)
    cos, sin = math.cos(angle), math.sin(angle)
    x = np.arange(width, dtype=np.float32) - rng.uniform(0, 200)
    y = (np.arange(height, dtype=np.float32) - rng.uniform(0, 200))[:, None]
    return x * cos + y * sin, y * cos - x * sin


def _pick(colours: tuple[Tint, ...], rng: np.random.Generator) -> Floats:
    """One of the colours, a little different, as (3, 1, 1)."""
    colour = np.asarray(colours[rng.integers(len(colours))]) * rng.uniform(0.85, 1.12)
    return rgb(colour * rng.uniform(0.95, 1.05, size=3))[..., None]


def _planks(rng: np.random.Generator, width: int, height: int) -> Floats:
    upright = rng.random() < 0.35
    long, deep = (height, width) if upright else (width, height)
    wood = _pick(WOODS, rng)
    plank = rng.uniform(0.14, 0.3) * max(width, height)
    rows = np.arange(deep, dtype=np.float32) + rng.uniform(0, plank)
    number = (rows / plank).astype(np.intp)
    tone = rng.uniform(0.86, 1.1, size=int(number.max()) + 1).astype(np.float32)[number]
    grain = streaks(rng, long, deep, 90, 2.2) * 0.10 + streaks(rng, long, deep, 200, 7) * 0.09
    off_edge = np.abs(rows / plank - number - 0.5)
    gap = ramp(off_edge * plank, plank / 2 - 1.8, plank / 2 - 0.3)
    surface = wood * (tone * (1 - 0.6 * gap))[:, None] * (1 + grain)
    return np.ascontiguousarray(surface.transpose(0, 2, 1)) if upright else surface


def _checked(rng: np.random.Generator, width: int, height: int) -> Floats:
    """Gingham: two sets of stripes, dark where they cross."""
    u, v = _turned(rng, width, height, 0.8)
    period = rng.uniform(0.07, 0.16) * max(width, height)
    stripes = rng.random() < 0.25
    across = _square_wave(u, period)
    along = across if stripes else _square_wave(v, period)
    weave = 0.015 * np.sin(u * 1.4) * np.sin(v * 1.4)
    share = ((across + along) / 2).ravel()
    squares = mix((0.95, 0.94, 0.91), _pick(CLOTHS, rng), share).reshape(3, height, width)
    surface: Floats = squares * (1 + weave)
    return surface


def _square_wave(values: Floats, period: float) -> Floats:
    place = values / period
    triangle = np.abs(place - np.floor(place) - 0.5) * period
    return ramp(triangle, period / 4 - 0.8, period / 4 + 0.8)


def _stone(rng: np.random.Generator, width: int, height: int) -> Floats:
    fine = cloud(rng, width, height, 3.5, 1) * 0.05
    rough = cloud(rng, width, height, 40, 3) * 0.09
    return _pick(STONES, rng) * (1 + fine + rough)


def _cloth(rng: np.random.Generator, width: int, height: int) -> Floats:
    u, v = _turned(rng, width, height, 0.8)
    weave = 0.018 * (np.sin(u * 1.3) + np.sin(v * 1.3))
    folds = cloud(rng, width, height, max(width, height) / 3, 2) * 0.10
    surface: Floats = _pick(PLAINS, rng) * (1 + weave + folds)
    return surface


def _grass(rng: np.random.Generator, width: int, height: int) -> Floats:
    blades = streaks(rng, height, width, 9, 1.8).T * 0.28 + cloud(rng, width, height, 50, 2) * 0.16
    surface: Floats = rgb((0.30, 0.47, 0.16))[..., None] * (1 + blades)
    return surface
