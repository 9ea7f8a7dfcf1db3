"""The profiles beside their peers: what they cost on a training step, and how soon they name a flaw.

An action is a magic, a command or a name that the user types, counted from a cell that works and is slow. A
tool has found a flaw when its hottest line is marked ``# guilty``; lines that call a function which it lists
too, directly or through others, are left aside.
"""

from __future__ import annotations

import contextlib
import io
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import optbook
from tests.benchmarks.run import Row
from tests.shells import shell_with_optbook

ROUNDS, RUNS = 3, 3
SCALENE_STEPS = 5
SLOW = ("%mprun", "scalene")  # measured in the first round only
MOST_NAMES = 4
FLAWS: Mapping[str, str] = {
    "a loop in Python": """
def norm(values):
    total = 0.0
    for value in values:  # guilty
        total += (value - 0.5) ** 2  # guilty
    return total

def main():
    values = [float(i) for i in range(200_000)]
    return norm(values), sum(values)
""",
    "np.append again and again": """
import numpy as np

def collect(count):
    found = np.array([])
    for i in range(count):
        found = np.append(found, i)  # guilty
    return found

def main():
    return collect(15_000).mean()
""",
    "rows of a data frame": """
import pandas as pd

def total(frame):
    found = 0.0
    for _, row in frame.iterrows():  # guilty
        found += row.iat[0]
    return found

def main():
    frame = pd.DataFrame({"price": range(3_000), "count": range(3_000)})
    return total(frame)
""",
    ".item() in a loop": """
import torch

def log(losses):
    found = []
    for i in range(len(losses)):
        found.append(losses[i].item())  # guilty
    return found

def main():
    losses = torch.rand(500, 500).mean(0).repeat(60)
    return sum(log(losses))
""",
    "patterns compiled anew": """
import re

def count(lines, words):
    found = 0
    for line in lines:
        for word in words:
            found += bool(re.search(rf"\\\\b{word}\\\\b", line))  # guilty
    return found

def main():
    words = [f"word{i}" for i in range(600)]
    return count([" ".join(words[i : i + 5]) for i in range(1)], words)
""",
    "membership of a list": """
def unique(words):
    seen = []
    for word in words:
        if word not in seen:  # guilty
            seen.append(word)
    return seen

def main():
    return unique([str(i % 2500) for i in range(6_000)])
""",
    "JSON parsed in every step": """
import contextlib
import io
import json

def step(text, x):
    rate = json.loads(text)["rate"]  # guilty
    return x * rate

def main():
    text = json.dumps({"rate": 0.5, "classes": list(range(2000))})
    x = 1.0
    for _ in range(500):
        x = step(text, x)
    return x
""",
    "a deep copy in every step": """
import copy

def step(settings, i):
    mine = copy.deepcopy(settings)  # guilty
    mine["seed"] = i
    return mine["seed"]

def main():
    settings = {f"name{i}": [i, i + 1] for i in range(100)}
    return sum(step(settings, i) for i in range(80))
""",
}


def rows() -> list[Row]:
    """Overheads, then actions."""
    return [*overheads(), *(actions(name, program.lstrip()) for name, program in FLAWS.items())]


def overheads() -> list[Row]:
    """Instrumented ÷ bare time; every round measures all, each beside a bare measurement of its own."""
    from tests.benchmarks.bench_profiles import HOT, training_step

    step = training_step()
    step()
    ours: dict[str, Callable[[], float]] = {
        "calls": lambda: ratio(step, "calls"),
        "lines": lambda: ratio(step, "lines", functions=HOT),
        "memory": lambda: ratio(step, "memory", functions=HOT),
        "modules": lambda: ratio(step, "modules"),
        "trace": lambda: ratio(step, "trace", out=tempfile.mkdtemp()),
        "network": lambda: ratio(step, "network"),
    }
    peers: dict[str, Callable[[], float]] = {
        "pyinstrument": lambda: beside(step, pyinstrument()),
        "%lprun": lambda: beside(step, lprun(HOT)),
        "%mprun": lambda: beside(step, mprun(HOT)),
        "memray": lambda: beside(step, memray()),
        "torch.profiler": lambda: beside(step, torch_profiler()),
        "scalene": scalene_overhead,
    }
    found: dict[str, list[float]] = {name: [] for name in (*ours, *peers)}
    for turn in range(ROUNDS):
        for name, measure in (ours | peers).items():
            if turn == 0 or name not in SLOW:
                found[name].append(measure())
    median = {name: statistics.median(ratios) for name, ratios in found.items()}
    same = {
        "calls": ("pyinstrument", "scalene"),
        "lines": ("%lprun", "scalene"),
        "memory": ("%mprun", "memray"),
        "trace": ("torch.profiler",),
    }
    return [
        _overhead(kind, median[kind], {name: median[name] for name in same.get(kind, ())}) for kind in ours
    ]


def _overhead(kind: str, measured: float, peers: Mapping[str, float]) -> Row:
    what = f"{kind}: time ÷ bare as it says itself, sample's training step"
    if not peers:
        return Row(what, measured, "at most 1.05", measured <= 1.05)
    same, theirs = next(iter(peers.items()))
    return Row(what, measured, f"at most 1.1 × {same}'s", measured <= 1.1 * theirs, peers)


def ratio(step: Callable[[], object], kind: str, **options: Any) -> float:
    """What a profile of ours says of its overhead."""
    return float(optbook.profile(step, kind, runs=RUNS, **options).overhead)


def beside(step: Callable[[], object], instrument: Any) -> float:
    """Time with the instrument ÷ time without it, just before."""
    bare = statistics.median(_seconds(step) for _ in range(RUNS))
    with instrument:
        return statistics.median(_seconds(step) for _ in range(RUNS)) / bare


def _seconds(step: Callable[[], object]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def pyinstrument() -> Any:
    """As %%pyinstrument looks, each millisecond."""
    from pyinstrument import Profiler

    return Profiler(interval=0.001)


def lprun(functions: Iterable[Any]) -> Any:
    """What %lprun does with -f for the same functions."""
    from line_profiler import LineProfiler

    return LineProfiler(*functions)


def mprun(functions: Iterable[Any]) -> Any:
    """What %mprun does with -f for the same functions, which lie in files."""
    from memory_profiler import LineProfiler

    profiler = LineProfiler()
    for function in functions:
        profiler(function)
    return profiler


def memray() -> Any:
    """As %%memray_flamegraph tracks."""
    from memray import Tracker

    return Tracker(Path(tempfile.mkdtemp()) / "memray.bin")


def torch_profiler() -> Any:
    """PyTorch's profiler as it comes."""
    import torch

    return torch.profiler.profile()


def scalene_overhead() -> float:
    """Scalene profiles programs: the same steps in a process with it, and in one without."""
    program = (
        "import statistics\n"
        "from tests.benchmarks.bench_profiles import training_step\n"
        "from tests.benchmarks.profile_peers import _seconds\n"
        "step = training_step()\nstep()\n"
        f"print('median', statistics.median(_seconds(step) for _ in range({SCALENE_STEPS})))\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.py"
        path.write_text(f"import sys\nsys.path.insert(0, {str(Path.cwd())!r})\n{program}")
        bare, seen = (
            float(_python(*options, str(path), folder=folder).rpartition("median ")[2].split()[0])
            for options in ((), ("-m", "scalene", "run", "--cpu-only", "--profile-all"))
        )
    return seen / bare


def _python(*arguments: str, folder: str) -> str:
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=300
    ).stdout


def actions(name: str, program: str) -> Row:
    """What it takes to be shown a program's guilty line, by us and by others."""
    guilty = {number for number, line in enumerate(program.splitlines(), 1) if "# guilty" in line}
    with shell_with_optbook() as shell:
        shell.run_line_magic("load_ext", "line_profiler")
        shell.run_cell(program, store_history=True)
        ours = _of_ours(shell, program, guilty)
        with contextlib.redirect_stdout(io.StringIO()):
            lines = _of_lprun(shell, program, guilty)
    peers = {"%lprun": lines or "not found", "scalene": _of_scalene(program, guilty) or "not found"}
    peers["pyinstrument"] = "no line" if _names_function(program, guilty) else "not found"
    fewest = min((count for count in peers.values() if isinstance(count, int)), default=99)
    return Row(
        f"actions to the guilty line: {name}",
        ours or "not found",
        "no more than the best of the others",
        bool(ours) and ours <= fewest,
        peers,
    )


def _of_ours(shell: Any, program: str, guilty: set[int]) -> int:
    """``%%profile lines``: a magic and its kind."""
    shell.run_cell("%%profile lines -q -o profile_\nmain()", store_history=True).raise_error()
    listed = {
        (listing.name, line.number): (line.seconds, line.source)
        for listing in shell.user_ns["profile_"].listings
        for line in listing.lines
    }
    return 2 if _top(listed, program)[1] in guilty else 0


def _of_lprun(shell: Any, program: str, guilty: set[int]) -> int:
    """``%lprun -f NAME``: a magic, the name in the cell, and further names read off its results."""
    source = program.splitlines()
    names = ["main"]
    while len(names) <= MOST_NAMES:
        options = " ".join(f"-f {name}" for name in names)
        stats = shell.run_line_magic("lprun", f"-r {options} main()").get_stats()
        listed = {
            (name, number): (float(ticks), source[number - 1])
            for (_, _, name), entries in stats.timings.items()
            for number, _, ticks in entries
        }
        _, number = _top(listed, program)
        if number in guilty:
            return 1 + len(names)
        called = [name for name in _defined(program) if f"{name}(" in source[number - 1]]
        if not called:
            return 0
        names.append(called[0])
    return 0


def _top(listed: Mapping[tuple[str, int], tuple[float, str]], program: str) -> tuple[str, int]:
    """The hottest line that doesn't call what is listed too."""
    names = {name for name, _ in listed}
    reach = names & _defined(program).keys()
    for _ in _defined(program):
        reach |= {n for n, body in _defined(program).items() if any(f"{other}(" in body for other in reach)}
    own = {
        key: seconds
        for key, (seconds, text) in listed.items()
        if not any(f"{name}(" in text for name in reach)
    }
    return max(own, key=own.__getitem__)


def _defined(program: str) -> dict[str, str]:
    """The functions of a program and their bodies."""
    parts = (part.partition("(") for part in program.split("def ")[1:])
    return {name: body for name, _, body in parts}


def _of_scalene(program: str, guilty: set[int]) -> int:
    """``%%writefile``, ``!scalene run``, ``!scalene view``, since it looks at programs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.py"
        path.write_text(f"{program}\nmain()\n")
        _python("-m", "scalene", "run", "--cpu-only", "--outfile", "seen.json", str(path), folder=folder)
        seen = json.loads((Path(folder) / "seen.json").read_text())
    shares = {
        line["lineno"]: line["n_cpu_percent_python"] + line["n_cpu_percent_c"] + line["n_sys_percent"]
        for file in seen["files"].values()
        for line in file["lines"]
        if not line["line"].startswith("import ")  # a notebook has done that before
    }
    return 3 if shares and max(shares, key=shares.__getitem__) in guilty else 0


def _names_function(program: str, guilty: set[int]) -> bool:
    """Whether pyinstrument's last frame of ours on its hottest path is the function with the guilty line."""
    namespace: dict[str, Any] = {}
    code = compile(program, "program.py", "exec")
    exec(code, namespace)
    profiler = pyinstrument()
    with profiler:
        namespace["main"]()
    frame, last = profiler.last_session.root_frame(), 0
    while frame is not None:
        if (frame.file_path or "").endswith("program.py"):
            last = frame.line_no or 0
        frame = max(frame.children, key=lambda child: child.time, default=None)
    first = max(
        number
        for number, line in enumerate(program.splitlines(), 1)
        if line.startswith("def ") and number < min(guilty)
    )
    return last == first
