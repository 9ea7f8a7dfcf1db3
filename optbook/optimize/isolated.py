"""The other end of `optbook.optimize.isolate`: a fresh interpreter that runs one workload when told to.

``python -m optbook.optimize.isolated`` reads one JSON object a line and answers each with one.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import sys
import traceback
from collections.abc import Callable
from typing import Any

from optbook.benchmark.clock import Clock
from optbook.benchmark.interleave import per_step
from optbook.benchmark.recorder import Recorder, recording

IMPORTED = "__optbook_guard__"
"""What a script is called that is not run but asked for a function."""


def workload(task: dict[str, str]) -> Callable[[], object]:
    """What a task says to run: an importable callable, a script, or source below a set-up."""
    if "script" in task:
        return script(task["script"], task["function"])
    if "callable" in task:
        module, _, name = task["callable"].partition(":")
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        function: Callable[[], object] = found
        return function
    namespace: dict[str, Any] = {"__name__": "__optbook_isolated__"}
    exec(compile(task["setup"], "<setup>", "exec"), namespace)
    body = compile(task["body"], "<body>", "exec")
    return lambda: exec(body, namespace)


def script(path: str, function: str) -> Callable[[], object]:
    """A script as a workload, or a function of it.

    Raises:
        NameError: it has no such function.
    """
    if not function:
        return lambda: runpy.run_path(path, run_name="__main__")
    found = runpy.run_path(path, run_name=IMPORTED).get(function)
    if not callable(found):
        raise NameError(f"{path} has no function {function}")
    run: Callable[[], object] = found
    return run


def sample(run: Callable[[], object], loops: int, clock: Clock) -> dict[str, float]:
    """Mean seconds of a run, and of a step where steps are tracked, the first quarter of them left out."""
    recorder = Recorder(clock)
    clock.synchronize()
    start = clock.now()
    with recording(recorder):
        for _ in range(loops):
            run()
    clock.synchronize()
    seconds = (clock.now() - start) / loops
    series = next(iter(recorder.series.values()), None)
    step = per_step(series, len(series) // 4) if series is not None and len(series) else seconds
    return {"seconds": step, "run": seconds}


def serve() -> None:
    """Answer requests until the input ends. What the workload prints goes nowhere."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # standard error goes nowhere; from now on, so does what the workload prints
    clock = Clock()
    run: Callable[[], object] | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "task" in request:
                sys.path[:] = request["path"]
                run = workload(request["task"])
                answer: dict[str, Any] = {}
            elif "imported" in request:
                files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
                answer = {"files": [file for file in files if isinstance(file, str)]}
            else:
                assert run is not None
                answer = dict(sample(run, request["loops"], clock))
        except Exception:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    serve()
