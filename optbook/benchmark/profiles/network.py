"""The network profile: what goes through the interfaces, and the time spent in sockets and collectives."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from optbook.benchmark.clock import Clock
from optbook.benchmark.meters.network import Traffic, between, counters
from optbook.benchmark.profiles.capture import Capture, Conversation, find_tshark
from optbook.benchmark.profiles.network_calls import OUTSIDE, NetworkCalls, Sum
from optbook.benchmark.profiles.passes import Pass
from optbook.benchmark.profiles.request import Request
from optbook.experiments.record import Experiment

if TYPE_CHECKING:
    import pandas

ENOUGH_SECONDS = 1.0
AS_MEASURED_SECONDS = 86_400.0
SEEN = (
    "calls are those of Python's sockets and of torch.distributed in this process: what child processes and "
    "libraries with sockets of their own (gRPC, libpq, curl) do is in the interfaces' counters only"
)
COUNTED = (
    "the interfaces' counters are the whole machine's, headers included: other processes and the notebook's "
    "own messages are in them, and loopback counts every packet as sent and as received"
)
UNBLOCKED = (
    "sockets that never block (asyncio's) were used: what they move is counted, the time awaited in between "
    "is not"
)
IN_C = (
    "collectives that C++ starts (DistributedDataParallel's among them) were not timed: only those called by "
    "Python were"
)
SHORT = "the capture ended before the workload did: its table is not complete"


@dataclass(frozen=True)
class NetworkCall:
    """The calls of one operation in one component and thread, such as ``socket.recv`` in the span ``fetch``.

    ``thread`` is "" for the workload's own, else its name without numbers. ``bytes`` are those sent or
    received, without headers; of a collective, those of the larger of the tensors given and filled.
    ``seconds`` are spent inside the calls; in ``waiting`` of them the thread used no core: it waited for its
    peer, or for a core.
    """

    component: str
    operation: str
    thread: str
    calls: int
    bytes: int
    seconds: float
    waiting: float


@dataclass(frozen=True)
class Component:
    """A span of the workload's own thread: its seconds, without those of spans inside it, and those of them
    in network calls. The rest is work."""

    name: str
    seconds: float
    network: float
    waiting: float

    @property
    def work(self) -> float:
        """Seconds outside network calls."""
        return max(0.0, self.seconds - self.network)


@dataclass(frozen=True)
class NetworkProfile:
    """What a workload does with the network.

    ``seconds`` is how long it was looked at. ``interfaces`` are the machine's; ``calls`` and ``components``
    this process's, the largest time first. ``conversations`` is None without a capture.
    """

    experiment: Experiment = field(repr=False)
    run: Pass
    seconds: float
    interfaces: Mapping[str, Traffic]
    calls: tuple[NetworkCall, ...]
    components: tuple[Component, ...]
    conversations: tuple[Conversation, ...] | None
    executions: int
    notes: tuple[str, ...] = ()

    @property
    def overhead(self) -> float | None:
        """Instrumented time ÷ bare time."""
        return self.run.overhead

    @property
    def network(self) -> float:
        """Seconds of the workload's own thread in network calls."""
        return sum(part.network for part in self.components)

    @property
    def waiting(self) -> float:
        """Those of `network` in which it used no core."""
        return sum(part.waiting for part in self.components)

    @property
    def evidence(self) -> dict[str, float]:
        """What a diagnosis can use of it, by the names of `optbook.benchmark.evidence.Evidence`."""
        total = sum(part.seconds for part in self.components)
        return {"network_share": min(1.0, self.network / total)} if total else {}

    @property
    def silent(self) -> bool:
        """Whether nothing at all was seen."""
        return not (self.calls or self.conversations or any(t.bytes for t in self.interfaces.values()))

    def to_frame(self, what: str = "calls") -> pandas.DataFrame:
        """The ``calls``, ``components``, ``interfaces`` or ``conversations``, one a row, with the attributes
        of their classes as columns. Rates of interfaces are in bytes and packets per second.

        Raises:
            KeyError: there is no such table.
        """
        import pandas as pd

        kinds = {"calls": NetworkCall, "components": Component, "conversations": Conversation}
        if what == "interfaces":
            frame = pd.DataFrame(map(asdict, self.interfaces.values()), columns=_names(Traffic))
            for name in list(frame):
                frame[f"{name}_per_s"] = frame[name] / self.seconds
            frame.insert(0, "interface", list(self.interfaces))
            return frame
        return pd.DataFrame(map(asdict, getattr(self, what) or ()), columns=_names(kinds[what]))

    def __str__(self) -> str:
        from optbook.benchmark.profiles.network_render import as_text

        return as_text(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from optbook.benchmark.profiles.network_render import as_html

        return as_html(self)


class NetworkInstrument:
    """Reads the interfaces' counters at the edges of what runs, and times the calls inside."""

    def __init__(self, clock: Clock) -> None:
        self.calls = NetworkCalls(self.seconds)
        self.traffic: dict[str, Traffic] = {}
        self.vanished: set[str] = set()
        self.windows: list[tuple[float, float]] = []
        self._clock = clock
        self._before: dict[str, Traffic] | None = None
        self._began, self._since, self._passed = 0.0, 0.0, 0.0

    def seconds(self) -> float:
        """How long the workload was looked at so far."""
        return self._passed + (self._clock.now() - self._since if self._before is not None else 0.0)

    def start(self) -> None:
        """As in `Instrument`."""
        self.calls.start()

    def stop(self) -> None:
        """As in `Instrument`."""
        self.running(False)
        self.calls.stop()

    def running(self, on: bool) -> None:
        """As in `Instrument`."""
        if on == (self._before is not None):
            return
        if on:
            self._before, self._began, self._since = counters(), time.time(), self._clock.now()
            self.calls.counting = True
            return
        self.calls.counting = False
        self._passed, before, self._before = self.seconds(), self._before or {}, None
        self.windows.append((self._began, time.time()))
        traffic, vanished = between(before, counters())
        self.vanished |= set(vanished)
        for name, more in traffic.items():
            self.traffic[name] = self.traffic.get(name, Traffic()) + more


def network_ready(request: Request) -> None:
    """Make sure that what is asked for can be had.

    Raises:
        OptbookError: a capture is asked for, and tshark is missing or has no rights.
    """
    if request.options.get("capture"):
        find_tshark()


def network_profile(request: Request) -> NetworkProfile:
    """See what a workload does with the network, in a pass of its own.

    With the option ``capture``, tshark listens, and the conversations are added. Where several processes of
    torch.distributed work together, the pass has as many runs or steps as the measurement, so that all do the
    same.

    Raises:
        OptbookError: tshark is missing, has no rights or failed.
        Exception: whatever the workload raised.
    """
    capture = Capture(find_tshark()) if request.options.get("capture") else None
    instrument = NetworkInstrument(request.clock or Clock())
    together = _ranks() > 1
    enough = AS_MEASURED_SECONDS if together else ENOUGH_SECONDS
    with capture or contextlib.nullcontext():
        run = request.further(instrument, enough=enough, name="network profile")
    conversations = None if capture is None else capture.conversations(instrument.windows)
    calls, components = _totals(instrument)
    notes = [SEEN, COUNTED]
    notes += [UNBLOCKED] if any(thread.unblocked for thread in instrument.calls.threads) else []
    notes += [IN_C] if together else []
    notes += [SHORT] if capture is not None and capture.ended_early else []
    notes += [
        f"interface {name} vanished meanwhile: its traffic is not known"
        for name in sorted(instrument.vanished)
    ]
    return NetworkProfile(
        request.experiment,
        run,
        instrument.seconds(),
        instrument.traffic,
        calls,
        components,
        conversations,
        request.experiment.executions + run.executions,
        (*notes, *run.notes, *request.experiment.warnings),
    )


def _totals(instrument: NetworkInstrument) -> tuple[tuple[NetworkCall, ...], tuple[Component, ...]]:
    sums: dict[tuple[str, str, str], Sum] = {}
    seconds: dict[str, float] = {}
    for thread in instrument.calls.threads:
        for key, more in thread.calls.items():
            sums.setdefault((*key, thread.name), Sum()).add(*astuple(more))
        for name, spent in thread.spans.items() if not thread.name else ():
            seconds[name] = seconds.get(name, 0.0) + spent
    seconds[OUTSIDE] = max(0.0, instrument.seconds() - sum(seconds.values()))
    calls = [NetworkCall(*key, *astuple(total)) for key, total in sums.items()]
    components = []
    for name, spent in seconds.items():
        mine = [call for call in calls if call.component == name and not call.thread]
        network, waiting = sum(call.seconds for call in mine), sum(call.waiting for call in mine)
        components.append(Component(name, spent, network, waiting))
    return (
        tuple(sorted(calls, key=lambda call: -call.seconds)),
        tuple(sorted(components, key=lambda part: -part.seconds)),
    )


def _ranks() -> int:
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return 1
    return int(distributed.get_world_size())


def _names(kind: Any) -> list[str]:
    return [each.name for each in fields(kind)]
