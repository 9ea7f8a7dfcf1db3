"""`smallest`: the smallest workload that still shows a bottleneck: the component alone, on real inputs."""

from __future__ import annotations

import itertools
import math
import random
import statistics
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from optbook import formatting as write
from optbook import settings as configuration
from optbook.benchmark import output, replaced, sequential
from optbook.benchmark.bench import bench, runnable
from optbook.benchmark.clock import Clock
from optbook.benchmark.profiles.page import FAINT, STYLE
from optbook.benchmark.profiles.request import Request
from optbook.benchmark.recorder import active
from optbook.benchmark.restore import namespaces
from optbook.benchmark.runner import Workload
from optbook.errors import OptbookError, OptionError
from optbook.experiments import log
from optbook.experiments.profiles import StoredProfile
from optbook.experiments.record import Experiment
from optbook.experiments.render import one_line
from optbook.simplify import stubs
from optbook.simplify.bed import CRITICAL, MOST_ROUNDS, ROUNDS, Bed
from optbook.simplify.components import Component, find
from optbook.simplify.imitate import Filled
from optbook.simplify.recording import LIMIT
from optbook.simplify.result import Estimate
from optbook.simplify.witness import Call, Witness

if TYPE_CHECKING:
    import pandas

AGREES = 0.1
FIRST_STEPS = 40
LONGEST = 300


@dataclass(frozen=True)
class Agreement:
    """What a call takes in the full system, and alone.

    ``ratio`` is the one ÷ the other, with a 95 % interval: above 1 it is faster alone.
    """

    seconds: float
    alone: float
    ratio: Estimate
    rounds: int

    @property
    def agrees(self) -> bool:
        """Whether both are the same, or could be."""
        near = 1 / (1 + AGREES) <= self.ratio.ratio <= 1 + AGREES
        return near or self.ratio.low <= 1 <= self.ratio.high

    @property
    def sentence(self) -> str:
        """What follows."""
        r = self.ratio
        times = f"{r.ratio:.2f}× as fast ({r.low:.2f} to {r.high:.2f})"
        if self.agrees:
            return f"its time alone agrees with that in the full system: {times}"
        if r.ratio > 1:
            return (
                f"alone it is {times}: in the full system it shares cores, caches, memory or Python's lock "
                "with the rest, so what is gained here may come out otherwise there"
            )
        return (
            f"alone it is only {times}: in the full system the rest warms its caches, or several of its "
            "calls overlap, so what is gained here may come out otherwise there"
        )


class Smallest:
    """A workload that does nothing but call a component with the inputs that it really got.

    Calling it makes as many calls as a run (or a tracked step) of the full system does, with the recorded
    inputs in turn; what iterators give is taken, and where there was a graph, its backward is run. Inputs
    that the component changes are copied before each call: ``%%bench --setup "small.prepare()"`` has them
    copied untimed.

    Attributes:
        component: its name.
        per_run: calls in a run or tracked step of the full system.
        calls: the recorded calls.
        bytes: what their inputs take.
        changes: whether the component changes its inputs.
        agreement: its time alone against that in the full system; None after `calling`.
        notes: what to keep in mind.
        experiment: id of the measurement of the full system.
    """

    def __init__(
        self, component: str, target: Callable[..., Any], witness: Witness, per_run: float, experiment: str
    ) -> None:
        self.component = component
        self.per_run = per_run
        self.calls = tuple(witness.calls)
        self.bytes = witness.bytes
        self.changes = witness.changes
        self.agreement: Agreement | None = None
        self.notes: tuple[str, ...] = ()
        self.experiment = experiment
        self.__name__ = f"{component} alone"
        self._target = target
        self._position = 0
        self._prepared: deque[Call] = deque()

    @property
    def number(self) -> int:
        """Calls that calling this makes."""
        return max(1, round(self.per_run))

    def __call__(self) -> None:
        """Make the calls of one run or step."""
        replaced.mark(f"all but {self.component}")
        for _ in range(self.number):
            call = self._prepared.popleft() if self._prepared else self._next()
            call.make(self._target)

    def prepare(self) -> None:
        """Copy the inputs of the next run's calls, where the component changes them."""
        self._prepared.clear()
        if self.changes:
            self._prepared.extend([self._next() for _ in range(self.number)])

    def calling(self, function: Callable[..., Any]) -> Smallest:
        """The same calls made of another function, such as a faster version.

        Raises:
            OptionError: it can't be called.
        """
        if not callable(function):
            raise OptionError(f"calling got {function!r}: give the function that takes the component's place")
        other = object.__new__(Smallest)
        vars(other).update(vars(self))
        other._target, other._position, other._prepared, other.agreement = function, 0, deque(), None
        other.__name__ = f"{getattr(function, '__name__', type(function).__name__)} alone"
        return other

    def _next(self) -> Call:
        call = self.calls[self._position % len(self.calls)]
        self._position += 1
        return call.copied() if self.changes else call

    def _lines(self) -> Iterator[str]:
        each = f"{write.number(self.per_run)} calls a run or step, {len(self.calls)} recorded"
        yield f"{each}, whose inputs take {write.bytes_(self.bytes)}"
        if self.agreement is not None:
            a = self.agreement
            yield a.sentence
            yield (
                f"a call: {write.seconds(a.alone)} alone, {write.seconds(a.seconds)} in the full system; "
                f"{a.rounds} interleaved rounds"
            )

    def to_frame(self) -> pandas.DataFrame:
        """One row: ``component``, ``calls`` (a run or step), ``recorded``, ``bytes``, ``seconds`` (a call in
        the full system), ``alone`` (a call alone), ``ratio``, ``low``, ``high``, ``agrees``."""
        import pandas as pd

        a = self.agreement
        ratio = a.ratio if a is not None else Estimate(math.nan, math.nan, math.nan)
        row = {
            "component": self.component,
            "calls": self.per_run,
            "recorded": len(self.calls),
            "bytes": self.bytes,
            "seconds": a.seconds if a is not None else math.nan,
            "alone": a.alone if a is not None else math.nan,
            "ratio": ratio.ratio,
            "low": ratio.low,
            "high": ratio.high,
            "agrees": a.agrees if a is not None else None,
        }
        return pd.DataFrame([row])

    def __str__(self) -> str:
        lines = [one_line(self.__name__), *(f"  {line}" for line in self._lines())]
        return "\n".join([*lines, *(f"  ! {one_line(note, LONGEST)}" for note in self.notes)])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        lines = "".join(f"<div>{escape(line)}</div>" for line in self._lines())
        notes = "".join(f"<li>{escape(one_line(note, LONGEST))}</li>" for note in self.notes)
        listed = f'<ul style="margin:4px 0 0;padding-left:1.4em;{FAINT}">{notes}</ul>' if notes else ""
        name = escape(one_line(self.__name__))
        return f'<div class="optbook-smallest" style="{STYLE}"><b>{name}</b>{lines}{listed}</div>'


def smallest(
    function: Callable[[], object],
    component: object,
    label: str | None = None,
    *,
    setup: Callable[[], object] | None = None,
    steps: int | None = None,
    budget: float | None = None,
    limit: float = LIMIT,
    namespace: Mapping[str, Any] | None = None,
    clock: Clock | None = None,
) -> Smallest:
    """The component alone, called with the inputs that it gets in a workload: ready to be measured.

    The workload is measured, then run a few times more: once to record the inputs, and in turn with the
    component alone, to see whether a call takes the same time in both. Copied are tensors, arrays, pictures
    and the containers they lie in; other objects (the ``self`` of a method among them) are shared.

    Args:
        function: the workload; called without arguments.
        component: a name or an object, see `optbook.simplify.components.find`.
        label: what the experiment of the full system is called; the function's name if None.
        setup: called untimed before every run.
        steps: ends tracked loops after so many steps; chosen if None.
        budget: seconds for the rounds; the setting `OptBook.budget` if None. At least six are run.
        limit: bytes that recorded inputs may take.
        namespace: where names are looked up first, in place of where the call is made.
        clock: the clock to read.

    Returns:
        A workload to give to `bench`; its experiments are marked as simplified.

    Raises:
        OptionError: an argument or the component can't be used.
        OptbookError: the component is never called in this process, or can't be called by itself.
        Exception: whatever the workload raised.
    """
    most: object = limit
    if isinstance(most, bool) or not isinstance(most, (int, float)) or not most > 0:
        raise OptionError(f"limit is {limit!r}: give a number of bytes, such as 2**28")
    if active() is not None:
        raise OptbookError("a measurement is running already: don't take a workload apart inside of it")
    if namespace is None:
        caller = sys._getframe(1)
        namespace = {**caller.f_globals, **caller.f_locals}
    run = runnable(function)
    found = _found(function, component, namespace)
    budget = configuration.settings().budget if budget is None else budget
    clock = clock or Clock()
    measured = bench(function, label, steps=steps or FIRST_STEPS, budget=budget / 4, setup=setup, clock=clock)
    if measured.status == "void":
        raise OptbookError(f"nothing to take apart: the measurement is void: {measured.error}")
    request = Request(Workload(run, setup), function, measured, clock=clock)
    bed = Bed(request, steps, clock, random.Random(0))
    try:
        return _made(bed, found, measured, limit, budget, clock)
    finally:
        bed.put_back()


def _found(function: Callable[..., object], given: object, namespace: Mapping[str, Any]) -> Component:
    names: dict[str, Any] = {}
    for place in reversed(namespaces(function)):
        names |= place
    component = find(given, {**names, **namespace})
    stubs.refuse_workload(component, function)
    if stubs.is_backward(component):
        raise OptionError(
            f"{component.name} needs the graph of a forward: name the module or function whose backward it "
            "is, which is run with it"
        )
    return component


def _made(
    bed: Bed, component: Component, measured: Experiment, limit: float, budget: float, clock: Clock
) -> Smallest:
    witness = Witness(clock, limit)
    with stubs.Stub(component, Filled(witness)) as stub:
        steps = bed.once(()).steps
    name = component.name
    if not witness.calls:
        if witness.full:
            raise OptbookError(
                f"the inputs of one call of {name} take more than {write.bytes_(limit)}: raise limit"
            )
        if stub.calls:
            raise OptbookError(
                f"{name} runs in worker processes: run all in one first, such as num_workers=0"
            )
        raise OptbookError(f"{name} is never called in the workload: name something that is")
    made = Smallest(name, component.target, witness, len(witness.seconds) / steps, measured.id)
    made.agreement = _agreement(bed, component, made, budget, clock)
    made.notes = tuple(_notes(component, witness, measured))
    text = str(made) if configuration.settings().store_source else ""
    log.record_profile(StoredProfile.of(measured, "smallest", text, made.to_frame()))
    return made


def _notes(component: Component, witness: Witness, measured: Experiment) -> Iterator[str]:
    yield from component.notes
    yield from witness.notes
    if witness.full:
        of_all = f"{len(witness.calls)} of {len(witness.seconds)} calls"
        yield f"only {of_all} were recorded: the memory limit was reached"
    if witness.shared:
        names = ", ".join(sorted(witness.shared))
        yield f"objects that are shared, not copied: {names}; what they change stays changed"
    if witness.changes:
        yield "it changes its inputs: they are copied before each call; prepare() does so untimed"
    yield from measured.warnings


def _agreement(bed: Bed, component: Component, made: Smallest, budget: float, clock: Clock) -> Agreement:
    """Time the calls in the full system and alone, in turn."""
    full: list[float] = []
    alone: list[float] = []
    printed = output.Printed()
    start = clock.now()
    while len(full) < MOST_ROUNDS and (len(full) < ROUNDS or clock.now() - start < budget):
        witness = Witness(clock)
        bed.once(((component, witness),))
        full.append(statistics.fmean(witness.seconds[: len(made.calls)]))
        with output.dropped(printed):
            alone.append(_alone(component, made, clock))
    seen = sequential.look(np.log(np.array(full) / np.array(alone)), CRITICAL)
    ratio = Estimate(math.exp(seen.center), math.exp(seen.low), math.exp(seen.high))
    return Agreement(statistics.median(full), statistics.median(alone), ratio, len(full))


def _alone(component: Component, made: Smallest, clock: Clock) -> float:
    """Mean seconds of a call alone, over the recorded ones.

    Raises:
        OptbookError: it can't be called by itself.
    """
    spent = 0.0
    for call in itertools.islice(iter(made._next, None), len(made.calls)):
        clock.synchronize()
        start = clock.now()
        try:
            call.make(component.target)
        except Exception as error:
            what = f"{type(error).__name__}: {error}".rstrip(": ")
            raise OptbookError(f"{component.name} can't be called by itself: it raised {what}") from error
        clock.synchronize()
        spent += clock.now() - start
    return spent / len(made.calls)
