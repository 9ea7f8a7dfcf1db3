"""What both sides of a comparison compute: each run once from the same state, before anything is timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from optbook.benchmark import output
from optbook.benchmark.cell import Cell
from optbook.benchmark.clock import Clock
from optbook.benchmark.interleave import Side
from optbook.benchmark.quantities import Quantity, evaluated, metric, short
from optbook.benchmark.recorder import Recorder, recording
from optbook.benchmark.restore import Kept
from optbook.errors import OptbookError, OptionError
from optbook.optimize.flatten import Leaf, flattened
from optbook.optimize.outputs import SameOutputs, same_leaves, tolerance

Same = bool | Callable[[], object]
Pair = tuple[float, float]


@dataclass(frozen=True)
class Check:
    """What is to be checked.

    Args:
        same: what must be equal after a run of each: what this returns, or what they return if True; False
            checks nothing.
        metrics: figures that are shown for both, as numbers or functions that give them.
        rtol, atol, strict: as for `optbook.same_outputs`.

    Raises:
        OptionError: one of them can't be used.
    """

    same: Same = False
    metrics: Mapping[str, Quantity] = field(default_factory=dict)
    rtol: float | None = None
    atol: float | None = None
    strict: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.same, bool) and not callable(self.same):
            raise OptionError(
                f"same is {short(self.same)}: give a function of no arguments that returns what must be "
                "equal, or True for what both return"
            )
        for name, value in (("rtol", self.rtol), ("atol", self.atol)):
            tolerance(name, value)

    def __bool__(self) -> bool:
        return self.same is not False or bool(self.metrics)

    def of(
        self,
        given: Sequence[Callable[[], object]],
        sides: Sequence[Side],
        labels: tuple[str, str],
        steps: int | None,
        clock: Clock,
    ) -> Checked:
        """Run both sides once, and hold what they compute against each other.

        The second starts from the state that the first did, as far as `optbook.benchmark.restore` can put it
        back: names, random state, modules, optimizers; and so does all that comes after. Arrays and files
        are not put back: rebuild in the setup what a run changes.

        Raises:
            OptionError: what is to be compared can't be evaluated or compared.
            Exception: whatever a side raised.
        """
        one_place = all(isinstance(each, Cell) for each in given)
        kept = [Kept(each) for each in (given[:1] if one_place else given)]
        found: list[dict[str, Leaf]] = []
        metrics: list[dict[str, float]] = []
        try:
            for side in sides:
                value = _run(side, steps, clock)
                if self.same is not False:
                    found.append(self._leaves(value))
                metrics.append(evaluated(self.metrics, metric))
                for each in kept:
                    each.put_back()
        finally:
            for each in kept:
                each.put_back()
        problems = [problem for each in kept for problem in each.problems]
        pairs = {name: (metrics[0][name], metrics[1][name]) for name in self.metrics}
        same = None
        if found:
            rules = {"rtol": self.rtol, "atol": self.atol}
            same = same_leaves(found[0], found[1], **rules, strict=self.strict, labels=labels)
        return Checked(same, pairs, tuple(dict.fromkeys(problems)))

    def _leaves(self, value: object) -> dict[str, Leaf]:
        if callable(self.same):
            try:
                value = self.same()
            except OptbookError:
                raise
            except Exception as error:
                what = f"what must be the same can't be evaluated: {type(error).__name__}: {error}"
                raise OptionError(f"{what}; give an expression that works after a run of either") from error
        if value is None:
            what = "the result to be compared is None" if callable(self.same) else "a workload returns None"
            raise OptionError(
                f"{what}: give what was computed, such as --same outputs, or same=lambda: outputs"
            )
        return flattened(value, copy=True)


@dataclass(frozen=True)
class Checked:
    """What a check found; ``same`` is None where results were not compared."""

    same: SameOutputs | None
    metrics: Mapping[str, Pair]
    problems: tuple[str, ...] = ()


def _run(side: Side, steps: int | None, clock: Clock) -> object:
    if side.setup is not None:
        side.setup()
    with output.dropped(output.Printed()), recording(Recorder(clock, steps)):
        value = side.run()
        clock.synchronize()
    return value
