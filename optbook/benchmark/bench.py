"""`bench`: measure a workload, record it, and return what was measured."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from optbook import settings as configuration
from optbook.benchmark import coroutines
from optbook.benchmark.clock import Clock
from optbook.benchmark.diagnosis import diagnose
from optbook.benchmark.evidence import of_measurement
from optbook.benchmark.expectation import Expectation
from optbook.benchmark.figures import figures
from optbook.benchmark.origin import origin
from optbook.benchmark.profiles.request import Request
from optbook.benchmark.progress import Progress
from optbook.benchmark.quantities import Quantity, amount, evaluated, metric, short
from optbook.benchmark.replaced import Used
from optbook.benchmark.runner import Execution, Outcome, Plan, Workload
from optbook.errors import OptionError
from optbook.experiments import log
from optbook.experiments.record import Experiment


def bench(
    function: Callable[[], object],
    label: str | None = None,
    *,
    runs: int | None = None,
    steps: int | None = None,
    warmup: int | None = None,
    budget: float | None = None,
    setup: Callable[[], object] | None = None,
    units: Mapping[str, Quantity] | None = None,
    metrics: Mapping[str, Quantity] | None = None,
    stubs: Sequence[str] = (),
    source: str = "",
    flops: bool = False,
    expect: Expectation | None = None,
    clock: Clock | None = None,
) -> Experiment:
    """Measure ``function()``, append the experiment to the log, and return it.

    A function that loops over `track` runs once; its first steps are warm-up. Any other runs once
    to warm up and is repeated until ``budget`` seconds are spent.

    Args:
        function: the workload; called without arguments.
        label: what the experiment is called; the function's name if None.
        runs: how often it is executed altogether, warm-up included; 1 means exactly once.
        steps: ends a tracked loop after so many steps, warm-up included.
        warmup: how many of the runs (or tracked steps) are not counted.
        budget: seconds for the counted runs; the setting `OptBook.budget` if None.
        setup: called untimed before every run.
        units: what one run amounts to, by unit in the singular: ``{"batch": 20}``; a function is
            called after each run. The first named is the unit of the headline.
        metrics: results worth keeping beside the time; a function is called once, at the end.
        stubs: what stubs made by hand stand in for; marks the experiment as simplified, as active stubs do.
        source: the source of the workload, for the log.
        flops: count the FLOPs of the workload, in a pass of its own after the measured runs that executes
            it once more (a few steps where steps are tracked), and hold them against the machine's peak.
        expect: a prediction to hold the result against: ``optbook.expect("decode")``.
        clock: the clock to read.

    Returns:
        The experiment: times in seconds, memory in bytes, throughput in units per second.

    Raises:
        OptionError: an option can't be used; nothing was run.
        Exception: whatever ``function`` raised. The experiment is recorded as failed (as
            interrupted for KeyboardInterrupt) with the runs that were finished.
    """
    settings = configuration.settings()
    plan = Plan(
        runs=runs,
        steps=steps,
        warmup=warmup,
        budget=settings.budget if budget is None else budget,
        max_runs=settings.max_runs,
        reset_peak=settings.reset_peak,
    )
    if expect is not None and not hasattr(expect, "judged"):
        raise OptionError(f"expect is {short(expect)}: give a prediction, such as optbook.expect('decode')")
    label = label_of(function if label is None else label)
    given, function = function, runnable(function)
    units, metrics = dict(units or {}), dict(metrics or {})
    for name, value in [*units.items(), *metrics.items()]:
        if not callable(value):
            (amount if name in units else metric)(name, value)
    counted = functools.partial(evaluated, units, amount) if units else None
    progress = Progress(label, plan.budget, plan.steps, settings.progress_bar)
    workload = Workload(function, setup, counted)
    replaced = Used()
    outcome = Execution(workload, plan, clock or Clock(), progress).execute()
    fields = figures(outcome, plan, tuple(units))
    problem = outcome.exception
    if problem is None and metrics:
        try:
            fields["metrics"] = evaluated(metrics, metric)
        except BaseException as exception:  # an interrupt or exit too must not lose what was measured
            problem = exception
            fields["warnings"] += (f"no metrics: {str(exception) or type(exception).__name__}",)
    if flops and problem is None and not outcome.void:
        from optbook.benchmark.flops import measured

        found, problem = measured(workload, given, outcome, fields, settings.progress_bar)
        fields |= found
    fields["warnings"] += replaced.warnings(fields.get("metrics"), stubs)
    if outcome.void:
        fields["warnings"] += ("the figures of a void experiment are not to be trusted",)
    elif problem is None:
        fields |= _diagnosed(outcome, fields)
    experiment = Experiment(
        label=label,
        participant=settings.participant,
        stubs=",".join([*replaced.names, *stubs]),
        source=source if settings.store_source else "",
        **_status(outcome),
        **fields,
        **origin(),
    )
    if expect is not None:
        request = Request(workload, given, experiment, clock=clock)
        judged, raised = expect.judged(request, problem)
        experiment, problem = experiment.replace(**judged), problem or raised
    trouble = log.record(experiment)
    if trouble:
        experiment = experiment.replace(warnings=(*experiment.warnings, trouble))
    if problem is not None:
        raise problem
    return experiment


def runnable(function: Callable[[], object]) -> Callable[[], object]:
    """``function``, made to do its work when it is called."""
    if not callable(function):
        raise OptionError(f"bench() got {short(function)}: give a function that takes no arguments")
    if inspect.iscoroutinefunction(function):
        return functools.partial(coroutines.run, function)
    if inspect.isgeneratorfunction(function):
        name = function.__name__
        raise OptionError(f"{name} is a generator function, and calling it does no work: loop over {name}()")
    return function


def label_of(named: object) -> str:
    label = named if isinstance(named, str) else getattr(named, "__name__", type(named).__name__)
    label = label.strip()
    if not label:
        raise OptionError("the label is empty: give a name, such as 'baseline'")
    return str(label)


def _diagnosed(outcome: Outcome, fields: Mapping[str, Any]) -> dict[str, Any]:
    evidence = of_measurement(
        outcome.used, outcome.cpu_window, outcome.cpu_seconds, outcome.network_rate, fields
    )
    evidence = evidence.with_(**fields.get("evidence", {}))
    found = diagnose(evidence)
    return {"diagnosis": found.kind, "diagnosis_note": found.note, "evidence": evidence.known()}


def _status(outcome: Outcome) -> dict[str, Any]:
    exception = outcome.exception
    if isinstance(exception, KeyboardInterrupt):
        return {"status": "interrupted", "error": "interrupted; the runs that were finished are kept"}
    if exception is not None:
        return {"status": "failed", "error": f"{type(exception).__name__}: {exception}"}
    if outcome.void:
        return {"status": "void", "error": outcome.void}
    return {}
