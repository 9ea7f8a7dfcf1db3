"""A progress bar while a long workload is measured."""

from __future__ import annotations

import math
from typing import Any

DELAY_SECONDS = 2.0


class Progress:
    """Shows a bar once a measurement has lasted for two seconds, and removes it at the end.

    The bar is tqdm's: a widget in a notebook where widgets work, text elsewhere.
    """

    def __init__(self, label: str, budget: float, steps: int | None = None, shown: bool = True) -> None:
        self._label = label
        self._budget = budget
        self._steps = steps
        self._shown = shown
        self._bar: Any = None
        self.step: Any = None

    def __enter__(self) -> Progress:
        if self._shown:
            from tqdm.auto import tqdm

            self._bar = tqdm(
                desc=self._label[:40],
                total=self._steps,
                leave=False,
                delay=DELAY_SECONDS,
                mininterval=0.5,
                unit=" steps",
            )
            self.step = self._bar.update
        return self

    def elapsed(self, seconds: float) -> None:
        """Show how much of the budget is spent."""
        if self._bar is None:
            return
        if self._bar.total is None:
            self._bar.total, self._bar.unit = math.ceil(self._budget), " s"
        whole = min(int(seconds), self._bar.total)
        if whole > self._bar.n:
            self._bar.update(whole - self._bar.n)

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.close()
