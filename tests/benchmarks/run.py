"""Runs one benchmark: `python -m tests.benchmarks.run NAME` prints its table and writes results/NAME.json."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

RESULTS = Path(__file__).with_name("results")


@dataclass(frozen=True)
class Row:
    """One measured figure, its target, and what others reach at the same.

    `measured`, `target` and the peers' figures are shown as they are: give numbers, or text with a unit.
    """

    what: str
    measured: float | str
    target: float | str
    holds: bool
    peers: Mapping[str, float | str] = field(default_factory=dict)


def table(rows: Sequence[Row]) -> str:
    """The rows as aligned text."""
    head = ("what", "measured", "target", "holds", "peers")
    cells = [head, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(head))]
    padded = ([text.ljust(width) for text, width in zip(line, widths, strict=True)] for line in cells)
    return "\n".join("  ".join(line).rstrip() for line in padded)


def write(rows: Sequence[Row], path: Path) -> None:
    """Write the rows as JSON, making the folder where needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps([asdict(row) for row in rows], indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def _cells(row: Row) -> tuple[str, str, str, str, str]:
    peers = ", ".join(f"{name} {_figure(value)}" for name, value in row.peers.items())
    return row.what, _figure(row.measured), _figure(row.target), "yes" if row.holds else "NO", peers


def _figure(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


if __name__ == "__main__":
    name = sys.argv[1]
    rows: list[Row] = importlib.import_module(f"tests.benchmarks.bench_{name}").measure()
    write(rows, RESULTS / f"{name}.json")
    print(f"{name}\n{table(rows)}\n")
