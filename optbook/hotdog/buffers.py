"""Memory for batches, taken once and used again.

A buffer may be filled anew only when nobody looks at the batch in it any more. Counting on "two batches later
it will be free" goes wrong as soon as someone keeps a batch (`list(loader)`), or a thread prepares further
ahead: the kept batch would turn into another one, without any error. So a buffer here comes back by itself,
when the last tensor that looks into it is gone.
"""

from __future__ import annotations

import weakref

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import get_worker_info

MOST_SPARE = 4  # so many unused buffers are kept; a loop over a loader needs those prepared ahead, and two


class Buffers:
    """A pool of blocks of memory, all of one size: that of the largest tensor asked for so far."""

    def __init__(self) -> None:
        self._size = 0
        self._spare: list[NDArray[np.uint8]] = []

    def take(self, size: int) -> Tensor:
        """A tensor (size,) of bytes, not initialised. Its memory is used again once it, and every tensor
        made from it without copying, is gone.
        """
        if get_worker_info() is not None:
            # Nobody here can see when the training process lets go of it: shared, but new each time.
            shared: Tensor = torch.empty(size, dtype=torch.uint8).share_memory_()  # type: ignore[no-untyped-call]
            return shared
        if size > self._size:
            self._size = size
            self._spare = []
        block = self._spare.pop() if self._spare else torch.empty(self._size, dtype=torch.uint8).numpy()
        lent = block[:size]
        # The tensor's storage holds on to `lent`, and so does each view's: it dies with the last of them.
        weakref.finalize(lent, self._give_back, block)
        return torch.from_numpy(lent)

    def _give_back(self, block: NDArray[np.uint8]) -> None:
        if block.nbytes == self._size and len(self._spare) < MOST_SPARE:
            self._spare.append(block)
