"""The other end of `optbook.optimize.isolate`: a fresh interpreter that runs one workload when told to.

``python -m optbook.optimize.isolated`` reads one JSON object a line and answers each with one.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from optbook.benchmark.clock import Clock


def workload(task: dict[str, str]) -> Callable[[], object]:
    """What a task says to run: an importable callable, or source below a set-up."""
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


def sample(run: Callable[[], object], loops: int, clock: Clock) -> float:
    """Seconds of one run, the mean of ``loops``."""
    clock.synchronize()
    start = clock.now()
    for _ in range(loops):
        run()
    clock.synchronize()
    return (clock.now() - start) / loops


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
                answer: dict[str, Any] = {"seconds": 0.0}
            else:
                assert run is not None
                answer = {"seconds": sample(run, request["loops"], clock)}
        except Exception:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    serve()
