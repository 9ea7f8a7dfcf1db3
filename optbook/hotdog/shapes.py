"""What the renderer draws with: places, signed distances, light, noise, and putting colour on a canvas.

Everything works on flat arrays of pixels (n,) in a thing's own coordinates: `u` along it and `v` across it,
in pixels of the picture. Distances are negative inside. Arrays are float32; colours are RGB (3, n) from 0
to 1, plane by plane.

Whatever decides which pixels belong to a thing uses only + - * / and square roots, which IEEE 754 fixes to
the last bit, so that boxes come out the same on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Floats = NDArray[np.floating[Any]]
Tint = tuple[float, float, float]


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
            self.x + along * self.du - across * self.dv,
            self.y + along * self.dv + across * self.du,
            self.du,
            self.dv,
        )


@dataclass(frozen=True)
class Light:
    """One lamp above the table: (x, y, z) a unit vector towards it; colours are multiplied by `cast`."""

    x: float
    y: float
    z: float
    ambient: float
    cast: Tint
    shadow: float  # how dark, 0 to 1
    softness: float  # width of the shadow's edge, as a share of what throws it


@dataclass(frozen=True)
class Patch:
    """The pixels of a picture near a thing: flat indices, and their place in the thing's coordinates."""

    index: NDArray[np.intp]
    u: Floats
    v: Floats

    def take(self, kept: NDArray[np.bool_]) -> Patch:
        return Patch(self.index[kept], self.u[kept], self.v[kept])


def extent(pose: Pose, reach: tuple[float, float]) -> tuple[float, float]:
    """Half the width and height in the picture of what lies within `reach` (along, across) of a pose."""
    along, across = reach
    du, dv = abs(pose.du), abs(pose.dv)
    return du * along + dv * across + 1, dv * along + du * across + 1


def patch(pose: Pose, reach: tuple[float, float], width: int, height: int) -> Patch:
    """The pixels of a `width` x `height` picture within `reach` (along, across) of a pose."""
    along, across = reach
    half_x, half_y = extent(pose, reach)
    left, right = max(int(pose.x - half_x), 0), min(int(pose.x + half_x) + 1, width)
    top, bottom = max(int(pose.y - half_y), 0), min(int(pose.y + half_y) + 1, height)
    if right <= left or bottom <= top:
        nothing = np.zeros(0, dtype=np.float32)
        return Patch(np.zeros(0, dtype=np.intp), nothing, nothing)
    x = np.arange(left, right, dtype=np.float32) + (0.5 - pose.x)
    y = (np.arange(top, bottom, dtype=np.float32) + (0.5 - pose.y))[:, None]
    u = x * pose.du + y * pose.dv
    v = y * pose.du - x * pose.dv
    near = np.flatnonzero((np.abs(u) <= along) & (np.abs(v) <= across))
    index = np.arange(top * width, bottom * width, width)[:, None] + np.arange(left, right)
    return Patch(index.ravel()[near], u.ravel()[near], v.ravel()[near])


def capsule(u: Floats, v: Floats, half: float, radius: float) -> Floats:
    """Signed distance to a straight sausage: a segment from -half to half, thickened by radius."""
    beyond = np.maximum(np.abs(u) - half, 0)
    return _root(beyond * beyond + v * v) - radius


def ellipse(u: Floats, v: Floats, along: float, across: float) -> Floats:
    """Signed distance to an ellipse, to first order (exact on its edge)."""
    a, b = u / along, v / across
    slope = 2 * _root((a / along) ** 2 + (b / across) ** 2) + 1e-4
    distance: Floats = (a * a + b * b - 1) / slope
    return distance


def box(u: Floats, v: Floats, along: float, across: float, corner: float = 0.0) -> Floats:
    """Signed distance to a rectangle of half sizes (along, across) with rounded corners."""
    a = np.abs(u) - (along - corner)
    b = np.abs(v) - (across - corner)
    outside = _root(np.maximum(a, 0) ** 2 + np.maximum(b, 0) ** 2)
    return outside + np.minimum(np.maximum(a, b), 0) - corner


def bend(u: Floats, v: Floats, curve: float) -> Floats:
    """`v` measured from the parabola v = curve * u², corrected for its slope."""
    slope = 2 * curve * u
    return (v - curve * u * u) / _root(1 + slope * slope)


def _root(values: Floats) -> Floats:
    root: Floats = np.sqrt(values)
    return root


def cover(distance: Floats, softness: float = 1.0) -> Floats:
    """How much of a pixel lies inside: 0 to 1 over `softness` pixels; above a half where distance < 0."""
    share: Floats = np.clip(0.5 - distance / softness, 0, 1)
    return share


def ramp(values: Floats, low: float, high: float) -> Floats:
    """0 below low, 1 above high, smooth in between."""
    t = np.clip((values - low) / (high - low), 0, 1)
    share: Floats = t * t * (3 - 2 * t)
    return share


def rgb(tint: Tint | Floats) -> Floats:
    """A colour as an array (3, 1), which goes with any number of pixels."""
    return np.asarray(tint, dtype=np.float32).reshape(3, -1)


def mix(colour: Tint | Floats, other: Tint | Floats, share: Floats) -> Floats:
    """(3, n): from one colour, for all or for each pixel, to another by the share (n,) of the other."""
    first = rgb(colour)
    return first + (rgb(other) - first) * share


def shade(
    colour: Floats,
    slope_u: Floats,
    slope_v: Floats,
    pose: Pose,
    light: Light,
    gloss: float,
    sharpness: int = 5,
) -> Floats:
    """Light on a surface whose normal is (slope_u, slope_v, z): diffuse, and a highlight of strength `gloss`.

    `sharpness` is the log2 of the exponent of Phong's highlight, which is taken by repeated squaring.
    """
    light_u = light.x * pose.du + light.y * pose.dv
    light_v = light.y * pose.du - light.x * pose.dv
    up = _root(1 - np.minimum(slope_u * slope_u + slope_v * slope_v, 0.97))
    towards = slope_u * light_u + slope_v * light_v + up * light.z
    lit = light.ambient + (1 - light.ambient) / light.z * np.maximum(towards, 0)
    shaded: Floats = colour * np.minimum(lit, 1.35)
    if gloss:
        highlight = np.maximum(2 * towards * up - light.z, 0)
        for _ in range(sharpness):
            highlight = highlight * highlight
        shaded = shaded + gloss * highlight
    return shaded


def cloud(rng: np.random.Generator, width: int, height: int, cell: float, octaves: int = 1) -> Floats:
    """Smooth noise (height, width), about -1 to 1, whose blobs are `cell` pixels wide, with finer octaves."""
    total: Floats = np.zeros((height, width), dtype=np.float32)
    for octave in range(octaves):
        size = max(cell / 2**octave, 1.0)
        total = total + 0.5**octave * streaks(rng, width, height, size, size)
    return total


def streaks(rng: np.random.Generator, width: int, height: int, long: float, thin: float) -> Floats:
    """Noise (height, width) whose blobs are `long` pixels wide and `thin` high, as the grain of wood."""
    grid = rng.uniform(-1, 1, (int(height / thin) + 2, int(width / long) + 2)).astype(np.float32)
    enlarged = Image.fromarray(grid).resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(enlarged, dtype=np.float32)


def paint(canvas: Floats, index: NDArray[np.intp], colour: Floats, alpha: Floats) -> None:
    """Lay a colour (3, n) with opacity (n,) over the pixels `index` of a canvas (3, height * width)."""
    for plane, ink in zip(canvas, colour, strict=True):
        below = plane[index]
        plane[index] = below + (ink - below) * alpha


def darken(canvas: Floats, index: NDArray[np.intp], by: Floats) -> None:
    """Multiply the pixels `index` of a canvas (3, height * width) by 1 - by (n,)."""
    kept = 1 - by
    for plane in canvas:
        plane[index] *= kept
