"""Skins, crusts and sauces: what hot dogs and their look-alikes are covered with."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from optbook.hotdog.shapes import Floats, Light, Pose, Tint, cover, mix, ramp, rgb, shade

SAUSAGES: tuple[Tint, ...] = (
    (0.74, 0.30, 0.17), (0.66, 0.23, 0.13), (0.80, 0.38, 0.22), (0.56, 0.21, 0.12), (0.78, 0.29, 0.22),
)  # fmt: skip
CRUSTS: tuple[Tint, ...] = ((0.84, 0.53, 0.21), (0.76, 0.44, 0.16), (0.90, 0.64, 0.31), (0.80, 0.49, 0.23))
MUSTARD, KETCHUP, MAYONNAISE = (0.97, 0.78, 0.08), (0.78, 0.07, 0.05), (0.97, 0.95, 0.86)


def varied(tints: tuple[Tint, ...], rng: np.random.Generator) -> Tint:
    """One of the colours, a little brighter or darker, warmer or colder."""
    red, green, blue = tints[rng.integers(len(tints))]
    bright, cold = rng.uniform(0.92, 1.08), rng.uniform(0.95, 1.05)
    return red * bright, green * bright * cold, blue * bright * cold


def rounded(across: Floats, radius: float) -> Floats:
    """The slope of a round bar: 0 on its back, nearly 1 or -1 at its edges."""
    slope: Floats = np.clip(across / radius, -0.97, 0.97)
    return slope


def past(u: Floats, half: float) -> Floats:
    """How far beyond the segment from -half to half, with its sign."""
    return u - np.clip(u, -half, half)


def skin_colour(
    base: Tint, u: Floats, v: Floats, half: float, radius: float, grill: float, pose: Pose, light: Light
) -> Floats:
    """A sausage's glossy skin; `grill` (0 to 1) is how dark its diagonal grill marks are."""
    beyond = past(u, half)
    slope_u, slope_v = rounded(beyond, radius), rounded(v, radius)
    rim = ramp(slope_u * slope_u + slope_v * slope_v, 0.35, 1.0)
    blotch = np.sin(u * (2.1 / radius) + 1) * np.sin(v * (2.7 / radius) + u * (0.7 / radius))
    skin = rgb(base) * ((1 - 0.38 * rim) * (1 + 0.06 * blotch))
    if grill:
        stripe = np.sin((u + 0.5 * v) * (3.4 / radius))
        skin = mix(skin, (0.20, 0.08, 0.05), grill * ramp(stripe, 0.62, 0.95))
    tip = ramp(np.abs(beyond), 0.45 * radius, 0.95 * radius)
    skin = mix(skin, (0.36, 0.13, 0.08), 0.6 * tip)
    return shade(skin, slope_u, slope_v, pose, light, gloss=0.75, sharpness=5)


def crust_colour(
    base: Tint, u: Floats, v: Floats, half: float, radius: float, seed: float, pose: Pose, light: Light
) -> Floats:
    """Baked crust of a rounded bar: darkest on its back, paler down its sides, a dull highlight."""
    slope_u, slope_v = rounded(past(u, half), radius), rounded(v, radius)
    mottle = np.sin(u * (5.0 / radius) + seed) * np.sin(v * (4.3 / radius) + 2 * seed)
    mottle = mottle + 0.6 * np.sin(u * (1.7 / radius) + 3 * seed)
    pale = 0.55 * rgb(base) + 0.45 * rgb((0.97, 0.80, 0.52))
    crust = mix(base, pale, ramp(slope_u * slope_u + slope_v * slope_v + 0.07 * mottle, 0.25, 1.0))
    crust = crust * (1 + 0.035 * mottle)
    return shade(crust, slope_u * 0.8, slope_v * 0.8, pose, light, gloss=0.22, sharpness=3)


@dataclass(frozen=True)
class Sauce:
    """A wavy line squeezed along a sausage; its measures are shares of the sausage's radius."""

    tint: Tint
    amplitude: float
    wavelength: float
    thickness: float
    phase: float

    def over(
        self, below: Floats, u: Floats, v: Floats, half: float, radius: float, pose: Pose, light: Light
    ) -> Floats:
        """The colours (3, n) `below` with the sauce on them, from -half to half."""
        turn = 2 * math.pi / (self.wavelength * radius)
        angle = turn * u + self.phase
        slope = self.amplitude * radius * turn * np.cos(angle)
        lean = np.sqrt(1 + slope * slope)
        across = (v - self.amplitude * radius * np.sin(angle)) / lean
        thick = self.thickness * radius * (1 + 0.22 * np.sin(0.37 * angle + 1))
        beyond = past(u, half)
        distance = np.sqrt(across * across + beyond * beyond) - thick
        side = np.clip(across / thick, -0.95, 0.95)
        body = shade(rgb(self.tint), -side * slope / lean, side / lean, pose, light, gloss=0.5, sharpness=4)
        gloom = 0.28 * ramp(-distance, -0.12 * radius - 1, 0)
        return mix(below * (1 - gloom), body, cover(distance))


def random_sauces(rng: np.random.Generator) -> tuple[Sauce, ...]:
    """Mostly mustard, often ketchup, sometimes both, mayonnaise or none."""
    kinds: tuple[tuple[Tint, ...], ...] = (
        (MUSTARD,), (KETCHUP,), (KETCHUP, MUSTARD), (MAYONNAISE,), (MAYONNAISE, KETCHUP), (),
    )  # fmt: skip
    tints = kinds[rng.choice(len(kinds), p=(0.42, 0.17, 0.18, 0.05, 0.05, 0.13))]
    straight = rng.random() < 0.15
    return tuple(
        Sauce(
            tint=tint,
            amplitude=rng.uniform(0.05, 0.15) if straight else rng.uniform(0.55, 0.95),
            wavelength=rng.uniform(1.5, 2.6),
            thickness=rng.uniform(0.19, 0.28),
            phase=rng.uniform(0, 6.28) + 2.2 * number,
        )
        for number, tint in enumerate(tints)
    )
