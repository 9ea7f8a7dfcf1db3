"""A component under a ceiling: what its calls cost, what they returned, and the fillings made from that."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from optbook.simplify import stubs
from optbook.simplify.bed import Bed
from optbook.simplify.components import Component
from optbook.simplify.imitate import Cost, Filled, LockProbe, Partly, Thinned, Timed
from optbook.simplify.patching import Filling
from optbook.simplify.recording import Recording
from optbook.simplify.replay import Replaying, ReplayingBackward

MANY_CALLS = 4
_STATEFUL = ("__next__", "__anext__", "step", "send")
_ITERATED = ("generator", "async generator", "iterable")


@dataclass(frozen=True)
class Subject:
    """A component, and what is known of its real calls.

    ``calls`` is their number per run or tracked step, ``cost`` what one takes, ``share`` what all took of the
    run in which they were timed; above 1 where several run at the same time. ``keeps_state`` says that a
    call changes something that later ones need, so that real and replayed calls can't be mixed.
    ``unrecorded`` calls were real while it was recorded, as enough others were under way.
    """

    component: Component
    replaying: Replaying
    calls: float
    cost: Cost
    share: float
    holds_gil: bool
    keeps_state: bool
    unrecorded: int = 0

    @property
    def name(self) -> str:
        """The component's name."""
        return self.component.name

    @property
    def busy(self) -> float:
        """Seconds in its calls, per run or step."""
        return self.calls * self.cost.seconds

    @property
    def free(self) -> tuple[Component, Filling]:
        """A stub that replays, and takes no time."""
        return self.component, self.replaying

    def imitations(self, part: float) -> Sequence[tuple[Component, Filling]]:
        """Stubs that take this part of the real time, the better one first.

        What waits, and what keeps state, is replayed and takes part of the time. What computes is really
        called in part of the calls as well, which is better where there are many calls a step.
        """
        recorded = self.replaying.recording.mean_seconds or 0.0
        wait = Partly(self.cost, part, recorded, holds_gil=self.holds_gil)
        scaled = (self.component, self.replaying.taking(wait))
        if self.cost.waits or self.keeps_state:
            return (scaled,)
        thinned = (self.component, Thinned(self.replaying, part))
        return (thinned, scaled) if self.calls >= MANY_CALLS else (scaled, thinned)


def study(bed: Bed, component: Component) -> Subject | str:
    """Time the component's real calls in one run, record what they return in another, replay it in a third.

    Returns:
        What is known of the component; or why it can't be removed.

    Raises:
        Exception: what the real workload raised.
    """
    timed = Timed(bed.clock.now)
    with_timer = stubs.Stub(component, Filled(timed))
    probe = LockProbe(lambda: timed.running > 0)
    counts: list[int] = []
    with with_timer:
        steps, seconds = bed.once((), probe, lambda: counts.append(with_timer.calls))
    calls = _per_step(counts, with_timer, steps)
    if not calls:
        return "; ".join(("it is never called", *with_timer.member.declared))
    replaying = (ReplayingBackward if stubs.is_backward(component) else Replaying)(
        Recording(), clock=bed.clock
    )
    stubbed = ((component, replaying),)
    problem = bed.works(stubbed)  # its first calls are real
    replaying.recording.settle()
    unrecorded = replaying.recording.misses.value
    recorded = replaying.recording.mean_seconds
    if not problem and recorded is None:
        return "nothing that it returns could be recorded"
    if not problem and calls * steps <= replaying.recording.recorded.value + unrecorded:
        problem = bed.works(stubbed)  # nothing was replayed so far
    if problem or recorded is None:
        return f"without it the workload raises {problem}"
    cost = timed.cost or Cost(recorded, 0.0)
    return Subject(
        component=component,
        replaying=replaying,
        calls=calls,
        cost=cost,
        share=calls * cost.seconds / seconds if seconds else 0.0,
        holds_gil=probe.holds_gil,
        keeps_state=_keeps_state(component, timed.returned_something),
        unrecorded=unrecorded,
    )


def _per_step(counts: Sequence[int], with_timer: stubs.Stub, steps: int) -> float:
    """Calls a step, given the calls until the end of each.

    What workers had done ahead when the loop ended, to fill queues, doesn't count: no more than in a usual
    step, the fifth of them with most and the fifth with fewest calls left out.
    """
    total = with_timer.calls
    if len(counts) != steps or 2 * sum(with_timer.member.calls.values()) < total:
        return total / steps
    increments = sorted(b - a for a, b in pairwise(counts) if b > a)
    cut = len(increments) // 5
    return min(total / steps, fmean(increments[cut : len(increments) - cut] or [total / steps]))


def _keeps_state(component: Component, returned_something: bool) -> bool:
    """Whether later calls depend on a call: of optimizers, iterators, and of what returns nothing."""
    if not returned_something or component.kind in _ITERATED:
        return True
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(component.choice.chosen, torch.optim.Optimizer):
        return True
    return component.name.rpartition(".")[2] in _STATEFUL
