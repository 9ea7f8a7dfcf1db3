"""The trace: what PyTorch did and when, for Perfetto and TensorBoard, and what it adds up to."""

from __future__ import annotations

import importlib.util
import re
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optbook.benchmark.profiles.passes import Pass
from optbook.benchmark.profiles.request import Request
from optbook.benchmark.profiles.trace_events import read
from optbook.benchmark.profiles.trace_summary import Summary, summarise
from optbook.benchmark.profiles.tracer import Tracer, refuse_others
from optbook.errors import OptbookError, OptionError
from optbook.experiments.errors import LogError
from optbook.experiments.location import locate, parse_place
from optbook.experiments.record import Experiment

if TYPE_CHECKING:
    import pandas

TRACE_SECONDS = 0.5
FOLDER = "traces"
INSTALL = "pip install 'optbook[tensorboard]'"
NO_TENSORBOARD = f"TensorBoard is not installed: {INSTALL}"
PLUGIN = (
    "TensorBoard: its page Text has these tables; PyTorch no longer develops the pages of its plugin "
    "(PYTORCH_PROFILER), which stay empty without an internet connection"
)


@dataclass(frozen=True)
class TraceProfile:
    """A trace of some steps or runs.

    ``summary`` has its operators, gaps, copies and idle devices; ``file`` is the trace, for Perfetto;
    ``logdir`` the folder to give to TensorBoard. ``gpu`` says what a GPU did, or that there is none.
    """

    experiment: Experiment = field(repr=False)
    run: Pass
    summary: Summary
    file: Path
    logdir: Path
    gpu: str
    executions: int
    notes: tuple[str, ...] = ()

    @property
    def overhead(self) -> float | None:
        """Instrumented time ÷ bare time."""
        return self.run.overhead

    @property
    def evidence(self) -> dict[str, float]:
        """What a diagnosis can use of it, by the names of `optbook.benchmark.evidence.Evidence`."""
        s = self.summary
        if not s.gpus:
            return {}
        between = sum(c.seconds for c in s.copies if "host" in c.what)
        return {
            "gpu_resident": 1 - min(g.idle for g in s.gpus),
            "copy_share": min(1.0, between / s.seconds),
        }

    def to_frame(self) -> pandas.DataFrame:
        """One row an operator: ``operator``, ``calls``, in seconds ``own`` and ``total`` on the CPU and
        ``device`` on GPUs, and ``share`` and ``device_share``, those of the traced steps' time."""
        import pandas as pd

        columns = ["operator", "calls", "own", "total", "device", "share", "device_share"]
        whole = self.summary.seconds
        rows = [
            (o.name, o.calls, o.own, o.total, o.device, o.own / whole, o.device / whole)
            for o in self.summary.operators
        ]
        return pd.DataFrame(rows, columns=columns)

    def __str__(self) -> str:
        from optbook.benchmark.profiles.trace_render import as_text

        return as_text(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from optbook.benchmark.profiles.trace_render import as_html

        return as_html(self)


def trace_ready(request: Request) -> None:
    """Make sure that a trace can be made and written.

    Raises:
        OptionError: the folder can't be used.
        OptbookError: another torch profiler is on.
    """
    refuse_others()
    _checked(_logdir(request))


def trace_profile(request: Request) -> TraceProfile:
    """Trace some steps or runs with torch.profiler, write the trace, and add it up.

    The option ``out`` is the folder to write to, ``traces`` beside the log if it isn't given; each trace has
    a folder of its own in it, which is a run for TensorBoard.

    Raises:
        OptionError: the folder can't be used.
        OptbookError: the workload doesn't use torch, or uses its profiler itself; or the trace can't be
            written.
    """
    logdir = _logdir(request)
    _checked(logdir)
    if "torch" not in sys.modules:
        raise OptbookError(
            "the workload does not use torch, so there is nothing to trace: profile calls instead"
        )
    tracer = Tracer(tracked=bool(request.experiment.steps))
    run = request.further(tracer, enough=TRACE_SECONDS, name="trace")
    file = _written(tracer.profiler, logdir, request.experiment.label)
    summary = summarise(read(file), tracer.thread)
    if not summary.operators:
        file.unlink()
        file.parent.rmdir()
        raise OptbookError("no torch operator ran in the workload: profile calls shows where its time goes")
    profile = TraceProfile(
        experiment=request.experiment,
        run=run,
        summary=summary,
        file=file,
        logdir=logdir,
        gpu=_gpu(summary),
        executions=request.experiment.executions + run.executions,
        notes=(*tracer.notes, _tensorboard(), *run.notes, *request.experiment.warnings),
    )
    _add_text(profile)
    return profile


def _logdir(request: Request) -> Path:
    out = request.options.get("out")
    if out is None:
        return _beside_the_log() / FOLDER
    if not isinstance(out, (str, Path)) or not str(out).strip() or "\x00" in str(out):
        raise OptionError(f"out got {out!r}: give a folder to write the trace to, such as out='traces'")
    return Path(out).expanduser().absolute()


def _beside_the_log() -> Path:
    try:
        path = parse_place(locate().url)[0]
    except LogError:  # said where the experiment was recorded
        path = None
    return Path.cwd() if path is None else path.parent


def _checked(folder: Path) -> None:
    """Make sure that files can be written to a folder that may not be there yet, and leave it as it is.

    Raises:
        OptionError: they can't.
    """
    there = next(place for place in (folder, *folder.parents) if place.exists())
    if not there.is_dir():
        raise OptionError(f"out got {str(folder)!r}, but {there} is a file: give a folder")
    if folder.suffix in (".json", ".gz"):
        raise OptionError(
            f"out got {str(folder)!r}: give a folder, in which the trace gets a name of its own"
        )
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise OptionError(
            f"out got {str(folder)!r}, where nothing can be written ({error.strerror}): give another folder"
        ) from error


def _written(profiler: Any, logdir: Path, label: str) -> Path:
    """Write the trace to a new folder in ``logdir``, under the name that TensorBoard's plugin looks for."""
    from torch.profiler import tensorboard_trace_handler

    name = re.sub(r"[^A-Za-z0-9._-]+", "-", label)[:40].strip("-.") or "trace"
    stem = f"{name}_{time.strftime('%Y%m%d-%H%M%S')}"
    number = 1
    try:
        logdir.mkdir(parents=True, exist_ok=True)
        while (folder := logdir / (stem if number == 1 else f"{stem}-{number}")).exists():
            number += 1
        tensorboard_trace_handler(str(folder), use_gzip=True)(profiler)
    except (OSError, RuntimeError) as error:
        raise OptbookError(f"the trace could not be written to {logdir}: {error}") from error
    return next(folder.glob("*.pt.trace.json.gz"))


def _gpu(summary: Summary) -> str:
    if summary.gpus:
        return ", ".join(f"GPU {g.index} idle {100 * g.idle:.0f} % of the time" for g in summary.gpus)
    import torch

    there = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if there is None:
        return "no GPU"
    if there.type not in ("cuda", "xpu"):
        return f"PyTorch's profiler does not see what the GPU ({there.type}) does"
    return "the GPU was not used"


def _tensorboard() -> str:
    return PLUGIN if importlib.util.find_spec("tensorboard") else NO_TENSORBOARD


def _add_text(profile: TraceProfile) -> None:
    """Put the tables beside the trace as text for TensorBoard, where that is installed."""
    if importlib.util.find_spec("tensorboard") is None:
        return
    from torch.utils.tensorboard import SummaryWriter

    from optbook.benchmark.profiles.trace_render import as_markdown

    with SummaryWriter(str(profile.file.parent)) as writer:
        for tag, text in as_markdown(profile):
            writer.add_text(tag, text)
