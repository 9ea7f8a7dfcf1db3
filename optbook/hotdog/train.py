"""Train the detector and keep its weights: `python -m optbook.hotdog.train --help`.

It takes `Recipe.tuned()`, or with `--first` `Recipe.first()`, for which it needs over twenty minutes on two
cores. The weights in `data/weights` are those of the first network, trained in float32.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from optbook.hotdog.coco import load_folder
from optbook.hotdog.detect import detect
from optbook.hotdog.evaluate import evaluate
from optbook.hotdog.recipe import Recipe
from optbook.hotdog.training import print_nothing, train
from optbook.hotdog.weights import DEFAULT_WEIGHTS, save_weights

HOTDOGS = Path(__file__).resolve().parents[2] / "data" / "hotdogs"


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
    parser.add_argument("--first", action="store_true", help="take Recipe.first()")
    options = parser.parse_args(arguments)

    recipe = first if options.first else Recipe.tuned()
    recipe = recipe.replace(epochs=options.epochs, seed=options.seed, log=print_nothing)
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
