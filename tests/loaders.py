"""What runs in worker processes under test, importable under spawn."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.utils.data import Dataset


def sets_threads(worker_id: int) -> None:
    """A ``worker_init_fn`` that changes how many threads the worker computes with."""
    torch.set_num_threads(3)


class Items(Dataset[torch.Tensor]):
    """``count`` small tensors; ``work`` is done for the fourth, or for all if it has ``seconds``."""

    def __init__(self, count: int, work: Callable[[], None] | None) -> None:
        self.count, self.work = count, work

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.work is not None and (index == 3 or hasattr(self.work, "seconds")):
            self.work()
        return torch.zeros(3, 4, 4)
