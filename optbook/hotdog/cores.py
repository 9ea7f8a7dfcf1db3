"""How torch shares the machine's cores with threads of our own.

Two threads that each let torch compute on all cores are in each other's way: torch's own threads wait for one
another after each operation, and one that has to share its core keeps all of them waiting.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def stay_on_one_core() -> None:
    """Let torch compute on one core in this thread. (It also sets what other threads start with.)"""
    # torch sets a thread up at its first question, and would not keep a number set before.
    if torch.get_num_threads() > 1:
        torch.set_num_threads(1)


@contextmanager
def cores_left_by(threads: int) -> Iterator[int]:
    """Within it, torch leaves a core to each of so many threads, and keeps at least one: gives that number.

    Afterwards it has them back. Several may overlap, and end in any order.
    """
    before = torch.get_num_threads()
    left = max(1, before - threads)
    torch.set_num_threads(left)
    try:
        yield left
    finally:
        torch.set_num_threads(torch.get_num_threads() + before - left)
