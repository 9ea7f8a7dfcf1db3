"""Train the detector and keep its weights: `python -m optbook.hotdog.train --help`.

The weights in `data/weights` were made by `python -m optbook.hotdog.train`: the first stages, but
pictures are shrunk when they are read and kept in memory, the network computes in float32, and two worker
processes prepare the batches. That takes a fraction of the time of `Recipe.first()` as it is (`--first`).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from optbook.hotdog.coco import load_folder
from optbook.hotdog.detect import detect
from optbook.hotdog.evaluate import evaluate
from optbook.hotdog.pixels import Floats, Source, pixels_of, resize_through_bytes
from optbook.hotdog.recipe import Recipe
from optbook.hotdog.training import print_nothing, remember_number, train
from optbook.hotdog.weights import DEFAULT_WEIGHTS, save_weights

HOTDOGS = Path(__file__).resolve().parents[2] / "data" / "hotdogs"


def decode_shrunk(source: Source, size: int) -> Floats:
    """All pixels as floats in 0…1, (size, size, 3): shrunk before anything else is done with them."""
    image, _ = resize_through_bytes(pixels_of(source) / 255.0, np.zeros((0, 4)), size)
    return image


def main(arguments: list[str] | None = None) -> None:
    first = Recipe.first()
    parser = argparse.ArgumentParser(
        prog="python -m optbook.hotdog.train", description="Train the hot-dog detector and keep its weights."
    )
    parser.add_argument(
        "--data", type=Path, default=HOTDOGS, help="COCO-format folder (default: %(default)s)"
    )
    parser.add_argument("--category", default="hot dog", help="what to find (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=DEFAULT_WEIGHTS, help="default: %(default)s")
    parser.add_argument("--epochs", type=int, default=first.epochs, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=first.seed, help="default: %(default)s")
    parser.add_argument("--workers", type=int, default=2, help="processes preparing pictures (default: 2)")
    parser.add_argument("--first", action="store_true", help="Recipe.first() unchanged but for its printing")
    options = parser.parse_args(arguments)

    recipe = first.replace(epochs=options.epochs, seed=options.seed, log=print_nothing)
    if not options.first:
        recipe = recipe.replace(
            decode=decode_shrunk,
            keep_decoded=True,
            workers=options.workers,
            persistent_workers=True,
            dtype=torch.float32,
            anomaly_detection=False,
            remember=remember_number,
        )
    trained = train(recipe, load_folder(options.data, "train", options.category))
    pictures = load_folder(options.data, "val", options.category)
    scores = evaluate(detect(trained.network, recipe, pictures, progress=True), pictures)
    print(
        f"{trained.seconds:.0f} s, {trained.pictures_per_second:.1f} pictures/s; {scores.exact:.1%} of "
        f"{scores.pictures} counted exactly, mean error {scores.count_error:.3f}, AP50 {scores.ap50:.3f}"
    )
    facts: dict[str, float | int | str] = {
        "exact": scores.exact,
        "count_error": scores.count_error,
        "ap50": scores.ap50,
        "epochs": recipe.epochs,
        "seed": recipe.seed,
    }
    save_weights(options.output, trained.network, recipe.width, recipe.input_size, facts)


if __name__ == "__main__":
    main()
