"""Compare two workloads in fresh interpreters, several pairs of them.

What one process has loaded, cached or laid out in memory makes it a per cent faster or slower than
the next, for all its life. So a pair of processes, not a pair of runs, is the unit that is counted.
Processes are started anew and never forked: a fork of a kernel that has used torch's threads hangs.
"""

from __future__ import annotations

import json
import math
import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from optbook import settings as configuration
from optbook.benchmark import sequential
from optbook.benchmark.cell import Cell
from optbook.benchmark.interleave import SAMPLE_SECONDS
from optbook.benchmark.progress import Progress
from optbook.errors import OptbookError, OptionError
from optbook.optimize.compare import ALPHA, FEWEST_PAIRS, Comparison, comparison

PROCESS_PAIRS, WARM_UPS = 10, 3
MOST_SAMPLES = 50


Check = Callable[[Sequence[str], Sequence[str]], None]


class IsolatedError(OptbookError):
    """A workload raised in its own interpreter; the message ends with the traceback from there."""


@dataclass(frozen=True)
class Task:
    """What a fresh interpreter runs: one of three.

    Source ``body`` that runs below a ``setup`` in an empty namespace; ``callable``, as ``module:name``; or a
    ``script``, a path, which is run whole each time, unless ``function`` names what to call in it. Of a
    script's tracked loop a step is what is timed.

    ``path`` takes the place of this interpreter's `sys.path`, ``folder`` of the working directory.
    """

    body: str = ""
    setup: str = ""
    callable: str = ""
    script: str = ""
    function: str = ""
    path: tuple[str, ...] = ()
    folder: str | None = None

    def request(self) -> dict[str, str]:
        """The task as the other end reads it."""
        if self.script:
            return {"script": self.script, "function": self.function}
        return {"callable": self.callable} if self.callable else {"setup": self.setup, "body": self.body}


def importable(function: Callable[[], object]) -> Task:
    """The task of calling ``function``, found by its name.

    Raises:
        OptionError: another interpreter can't import it.
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if not module or not name or module == "__main__" or "<" in name:
        raise OptionError(
            f"{name or function!r} can't be imported by a fresh interpreter: move it to a module, "
            "or use %%compare --isolate with a %%setup cell"
        )
    return Task(callable=f"{module}:{name}")


@dataclass(frozen=True)
class Sample:
    """Some runs: the seconds of one, or of a step where steps are tracked, and those of a whole run."""

    seconds: float
    run: float


class _Process:
    """One fresh interpreter."""

    def __init__(self, task: Task) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "optbook.optimize.isolated"],
            cwd=task.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            self._ask({"task": task.request(), "path": task.path or sys.path})
        except BaseException:
            self.close()
            raise

    def sample(self, loops: int) -> Sample:
        """Run it so many times."""
        return Sample(**self._ask({"loops": loops}))

    def imported(self) -> Sequence[str]:
        """The files of all modules imported so far."""
        files: Sequence[str] = self._ask({"imported": True})["files"]
        return files

    def _ask(self, request: dict[str, object]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise IsolatedError(
                f"the fresh interpreter ended with code {self._process.wait()}: run the code by hand"
            )
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise IsolatedError(f"raised in the fresh interpreter: {answer['error'].strip()}")
        return answer

    def __enter__(self) -> _Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the interpreter."""
        self._process.kill()
        self._process.communicate()


def bodies_isolated(
    bodies: Sequence[Cell],
    setup: Cell | None,
    labels: tuple[str, str],
    budget: float | None = None,
    steps: int | None = None,
) -> Comparison:
    """Compare two bodies of a cell; in each interpreter ``setup`` runs once, before them.

    Raises:
        OptionError: an option has no meaning here.
    """
    if steps is not None:
        raise OptionError(
            "--steps and --isolate don't go together: write the number of steps into the bodies"
        )
    prepared = "" if setup is None else setup.python
    first, second = (Task(body=body.python, setup=prepared) for body in bodies)
    return compare_isolated(first, second, labels, budget=budget)


def compare_isolated(
    first: Task,
    second: Task,
    labels: tuple[str, str],
    *,
    budget: float | None = None,
    pairs: int | None = None,
    seed: int | None = None,
    check: Check | None = None,
) -> Comparison:
    """Compare two tasks, each in ``pairs`` fresh interpreters, interleaved within each pair.

    ``budget`` is the seconds for all samples, the start of the interpreters not counted; twice the
    setting `OptBook.budget` if None. ``check`` is called once with the files that each has imported after a
    first run, before anything is timed.

    Raises:
        IsolatedError: a task raised, or its interpreter died.
        OptionError: there are too few pairs for any verdict.
    """
    pairs = PROCESS_PAIRS if pairs is None else pairs
    if pairs < FEWEST_PAIRS:
        raise OptionError(f"{pairs} pairs of interpreters: give {FEWEST_PAIRS} at least")
    budget = 2 * configuration.settings().budget if budget is None else budget
    order = random.Random(seed)
    times: tuple[list[float], list[float]] = ([], [])
    differences: list[float] = []
    loops = 1
    with Progress(" | ".join(labels), pairs, pairs, configuration.settings().progress_bar) as progress:
        for _ in range(pairs):
            with _Process(first) as f, _Process(second) as g:
                sides = (f, g)
                warm = [min(process.sample(1).run for _ in range(WARM_UPS)) for process in sides]
                if check is not None and not differences:
                    check(f.imported(), g.imported())
                loops = max(1, math.ceil(SAMPLE_SECONDS / max(min(warm), 1e-9)))
                samples = min(MOST_SAMPLES, max(1, int(budget / pairs / (loops * sum(warm)))))
                taken: tuple[list[float], list[float]] = ([], [])
                for _ in range(samples):
                    one = order.randrange(2)
                    for side in (one, 1 - one):
                        taken[side].append(sides[side].sample(loops).seconds)
            a, b = (statistics.median(side) for side in taken)
            differences.append(math.log(a) - math.log(b))
            times[0].append(a)
            times[1].append(b)
            if progress.step is not None:
                progress.step()
    (critical,) = sequential.boundary(1, ALPHA)
    seen = sequential.look(np.asarray(differences), critical)
    return comparison(labels, seen, (tuple(times[0]), tuple(times[1])), loops, 1)
