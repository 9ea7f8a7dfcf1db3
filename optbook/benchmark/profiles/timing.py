"""The two kinds of profile that tell where the time goes: by function and by line."""

from __future__ import annotations

from optbook.benchmark.compilation import eagerly
from optbook.benchmark.profiles import passes, slots
from optbook.benchmark.profiles.calls import CallProfile, call_profile, hot_codes
from optbook.benchmark.profiles.lines import LineInstrument, LineProfile, line_profile
from optbook.benchmark.profiles.places import is_yours
from optbook.benchmark.profiles.request import Request
from optbook.benchmark.profiles.sampler import Sampler, Samples
from optbook.benchmark.profiles.targets import Target, named, of_hot, of_workload
from optbook.benchmark.runner import Workload

CALLS_SECONDS = 1.0
"""A thousand looks at the stack, so that a share of 50 % is known to some 2 %."""
LINES_SECONDS = 0.3
HOT_SHARE = 0.05
MOST_HOT = 4


def calls_profile(request: Request) -> CallProfile:
    """Look at the stack while the workload runs once more, and add up where it was."""
    samples, run = sampled(request)
    return call_profile(samples, run, request.experiment, request.experiment.executions + run.executions)


def lines_ready(request: Request) -> None:
    """Make sure that lines can be profiled.

    Raises:
        OptionError: a function has no lines to look at.
        OptbookError: another profiler or debugger is in the way.
    """
    slots.refuse_others()
    for given in request.functions:
        named(given, request.given)


def lines_profile(request: Request) -> LineProfile:
    """Time the lines of the functions that were named, or of the workload and its hottest functions."""
    targets, executions = line_targets(request)
    instrument = LineInstrument(targets, request.given)
    run = request.further(
        instrument,
        enough=LINES_SECONDS,
        name="line profile",
        workload=Workload(instrument.workload(request.workload.run), request.workload.setup),
        around=eagerly,
    )
    return line_profile(instrument, targets, run, request.experiment, executions + run.executions)


def line_targets(request: Request) -> tuple[list[Target], int]:
    """The functions whose lines to look at, and how often the workload ran by then.

    If none were named, they are the workload's own code and what a call profile found hot.
    """
    executions = request.experiment.executions
    if request.functions:
        return [named(given, request.given) for given in request.functions], executions
    samples, run = sampled(request)
    yours = {key: is_yours(code.co_filename) for key, code in samples.codes.items()}
    own = of_workload(request.given)
    hot = hot_codes(samples, yours, HOT_SHARE, MOST_HOT)
    return [*own, *of_hot(hot, own)], executions + run.executions


def sampled(request: Request) -> tuple[Samples, passes.Pass]:
    """What a sampler sees in a pass of its own."""
    sampler = Sampler(passes.execute.__code__)
    run = request.further(sampler, enough=CALLS_SECONDS, name="call profile")
    return sampler.samples, run
