"""`expect`: hold the next measurement against what a ceiling predicted."""

from __future__ import annotations

import math
import random
import statistics
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from optbook import formatting as write
from optbook.benchmark.clock import Clock
from optbook.benchmark.profiles.request import Request
from optbook.errors import OptionError
from optbook.experiments import log
from optbook.experiments.errors import LogError
from optbook.experiments.record import Experiment
from optbook.simplify import stubs
from optbook.simplify.bed import Bed
from optbook.simplify.components import Component, find
from optbook.simplify.forecast import Forecast, newest
from optbook.simplify.imitate import Filled, Timed
from optbook.simplify.subjects import Subject, study

NOT_SCORED = "not scored: "


def expect(
    component: str,
    ceiling: str | None = None,
    *,
    speedup: float | None = None,
    now: object = None,
    namespace: Mapping[str, Any] | None = None,
) -> Expected:
    """What the newest stored ceiling predicts for a component: ``optbook.bench(f, expect=expect("decode"))``.

    After the measurement the workload runs a few more steps with a timer on the component, since the
    prediction is read at the speed-up that the component got alone: its time per unit of throughput, then
    against now (of a module under autograd, its forward's). A component that can't be found any more counts
    as free.

    Args:
        component: its name in the ceiling, or the last part of it.
        ceiling: label of the ceiling; the newest that has the component if None.
        speedup: how many times as fast the component is (inf: it is gone), in place of that further pass.
        now: what does its work now, itself or its name; the same name if None.
        namespace: where names are looked up first, in place of where the call is made.

    Raises:
        OptionError: no ceiling has the component, or ``now`` or ``speedup`` can't be used.
        LogError: the log can't be read.
    """
    given: object = speedup
    if given is not None and (
        isinstance(given, bool) or not isinstance(given, (int, float)) or not given > 0
    ):
        raise OptionError(f"speedup is {speedup!r}: give how many times as fast {component} is, such as 4")
    forecast = newest(component, ceiling)
    if namespace is None:
        caller = sys._getframe(1)
        namespace = {**caller.f_globals, **caller.f_locals}
    if speedup is not None:
        return Expected(forecast, None, float(speedup))
    if now is not None:
        return Expected(forecast, find(now, namespace))
    try:
        return Expected(forecast, find(forecast.component, namespace))
    except OptionError:
        gone = (
            f"{forecast.component} is not there any more, and counts as free; if something took its place, "
            f"say so: --expect {forecast.component}=its_name"
        )
        return Expected(forecast, None, math.inf, gone)


def parsed(text: str, namespace: Mapping[str, Any]) -> Expected:
    """`expect` from ``component[=what does its work now][:speed-up][@label of the ceiling]``.

    Raises:
        OptionError: it can't be read, or `expect` refuses it.
    """
    before, at, label = text.partition("@")
    before, colon, factor = before.partition(":")
    name, equals, now = (part.strip() for part in before.partition("="))
    missing = (not name, at and not label.strip(), equals and not now)
    try:
        speedup = float(factor) if colon else None
    except ValueError:
        speedup = math.nan
    if any(missing) or (speedup is not None and not speedup > 0):
        raise OptionError(
            f"--expect got {text!r}: write the component, such as decode, decode=fast_decode, decode:4 "
            "(4 times as fast) or decode@baseline (the ceiling's label)"
        )
    return expect(name, label.strip() or None, speedup=speedup, now=now or None, namespace=namespace)


@dataclass(frozen=True)
class Expected:
    """A prediction that was accepted; see `optbook.benchmark.expectation.Expectation`.

    ``now`` is what does the component's work now, None where ``speedup`` says all.
    """

    forecast: Forecast
    now: Component | None
    speedup: float | None = None
    note: str = ""

    def judged(
        self, request: Request, problem: BaseException | None
    ) -> tuple[dict[str, Any], BaseException | None]:
        """See `optbook.benchmark.expectation.Expectation`."""
        experiment, raised = request.experiment, None
        fields: dict[str, Any] = {
            "expected": self.forecast.component,
            "prediction_of": self.forecast.experiment,
        }
        then = _of(self.forecast.experiment)
        why = "the measurement was not finished" if problem is not None else _incomparable(then, experiment)
        if not why:
            assert then is not None
            fields["achieved"] = experiment.units[then.unit] / then.units[then.unit]
            if self.speedup is None:
                alone, raised, executions = self._alone(request, then)
                fields["executions"] = experiment.executions + executions
            else:
                alone = self.speedup
            if isinstance(alone, str):
                why = alone
            else:
                predicted = self.forecast.at(alone, then.seconds)
                fields |= {
                    "component_speedup": alone,
                    "predicted": predicted.ratio,
                    "predicted_low": predicted.low,
                    "predicted_high": predicted.high,
                }
        notes = [self.note] if self.note else []
        if why:
            notes.append(f"{NOT_SCORED}{why}")
        fields["warnings"] = (*experiment.warnings, *notes)
        return fields, raised

    def _alone(self, request: Request, then: Experiment) -> tuple[float | str, BaseException | None, int]:
        """The component's own speed-up, or why it is not known; what the pass raised; its executions."""
        assert self.now is not None
        clock = request.clock or Clock()
        bed = Bed(request, None, clock, random.Random(0))
        try:
            found = _busy(bed, self.now)
        except BaseException as error:  # an interrupt too must not lose what was measured
            error.add_note(f"raised in the pass that times {self.now.name}; what was measured is recorded")
            return f"the pass that times {self.now.name} raised {type(error).__name__}", error, bed.executions
        finally:
            bed.put_back()
        if isinstance(found, str):
            return found, None, bed.executions
        before = self.forecast.busy / _units_each(then, then.unit)
        alone = before / (found / _units_each(request.experiment, then.unit)) if found else math.inf
        if not alone > 0:
            return f"its ceiling does not tell how long {self.forecast.component} took", None, bed.executions
        return alone, None, bed.executions


def _busy(bed: Bed, component: Component) -> float | str:
    """Seconds in the component, per run or tracked step; or why that is not known."""
    timed = Timed(bed.clock.now)
    with stubs.Stub(component, Filled(timed)) as stub:
        steps = bed.once(()).steps
    if not stub.calls:
        return (
            f"{component.name} is never called in this process; if something took its place, write "
            f"--expect {component.name}=its_name; if it is gone, --expect {component.name}:inf"
        )
    if timed.cost is not None:
        return stub.calls / steps * timed.cost.seconds
    subject = study(bed, component)  # an iterator: its items take the time
    return subject.busy if isinstance(subject, Subject) else f"{component.name}: {subject}"


def _of(id: str) -> Experiment | None:
    try:
        return log.session().get(id)
    except LogError:
        return None


def _incomparable(then: Experiment | None, now: Experiment) -> str:
    """Why an experiment can't be held against that of a ceiling; "" if it can."""
    if then is None:
        return "the measurement of its ceiling is not in the log any more"
    if now.status != "ok":
        return f"this measurement is {now.status}"
    for experiment, which in ((now, "this"), (then, "its ceiling")):
        if experiment.stubs:
            return f"{which} was measured with stubs ({experiment.stubs})"
    if then.machine != now.machine:
        machines = f"{now.machine or 'unknown'}, the ceiling on {then.machine or 'unknown'}"
        return f"this ran on another machine ({machines})"
    if not (then.units.get(then.unit, 0) > 0 and now.units.get(then.unit, 0) > 0):
        return f"the ceiling counts {write.plural(then.unit)}, this {write.plural(now.unit)}"
    return ""


def _units_each(experiment: Experiment, unit: str) -> float:
    """How many units a run, or a tracked step, amounts to."""
    times = experiment.times
    each = statistics.fmean(times) if experiment.steps and times else experiment.seconds or 0.0
    return experiment.units[unit] * each
