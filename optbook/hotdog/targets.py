"""What the network shall answer for a picture: a heat map of centres, and the distances to the boxes' sides.

Both are drawn on the network's own coarse grid. A *cell* is one position of that grid and covers STRIDE ×
STRIDE pixels of the input; the middle of cell (x, y) is at the pixel ((x + ½) · STRIDE, (y + ½) · STRIDE).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optbook.hotdog.network import STRIDE

# A hot dog's Gaussian spreads over this share of its box, but never over less than this many cells.
SPREAD = 1 / 8
LEAST_SPREAD = 0.9
# Cells where the heat exceeds this learn the distances too, so that a box found beside the centre fits too.
CLOSE_ENOUGH = 0.3


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
