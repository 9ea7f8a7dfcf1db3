"""What the network shall answer for a picture: a heat map of centres, and the distances to the boxes' sides.

Both are drawn on the network's own coarse grid. A *cell* is one position of that grid and covers STRIDE ×
STRIDE pixels of the input; the middle of cell (x, y) is at the pixel ((x + ½) · STRIDE, (y + ½) · STRIDE).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optbook.hotdog.batched import for_a_batch
from optbook.hotdog.network import STRIDE

# A hot dog's Gaussian spreads over this share of its box, but never over less than this many cells.
SPREAD = 1 / 8
LEAST_SPREAD = 0.9
# Cells where the heat exceeds this learn the distances too, so that a box found beside the centre fits too.
CLOSE_ENOUGH = 0.3
FAR_AWAY = -1e6


class Targets(NamedTuple):
    """`heat` (1, G, G) in 0…1; `sides` (4, G, G): left, top, right, bottom in input pixels; `close`: where
    the distances count, (1, G, G) of 0 and 1.
    """

    heat: NDArray[np.floating]
    sides: NDArray[np.floating]
    close: NDArray[np.floating]


def draw_cell_by_cell(boxes: NDArray[np.floating], grid: int) -> Targets:
    """Draw each hot dog's Gaussian over the whole grid, one cell after the other.

    `boxes` (n, 4) are x, y, width, height in input pixels. The heat is exactly 1 in the cell that holds a
    centre; where hot dogs overlap, the larger value wins and the cell's distances lead to that box.
    """
    heat = np.zeros((1, grid, grid))
    sides = np.zeros((4, grid, grid))
    close = np.zeros((1, grid, grid))
    for left, top, width, height in boxes:
        centre_x = min(int((left + width / 2) / STRIDE), grid - 1)
        centre_y = min(int((top + height / 2) / STRIDE), grid - 1)
        spread_x = max(width / STRIDE * SPREAD, LEAST_SPREAD)
        spread_y = max(height / STRIDE * SPREAD, LEAST_SPREAD)
        for y in range(grid):
            for x in range(grid):
                distance = ((x - centre_x) / spread_x) ** 2 + ((y - centre_y) / spread_y) ** 2
                value = math.exp(-distance / 2)
                if value > heat[0, y, x]:
                    heat[0, y, x] = value
                    if value > CLOSE_ENOUGH:
                        middle_x, middle_y = (x + 0.5) * STRIDE, (y + 0.5) * STRIDE
                        sides[0, y, x] = middle_x - left
                        sides[1, y, x] = middle_y - top
                        sides[2, y, x] = left + width - middle_x
                        sides[3, y, x] = top + height - middle_y
                        close[0, y, x] = 1.0
    return Targets(heat, sides, close)


def draw_with_arrays(boxes: NDArray[np.floating], grid: int) -> Targets:
    """The same as `draw_cell_by_cell`: each box's whole map at once, then the hottest box of each cell."""
    if len(boxes) == 0:
        return Targets(np.zeros((1, grid, grid)), np.zeros((4, grid, grid)), np.zeros((1, grid, grid)))
    heats = _heats(boxes, grid)
    hottest = heats.argmax(axis=0)
    heat = heats.max(axis=0)
    close = heat > CLOSE_ENOUGH
    left, top, width, height = boxes[hottest].transpose(2, 0, 1)  # of each cell's hottest box
    middles = (np.arange(grid) + 0.5) * STRIDE
    sides = np.stack(
        [middles - left, middles[:, None] - top, left + width - middles, top + height - middles[:, None]]
    )
    return Targets(heat[None], sides * close, close[None].astype(float))


@for_a_batch
def draw_together(boxes: Sequence[NDArray[np.floating]], grid: int) -> list[Targets]:
    """The same for all pictures of a batch, in float32; distances are worked out only where they count.

    Pictures have different numbers of boxes: the list is filled up to (B, most, 4) with boxes so far away
    that they are hot nowhere.
    """
    most = max(1, *map(len, boxes))
    filled = np.full((len(boxes), most, 4), FAR_AWAY, dtype=np.float32)
    for row, some in zip(filled, boxes, strict=True):
        row[: len(some)] = some
    heats = _heats(filled, grid)  # (B, most, G, G)
    heat = heats.max(axis=1, keepdims=True)
    close = heat > CLOSE_ENOUGH

    picture, _, y, x = np.nonzero(close)
    hottest = heats[picture, :, y, x].argmax(axis=1)
    left, top, width, height = filled[picture, hottest].T
    middle_x, middle_y = (x + 0.5) * STRIDE, (y + 0.5) * STRIDE
    sides = np.zeros((len(boxes), 4, grid, grid), dtype=np.float32)
    distances = [middle_x - left, middle_y - top, left + width - middle_x, top + height - middle_y]
    sides[picture, :, y, x] = np.stack(distances, axis=1)
    return [Targets(*maps) for maps in zip(heat, sides, close.astype(np.float32), strict=True)]


def _heats(boxes: NDArray[np.floating], grid: int) -> NDArray[np.floating]:
    """The Gaussian of each box (…, 4) on its own grid, (…, G, G).

    exp(−(a² + b²) ÷ 2) is exp(−a² ÷ 2) · exp(−b² ÷ 2): a row and a column make the map.
    """
    corner, size = boxes[..., :2], boxes[..., 2:]
    centre = np.minimum(np.trunc((corner + size / 2) / STRIDE), grid - 1)
    spread = np.maximum(size / STRIDE * SPREAD, LEAST_SPREAD)
    distance = (np.arange(grid, dtype=boxes.dtype) - centre[..., None]) / spread[..., None]  # (…, 2, G)
    bells = np.exp(-(distance**2) / 2)
    heats: NDArray[np.floating] = bells[..., 1, :, None] * bells[..., 0, None, :]
    return heats
