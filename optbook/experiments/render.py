"""How one experiment is shown: the same rows as HTML and as plain text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from optbook import formatting as write
from optbook.experiments.record import Experiment

STRIP_POINTS = 160
STRIP_WIDTH, STRIP_HEIGHT, STRIP_SCALE = 480, 48, 80
LONGEST_LABEL = 200

_STYLE = (
    "font-family:var(--jp-ui-font-family,system-ui,sans-serif);font-size:var(--jp-ui-font-size1,13px);"
    "color:var(--jp-ui-font-color1,currentColor)"
)
_FAINT = "color:var(--jp-ui-font-color2,gray)"
_MARK = {
    "failed": "var(--jp-error-color1,#b00020)",
    "interrupted": "var(--jp-warn-color1,#a15c00)",
    "void": "var(--jp-warn-color1,#a15c00)",
}


def one_line(text: str, most: int = LONGEST_LABEL) -> str:
    """``text`` without line breaks and control characters, cut after ``most`` characters."""
    flat = " ".join("".join(c if c.isprintable() or c.isspace() else "\ufffd" for c in text).split())
    return flat if len(flat) <= most else flat[: most - 1] + "…"


def headline(experiment: Experiment) -> str:
    """Label, and status where it is not ok."""
    label = one_line(experiment.label)
    return label if experiment.status == "ok" else f"{label} [{experiment.status}]"


def diagnosis(experiment: Experiment) -> str:
    """What the time goes to, with the figures behind it; empty if nothing is known."""
    if not experiment.diagnosis:
        return ""
    return one_line(f"{experiment.diagnosis}: {experiment.diagnosis_note}", 500)


def rows(experiment: Experiment) -> list[tuple[str, str]]:
    """What is known of an experiment, as pairs of a name and a written value."""
    return [(name, value) for name, value in _rows(experiment) if value]


def _rows(e: Experiment) -> Iterable[tuple[str, str]]:
    if e.error:
        yield e.status, one_line(e.error, 500)
    if e.stubs:
        yield "simplified", f"{one_line(e.stubs)} replaced by stubs: not a figure of the real system"
    if e.throughput is not None:
        yield "throughput", _with_spread(write.rate(e.throughput, one_line(e.unit, 40)), _spread(e))
        for unit, rate in e.units.items():
            if unit != e.unit and (unit != "run" or len(e.units) == 1):
                yield "", write.rate(rate, one_line(unit, 40))
    if e.predicted is not None:
        yield "predicted", _predicted(e)
    kind = "step" if e.steps else "run"
    if e.seconds is not None:
        yield f"median {kind}", write.seconds(e.seconds) + _tail(e)
    yield "counted", _counted(e)
    if e.wait_share is not None:
        startup = f"; {write.seconds(e.startup_seconds)} to start" if e.startup_seconds else ""
        yield "waiting for data", f"{write.percent(e.wait_share)} of the time{startup}"
    if e.parts and e.times:
        total = sum(e.times)
        largest = sorted(e.parts.items(), key=lambda part: -part[1])[:6]
        yield "parts", ", ".join(f"{one_line(name, 40)} {write.percent(s / total)}" for name, s in largest)
    if e.cpu_cores is not None:
        busy = f"{write.number(e.cpu_cores, 2)} of {e.cores or 0:g} cores busy"
        yield "CPU", f"{busy} ({write.percent(e.cpu_share)})"
    if e.memory_peak is not None:
        children = f", and {write.bytes_(e.memory_children)} in child processes" if e.memory_children else ""
        yield (
            "peak memory",
            f"{write.bytes_(e.memory_peak)} ({write.bytes_(e.memory_growth)} more than before{children})",
        )
    if e.flops_note:
        yield "FLOPs", _flops(e)
        yield "", one_line(e.flops_note, 1000) if e.flops is not None else ""
    if e.memory_workers is not None:
        at_most = write.bytes_(e.memory_workers)
        yield "workers' memory", f"{at_most} at most: the sum of each worker's own peak growth"
    if e.gpu:
        yield "GPU", "; ".join(_gpu(e))
    for name, value in e.metrics.items():
        yield one_line(name, 40), write.number(value, 4)


def _predicted(e: Experiment) -> str:
    name, alone = one_line(e.expected, 60), e.component_speedup or 0.0
    faster = f"{name} alone is {alone:.3g}× as fast" if math.isfinite(alone) else f"{name} costs nothing now"
    ends = f"{e.predicted_low or 0:.2f} to {e.predicted_high or 0:.2f}"
    return f"{e.predicted:.2f}× ({ends}), achieved {e.achieved or 0:.2f}×: {faster}"


def _flops(e: Experiment) -> str:
    if e.flops is None:
        return one_line(e.flops_note, 1000)
    share = f"{write.percent(e.flops_share)} of " if e.flops_share is not None else "peak "
    peak = f", {share}{write.flops(e.flops_peak)}, {one_line(e.flops_peak_of)}" if e.flops_peak else ""
    coverage = f"; {write.percent(e.flops_coverage)} of operator time counted"
    return f"{write.flops(e.flops)} in {one_line(e.flops_dtype, 40)}{peak}{coverage}"


def _gpu(e: Experiment) -> Iterable[str]:
    yield one_line(e.gpu)
    if e.gpu_resident is not None:
        yield f"a kernel was resident {write.percent(e.gpu_resident)} of the time"
    if e.gpu_memory is not None:
        yield f"{write.bytes_(e.gpu_memory)} of {write.bytes_(e.gpu_memory_total)} used by this process"
    elif e.gpu_memory_used is not None:
        yield f"{write.bytes_(e.gpu_memory_used)} of {write.bytes_(e.gpu_memory_total)} used by all processes"
    if e.gpu_allocated is not None:
        yield f"at most {write.bytes_(e.gpu_allocated)} in torch's allocator"
    if e.gpu_clock is not None:
        yield f"clock at {write.percent(e.gpu_clock)} of its highest"
    if e.gpu_slowed:
        yield f"lowered by {', '.join(one_line(reason, 40) for reason in e.gpu_slowed)}"


def _spread(e: Experiment) -> str:
    return write.spread(e.throughput, e.throughput_low, e.throughput_high)


def _with_spread(text: str, spread: str) -> str:
    return f"{text} {spread}" if spread else text


def _tail(e: Experiment) -> str:
    if len(e.times) < 20:
        return ""
    ordered = sorted(e.times)
    at = {p: ordered[min(len(ordered) - 1, math.ceil(p / 100 * len(ordered)) - 1)] for p in (95, 99)}
    tail = ", ".join(f"p{p} {write.seconds(value)}" for p, value in at.items())
    return f" ({tail}, slowest {write.seconds(ordered[-1])})"


def _counted(e: Experiment) -> str:
    times = f"the workload ran {_times(e.executions)}"
    if e.steps:
        return f"{_count(e.steps, 'step')} after {e.warmup} of warm-up; {times}"
    if e.runs and e.warmup:
        return f"{_count(e.runs, 'run')} after {e.warmup} of warm-up; {times}"
    if e.runs:
        return f"{_count(e.runs, 'run')}; {times}"
    return times if e.executions else ""


def _count(number: int, unit: str) -> str:
    return f"{number:,} {unit if number == 1 else write.plural(unit)}".replace(",", "\u202f")


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times".replace(",", "\u202f")


def as_text(experiment: Experiment) -> str:
    """Plain text, for a terminal."""
    shown = rows(experiment)
    width = max((len(name) for name, _ in shown), default=0)
    told = diagnosis(experiment)
    lines = [
        headline(experiment),
        *([f"  {told}"] if told else []),
        *(f"  {name:<{width}}  {value}" for name, value in shown),
    ]
    lines += [f"  ! {one_line(warning, 500)}" for warning in experiment.warnings]
    return "\n".join(lines)


def as_html(experiment: Experiment) -> str:
    """A static table that follows the notebook's theme; every value is escaped."""
    colour = _MARK.get(experiment.status, "inherit")
    body = "".join(
        f'<tr><th scope="row" style="text-align:left;font-weight:normal;white-space:nowrap;{_FAINT};'
        f'padding:1px 1em 1px 0">{escape(name)}</th>'
        f'<td style="text-align:left;padding:1px 0">{escape(value)}</td></tr>'
        for name, value in rows(experiment)
    )
    warnings = "".join(f"<li>{escape(one_line(warning, 500))}</li>" for warning in experiment.warnings)
    notes = f'<ul style="margin:4px 0 0;padding-left:1.4em;{_FAINT}">{warnings}</ul>' if warnings else ""
    told = diagnosis(experiment)
    sentence = f'<div style="margin-bottom:2px">{escape(told)}</div>' if told else ""
    return (
        f'<div class="optbook-experiment" style="{_STYLE};margin-top:4px">'
        f'<div style="font-weight:600;color:{colour};margin-bottom:2px">{escape(headline(experiment))}</div>'
        f'{sentence}<table style="border-collapse:collapse;margin:0">{body}</table>'
        f"{strip(experiment.times, 'step' if experiment.steps else 'run')}{notes}</div>"
    )


def strip(times: Sequence[float], kind: str) -> str:
    """The times in their order as a small SVG picture, with what it shows in words; empty below two times."""
    if len(times) < 2:
        return ""
    heights = _reduced(times)
    top = max(heights) or 1.0
    median = sorted(times)[len(times) // 2]
    step = STRIP_WIDTH / len(heights)
    radius = 2.4 if len(heights) <= 40 else 1.6
    inner = STRIP_HEIGHT - 6

    def y(value: float) -> float:
        return 3 + inner * (1 - value / top)

    dots = "".join(
        f'<circle cx="{(i + 0.5) * step:.1f}" cy="{y(height):.1f}" r="{radius}"/>'
        for i, height in enumerate(heights)
    )
    words = (
        f"{len(times)} {write.plural(kind)} in their order, from 0 to {write.seconds(max(times))}; "
        f"the line is the median, {write.seconds(median)}"
    )
    scale = "".join(
        f'<text x="{STRIP_WIDTH + 6}" y="{height}">{escape(text)}</text>'
        for text, height in ((write.seconds(max(times)), 10), ("0", STRIP_HEIGHT))
    )
    width = STRIP_WIDTH + STRIP_SCALE
    return (
        f'<svg role="img" aria-label="{escape(words)}" width="{width}" height="{STRIP_HEIGHT}" '
        f'viewBox="0 0 {width} {STRIP_HEIGHT}" style="display:block;max-width:100%;margin-top:4px">'
        f"<title>{escape(words)}</title>"
        f'<g style="fill:var(--jp-brand-color1,#0072b2)">{dots}</g>'
        f'<g style="fill:var(--jp-ui-font-color2,gray);font-size:11px">{scale}</g>'
        f'<line x1="0" x2="{STRIP_WIDTH}" y1="{y(median):.1f}" y2="{y(median):.1f}" '
        f'style="stroke:var(--jp-ui-font-color2,gray);stroke-width:1;stroke-dasharray:4 3"/>'
        f'<line x1="0" x2="{STRIP_WIDTH}" y1="{STRIP_HEIGHT - 1}" y2="{STRIP_HEIGHT - 1}" '
        f'style="stroke:var(--jp-border-color1,#bbb);stroke-width:1"/></svg>'
    )


def _reduced(times: Sequence[float]) -> list[float]:
    """At most `STRIP_POINTS` heights; of each group of neighbours the slowest, so that no spike is lost."""
    size = -(-len(times) // STRIP_POINTS)
    return [max(times[i : i + size]) for i in range(0, len(times), size)]
