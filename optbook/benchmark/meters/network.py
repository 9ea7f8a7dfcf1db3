"""Bytes and packets through the network interfaces, from the system's counters: nothing is polled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass


@dataclass(frozen=True)
class Traffic:
    """What went through an interface: bytes (with all headers) and packets."""

    bytes_sent: int = 0
    bytes_received: int = 0
    packets_sent: int = 0
    packets_received: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    @property
    def bytes(self) -> int:
        """In both directions."""
        return self.bytes_sent + self.bytes_received


def counters() -> dict[str, Traffic]:
    """What went through each interface since it came up; empty where the system doesn't say.

    The traffic of all processes of the machine (or container) is counted. Counters that wrap are continued
    by psutil.
    """
    import psutil

    try:
        found = psutil.net_io_counters(pernic=True)
    except OSError:
        return {}
    return {
        name: Traffic(c.bytes_sent, c.bytes_recv, c.packets_sent, c.packets_recv) for name, c in found.items()
    }


def between(
    before: Mapping[str, Traffic], after: Mapping[str, Traffic]
) -> tuple[dict[str, Traffic], tuple[str, ...]]:
    """What went through each interface between two readings, and the interfaces that vanished in between.

    An interface that appeared, or whose counters were set back since it came up anew, counts from zero. What
    went through one that vanished is not known.
    """
    found = {}
    for name, now in after.items():
        pairs = zip(astuple(now), astuple(before.get(name, Traffic())), strict=True)
        differences = [a - b for a, b in pairs]
        found[name] = now if min(differences) < 0 else Traffic(*differences)
    return found, tuple(sorted(before.keys() - after.keys()))
