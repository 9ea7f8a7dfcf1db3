"""The chapters and their exercises."""

from __future__ import annotations

from optbook.workshop.exercises import check

__all__ = ["check"]
