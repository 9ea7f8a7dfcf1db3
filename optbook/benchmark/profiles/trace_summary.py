"""What a trace adds up to: operators, idle devices, copies, and the gaps in which nothing ran."""

from __future__ import annotations

import bisect
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from optbook.benchmark.profiles.trace_events import Event

STEP = "ProfilerStep#"
"""How PyTorch and TensorBoard's plugin name a step."""
BACKWARD = "autograd::engine"
BETWEEN_STEPS = 1e-4
"""Seconds that may pass, in the tracer itself, between the end of a step and the beginning of the next."""
MOST_GAPS = 5
_COPY = re.compile(r"Memcpy (\w+) \((\w+) -> (\w+)\)")
_ENDS = {"H": "host", "D": "device", "P": "another device"}


@dataclass(frozen=True)
class Operator:
    """An operator, or a call to a device's runtime.

    ``own`` are the seconds on the CPU outside of inner operators, ``total`` those with them; ``device`` the
    seconds of the kernels and copies that it asked for itself. Threads and devices are added up.
    """

    name: str
    calls: int
    own: float
    total: float
    device: float = 0.0


@dataclass(frozen=True)
class Copies:
    """All copies of one kind. ``what`` is such as 'host to device'; ``size``, in bytes, is None if not known.

    ``pinned`` says whether the host's memory was page-locked, None where that isn't known or doesn't matter.
    """

    what: str
    pinned: bool | None
    count: int
    seconds: float
    size: int | None


@dataclass(frozen=True)
class Gap:
    """A time in which nothing ran in ``where`` ('CPU', 'GPU 0').

    ``start`` counts, in seconds, from the beginning of the first step. ``inside`` is the innermost span or
    step of the workload's thread that covers most of it, "" if none does.
    """

    where: str
    start: float
    seconds: float
    before: str
    after: str
    inside: str = ""


@dataclass(frozen=True)
class Gpu:
    """A device of the trace, and the share of the time in which no kernel ran on it (0 to 1)."""

    index: int
    idle: float


@dataclass(frozen=True)
class Summary:
    """A trace in figures; ``seconds`` are those of the steps or runs, which all shares are of.

    ``cpu_busy`` is the share of them in which an operator ran in the workload's thread or in a thread of
    its backward pass. ``operators`` come with the largest own time (on a device, if there is one) first.
    """

    seconds: float = 0.0
    steps: int = 0
    events: int = 0
    cpu_busy: float = 0.0
    operators: tuple[Operator, ...] = field(default=(), repr=False)
    gpus: tuple[Gpu, ...] = ()
    copies: tuple[Copies, ...] = ()
    gaps: tuple[Gap, ...] = ()


def summarise(events: Iterable[Event], thread: int) -> Summary:
    """Add up the events inside the steps; inside all the time traced where no step is marked.

    Args:
        events: of one trace, in any order.
        thread: the system's number of the workload's thread.
    """
    everything = sorted(events, key=lambda event: (event.start, -event.seconds))
    steps = [event for event in everything if event.kind == "annotation" and event.name.startswith(STEP)]
    whole = _union(event for event in everything if event.kind == "whole")
    windows = _clipped(_union(steps, BETWEEN_STEPS), whole) if steps else whole
    starts = [start for start, _ in windows]

    def counts(event: Event) -> bool:
        at = bisect.bisect_right(starts, event.start) - 1
        return at >= 0 and event.start <= windows[at][1]

    inside = [event for event in everything if counts(event)]
    annotations = [e for e in everything if e.kind == "annotation" and e.lane == thread]
    on_cpu = [event for event in inside if event.kind in ("operator", "runtime")]
    on_gpu: dict[int, list[Event]] = defaultdict(list)
    for event in inside:
        if event.kind in ("kernel", "copy", "memset"):
            on_gpu[event.lane].append(event)
    backward = {event.lane for event in on_cpu if event.name.startswith(BACKWARD)}
    work = [event for event in on_cpu if event.lane in backward | {thread}]
    seconds = _length(windows)
    lanes = {"CPU": work, **{f"GPU {index}": on_gpu[index] for index in sorted(on_gpu)}}
    return Summary(
        seconds=seconds,
        steps=len(steps),
        events=len(inside),
        cpu_busy=_length(_clipped(_union(work), windows)) / seconds if seconds else 0.0,
        operators=tuple(_operators(on_cpu, [event for lane in on_gpu.values() for event in lane])),
        gpus=tuple(Gpu(index, _idle(on_gpu[index], windows, seconds)) for index in sorted(on_gpu)),
        copies=tuple(_copies(event for lane in on_gpu.values() for event in lane)),
        gaps=tuple(gap for name, lane in lanes.items() for gap in _gaps(name, lane, windows, annotations)),
    )


def _union(events: Iterable[Event], apart: float = 0.0) -> list[tuple[float, float]]:
    """The times in which at least one of the events, sorted by their start, went on.

    Times that are at most ``apart`` seconds from each other count as one.
    """
    merged: list[tuple[float, float]] = []
    for event in events:
        if merged and event.start <= merged[-1][1] + apart:
            merged[-1] = merged[-1][0], max(merged[-1][1], event.end)
        else:
            merged.append((event.start, event.end))
    return merged


def _length(intervals: Iterable[tuple[float, float]]) -> float:
    return sum(end - start for start, end in intervals)


def _clipped(
    intervals: Sequence[tuple[float, float]], windows: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    """What of the intervals lies in the windows; both are sorted, and disjoint in themselves."""
    found = []
    first = 0
    for low, high in windows:
        while first < len(intervals) and intervals[first][1] <= low:
            first += 1
        for start, end in intervals[first:]:
            if start >= high:
                break
            found.append((max(start, low), min(end, high)))
    return found


def _idle(events: Iterable[Event], windows: Sequence[tuple[float, float]], seconds: float) -> float:
    kernels = _union(event for event in events if event.kind == "kernel")
    return 1 - _length(_clipped(kernels, windows)) / seconds if seconds else 0.0


def _operators(on_cpu: Iterable[Event], on_gpu: Iterable[Event]) -> list[Operator]:
    """The operators by name; one that is inside another of its name adds to the calls and own time only."""
    calls: Counter[str] = Counter()
    own: defaultdict[str, float] = defaultdict(float)
    total: defaultdict[str, float] = defaultdict(float)
    device: defaultdict[str, float] = defaultdict(float)
    names: dict[int, str] = {}
    stacks: dict[int, list[Event]] = defaultdict(list)
    for event in on_cpu:
        stack = stacks[event.lane]
        while stack and stack[-1].end <= event.start:
            stack.pop()
        if stack:
            own[stack[-1].name] -= event.seconds
        calls[event.name] += 1
        own[event.name] += event.seconds
        if all(outer.name != event.name for outer in stack):
            total[event.name] += event.seconds
        stack.append(event)
        if event.link is not None and event.kind == "operator":
            names[event.link] = event.name
    for event in on_gpu:
        asked = names.get(event.link) if event.link is not None else None
        device[asked or event.name] += event.seconds
        calls[event.name] += asked is None
    found = [Operator(n, c, max(0.0, own[n]), total[n], device[n]) for n, c in calls.items() if c]
    return sorted(found, key=lambda o: (-o.device, -o.own, o.name))


def _copies(events: Iterable[Event]) -> list[Copies]:
    groups: dict[tuple[str, bool | None], list[Event]] = defaultdict(list)
    for event in events:
        if event.kind == "copy":
            groups[_copied(event.name)].append(event)
    found = []
    for (what, pinned), copies in groups.items():
        sizes = [event.size for event in copies if event.size is not None]
        size = sum(sizes) if len(sizes) == len(copies) else None
        found.append(Copies(what, pinned, len(copies), sum(event.seconds for event in copies), size))
    return sorted(found, key=lambda c: -c.seconds)


def _copied(name: str) -> tuple[str, bool | None]:
    """From where to where, and whether the host's memory was pinned: 'Memcpy HtoD (Pinned -> Device)'."""
    match = _COPY.match(name)
    if match is None:
        return name, None
    ends = match[1].split("to")
    memory = [side for end, side in zip(ends, match.groups()[1:], strict=False) if end == "H"]
    pinned = {"Pinned": True, "Pageable": False}.get(memory[0]) if memory else None
    return " to ".join(_ENDS.get(end, end) for end in ends), pinned


def _gaps(
    where: str,
    events: Sequence[Event],
    windows: Sequence[tuple[float, float]],
    annotations: Sequence[Event],
) -> list[Gap]:
    """The longest times inside the windows in which none of the events, sorted by their start, went on."""
    found: list[tuple[float, float, str, str]] = []
    events_at = 0
    for low, high in windows:
        reached, before = low, "the start"
        while events_at < len(events) and events[events_at].start <= high:
            event = events[events_at]
            events_at += 1
            if event.start > reached:
                found.append((reached, event.start, before, event.name))
            if event.end > reached:
                reached, before = event.end, event.name
        if high > reached:
            found.append((reached, high, before, "the end"))
    longest = sorted(found, key=lambda gap: gap[0] - gap[1])[:MOST_GAPS]
    first = windows[0][0] if windows else 0.0
    return [
        Gap(where, start - first, end - start, before, after, _around(start, end, annotations))
        for start, end, before, after in longest
    ]


def _around(start: float, end: float, annotations: Iterable[Event]) -> str:
    """The shortest annotation that covers most of the time."""
    half = (end - start) / 2
    covering = [a for a in annotations if min(a.end, end) - max(a.start, start) > half]
    return min(covering, key=lambda a: a.seconds).name if covering else ""
