"""What in this process spoils measurements: debug settings left on, tracers, threads, denormal numbers."""

from __future__ import annotations

import gc
import os
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from optbook.benchmark.machine.finding import Finding

_OFF = frozenset(["", "0", "off", "false", "no"])
_VARIABLES = {
    "CUDA_LAUNCH_BLOCKING": "the CPU waits for every kernel, so nothing overlaps",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "every tensor on the GPU is allocated by the driver",
    "TORCH_SHOW_CPP_STACKTRACES": "errors collect stack traces of C++ code",
    "TORCH_CPP_LOG_LEVEL": "torch writes more to its log",
    "TORCH_DISTRIBUTED_DEBUG": "collectives are checked on every call",
    "TORCH_LOGS": "torch.compile writes more to its log",
    "TORCHDYNAMO_VERBOSE": "torch.compile writes more to its log",
    "PYTHONMALLOC": "Python's memory allocator is another than usual",
    "MALLOC_CHECK_": "the C library checks every allocation",
    "LD_PRELOAD": "a library is loaded that may instrument this process",
}
_HARMLESS = {
    "TORCH_CPP_LOG_LEVEL": {"warning", "error", "fatal", "2", "3"},
    "TORCH_DISTRIBUTED_DEBUG": {"off"},
    "PYTHONMALLOC": {"pymalloc", "mimalloc", "default"},
}
_ALLOCATORS = ("jemalloc", "tcmalloc", "mimalloc", "libiomp", "libgomp")
DENORMAL_SLOWDOWN = 4.0


def process_switches() -> list[Finding]:
    """The switches that another thread can see while a workload runs."""
    found = []
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "is_anomaly_enabled"):
        if torch.is_anomaly_enabled():
            found.append(
                Finding(
                    "severe",
                    "anomaly detection is on",
                    "every operation notes who called it, and every gradient is searched for NaN",
                    "torch.autograd.set_detect_anomaly(False)",
                )
            )
        if torch.are_deterministic_algorithms_enabled():
            found.append(
                Finding(
                    "warning",
                    "deterministic mode is on",
                    "slower algorithms are chosen, and new memory is filled",
                    "torch.use_deterministic_algorithms(False)",
                )
            )
    if tracemalloc.is_tracing():
        found.append(
            Finding("severe", "tracemalloc is on", "every allocation is noted", "tracemalloc.stop()")
        )
    return found


def debug_settings(environ: Mapping[str, str] = os.environ) -> list[Finding]:
    """All debug settings, tracers and profilers that are on here and now, in this thread."""
    return [*process_switches(), *tracers(), *_interpreter(), *variables(environ)]


def variables(environ: Mapping[str, str]) -> Iterable[Finding]:
    """Environment variables that slow a process down."""
    for name, why in _VARIABLES.items():
        value = environ.get(name, "").strip()
        harmless = _HARMLESS.get(name, set())
        if value.lower() in _OFF or value.lower() in harmless:
            continue
        if name == "LD_PRELOAD" and any(allocator in value for allocator in _ALLOCATORS):
            continue
        yield Finding("warning", f"{name}={value[:40]} is set", why, f"unset {name} and start again")


def tracers(
    trace: Callable[[], Any] = sys.gettrace,
    profile: Callable[[], Any] = sys.getprofile,
    monitoring: Any = None,
) -> Iterable[Finding]:
    """What watches every line or call of this thread: debuggers, coverage, profilers."""
    monitoring = monitoring or getattr(sys, "monitoring", None)
    names: dict[str, str] = {}
    if trace() is not None:
        names[_who(trace())] = "sys.settrace(None)"
    if profile() is not None:
        names[_who(profile())] = "sys.setprofile(None)"
    for tool in range(6) if monitoring is not None else ():
        name = monitoring.get_tool(tool)
        if name is not None and (not hasattr(monitoring, "get_events") or monitoring.get_events(tool)):
            names[str(name)] = f"sys.monitoring.free_tool_id({tool})"
    for name, cure in names.items():
        yield Finding(
            "severe",
            f"{name} is watching this process",
            "it is called for every line or call of Python code, and charges those most that do little",
            f"stop it, or {cure}",
        )
    torch = sys.modules.get("torch")
    enabled = getattr(getattr(torch, "_C", None), "_autograd", None)
    if enabled is not None and getattr(enabled, "_profiler_enabled", bool)():
        yield Finding(
            "severe",
            "torch's profiler is on",
            "every operation is noted",
            "leave its with block, or call its stop()",
        )


def _who(hook: Any) -> str:
    module = getattr(hook, "__module__", None) or getattr(type(hook), "__module__", None) or ""
    top = module.partition(".")[0]
    if top in ("pydevd", "_pydevd_bundle", "debugpy", "bdb", "pdb"):
        return "a debugger"
    return "a tracer" if top in ("", "builtins") else top


def _interpreter() -> Iterable[Finding]:
    cure = "start Python without it"
    if sys.flags.dev_mode:
        yield Finding("warning", "Python's development mode is on", "memory is checked", cure)
    if gc.get_debug():
        yield Finding("warning", "gc.set_debug is on", "every collection is reported", "gc.set_debug(0)")
    if not gc.isenabled():
        yield Finding(
            "note",
            "garbage collection is off",
            "real runs have it on, and reference cycles pile up",
            "gc.enable(), unless your training turns it off too",
        )


def oversubscribed(workers: int, threads: int, cores: float) -> str:
    """What to say of ``workers`` processes of ``threads`` threads on ``cores`` cores; "" if they fit."""
    if workers * threads <= max(1.0, cores):
        return ""
    each = "1 thread" if threads == 1 else f"{threads} threads"
    who = "1 process" if workers == 1 else f"{workers} processes"
    fewer = max(1, int(cores // threads))
    cure = f"num_workers={fewer}" if workers > 1 else f"torch.set_num_threads({max(1, int(cores))})"
    return (
        f"{who} × {each} compute on {cores:g} cores: they take turns, and every time depends on whose "
        f"turn it is; try {cure}"
    )


def threads_in_use(environ: Mapping[str, str] = os.environ) -> tuple[int, str]:
    """How many threads one operation computes with, and who says so; (1, "") where nobody does."""
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_num_threads"):
        return int(torch.get_num_threads()), "torch.get_num_threads()"
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        value = environ.get(name, "").split(",")[0].strip()
        if value.isdigit() and int(value) > 0:
            return int(value), name
    return 1, ""


def threads(cores: float, environ: Mapping[str, str] = os.environ) -> Iterable[Finding]:
    """More threads to an operation than cores, and how many other threads this process has."""
    number, who = threads_in_use(environ)
    if number > max(1.0, cores):
        fitting = max(1, int(cores))
        yield Finding(
            "severe" if number >= 2 * cores else "warning",
            f"{number} threads to an operation on {cores:g} cores ({who})",
            "they take turns, and wait for each other at the end of every operation",
            f"torch.set_num_threads({fitting}), or OMP_NUM_THREADS={fitting} before Python starts",
        )
    others = [t.name for t in threading.enumerate() if t is not threading.current_thread()]
    if len(others) > 50:
        yield Finding(
            "note",
            f"{len(others)} other Python threads live in this process",
            "each of them may take the interpreter's lock",
            "end those that are left over, or restart the kernel",
        )


def denormals(ratio: Callable[[], float] | None = None) -> Iterable[Finding]:
    """Whether numbers next to zero compute far slower than others in this thread."""
    slower = (ratio or denormal_slowdown)()
    if slower >= DENORMAL_SLOWDOWN:
        yield Finding(
            "note",
            f"numbers next to zero (denormals) compute {slower:.0f} times slower",
            "a run whose values fade slows down, with the same code and shapes",
            "torch.set_flush_denormal(True), where such small values don't matter",
        )


def denormal_slowdown(size: int = 4096, tries: int = 30) -> float:
    """How many times slower a product of denormal float32 numbers is than one of usual numbers."""
    import time

    import numpy as np

    out = np.empty(size, np.float32)
    factor = np.full(size, 0.9, np.float32)
    best = []
    for value in (1.0, 1e-40):
        numbers = np.full(size, value, np.float32)
        seconds = []
        for _ in range(tries):
            start = time.perf_counter()
            np.multiply(numbers, factor, out=out)
            seconds.append(time.perf_counter() - start)
        best.append(min(seconds))
    return best[1] / max(best[0], 1e-9)
