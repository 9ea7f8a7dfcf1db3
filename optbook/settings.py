"""What a user can set with ``%config OptBook.…``; also usable without IPython."""

from __future__ import annotations

from typing import Any

from traitlets import Bool, Float, Int, TraitError, Unicode, validate
from traitlets.config import SingletonConfigurable


class OptBook(SingletonConfigurable):
    """Settings of optbook."""

    budget = Float(5.0, help="Seconds that the counted runs of one measurement may take.").tag(config=True)
    max_runs = Int(10_000, help="The most runs that one measurement counts.").tag(config=True)
    reset_peak = Bool(
        True, help="Reset the kernel's memory high-water mark of this process before measuring (Linux)."
    ).tag(config=True)
    progress_bar = Bool(True, help="Show a progress bar while a long cell is measured.").tag(config=True)
    store_source = Bool(True, help="Store the source of a measured cell in the log.").tag(config=True)
    check_seconds = Float(20.0, help="Seconds that your code may run while %check judges it.").tag(
        config=True
    )
    participant = Unicode("", help="A nickname, recorded with every experiment.").tag(config=True)

    @validate("budget", "check_seconds")
    def _positive_and_finite(self, proposal: dict[str, Any]) -> float:
        value: float = proposal["value"]
        if not 0 < value <= 86_400:
            name = proposal["trait"].name
            raise TraitError(f"OptBook.{name} is {value!r}: give seconds between 0 and 86400, such as 5")
        return value

    @validate("max_runs")
    def _at_least_one(self, proposal: dict[str, int]) -> int:
        value = proposal["value"]
        if value < 1:
            raise TraitError(f"OptBook.max_runs is {value!r}: give a whole number from 1 on, such as 10000")
        return value

    @validate("participant")
    def _short(self, proposal: dict[str, str]) -> str:
        return proposal["value"].strip()[:80]


def settings() -> OptBook:
    """The settings in force."""
    instance: OptBook = OptBook.instance()
    return instance
