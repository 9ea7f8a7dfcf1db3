"""How module profiles are shown, in text and as static HTML."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from optbook import formatting as write
from optbook.benchmark.profiles.module_tree import Module
from optbook.benchmark.profiles.modules import LEAST_SHARE, ModulesProfile
from optbook.benchmark.profiles.page import (
    CODE,
    FAINT,
    LONGEST_NAME,
    heat,
    how,
    page,
    percent,
    row,
    table,
    text_notes,
    text_sentence,
    title,
)
from optbook.experiments.render import one_line

MOST_ROWS = 60
HEAD = ("time", "forward", "backward", "calls", "FLOPs", "parameters", "activations", "moved", "roofline")


def as_text(p: ModulesProfile) -> str:
    """Plain text, for a terminal."""
    lines = [f"{title(p)}: {_sum(p)}", *text_sentence(p), f"  {how(p)}"]
    rows = [(*HEAD, "module"), *((*_figures(p, m), _indented(p, m)) for m in _shown(p))]
    rows += [(*_rest(p, seconds), *[""] * 6, name) for name, seconds in p.rest.items()]
    widths = [max(len(line[column]) for line in rows) for column in range(len(HEAD))]
    for line in rows:
        figures = "  ".join(value.rjust(width) for value, width in zip(line[:-1], widths, strict=True))
        lines.append(f"  {figures}  {line[-1]}")
    return "\n".join([*lines, *text_notes([*_folded(p), *p.notes])])


def as_html(p: ModulesProfile) -> str:
    """A tree with columns; the time and the share of the roofline are bars as well."""
    rows = [_html_row(p, module) for module in _shown(p)]
    for name, seconds in p.rest.items():
        style = (heat(seconds / p.seconds if p.seconds else 0.0), *[""] * (len(HEAD) - 1), FAINT)
        rows.append(row((*_rest(p, seconds), *[""] * 6, name), len(HEAD), style))
    folded = "".join(f'<div style="{FAINT}">{escape(note)}</div>' for note in _folded(p))
    body = f'<div style="margin:2px 0">{escape(_sum(p))}</div>{table((*HEAD, "module"), len(HEAD), rows)}'
    return page(p, body + folded, "modules")


def _html_row(p: ModulesProfile, module: Module) -> str:
    roofline = module.total.share
    styles = [""] * len(HEAD)
    styles[0] = heat(_share(p, module))
    styles[-1] = heat(roofline) if roofline is not None and roofline <= 1 else ""
    name = f"{CODE};padding-left:{module.depth}em"
    return row((*_figures(p, module), _name(module)), len(HEAD), (*styles, name))


def _sum(p: ModulesProfile) -> str:
    """What a step's time consists of, in per cent."""
    unit = "step" if p.run.steps else "run"
    mine = [(m.path, m.total.seconds) for m in p.models if not m.thread]
    parts = sorted([*mine, *p.rest.items()], key=lambda part: -part[1])
    shares = (f"{one_line(name, 30)} {percent(s / p.seconds if p.seconds else 0.0)}" for name, s in parts)
    return f"{write.seconds(p.seconds)} a {unit} on average: {', '.join(shares)}"


def _shown(p: ModulesProfile) -> list[Module]:
    """Models, and of what lies in them the largest, in the order of the tree."""
    listed = [module for model in p.models for module in _large(p, model)]
    if len(listed) <= MOST_ROWS:
        return listed
    seconds = sorted((module.total.seconds for module in listed), reverse=True)
    return [module for module in listed if not module.depth or module.total.seconds >= seconds[MOST_ROWS - 1]]


def _large(p: ModulesProfile, module: Module) -> Iterator[Module]:
    yield module
    for child in module.children:
        if _share(p, child) >= LEAST_SHARE:
            yield from _large(p, child)


def _folded(p: ModulesProfile) -> list[str]:
    missing = sum(1 for model in p.models for _ in model.walk()) - len(_shown(p))
    if not missing:
        return []
    verb = "module that takes" if missing == 1 else "modules that take"
    return [f"{missing} {verb} little time, or none, not shown: to_frame() has all"]


def _share(p: ModulesProfile, module: Module) -> float:
    return module.total.seconds / p.seconds if p.seconds else 0.0


def _figures(p: ModulesProfile, module: Module) -> tuple[str, ...]:
    total = module.total
    parameters = f"{module.all_parameters:,}".replace(",", "\u202f") if module.all_parameters else ""
    return (
        percent(_share(p, module)),
        write.seconds(total.forward) if total.forward else "",
        write.seconds(total.backward) if total.backward else "",
        f"{total.calls:.4g}" if total.calls else "",
        write.flops(total.flops).removesuffix("/s") if total.flops else "",
        parameters,
        write.bytes_(total.activations) if total.activations else "",
        write.bytes_(total.moved) if total.moved else "",
        _roofline(total.share, total.roof),
    )


def _roofline(share: float | None, roof: str) -> str:
    if share is None:
        return ""
    return f"{roof} {percent(share) if share <= 1 else write.UNKNOWN}"


def _rest(p: ModulesProfile, seconds: float) -> tuple[str, str, str]:
    return percent(seconds / p.seconds if p.seconds else 0.0), write.seconds(seconds), ""


def _indented(p: ModulesProfile, module: Module) -> str:
    return "  " * module.depth + _name(module)


def _name(module: Module) -> str:
    """A module's last name (a model's whole), its class, and what is to be said of it."""
    name = module.path if not module.depth else module.path.rpartition(".")[2]
    remarks = [*([f"in thread {module.thread}"] if module.thread else []), *module.remarks]
    if module.all_parameters and not module.all_trainable and "frozen" not in remarks:
        remarks.append("frozen")
    said = f" [{one_line('; '.join(remarks), LONGEST_NAME * 2)}]" if remarks else ""
    return f"{one_line(name, LONGEST_NAME)}: {one_line(module.kind, LONGEST_NAME)}{said}"
