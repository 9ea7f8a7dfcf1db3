"""`profile`: look inside a workload, in passes of their own after an uninstrumented one."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optbook import settings as configuration
from optbook.benchmark.bench import bench, runnable
from optbook.benchmark.clock import Clock
from optbook.benchmark.profiles.request import Request
from optbook.benchmark.runner import Workload
from optbook.errors import OptbookError, OptionError
from optbook.experiments import log
from optbook.experiments.profiles import StoredProfile
from optbook.experiments.record import Experiment


@dataclass(frozen=True)
class Kind:
    """A kind of profile: the function of this package that makes it, as 'module.name', and what it takes.

    ``ready`` is one that raises before anything runs if it can't be made.
    """

    entry: str
    ready: str = ""
    functions: bool = False
    options: tuple[str, ...] = ()


KINDS: Mapping[str, Kind] = {
    "calls": Kind("timing.calls_profile"),
    "lines": Kind("timing.lines_profile", "timing.lines_ready", functions=True),
    "memory": Kind("memory.memory_profile", "timing.lines_ready", functions=True, options=("time",)),
    "modules": Kind("modules.modules_profile"),
    "trace": Kind("trace.trace_profile", "trace.trace_ready", options=("out",)),
    "network": Kind("network.network_profile", "network.network_ready", options=("capture",)),
}


def _call(path: str, request: Request) -> Any:
    module, _, name = path.partition(".")
    return getattr(importlib.import_module(f"optbook.benchmark.profiles.{module}"), name)(request)


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
    **options: object,
) -> Any:
    """Measure ``function()`` as `bench` does, then execute it again to look inside.

    Args:
        function: the workload; called without arguments.
        kind: 'calls' for the time by function; 'lines' for the time by line; 'memory' for memory by line,
            tensors and leaks; 'modules' for the parts of a model; 'trace' for a file that Perfetto and
            TensorBoard show; 'network' for traffic and the time spent on it.
        label: what the experiment is called; the function's name if None.
        functions: for 'lines' and 'memory', the functions to look at, themselves or by name; those in which
            most of the time goes if empty, which takes one more pass.
        setup: called untimed before every run.
        runs, steps, budget: of the measurement without instrument, as for `bench`.
        source: the source of the workload, for the log.
        clock: the clock to read.
        options: ``time=True`` has 'memory' show the time of each line as well; ``out`` is the folder that
            'trace' writes to; ``capture=True`` has 'network' list conversations, by tshark.

    Returns:
        A `CallProfile`, `LineProfile`, `MemoryProfile`, `ModulesProfile`, `TraceProfile` or
        `NetworkProfile`. The measurement without instrument is in the log, and the profile's text and
        table beside it.

    Raises:
        OptionError: an argument can't be used, or a function has no lines to look at.
        OptbookError: another profiler or debugger is in the way, something that the kind needs is missing,
            or the measurement was void.
        Exception: whatever the workload raised.
    """
    made = _checked(kind, functions, options)
    workload = Workload(runnable(function), setup)

    def request(experiment: Experiment) -> Request:
        return Request(workload, function, experiment, tuple(functions), options, clock)

    if made.ready:
        _call(made.ready, request(Experiment(label="")))
    experiment = bench(
        function, label, runs=runs, steps=steps, budget=budget, setup=setup, source=source, clock=clock
    )
    if experiment.status == "void":
        raise OptbookError(f"no profile of a void measurement: {experiment.error}")
    result = _call(made.entry, request(experiment))
    _keep(result, kind, experiment)
    return result


def _checked(kind: str, functions: Sequence[object], options: Mapping[str, object]) -> Kind:
    if kind not in KINDS:
        raise OptionError(f"profile got kind {kind!r}: there are {', '.join(KINDS)}")
    made = KINDS[kind]
    if functions and not made.functions:
        those = " and ".join(repr(name) for name, other in KINDS.items() if other.functions)
        raise OptionError(f"functions are for kind {those}: {kind!r} looks at all of them")
    for name in options:
        if name not in made.options:
            takes = ", ".join(made.options) or "none"
            raise OptionError(f"profile of kind {kind!r} has no option {name!r}: it takes {takes}")
    return made


def _keep(result: Any, kind: str, experiment: Experiment) -> None:
    """Store the profile's text and table with its experiment, without source where that is not stored."""
    with_source = configuration.settings().store_source
    frame = result.to_frame()
    if not with_source:
        frame = frame.drop(columns="source", errors="ignore")
    text = str(result) if with_source or kind == "calls" else ""
    log.record_profile(StoredProfile.of(experiment, kind, text, frame))
