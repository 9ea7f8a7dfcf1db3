"""Trains in a process of its own: `python -m tests.benchmarks.train_once first|tuned PICTURES`.

The last line printed is JSON: bytes resident before training began, and at the peak.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from optbook.benchmark.meters.memory import PeakMemory, resident
from optbook.hotdog.coco import load_folder
from optbook.hotdog.recipe import Recipe
from optbook.hotdog.train import HOTDOGS
from optbook.hotdog.training import train


def main(which: str, pictures: int, folder: Path = HOTDOGS) -> dict[str, float | None]:
    """Train one epoch, and return what memory it took."""
    recipe = {"first": Recipe.first, "tuned": Recipe.tuned}[which]().replace(epochs=1)
    chosen = load_folder(folder, "train", "hot dog")[:pictures]
    before = resident()
    with PeakMemory() as meter:
        train(recipe, chosen, progress=False)
    return {"before": before, "peak": meter.result.peak}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]))))
