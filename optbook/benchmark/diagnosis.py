"""One sentence on what a workload's time goes to, from a table of rules; "not clear" where none applies.

To change what is said, or from where on, change the table `RULES`; `diagnose` only reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from optbook import formatting as write
from optbook.benchmark.evidence import Evidence

Kind = Literal[
    "waiting for data",
    "Python overhead",
    "arithmetic",
    "memory bandwidth",
    "host–device copies",
    "network",
    "idle",
    "not clear",
]
Bounds = tuple[float, float]

MOST = 0.6
"""From this share on, one kind of work is the bottleneck: whatever else there is, it is at most two thirds of
that, and no cure of the rest can bring more than a factor of 1.7 (Amdahl, AFIPS 1967)."""
LITTLE = 0.2
"""Up to this share (or part of a core) a resource counts as unused, in analogy to `MOST`."""
FEWEST_LOOKS = 30
"""Looks at the stack: the standard error of a share of 60 % is then 9 points; with 100 it is 5."""
ANY = float("inf")


@dataclass(frozen=True)
class Rule:
    """A row of the table: the kind, what must be known for it, and what is said.

    It applies if each figure in ``needs`` is known and lies within its bounds (both included), and none in
    ``unless`` is known to do so. In ``says``, names of figures stand for their written values.
    """

    kind: Kind
    needs: Mapping[str, Bounds]
    says: str
    chapter: str
    source: str
    unless: Mapping[str, Bounds] = field(default_factory=dict)

    def applies(self, evidence: Evidence) -> bool:
        """Whether the evidence is enough for this rule."""
        return all(_within(evidence, *need) for need in self.needs.items()) and not any(
            _within(evidence, *other) for other in self.unless.items()
        )


_LOOKS = {"looks": (FEWEST_LOOKS, ANY)}
_TUNING = "PyTorch performance tuning guide, 'asynchronous data loading'; our threshold"
_ROOFLINE = "roofline model (Williams, Waterman & Patterson, CACM 52, 2009)"
_TOP_DOWN = "as the top-down method splits a core's time (Yasin, ISPASS 2014); our threshold"
_IDLE_HARDWARE = {"idle_share": (MOST, 1), "other_cores": (0, LITTLE), "child_cores": (0, LITTLE)}
_WAITS_TOO = {"idle_share": (1 - MOST, 1)}
_GPU_BUSY = {"gpu_resident": (MOST, 1)}
_WAIT = "{wait_share} of each step goes by before the batch is there"

RULES = (
    Rule(
        "waiting for data",
        {"wait_share": (MOST, 1), "idle_share": (0, LITTLE), "python_share": (MOST, 1), **_LOOKS},
        _WAIT + "; the loop makes it itself, {python_share} of all time in Python's interpreter",
        "chapters 05 and 04",
        _TUNING,
    ),
    Rule(
        "waiting for data",
        {"wait_share": (MOST, 1), "idle_share": (0, LITTLE)},
        _WAIT + "; the loop makes it itself, nothing is fetched ahead",
        "chapter 05",
        _TUNING,
    ),
    Rule(
        "waiting for data",
        {"wait_share": (MOST, 1), "child_cores": (LITTLE, ANY)},
        _WAIT + "; worker processes make it, with {child_cores} cores busy",
        "chapter 05",
        _TUNING,
    ),
    Rule("waiting for data", {"wait_share": (MOST, 1)}, _WAIT, "chapter 05", _TUNING),
    Rule(
        "waiting for data",
        {"idle_share": (MOST, 1), "disk_rate": (10e6, ANY)},
        "{idle_share} of the time the thread waits, while {disk_rate} come from the disk",
        "chapter 05",
        "10 MB/s is a tenth of what one hard disk reads in sequence; our threshold",
    ),
    Rule(
        "host–device copies",
        {"copy_share": (MOST, 1)},
        "{copy_share} of the time goes into copies between host and device",
        "chapter 05",
        "NVIDIA CUDA C++ best practices guide, 'data transfer between host and device'; our threshold",
    ),
    Rule(
        "network",
        {"network_share": (MOST, 1)},
        "{network_share} of the time goes by inside calls of sockets or collectives",
        "chapter 09",
        "each call was timed, by the network profile; our threshold",
    ),
    Rule(
        "network",
        {"socket_share": (MOST, 1), **_LOOKS},
        "{socket_share} of the time goes by in sockets or collectives",
        "chapter 09",
        "the share of the looks in which the innermost call is a socket's or a collective's; our threshold",
    ),
    Rule(
        "idle",
        {**_IDLE_HARDWARE, "socket_share": (0, LITTLE), **_LOOKS},
        "{idle_share} of the time the thread sleeps or waits, and nothing else works for it",
        "chapter 05",
        _TOP_DOWN,
        {"gpu_resident": (LITTLE, 1), "disk_rate": (1e6, ANY)},
    ),
    Rule(
        "idle",
        _IDLE_HARDWARE,
        "{idle_share} of the time the thread sleeps or waits, and nothing else works for it",
        "chapter 05",
        _TOP_DOWN + "; 1 MB/s on a disk or the network may be what it waits for",
        {"gpu_resident": (LITTLE, 1), "disk_rate": (1e6, ANY), "network_rate": (1e6, ANY)},
    ),
    Rule(
        "arithmetic",
        {"flops_share": (0.5, 1)},
        "{flops_share} of the machine's measured peak is reached",
        "chapter 04",
        _ROOFLINE + ": at half of the peak, at least half of the time goes into computing",
    ),
    Rule(
        "arithmetic",
        {"arithmetic_share": (MOST, 1)},
        "{arithmetic_share} of the time goes into operators that compute much on each byte",
        "chapter 04",
        _ROOFLINE + ": FLOPs per byte above the machine's peak FLOP/s ÷ bytes/s, or known by name",
        _WAITS_TOO,
    ),
    Rule(
        "memory bandwidth",
        {"memory_share": (MOST, 1)},
        "{memory_share} of the time goes into operators that move bytes and compute little",
        "chapter 06",
        _ROOFLINE + ": FLOPs per byte below the machine's peak FLOP/s ÷ bytes/s, or known by name",
        _WAITS_TOO,
    ),
    Rule(
        "Python overhead",
        {"python_share": (MOST, 1), **_LOOKS},
        "{python_share} of the time goes by in Python's interpreter or in very short calls",
        "chapter 04",
        _TOP_DOWN + "; a call of torch or NumPy costs some µs whatever it does, by our own measurement",
        {**_WAITS_TOO, **_GPU_BUSY, "system_share": (0.5, 1)},
    ),
)


@dataclass(frozen=True)
class Diagnosis:
    """The kind of bottleneck, and the figures behind it with the chapter that treats it."""

    kind: Kind
    note: str

    @property
    def sentence(self) -> str:
        """As it stands on top of an experiment or a profile."""
        return f"{self.kind}: {self.note}"


def diagnose(evidence: Evidence) -> Diagnosis:
    """The first rule that applies; "not clear" with the largest shares and what to type next if none does."""
    for rule in RULES:
        if rule.applies(evidence):
            return Diagnosis(rule.kind, f"{rule.says.format_map(_written(evidence))} ({rule.chapter})")
    return Diagnosis("not clear", _not_clear(evidence))


def _within(evidence: Evidence, name: str, bounds: Bounds) -> bool:
    value = getattr(evidence, name)
    return value is not None and bounds[0] <= value <= bounds[1]


def _written(evidence: Evidence) -> dict[str, str]:
    written = {}
    for name, value in evidence.known().items():
        if name.endswith("_rate"):
            written[name] = f"{write.bytes_(value)}/s"
        elif name.endswith("_cores"):
            written[name] = write.number(value, 2)
        else:
            written[name] = write.percent(value)
    return written


def _not_clear(evidence: Evidence) -> str:
    if evidence.crowded_share is not None and evidence.crowded_share >= 1 - MOST:
        share = write.percent(evidence.crowded_share)
        return f"for {share} of the time other work had the cores; measure again when the machine is quiet"
    parts = sorted(_parts(evidence), key=lambda part: -part[0])[:2]
    if not parts:
        return "this measurement is too short, or too little is known of it; measure more runs or steps"
    named = ", ".join(f"{write.percent(share)} {what}" for share, what in parts)
    if evidence.looks is None:
        return f"{named}; %%profile calls looks inside (chapter 02)"
    if (evidence.native_share or 0.0) >= 1 - MOST:
        return f"{named}; for torch's operators %%bench --flops tells more (chapter 01)"
    return f"{named}; %%profile lines tells more (chapter 02)"


def _parts(e: Evidence) -> Iterable[tuple[float, str]]:
    """What is known of the time, as shares with their names; those below `LITTLE` are left out."""
    busy = None
    if e.idle_share is not None and e.python_share is None:
        busy = 1 - e.idle_share - (e.crowded_share or 0.0)
    unnamed = None
    if e.native_share is not None:
        unnamed = e.native_share - (e.arithmetic_share or 0.0) - (e.memory_share or 0.0)
    for share, what in (
        (e.wait_share, "waiting for data"),
        (e.copy_share, "host–device copies"),
        (e.socket_share, "network"),
        (e.arithmetic_share, "arithmetic"),
        (e.memory_share, "memory bandwidth"),
        (unnamed, "in calls into C (arithmetic or memory bandwidth)"),
        (e.python_share, "Python overhead"),
        (e.idle_share, "off the cores, waiting"),
        (busy, "busy in one thread (Python overhead, arithmetic or memory bandwidth)"),
        (e.gpu_resident, "a kernel on the GPU"),
    ):
        if share is not None and share > LITTLE:
            yield share, what
