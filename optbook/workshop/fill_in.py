"""Exercises that ask for a function: equal results decide, and what it gains is advice.

``inputs`` makes the arguments, from a NumPy generator that starts anew at each check::

    def boxes(rng):
        return rng.uniform(0, 60, (6, 4)), 32

    fill_in(
        "04_together",
        "all_at_once",
        solution="def all_at_once(boxes, grid):\n    …",
        inputs=boxes,
        reference="optbook.hotdog.targets:draw_cell_by_cell",
    )

The first version and the reader's get arguments of their own, so that it does not matter who changes them,
and the reader's runs first. The first version is read from its file again; give it as ``module:name``, or as
a function of the chapter's module. Where it returns a generator, or is no function, ``call`` says how it is
used (``call=lambda f, *arguments: list(f(*arguments))``), and ``same`` what is equal.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optbook import settings as configuration
from optbook.benchmark.clock import Clock
from optbook.errors import OptionError
from optbook.optimize.agreement import Equivalence
from optbook.optimize.compare import compare
from optbook.optimize.outputs import same_outputs
from optbook.workshop.exercises import Exercise, Verdict
from optbook.workshop.limit import raised
from optbook.workshop.original import Watch, code_of, imported, kept

ROUNDS = 3
"""Inputs that are tried, each drawn anew."""
GAIN_SECONDS = 2.0
"""Measuring the gain takes no longer, about."""

Inputs = Callable[[np.random.Generator], Sequence[Any]]
Same = Callable[[Any, Any], Equivalence]


def fill_in(
    name: str,
    variable: str,
    solution: str,
    *,
    inputs: Inputs,
    reference: str | Callable[..., Any],
    same: Same = same_outputs,
    call: Callable[..., Any] | None = None,
    timed: Inputs | None = None,
    may_call_reference: bool = False,
    rounds: int = ROUNDS,
) -> Exercise:
    """An exercise: write a function that does what ``reference`` does, and faster.

    Args:
        name: of the exercise, such as ``04_together``.
        variable: what the reader's function is called.
        solution: code that solves it in its cell.
        inputs: makes the arguments from a NumPy generator; called anew for every call of the two.
        reference: the first version, as ``module:name`` or a function of the chapter's module.
        same: compares its result with the reader's; `functools.partial(same_outputs, rtol=1e-3)` for more
            tolerance, `same_accuracy` and the like for more.
        call: called with a version and the arguments, runs it and returns the result; the reader's may be
            anything then.
        timed: makes the arguments of the timed calls; ``inputs`` if None.
        may_call_reference: whether the reader's may call the first version, as a cache does. It can't be it.
        rounds: how many arguments are tried.
    """
    task = _Task(
        variable,
        inputs,
        reference if isinstance(reference, str) else kept(reference),
        same,
        call or _called,
        call is None,
        timed or inputs,
        may_call_reference,
        rounds,
    )
    return Exercise(name, solution, task.judge, task.gain)


def open_ended(
    name: str,
    variable: str,
    solution: str,
    *,
    inputs: Inputs,
    reference: str | Callable[..., Any],
    same: Same = same_outputs,
    call: Callable[..., Any] | None = None,
    timed: Inputs | None = None,
    rounds: int = ROUNDS,
) -> Exercise:
    """An exercise: make it faster in any way, with the same results. `fill_in`, and it may use the first."""
    return fill_in(
        name,
        variable,
        solution,
        inputs=inputs,
        reference=reference,
        same=same,
        call=call,
        timed=timed,
        may_call_reference=True,
        rounds=rounds,
    )


@dataclass(frozen=True)
class _Task:
    variable: str
    inputs: Inputs
    reference: str | Callable[..., Any]
    same: Same
    call: Callable[..., Any]
    only_functions: bool
    timed: Inputs
    may_call_reference: bool
    rounds: int

    @functools.cached_property
    def _original(self) -> Any:
        return imported(self.reference) if isinstance(self.reference, str) else self.reference

    def judge(self, namespace: Mapping[str, Any]) -> Verdict:
        """Whether the reader's version gives the same results."""
        given, name = namespace.get(self.variable, ...), self.variable
        if given is ... or given is None:
            return Verdict(False, f"set {name} to {'a function' if self.only_functions else 'your version'}")
        if self.only_functions and not callable(given):
            return Verdict(False, f"{name} is a {type(given).__name__}: set it to a function")
        watch = Watch(self._original)
        code = code_of(given)
        if code is not None and watch.is_of(code):
            return Verdict(False, f"{name} is the first version itself: write one that gets there faster")
        for seed in np.random.SeedSequence().spawn(self.rounds):
            try:
                with watch.watching():
                    result = self.call(given, *self.inputs(np.random.default_rng(seed)))
            except (Exception, SystemExit) as error:
                return Verdict(False, raised(error, name, given))
            if watch.seen and not self.may_call_reference:
                return Verdict(False, f"{name} calls the first version itself: do its work another way")
            if result is None or result is ...:
                return Verdict(False, f"{name} returns {result}: let it return the result")
            verdict = self._agrees(
                result, self.call(self._original, *self.inputs(np.random.default_rng(seed)))
            )
            if not verdict.solved:
                return verdict
        return Verdict(True, f"{name} gives the results of the first version, on {self.rounds} random inputs")

    def _agrees(self, result: object, expected: object) -> Verdict:
        try:
            checked = self.same(expected, result)
        except OptionError as error:
            return Verdict(False, f"{self.variable} returned something else: {error}")
        except Exception as error:  # what the reader's function returned may raise wherever it is touched
            return Verdict(False, f"{self.variable} returned something that {raised(error)}")
        if checked:
            return Verdict(True, "")
        return Verdict(False, f"{checked.sentence} (first: the first version, second: {self.variable})")

    def gain(self, namespace: Mapping[str, Any], clock: Clock | None) -> str:
        """How much faster the reader's version is, in a sentence."""
        seed = np.random.SeedSequence()
        sides = [self._original, namespace[self.variable]]
        prepared: list[Sequence[Any]] = [(), ()]

        def prepare(side: int) -> Callable[[], None]:
            def setup() -> None:
                prepared[side] = self.timed(np.random.default_rng(seed))

            return setup

        def run(side: int) -> Callable[[], object]:
            return lambda: self.call(sides[side], *prepared[side])

        try:
            result = compare(
                run(0),
                run(1),
                ("first version", self.variable),
                setup=(prepare(0), prepare(1)),
                budget=min(GAIN_SECONDS, configuration.settings().budget),
                clock=clock,
            )
        except (Exception, SystemExit) as error:
            return f"Its speed could not be measured: it {raised(error)}."
        if result.verdict not in ("faster", "slower"):
            return (
                f"No difference in speed was seen: {result.ratio:.2f}×, {_interval(result.low, result.high)}."
            )
        return f"It is {result.verdict} here: {result.ratio:.2f}×, {_interval(result.low, result.high)}."


def _called(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def _interval(low: float, high: float) -> str:
    return f"between {low:.2f}× and {high:.2f}×"
