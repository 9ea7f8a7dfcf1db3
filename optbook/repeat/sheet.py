"""The one-page sheet: ``%optbook help``."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

ROWS = (
    ("%%bench label", "measure the cell, record it, show it"),
    (
        "%%bench --batches 20",
        "count units: --batches, --samples, --tokens, --env-steps, --unit name=expression",
    ),
    ("%%bench --metric acc=f(x)", "keep a result beside the time"),
    ("%%bench --setup NAME", "run a statement, or a %%setup NAME cell, untimed before every run"),
    ("%%bench --runs 1", "execute the cell exactly once"),
    ("for b in track(loader):", "count and time the steps of a loop: such a cell runs once"),
    ("%%bench --steps 50", "end the tracked loop after 50 steps"),
    ("%%bench --flops", "count FLOPs as well, and hold them against the machine's measured peak"),
    (
        "%%bench --simplified data",
        "say what a stub made by hand stands in for: not a figure of the real system",
    ),
    ("%%profile calls", "where the time goes, by function; your code, libraries, waiting; a flame picture"),
    ("%%profile lines", "the time of each line of the hottest functions; -f name chooses one"),
    ("%%profile memory", "memory by line, large tensors and who holds them, what grows from run to run"),
    ("%%profile modules", "a model as a tree: forward and backward time, FLOPs, parameters, roofline"),
    ("%%profile trace", "PyTorch's profiler for Perfetto and TensorBoard, and its summary"),
    ("%%profile network", "traffic, and the time in sockets and collectives"),
    (
        "%stub name",
        "replay recorded outputs in its place; or sleep, spin, dummy, value, skip; %stub lists",
    ),
    ("%%stub name", "the cell below stands in for the component; `real` is the component"),
    ("%unstub name", "the real component again; --all for all of them"),
    ("%%bench --stub name", "replace a component while the cell is measured"),
    (
        "%%ceiling name other",
        "what the system would reach with each free, and each alone; or find them",
    ),
    ("%%ceiling name --speedup 2,4", "what a faster component would bring; --inside asks of its parts"),
    ('with span("augment"):', "time a part of the workload"),
    (
        "%compare a b",
        "which of two measured cells is faster, from interleaved runs; %%compare for two bodies",
    ),
    ("%%compare --same out", "first check that out is equal after both bodies; --metric acc=f(x) shows both"),
    ("%%sweep batch_size=8,16,32", "throughput over one or two settings, and its knee"),
    ("%check name", "judge an exercise; --solution shows a solution"),
    (
        "%goal 500 samples/s --because ...",
        "the throughput worth reaching; --price 0.90/h, --training samples",
    ),
    ("%progress", "plot the progress over the experiments, with what to do next and why"),
    ("%optbook", "the log and the plot; --live follows the log; log gives the DataFrame"),
    ("%optbook profiles label", "the profiles that lie in the log beside their experiments"),
    ("optbook.dummy_loader(loader)", "batches of the right form at no cost, in place of a data loader's"),
    ("optbook.smallest(f, 'decode')", "the bottleneck alone, on the inputs that it really got"),
    ("%%bench --expect decode", "hold the result against what the newest ceiling predicted for decode"),
    ("%optbook predictions", "all predictions, beside what was achieved"),
    ("%optbook machine", "what this machine can do, and what would spoil a measurement on it now"),
    ("%config OptBook", "settings, such as OptBook.budget = 5"),
    ("optbook.same_losses(f, g)", "are loss curves within seed noise? same_outputs, same_accuracy likewise"),
    ("optbook.bench(f)", "the same in a script, into the same log"),
)


@dataclass(frozen=True)
class Sheet:
    """What to type, and what it does."""

    rows: tuple[tuple[str, str], ...] = ROWS

    def __str__(self) -> str:
        width = max(len(what) for what, _ in self.rows)
        return "\n".join(f"{what:<{width}}  {does}" for what, does in self.rows)

    def _repr_pretty_(self, printer: object, cycle: bool) -> None:
        printer.text(str(self))  # type: ignore[attr-defined]

    def _repr_html_(self) -> str:
        body = "".join(
            f'<tr><td style="text-align:left"><code>{escape(what)}</code></td>'
            f'<td style="text-align:left">{escape(does)}</td></tr>'
            for what, does in self.rows
        )
        return f"<table>{body}</table>"
