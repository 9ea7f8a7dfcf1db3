"""A data set whose samples are made in worker processes."""

from __future__ import annotations

import torch
from torch.utils.data import Dataset

from tests import worker_parts

SIZE = 8


class Samples(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(worker_parts.work(index))
