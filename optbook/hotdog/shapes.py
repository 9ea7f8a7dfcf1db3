"""What the renderer draws with: places, signed distances, light, noise, and putting colour on a canvas.

Everything works on flat arrays of pixels (n,) in a thing's own coordinates: `u` along it and `v` across it, in
pixels of the picture. Distances are negative inside. Colours are float32 RGB from 0 to 1.

Whatever decides which pixels belong to a thing uses only + - * / and square roots, which IEEE 754 fixes to
the last bit, so that boxes come out the same on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Floats = NDArray[np.float32]
Colour = Sequence[float] | Floats


@dataclass(frozen=True)
class Pose:
    """Where a thing lies: its centre in pixels and the unit vector (du, dv) it points along."""

    x: float
    y: float
    du: float
    dv: float

    @classmethod
    def random_direction(cls, x: float, y: float, rng: np.random.Generator) -> Pose:
        while True:
            du, dv = rng.uniform(-1.0, 1.0, size=2)
            length = float(np.sqrt(du * du + dv * dv))
            if 0.1 < length <= 1.0:
                return cls(x, y, float(du) / length, float(dv) / length)

    def beside(self, along: float, across: float) -> Pose:
        """The same direction, moved by so many pixels along and across it."""
        return Pose(
            self.x + along * self.du - across * self.dv, self.y + along * self.dv + across * self.du, self.du, self.dv
        )


@dataclass(frozen=True)
class Light:
    """One lamp above the table: (x, y, z) a unit vector towards it; colours are multiplied by `cast`."""

    x: float
    y: float
    z: float
    ambient: float
    cast: tuple[float, float, float]
    shadow: float  # how dark, 0 to 1
    softness: float  # width of the shadow's edge, as a share of what throws it


@dataclass(frozen=True)
class Patch:
    """The pixels of a picture near a thing: flat indices into it, and their place in the thing's coordinates."""

    index: NDArray[np.intp]
    u: Floats
    v: Floats

    def take(self, kept: NDArray[np.bool_]) -> Patch:
        return Patch(self.index[kept], self.u[kept], self.v[kept])


def patch(pose: Pose, reach: tuple[float, float], width: int, height: int) -> Patch:
    """The pixels of a `width` x `height` picture within `reach` (along, across) of a pose."""
    along, across = reach
    half_x = abs(pose.du) * along + abs(pose.dv) * across + 1.0
    half_y = abs(pose.dv) * along + abs(pose.du) * across + 1.0
    left, right = max(int(pose.x - half_x), 0), min(int(pose.x + half_x) + 1, width)
    top, bottom = max(int(pose.y - half_y), 0), min(int(pose.y + half_y) + 1, height)
    if right <= left or bottom <= top:
        nothing = np.zeros(0, dtype=np.float32)
        return Patch(np.zeros(0, dtype=np.intp), nothing, nothing)
    x = np.arange(left, right, dtype=np.float32) + np.float32(0.5 - pose.x)
    y = (np.arange(top, bottom, dtype=np.float32) + np.float32(0.5 - pose.y))[:, None]
    du, dv = np.float32(pose.du), np.float32(pose.dv)
    u = (x * du + y * dv).ravel()
    v = (y * du - x * dv).ravel()
    near = np.flatnonzero((np.abs(u) <= along) & (np.abs(v) <= across))
    rows, columns = np.divmod(near, right - left)
    return Patch((rows + top) * width + columns + left, u[near], v[near])


def capsule(u: Floats, v: Floats, half: float, radius: float) -> Floats:
    """Signed distance to a straight sausage: a segment from -half to half, thickened by radius."""
    beyond = np.maximum(np.abs(u) - np.float32(half), 0)
    return np.asarray(np.sqrt(beyond * beyond + v * v) - np.float32(radius), dtype=np.float32)


def ellipse(u: Floats, v: Floats, along: float, across: float) -> Floats:
    """Signed distance to an ellipse, to first order (exact on its edge)."""
    a, b = u / np.float32(along), v / np.float32(across)
    level = a * a + b * b
    slope = 2 * np.sqrt((a / np.float32(along)) ** 2 + (b / np.float32(across)) ** 2) + np.float32(1e-4)
    return np.asarray((level - 1) / slope, dtype=np.float32)


def box(u: Floats, v: Floats, along: float, across: float, corner: float = 0.0) -> Floats:
    """Signed distance to a rectangle of half sizes (along, across) with rounded corners."""
    a = np.abs(u) - np.float32(along - corner)
    b = np.abs(v) - np.float32(across - corner)
    outside = np.sqrt(np.maximum(a, 0) ** 2 + np.maximum(b, 0) ** 2)
    return np.asarray(outside + np.minimum(np.maximum(a, b), 0) - np.float32(corner), dtype=np.float32)


def bend(u: Floats, v: Floats, curve: float) -> Floats:
    """`v` measured from the parabola v = curve * u², corrected for its slope."""
    slope = np.float32(2 * curve) * u
    return np.asarray((v - np.float32(curve) * u * u) / np.sqrt(1 + slope * slope), dtype=np.float32)


def cover(distance: Floats, softness: float = 1.0) -> Floats:
    """How much of a pixel lies inside: 0 to 1, over `softness` pixels; above a half exactly where distance < 0."""
    return np.clip(np.float32(0.5) - distance / np.float32(softness), 0, 1)


def ramp(values: Floats, low: float, high: float) -> Floats:
    """0 below low, 1 above high, smooth in between."""
    t = np.clip((values - np.float32(low)) / np.float32(high - low), 0, 1)
    return np.asarray(t * t * (3 - 2 * t), dtype=np.float32)


def mix(colour: Colour, other: Colour, share: Floats) -> Floats:
    """(n, 3): from one colour (3,) or (n, 3) to another by the share (n,) of the other."""
    first, second = np.asarray(colour, dtype=np.float32), np.asarray(other, dtype=np.float32)
    return np.asarray(first + (second - first) * share[:, None], dtype=np.float32)


def shade(
    colour: Floats, slope_u: Floats, slope_v: Floats, pose: Pose, light: Light, gloss: float, sharpness: int = 5
) -> Floats:
    """Light on a surface whose normal is (slope_u, slope_v, z): diffuse, and a highlight of strength `gloss`.

    `sharpness` is the log2 of the Phong exponent, as repeated squaring.
    """
    light_u = np.float32(light.x * pose.du + light.y * pose.dv)
    light_v = np.float32(light.y * pose.du - light.x * pose.dv)
    flat = np.minimum(slope_u * slope_u + slope_v * slope_v, np.float32(0.97))
    up = np.sqrt(1 - flat)
    towards = slope_u * light_u + slope_v * light_v + up * np.float32(light.z)
    lit = np.float32(light.ambient) + np.float32(1 - light.ambient) * np.maximum(towards, 0) / np.float32(light.z)
    shaded = colour * np.minimum(lit, 1.35)[:, None]
    if gloss:
        highlight = np.maximum(2 * towards * up - np.float32(light.z), 0)
        for _ in range(sharpness):
            highlight = highlight * highlight
        shaded = shaded + np.float32(gloss) * highlight[:, None]
    return np.asarray(shaded, dtype=np.float32)


def dome(distance: Floats, radius: float, across: Floats) -> Floats:
    """The slope across a rounded bar: 0 on its back, ±1 at its edge; `across` gives the sign."""
    return np.clip(across / np.float32(radius), -1, 1) * np.float32(0.98)


def cloud(rng: np.random.Generator, width: int, height: int, cell: float, octaves: int = 1) -> Floats:
    """Smooth noise (height, width), about -1 to 1, whose blobs are `cell` pixels wide, with finer octaves."""
    total = np.zeros((height, width), dtype=np.float32)
    strength = 1.0
    for octave in range(octaves):
        size = max(cell / 2**octave, 1.0)
        grid = rng.uniform(-1, 1, (int(height / size) + 2, int(width / size) + 2)).astype(np.float32)
        total += np.float32(strength) * _enlarged(grid, width, height)
        strength *= 0.5
    return total


def streaks(rng: np.random.Generator, width: int, height: int, long: float, thin: float) -> Floats:
    """Noise (height, width) drawn out along x, as the grain of wood."""
    grid = rng.uniform(-1, 1, (int(height / thin) + 2, int(width / long) + 2)).astype(np.float32)
    return _enlarged(grid, width, height)


def _enlarged(grid: Floats, width: int, height: int) -> Floats:
    image = Image.fromarray(grid)
    return np.asarray(image.resize((width, height), Image.Resampling.BICUBIC), dtype=np.float32)


def paint(canvas: Floats, index: NDArray[np.intp], colour: Colour, alpha: Floats) -> None:
    """Lay a colour (3,) or (n, 3) with opacity (n,) over the pixels `index` of a canvas (height, width, 3)."""
    pixels = canvas.reshape(-1, 3)
    below = pixels[index]
    pixels[index] = below + (np.asarray(colour, dtype=np.float32) - below) * alpha[:, None]


def darken(canvas: Floats, index: NDArray[np.intp], by: Floats) -> None:
    """Multiply the pixels `index` of a canvas by 1 - by (n,)."""
    canvas.reshape(-1, 3)[index] *= 1 - by[:, None]
