"""`profile`: look inside a workload, in passes of their own after an uninstrumented one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from optbook import settings as configuration
from optbook.benchmark.bench import bench, runnable
from optbook.benchmark.clock import Clock
from optbook.benchmark.compilation import eagerly
from optbook.benchmark.profiles import passes, slots
from optbook.benchmark.profiles.calls import CallProfile, call_profile, hot_codes
from optbook.benchmark.profiles.lines import LineInstrument, LineProfile, line_profile
from optbook.benchmark.profiles.places import is_yours
from optbook.benchmark.profiles.sampler import Sampler, Samples
from optbook.benchmark.profiles.targets import Target, named, of_hot, of_workload
from optbook.benchmark.runner import Workload
from optbook.errors import OptbookError, OptionError
from optbook.experiments.record import Experiment

KINDS = ("calls", "lines")
CALLS_SECONDS = 1.0
"""A thousand looks at the stack, so that a share of 50 % is known to some 2 %."""
LINES_SECONDS = 0.3
HOT_SHARE = 0.05
MOST_HOT = 4


def profile(
    function: Callable[[], object],
    kind: str = "calls",
    label: str | None = None,
    *,
    functions: Sequence[object] = (),
    setup: Callable[[], object] | None = None,
    runs: int | None = None,
    steps: int | None = None,
    budget: float | None = None,
    source: str = "",
    clock: Clock | None = None,
) -> CallProfile | LineProfile:
    """Measure ``function()`` as `bench` does, then execute it again to see where its time goes.

    Args:
        function: the workload; called without arguments.
        kind: 'calls' for the time by function, 'lines' for the time by line.
        label: what the experiment is called; the function's name if None.
        functions: for 'lines', the functions to look at, themselves or by name; those in which most of
            the time goes if empty, which takes one more pass.
        setup: called untimed before every run.
        runs, steps, budget: of the measurement without instrument, as for `bench`.
        source: the source of the workload, for the log.
        clock: the clock to read.

    Returns:
        The profile. The measurement without instrument is in the log.

    Raises:
        OptionError: an argument can't be used, or a function has no lines to look at.
        OptbookError: another profiler or debugger is in the way, or the measurement was void.
        Exception: whatever the workload raised.
    """
    if kind not in KINDS:
        raise OptionError(f"profile got kind {kind!r}: there are {' and '.join(KINDS)}")
    if functions and kind != "lines":
        raise OptionError("functions are for kind 'lines': 'calls' looks at all of them")
    if kind == "lines":
        slots.refuse_others()
    call = runnable(function)
    targets = [named(given, function) for given in functions]
    experiment = bench(
        function, label, runs=runs, steps=steps, budget=budget, setup=setup, source=source, clock=clock
    )
    if experiment.status == "void":
        raise OptbookError(f"no profile of a void measurement: {experiment.error}")
    workload = Workload(call, setup)
    if kind == "lines":
        return _lines(workload, function, experiment, targets, clock)
    samples, run = _sampled(workload, function, experiment, clock)
    return call_profile(samples, run, experiment, experiment.executions + run.executions)


def _sampled(
    workload: Workload, function: Callable[..., object], experiment: Experiment, clock: Clock | None
) -> tuple[Samples, passes.Pass]:
    sampler = Sampler(passes.execute.__code__)
    run = passes.further(
        workload,
        function,
        experiment,
        sampler,
        enough=CALLS_SECONDS,
        name="call profile",
        shown=configuration.settings().progress_bar,
        clock=clock,
    )
    return sampler.samples, run


def _lines(
    workload: Workload,
    function: Callable[..., object],
    experiment: Experiment,
    targets: list[Target],
    clock: Clock | None,
) -> LineProfile:
    executions = experiment.executions
    if not targets:
        samples, sampled = _sampled(workload, function, experiment, clock)
        executions += sampled.executions
        yours = {key: is_yours(code.co_filename) for key, code in samples.codes.items()}
        own = of_workload(function)
        hot = hot_codes(samples, yours, HOT_SHARE, MOST_HOT)
        targets = [*own, *of_hot(hot, own)]
    instrument = LineInstrument(targets, function)
    run = passes.further(
        Workload(instrument.workload(workload.run), workload.setup),
        function,
        experiment,
        instrument,
        enough=LINES_SECONDS,
        name="line profile",
        shown=configuration.settings().progress_bar,
        around=eagerly,
        clock=clock,
    )
    return line_profile(instrument, targets, run, experiment, executions + run.executions)
