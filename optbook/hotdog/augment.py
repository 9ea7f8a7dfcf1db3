"""Augmentation, one picture at a time: flip, rotate, scale, change colours, add noise.

Each function takes a picture (height, width, 3) of floats in 0…1, most also its boxes (n, 4) as x, y, width,
height in the picture's own pixels, and returns them changed; nothing is changed in place. All chance comes
from `rng`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]

MOST_DEGREES = 12.0
SCALES = (0.8, 1.2)
BRIGHTNESSES = (0.8, 1.2)
CONTRASTS = (0.8, 1.2)
SATURATIONS = (0.7, 1.3)
MOST_NOISE = 0.04


def augment_step_by_step(image: Floats, boxes: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Every change in a pass of its own over the whole picture, as one writes it the first time."""
    if rng.random() < 0.5:
        image, boxes = flip(image, boxes)
    image, boxes = rotate(image, boxes, degrees=rng.uniform(-MOST_DEGREES, MOST_DEGREES))
    image, boxes = rescale(image, boxes, factor=rng.uniform(*SCALES))
    image = recolour(image, rng.uniform(*BRIGHTNESSES), rng.uniform(*CONTRASTS), rng.uniform(*SATURATIONS))
    image = add_noise(image, rng.uniform(0.0, MOST_NOISE), rng)
    return image, keep_visible(boxes, image.shape[1], image.shape[0])


def flip(image: Floats, boxes: Floats) -> tuple[Floats, Floats]:
    """Left becomes right."""
    boxes = boxes.copy()
    boxes[:, 0] = image.shape[1] - boxes[:, 0] - boxes[:, 2]
    return image[:, ::-1], boxes


def rotate(image: Floats, boxes: Floats, degrees: float) -> tuple[Floats, Floats]:
    """Turn about the centre, clockwise; see `turned_boxes` for what becomes of the boxes."""
    height, width = image.shape[:2]
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    matrix = np.array([[cosine, -sine], [sine, cosine]])
    return warp(image, matrix), turned_boxes(boxes, matrix, width, height)


def rescale(image: Floats, boxes: Floats, factor: float) -> tuple[Floats, Floats]:
    """Enlarge (factor above 1) or shrink about the centre; the picture keeps its size."""
    height, width = image.shape[:2]
    matrix = np.array([[factor, 0.0], [0.0, factor]])
    return warp(image, matrix), turned_boxes(boxes, matrix, width, height)


def warp(image: Floats, matrix: Floats) -> Floats:
    """Move every pixel by `matrix` (2, 2; x before y) about the centre, blending its four neighbours.

    What comes from outside repeats the border.
    """
    height, width = image.shape[:2]
    centre_x, centre_y = (width - 1) / 2, (height - 1) / 2
    xs, ys = np.meshgrid(np.arange(width) - centre_x, np.arange(height) - centre_y)
    back = np.linalg.inv(matrix)
    from_x = np.clip(back[0, 0] * xs + back[0, 1] * ys + centre_x, 0, width - 1)
    from_y = np.clip(back[1, 0] * xs + back[1, 1] * ys + centre_y, 0, height - 1)

    left, top = np.floor(from_x).astype(int), np.floor(from_y).astype(int)
    right, bottom = np.minimum(left + 1, width - 1), np.minimum(top + 1, height - 1)
    along_x, along_y = (from_x - left)[..., None], (from_y - top)[..., None]
    upper = image[top, left] * (1 - along_x) + image[top, right] * along_x
    lower = image[bottom, left] * (1 - along_x) + image[bottom, right] * along_x
    blended: Floats = upper * (1 - along_y) + lower * along_y
    return blended


def turned_boxes(boxes: Floats, matrix: Floats, width: int, height: int) -> Floats:
    """The boxes after `warp` with the same matrix.

    The box round the four turned corners would grow with every degree, and what fills a box seldom reaches
    its corners. So the ellipse inside the box is turned, and the box drawn round that: its half width is
    √((a·w/2)² + (b·h/2)²), where (a, b) is the matrix's first row, and its half height likewise with the
    second (proposed by Kalra et al., "Towards Rotation Invariance in Object Detection", ICCV 2021).
    """
    halves = boxes[:, 2:] / 2
    centre = np.array([width / 2, height / 2])
    moved = (boxes[:, :2] + halves - centre) @ matrix.T + centre
    grown = np.sqrt(halves**2 @ (matrix**2).T)
    return np.concatenate([moved - grown, 2 * grown], axis=1)


def recolour(image: Floats, brightness: float, contrast: float, saturation: float) -> Floats:
    """Multiply by `brightness`; spread about the mean grey by `contrast`, about its own by `saturation`."""
    image = np.clip(image * brightness, 0, 1)
    mean = grey(image).mean()
    image = np.clip(mean + (image - mean) * contrast, 0, 1)
    own = grey(image)[..., None]
    return np.clip(own + (image - own) * saturation, 0, 1)


def grey(image: Floats) -> Floats:
    """(height, width): how bright each pixel looks (the weights of ITU-R BT.601)."""
    weighted: Floats = image @ np.array([0.299, 0.587, 0.114])
    return weighted


def add_noise(image: Floats, strength: float, rng: np.random.Generator) -> Floats:
    """Add Gaussian noise of this standard deviation, independently for each pixel and colour."""
    noisy: Floats = np.clip(image + rng.normal(0.0, strength, image.shape), 0, 1)
    return noisy


def keep_visible(boxes: Floats, width: int, height: int) -> Floats:
    """Cut the boxes at the border; those whose centre left the picture are dropped."""
    centres = boxes[:, :2] + boxes[:, 2:] / 2
    inside = ((centres >= 0) & (centres < [width, height])).all(axis=1)
    corners = np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)[inside]
    corners = np.clip(corners, 0, [width, height, width, height])
    return np.concatenate([corners[:, :2], corners[:, 2:] - corners[:, :2]], axis=1)
