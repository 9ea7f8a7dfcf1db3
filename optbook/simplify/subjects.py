"""A component under a ceiling: what its calls cost, what they returned, and the fillings made from that."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

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

    ``calls`` is their number per run or tracked step, ``cost`` what one takes. ``keeps_state`` says that a
    call changes something that later ones need, so that real and replayed calls can't be mixed.
    """

    component: Component
    replaying: Replaying
    calls: float
    cost: Cost
    holds_gil: bool
    keeps_state: bool

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
    with with_timer:
        steps = bed.once((), probe)
    calls = with_timer.calls / steps
    if not calls:
        return "; ".join(("it is never called", *with_timer.member.declared))
    replaying = (ReplayingBackward if stubs.is_backward(component) else Replaying)(
        Recording(), clock=bed.clock
    )
    stubbed = ((component, replaying),)
    problem = bed.works(stubbed)  # its first calls are real
    replaying.recording.close()
    recorded = replaying.recording.mean_seconds
    if not problem and recorded is None:
        return "nothing that it returns could be recorded"
    problem = problem or bed.works(stubbed)
    if problem or recorded is None:
        return f"without it the workload raises {problem}"
    return Subject(
        component=component,
        replaying=replaying,
        calls=calls,
        cost=timed.cost or Cost(recorded, 0.0),
        holds_gil=probe.holds_gil,
        keeps_state=_keeps_state(component, timed.returned_something),
    )


def _keeps_state(component: Component, returned_something: bool) -> bool:
    """Whether later calls depend on a call: of optimizers, iterators, and of what returns nothing."""
    if not returned_something or component.kind in _ITERATED:
        return True
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(component.choice.chosen, torch.optim.Optimizer):
        return True
    return component.name.rpartition(".")[2] in _STATEFUL
