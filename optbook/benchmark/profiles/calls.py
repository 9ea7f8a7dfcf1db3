"""The call profile: where the time goes by function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import TYPE_CHECKING, Any

from optbook.benchmark.clock import device_synchronizer
from optbook.benchmark.profiles.looks import of_samples
from optbook.benchmark.profiles.passes import Pass
from optbook.benchmark.profiles.places import KINDS, Kind, Place, is_measuring, of_call, of_code
from optbook.benchmark.profiles.sampler import Samples, Stacks
from optbook.experiments.record import Experiment

if TYPE_CHECKING:
    import pandas

FEW_LOOKS = 100
Stack = tuple[Place, ...]


@dataclass(frozen=True)
class Function:
    """A function and the seconds in it: its own, and those with all that it called.

    ``waiting`` are those of its own seconds in which it waited. ``thread`` is "" for the workload's own.
    """

    place: Place
    own: float
    cumulative: float
    waiting: float = 0.0
    thread: str = ""


@dataclass(frozen=True)
class CallProfile:
    """Where a workload's time goes, by function, from looks at its stack.

    A thread waits while it sleeps, asks for a lock, a message or a device, or is given no core.

    ``seconds`` maps 'your code', 'library' and 'waiting' to the seconds spent in each by the workload's
    thread. ``functions`` are those of all threads: the workload's own thread first, the largest own time
    first. ``stacks`` are the seconds by call stack of the workload's thread.
    ``evidence`` is what the diagnosis rests on beside the experiment's.
    """

    experiment: Experiment = field(repr=False)
    run: Pass
    seconds: Mapping[Kind, float]
    functions: tuple[Function, ...] = field(repr=False)
    stacks: tuple[tuple[Stack, float], ...] = field(repr=False)
    looks: int
    executions: int
    notes: tuple[str, ...] = ()
    evidence: Mapping[str, float] = field(default_factory=dict, repr=False)

    @property
    def total(self) -> float:
        """Seconds sampled in the workload's thread."""
        return sum(self.seconds.values())

    @property
    def overhead(self) -> float | None:
        """Instrumented time ÷ bare time."""
        return self.run.overhead

    def share(self, kind: Kind) -> float:
        """The share of your code, library or waiting, between 0 and 1."""
        return self.seconds[kind] / self.total if self.total else 0.0

    def to_frame(self) -> pandas.DataFrame:
        """One row a function: ``function``, ``file``, ``line``, ``kind``, ``thread``, and in seconds
        ``own``, ``cumulative`` and ``waiting``; ``share`` is the own time's, of the workload's thread."""
        import pandas as pd

        columns = ["function", "file", "line", "kind", "thread", "own", "cumulative", "waiting", "share"]
        rows = [
            (
                f.place.name,
                f.place.file,
                f.place.line,
                f.place.kind,
                f.thread,
                f.own,
                f.cumulative,
                f.waiting,
                f.own / self.total if self.total else 0.0,
            )
            for f in self.functions
        ]
        return pd.DataFrame(rows, columns=columns)

    def __str__(self) -> str:
        from optbook.benchmark.profiles.render import calls_as_text

        return calls_as_text(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from optbook.benchmark.profiles.render import calls_as_html

        return calls_as_html(self)


@dataclass
class _Sum:
    own: float = 0.0
    cumulative: float = 0.0
    waiting: float = 0.0


def call_profile(samples: Samples, run: Pass, experiment: Experiment, executions: int) -> CallProfile:
    """Add up what the sampler saw.

    Args:
        samples: what it saw.
        run: the pass in which it looked.
        experiment: the pass before, without a sampler.
        executions: how often the workload was executed in both.
    """
    seconds: dict[Kind, float] = dict.fromkeys(KINDS, 0.0)
    functions: list[Function] = []
    own_stacks: tuple[tuple[Stack, float], ...] = ()
    looks = 0
    for thread, seen in samples.threads.items():
        stacks = list(_stacks(samples, seen))
        functions += _functions(stacks, thread)
        if thread == "":
            looks = seen.looks
            own_stacks = tuple((stack, spent) for stack, spent, _ in stacks)
            for stack, spent, waited in stacks:
                seconds["waiting" if waited else stack[-1].kind] += spent
    notes = [*run.notes, *experiment.warnings]
    if looks < FEW_LOOKS:
        notes.insert(
            0,
            f"only {looks} looks at the stack: shares are rough; profile more runs or steps of the workload",
        )
    others = [thread for thread in samples.threads if thread]
    if others:
        further = "a further thread was" if len(others) == 1 else f"{len(others)} further threads were"
        notes.append(f"{further} seen; the shares are those of the workload's own thread")
    return CallProfile(
        experiment=experiment,
        run=run,
        seconds=seconds,
        functions=tuple(
            sorted(functions, key=lambda f: (f.thread != "", -f.own, -f.cumulative, f.place.name))
        ),
        stacks=own_stacks,
        looks=looks,
        executions=executions,
        notes=tuple(notes),
        evidence=of_samples(samples, device=device_synchronizer() is not None),
    )


def _stacks(samples: Samples, seen: Stacks) -> Iterable[tuple[Stack, float, bool]]:
    """The stacks of a thread with their seconds, and whether it waited in them."""
    places: dict[int, Place] = {}
    for (chain, offset, idle), spent in seen.seconds.items():
        codes = [samples.codes[key] for key in chain]
        for code in codes:
            if id(code) not in places:
                places[id(code)] = of_code(code)
        stack = [places[id(code)] for code in codes if not is_measuring(code.co_filename)]
        if not stack:
            stack = [Place("the measured loop", "optbook", 0, "library")]
        elif not is_measuring(codes[-1].co_filename):
            call = of_call(codes[-1], offset, samples.namespaces[chain[-1]], stack[-1].kind)
            if call is not None:
                stack.append(call)
        yield _from_yours(stack), spent, idle or stack[-1].kind == "waiting"


def _from_yours(stack: list[Place]) -> Stack:
    """Without what a thread or an event loop does before it calls your code."""
    first = next((i for i, place in enumerate(stack) if place.kind == "your code"), 0)
    return tuple(stack[first:])


def _functions(stacks: Iterable[tuple[Stack, float, bool]], thread: str) -> list[Function]:
    """Own and cumulative seconds; a function that called itself counts once."""
    sums: dict[Place, _Sum] = {}
    for stack, spent, waited in stacks:
        for place in set(stack):
            sums.setdefault(place, _Sum()).cumulative += spent
        sums[stack[-1]].own += spent
        sums[stack[-1]].waiting += spent if waited else 0.0
    return [Function(place, s.own, s.cumulative, s.waiting, thread) for place, s in sums.items()]


def hot_codes(samples: Samples, yours: Mapping[int, bool], least: float, most: int) -> list[CodeType]:
    """The functions of yours in which, outside of other functions of yours, most of the time goes.

    Args:
        samples: what the sampler saw, in all threads.
        yours: of the ids of code objects, whether they are yours.
        least: the smallest share of the time that makes one hot.
        most: how many are returned at most.
    """
    spent: dict[int, float] = {}
    total = 0.0
    for seen in samples.threads.values():
        for (chain, _, _), seconds in seen.seconds.items():
            total += seconds
            innermost = next((key for key in reversed(chain) if yours[key]), None)
            if innermost is not None:
                spent[innermost] = spent.get(innermost, 0.0) + seconds
    largest = sorted(spent, key=lambda key: -spent[key])
    return [samples.codes[key] for key in largest if spent[key] >= least * total][:most]
