"""Decoded pictures kept in memory, as many as a budget allows."""

from __future__ import annotations

from collections.abc import Callable

from optbook.hotdog.pixels import Pixels


class PictureCache:
    """Pictures by their index, up to `budget` bytes. What does not fit is made again each time.

    First come, first kept, and nothing is thrown out. In training every picture is wanted once an epoch: a
    cache that throws out what was used longest ago would throw out just what comes next.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.bytes = 0
        self.hits = 0
        self.misses = 0
        self._pictures: dict[int, Pixels] = {}

    def __len__(self) -> int:
        return len(self._pictures)

    @property
    def hit_rate(self) -> float:
        """Share of all look-ups that found their picture; 0 before the first."""
        return self.hits / max(1, self.hits + self.misses)

    def get(self, index: int, make: Callable[[], Pixels]) -> Pixels:
        """The picture of this index; `make` makes it where it is not kept yet. Not to be changed in place."""
        kept = self._pictures.get(index)
        if kept is not None:
            self.hits += 1
            return kept
        self.misses += 1
        picture = make()
        if self.bytes + picture.nbytes <= self.budget:
            self._pictures[index] = picture
            self.bytes += picture.nbytes
        return picture

    def __repr__(self) -> str:
        megabytes, most = self.bytes / 2**20, self.budget / 2**20
        return f"{len(self)} pictures in {megabytes:.1f} of {most:.0f} MiB, {self.hit_rate:.0%} found"
