"""Stand-ins for time: a clock that moves only when it is told to."""

from __future__ import annotations

from optbook.benchmark.clock import Clock


class FakeClock:
    """Seconds that pass only by `spend`; synchronisations are counted."""

    def __init__(self, device: bool = False) -> None:
        self.time = 0.0
        self.synchronized = 0
        self.queued = 0.0
        self._device = device

    def spend(self, seconds: float) -> None:
        self.time += seconds

    def queue(self, seconds: float) -> None:
        """Work for a device: it takes its time when the device is waited for."""
        self.queued += seconds

    def synchronize(self) -> None:
        self.synchronized += 1
        self.time, self.queued = self.time + self.queued, 0.0

    @property
    def clock(self) -> Clock:
        device = self.synchronize if self._device else None
        return Clock(lambda: self.time, self.synchronize if self._device else lambda: None, lambda: device)
