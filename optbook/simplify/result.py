"""What a ceiling found: the real system, and what it would reach with parts of it free, alone or faster."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas

IN_PLACE = "all the others free"
"""How a part was alone, where that was run."""
NOTHING = 1.03
"""A ratio up to which a gain is called nothing: a few per cent are hardly worth a day."""


@dataclass(frozen=True)
class Estimate:
    """A throughput against the real system's, with its range.

    The range is a 95 % interval; where two imitations of a faster part disagree by more than 5 %, it
    spans both, and ``doubtful`` is true.
    """

    ratio: float
    low: float
    high: float
    doubtful: bool = False

    @property
    def gap(self) -> float:
        """1 − measured ÷ this."""
        return 1 - 1 / self.ratio


@dataclass(frozen=True)
class Part:
    """One component.

    ``calls`` and ``seconds`` (a call, median) are those of the real system, per run or tracked step.
    ``free`` is the system were this part to cost nothing; ``alone`` the part were all else to; ``faster``
    maps a speed-up of the part to what the system would gain. ``next`` names the component that limits
    once this one is free ("" if none of those looked at does). ``bound`` is the throughput against the
    real system's at which the part itself would meet the machine's roofline. ``error`` says why it could
    not be removed; then the estimates are None.
    """

    component: str
    calls: float = 0.0
    seconds: float | None = None
    free: Estimate | None = None
    alone: Estimate | None = None
    alone_how: str = ""
    faster: Mapping[float, Estimate] = field(default_factory=dict)
    next: str = ""
    bound: float | None = None
    error: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pair:
    """Two parts: what freeing both brings. ``hidden`` alone brings nothing because ``hiding`` hides it."""

    hiding: str
    hidden: str
    both: Estimate


@dataclass(frozen=True)
class Ceiling:
    """The answer of `optbook.ceiling`.

    ``seconds`` is the real system's median run, or tracked step (``unit`` is then what a step counts).
    """

    label: str
    unit: str
    seconds: float
    parts: tuple[Part, ...]
    all_free: Estimate | None
    pairs: tuple[Pair, ...] = ()
    rounds: int = 0
    executions: int = 0
    left_out: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    experiment: str = ""

    @property
    def bottleneck(self) -> Part | None:
        """The part whose removal brings most; None if none brings more than a few per cent."""
        known = [part for part in self.parts if part.free is not None and part.free.ratio > NOTHING]
        return max(known, key=lambda part: part.free.ratio if part.free else 0.0, default=None)

    def __getitem__(self, component: str) -> Part:
        """The part of this name.

        Raises:
            KeyError: there is none.
        """
        for part in self.parts:
            if part.component == component:
                return part
        raise KeyError(f"no component {component!r}: there are {', '.join(p.component for p in self.parts)}")

    def to_frame(self) -> pandas.DataFrame:
        """One row a component and speed-up (inf for free).

        Columns: ``component``, ``speedup``, ``predicted_ratio``, ``low``, ``high``, ``doubtful``,
        ``alone_ratio``, ``bound_ratio``, ``calls``, ``seconds`` (a call), ``next`` and ``error``.
        """
        import pandas as pd

        rows = []
        for part in self.parts:
            at: dict[float, Estimate | None] = {**part.faster, math.inf: part.free}
            for speedup, estimate in at.items():
                found = estimate or Estimate(math.nan, math.nan, math.nan)
                rows.append(
                    {
                        "component": part.component,
                        "speedup": speedup,
                        "predicted_ratio": found.ratio,
                        "low": found.low,
                        "high": found.high,
                        "doubtful": found.doubtful,
                        "alone_ratio": part.alone.ratio if part.alone else math.nan,
                        "bound_ratio": math.nan if part.bound is None else part.bound,
                        "calls": part.calls,
                        "seconds": part.seconds,
                        "next": part.next,
                        "error": part.error,
                    }
                )
        return pd.DataFrame(rows)

    def __str__(self) -> str:
        from optbook.simplify.ceiling_render import as_text

        return as_text(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from optbook.simplify.ceiling_render import as_html

        return as_html(self)
