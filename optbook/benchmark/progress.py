"""A progress bar while a long workload is measured."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from typing import Any

DELAY_SECONDS = 2.0


class Progress:
    """Shows a bar once a measurement has lasted for two seconds, and removes it at the end.

    The bar is tqdm's: a widget in a notebook where widgets work, text elsewhere. `step` is to be
    called after every tracked step; it is None where no bar is wanted.
    """

    def __init__(
        self,
        label: str,
        budget: float,
        steps: int | None = None,
        shown: bool = True,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._label = label
        self._budget = budget
        self._steps = steps
        self._shown = shown
        self._now = now
        self._done = 0
        self._bar: Any = None
        self.step: Callable[[], None] | None = self._step if shown else None

    def __enter__(self) -> Progress:
        self._show_at = self._now() + DELAY_SECONDS
        return self

    def _step(self) -> None:
        self._done += 1
        if self._now() >= self._show_at:
            self._update(self._done, self._steps, " steps")

    def elapsed(self, seconds: float) -> None:
        """Show how much of the budget is spent."""
        if self._shown and self._now() >= self._show_at:
            total = math.ceil(self._budget)
            self._update(min(int(seconds), total), total, " s")

    def _update(self, done: int, total: int | None, unit: str) -> None:
        if self._bar is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # where widgets are missing, the text form is what we want
                from tqdm.auto import tqdm

            self._bar = tqdm(desc=self._label[:40], total=total, leave=False, mininterval=0.5, unit=unit)
        if done > self._bar.n:
            self._bar.update(done - self._bar.n)

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.total = self._bar.n  # else a notebook keeps the bar of what ended early, as of an error
            self._bar.close()
