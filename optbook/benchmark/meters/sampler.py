"""One thread that looks at several things a few times a second while a workload runs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence

SAMPLE_SECONDS = 0.1


class Sampler:
    """Calls every probe each ``seconds`` inside a ``with`` block, in a thread of its own.

    A probe must not raise. The thread does not outlive the block, and a forked child has none.
    """

    def __init__(self, probes: Sequence[Callable[[], None]], seconds: float = SAMPLE_SECONDS) -> None:
        self._probes = tuple(probes)
        self._seconds = seconds
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Sampler:
        if self._probes:
            self._pid = os.getpid()
            self._thread = threading.Thread(target=self._run, name="optbook-sampler", daemon=True)
            self._thread.start()
        return self

    def _run(self) -> None:
        while not self._stop.wait(self._seconds):
            for probe in self._probes:
                probe()

    def __exit__(self, *exception: object) -> None:
        if self._thread is not None and os.getpid() == self._pid:
            self._stop.set()
            self._thread.join()
