"""Draw a folder of hot-dog pictures with exact COCO annotations.

    python -m optbook.hotdog.draw FOLDER --train 1000 --val 250 --seed 1 [--size MIN MAX] [--quality Q]

Picture i of a split comes from its own generator, `default_rng([seed, split, i])`: it is the same however
many are drawn. The annotation files are the same to the last byte; pixels may differ in the last bit between
versions of numpy, Pillow and its JPEG library.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tqdm.auto import tqdm

from optbook.hotdog.scene import Scene, draw_scene

__all__ = ["Scene", "draw_folder", "draw_picture", "draw_scene", "main"]

SPLITS = ("train", "val")
_SMALLEST, _LARGEST = 64, 4096
_PROPORTIONS = ((1, 1), (5, 4), (4, 3), (4, 3), (3, 2))
_Entry = dict[str, Any]


@dataclass(frozen=True)
class _Order:
    """What was asked for, checked."""

    seed: int
    size: tuple[int, int]
    quality: int

    def __post_init__(self) -> None:
        low, high = self.size
        if not _SMALLEST <= low <= high <= _LARGEST:
            raise ValueError(
                f"size {low} to {high}: sides go from {_SMALLEST} to {_LARGEST} pixels, smaller first"
            )
        if not 1 <= self.quality <= 95:
            raise ValueError(f"quality {self.quality}: JPEG quality goes from 1 to 95")
        if self.seed < 0:
            raise ValueError(f"seed {self.seed}: a seed is 0 or more")


def draw_folder(
    folder: Path | str,
    *,
    train: int = 1000,
    val: int = 250,
    seed: int = 1,
    size: tuple[int, int] = (200, 400),
    quality: int = 60,
    progress: bool = True,
) -> None:
    """Draw `train` + `val` pictures with sides of `size` pixels (min, max) and their annotations.

    Writes `<split>/000000.jpg` … and `annotations/<split>.json`. A split of 0 pictures is not written.
    Raises ValueError for settings out of range, FileExistsError where a split already holds something.
    """
    folder = Path(folder)
    order = _Order(seed, size, quality)
    amounts = dict(zip(SPLITS, (train, val), strict=True))
    for split, amount in amounts.items():
        if amount < 0:
            raise ValueError(f"{amount} pictures for {split}: ask for 0 or more")
        for taken in (folder / split, folder / "annotations" / f"{split}.json"):
            if amount and taken.exists():
                raise FileExistsError(
                    f"{taken} is there already: draw into an empty folder, or remove it first"
                )
    if not sum(amounts.values()):
        raise ValueError("nothing to draw: ask for at least one picture")
    with tqdm(total=sum(amounts.values()), unit="picture", disable=not progress) as bar:
        for split, amount in amounts.items():
            if amount:
                _draw_split(folder, split, amount, order, bar)


def draw_picture(seed: int, split: str, number: int, size: tuple[int, int]) -> Scene:
    """Picture `number` of "train" or "val", as `draw_folder` draws it, before it is compressed."""
    rng = np.random.default_rng([seed, SPLITS.index(split), number])
    return draw_scene(rng, *_random_size(rng, size))


def _draw_split(folder: Path, split: str, amount: int, order: _Order, bar: tqdm[Any]) -> None:
    pictures = folder / split
    pictures.mkdir(parents=True)
    images: list[_Entry] = []
    annotations: list[_Entry] = []
    for number in range(amount):
        scene = draw_picture(order.seed, split, number, order.size)
        name = f"{number:06d}.jpg"
        Image.fromarray(scene.pixels).save(pictures / name, quality=order.quality, optimize=True)
        height, width, _ = scene.pixels.shape
        image_id = number + 1
        images.append({"id": image_id, "file_name": name, "width": width, "height": height, "license": 1})
        annotations.extend(_annotations(scene, image_id, first_id=len(annotations) + 1))
        bar.update()
    target = folder / "annotations" / f"{split}.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(_as_coco(split, order, images, annotations), encoding="utf-8", newline="\n")


def _annotations(scene: Scene, image_id: int, first_id: int) -> list[_Entry]:
    return [
        {
            "id": number,
            "image_id": image_id,
            "category_id": 1,
            "bbox": [int(side) for side in box],
            "area": int(area),
            "iscrowd": 0,
            "segmentation": [],
        }
        for number, (box, area) in enumerate(zip(scene.boxes, scene.areas, strict=True), first_id)
    ]


def _random_size(rng: np.random.Generator, size: tuple[int, int]) -> tuple[int, int]:
    """Width and height in one of the usual proportions, upright or lying."""
    smallest, largest = size
    longer = int(rng.integers(smallest, largest, endpoint=True))
    over, under = _PROPORTIONS[rng.integers(len(_PROPORTIONS))]
    shorter = max(longer * under // over, smallest)
    return (longer, shorter) if rng.random() < 0.6 else (shorter, longer)


def _as_coco(split: str, order: _Order, images: list[_Entry], annotations: list[_Entry]) -> str:
    """COCO's JSON, one picture or box a line; whole pixels, so that no rounding can differ."""
    command = f"python -m optbook.hotdog.draw FOLDER --{split} {len(images)} --seed {order.seed}"
    command += f" --size {order.size[0]} {order.size[1]} --quality {order.quality}"
    parts: dict[str, Any] = {
        "info": {"description": f"Drawn hot dogs, {split}", "version": "1", "command": command},
        "licenses": [{"id": 1, "name": "BSD-3-Clause", "url": "https://opensource.org/license/bsd-3-clause"}],
        "categories": [{"id": 1, "name": "hot dog", "supercategory": "food"}],
        "images": images,
        "annotations": annotations,
    }
    return "{\n" + ",\n".join(f'"{name}": {_lines(part)}' for name, part in parts.items()) + "\n}\n"


def _lines(part: Any) -> str:
    if not isinstance(part, list) or not part:
        return json.dumps(part)
    return "[\n" + ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in part) + "\n]"


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line; ends with status 2 and one line about a bad argument."""
    parser = argparse.ArgumentParser(
        prog="python -m optbook.hotdog.draw", description="Draw hot-dog pictures."
    )
    parser.add_argument("folder", type=Path, help="where to; made if need be")
    parser.add_argument("--train", type=int, default=0, metavar="N", help="pictures to train on (default 0)")
    parser.add_argument("--val", type=int, default=0, metavar="N", help="pictures to validate on (default 0)")
    parser.add_argument("--seed", type=int, default=1, help="another seed, other pictures (default 1)")
    parser.add_argument(
        "--size",
        type=int,
        nargs=2,
        default=(200, 400),
        metavar=("MIN", "MAX"),
        help="sides in pixels (default 200 400)",
    )
    parser.add_argument("--quality", type=int, default=60, help="JPEG quality, 1 to 95 (default 60)")
    options = parser.parse_args(arguments)
    try:
        draw_folder(
            options.folder,
            train=options.train,
            val=options.val,
            seed=options.seed,
            size=(options.size[0], options.size[1]),
            quality=options.quality,
        )
    except (ValueError, OSError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
