"""One thing about a machine or process that spoils measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["severe", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("severe", "warning", "note")


@dataclass(frozen=True)
class Finding:
    """``what`` was found, ``why`` it spoils measurements, and what ``to_do`` about it."""

    severity: Severity
    what: str
    why: str
    to_do: str

    def __str__(self) -> str:
        return f"{self.what}: {self.why}; {self.to_do}"


class NotKnownError(Exception):
    """The system does not tell; the message says what could not be read."""
