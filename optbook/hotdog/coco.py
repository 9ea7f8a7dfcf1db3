"""Pictures and their boxes, from any folder in COCO format.

Where things are looked for, given `load_folder(folder, split)`; the first that exists is taken:

* annotations: `annotations/<split>.json`, `annotations/instances_<split>*.json`, `<split>.json`,
  `<split>/_annotations.coco.json`, else the only `*.json` in the folder. For the split "val", "valid" is
  tried too.
* a picture: its `file_name` in a folder called `<split>` (or, for `instances_train2017.json`, `train2017`),
  in one so called within `images/`, in `images/`, in the folder itself, beside the annotation file. A
  `file_name` that leads out of these (an absolute path, or `..`) is looked up by its last part only.

What is done with the awkward:

* pictures without a box of the category are kept, with a count of 0;
* a picture with a *crowd* box of the category is left out, with a warning: nobody knows its count;
* a box that sticks out of its picture is cut at the border; one with nothing inside is left out, with a
  warning;
* missing pictures, pictures of another size than stated, files that are no picture, annotations of unknown
  pictures, boxes that are not four finite numbers: an error that names the first.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

_ROTATES = {5, 6, 7, 8}
_EXIF_ORIENTATION = 0x0112
_NEEDED = {
    "images": ("id", "file_name"),
    "annotations": ("image_id", "category_id"),
    "categories": ("id", "name"),
}


@dataclass(frozen=True)
class Picture:
    """One picture on disk and the boxes of what is counted in it.

    `width` and `height` are in pixels, as `open_rgb` gives them (EXIF rotation applied).
    """

    path: Path
    width: int
    height: int
    boxes: NDArray[np.float32]  # (n, 4): x, y, width, height in pixels of the original picture

    @property
    def count(self) -> int:
        return len(self.boxes)


def load_folder(
    folder: Path | str, split: str = "train", category: str = "hot dog", *, skip_missing: bool = False
) -> list[Picture]:
    """The pictures of one split, in the order of the annotation file; no pixels are read, only sizes.

    The category is found by name; capitals, spaces, hyphens and underscores make no difference.
    `skip_missing` leaves out pictures that are not there (a partly downloaded data set) instead of raising.

    Raises FileNotFoundError (folder, annotations or pictures missing), ValueError (not COCO, no such
    category, sizes that disagree, broken boxes), OSError (a file that is no picture). See the module's top.
    """
    folder = Path(folder)
    source = _annotation_file(folder, split)
    content = _read(source)
    wanted = _category_ids(content["categories"], category, source)
    annotated = _by_image(content, wanted, source)
    roots = _picture_roots(folder, split, source)

    pictures: list[Picture] = []
    missing: list[str] = []
    crowded: list[str] = []
    empty: list[str] = []
    for image in content["images"]:
        name = str(image["file_name"])
        path = _find(name, roots)
        if path is None:
            missing.append(name)
            continue
        annotations = annotated[image["id"]]
        if any(annotation.get("iscrowd") for annotation in annotations):
            crowded.append(name)
            continue
        width, height = _checked_size(path, image)
        boxes = [_box(annotation, name, source) for annotation in annotations]
        inside = [cut for box in boxes if (cut := _cut(box, width, height)) is not None]
        if len(inside) < len(boxes):
            empty.append(name)
        pictures.append(Picture(path, width, height, np.array(inside, dtype=np.float32).reshape(-1, 4)))

    if missing and not skip_missing:
        raise FileNotFoundError(
            f"{_some(missing)} named in {source} not found in {', '.join(map(str, roots))}: "
            "put the pictures there, or pass skip_missing=True to go on without them"
        )
    if crowded:
        _warn(f"left out, since a crowd box hides how many {category!r} there are: {_some(crowded)}")
    if empty:
        _warn(f"boxes without any area inside the picture left out in {_some(empty)}")
    if not pictures:
        raise ValueError(f"no pictures left of the {len(content['images'])} in {source}: check the file")
    return pictures


def open_rgb(path: Path | str, at_least: int | None = None) -> NDArray[np.uint8]:
    """The picture as uint8 (height, width, 3), whatever its file holds; the first frame of an animation.

    With `at_least`, a JPEG may come at a half, a quarter or an eighth of its size, as long as both sides keep
    that many pixels: so its decoder has less to do. EXIF rotation is applied; transparent parts lie on white;
    of 16-bit grey the upper 8 bits are kept.

    Raises FileNotFoundError, or OSError naming the file when it is truncated or no picture, or ValueError
    when its pixels are floating-point numbers.
    """
    return np.asarray(open_rgb_image(path, at_least), dtype=np.uint8)


def open_rgb_image(path: Path | str, at_least: int | None = None) -> Image.Image:
    """The same as Pillow's image, for those who go on with Pillow: no copy is made of it."""
    with _opened(path) as image:
        if at_least is not None:
            image.draft(None, (at_least, at_least))
        try:
            image.load()
            ImageOps.exif_transpose(image, in_place=True)
        except (OSError, SyntaxError, ValueError, EOFError) as error:
            raise OSError(f"picture {path} is damaged or cut short ({error}): replace it") from error
        return _to_rgb(image, path)


def _to_rgb(image: Image.Image, path: Path | str) -> Image.Image:
    if image.mode == "F":
        raise ValueError(f"picture {path} has floating-point pixels: save it with 8 or 16 bits a channel")
    if image.mode.startswith("I"):
        grey = np.asarray(image).astype(np.int64)
        return Image.fromarray((grey.clip(0, 65535) >> 8).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        see_through = image.convert("RGBA")
        white = Image.new("RGBA", see_through.size, "white")
        return Image.alpha_composite(white, see_through).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


def _opened(path: Path | str) -> Image.Image:
    try:
        return Image.open(path)
    except FileNotFoundError:
        raise FileNotFoundError(f"no picture {path}") from None
    except (OSError, SyntaxError, ValueError) as error:
        raise OSError(f"{path} is no picture that Pillow can read ({error}): replace it") from error


def _annotation_file(folder: Path, split: str) -> Path:
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {folder}: give the folder that holds annotations/{split}.json")
    for name in _split_names(split):
        for found in (folder / "annotations" / f"{name}.json", folder / f"{name}.json"):
            if found.is_file():
                return found
        several = sorted((folder / "annotations").glob(f"instances_{name}*.json"))
        if len(several) > 1:
            names = ", ".join(path.name for path in several)
            raise ValueError(f"{split!r} may mean any of {names}: ask for one, as in 'train2017'")
        for found in (*several, folder / name / "_annotations.coco.json"):
            if found.is_file():
                return found
    only = sorted(folder.glob("*.json"))
    if len(only) == 1:
        return only[0]
    raise FileNotFoundError(
        f"no annotations for {split!r} in {folder}: expected annotations/{split}.json, "
        f"annotations/instances_{split}*.json, {split}.json or a single *.json"
    )


def _split_names(split: str) -> tuple[str, ...]:
    return (split, "valid") if split == "val" else (split,)


def _read(source: Path) -> dict[str, Any]:
    try:
        loaded = json.loads(source.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise ValueError(f"{source} is not valid JSON ({error})") from None
    content: dict[str, Any] = loaded if isinstance(loaded, dict) else {}
    for part, (identity, other) in _NEEDED.items():
        if not isinstance(content.get(part), list):
            raise ValueError(f"{source} has no list {part!r}: it is no COCO detection file")
        for entry in content[part]:
            known = isinstance(entry, dict) and isinstance(entry.get(identity), int | str)
            if not known or other not in entry:
                lacking = f"lacks {identity!r} or {other!r}: {str(entry)[:80]}"
                raise ValueError(f"one of the {part} in {source} {lacking}")
    return content


def _category_ids(categories: list[dict[str, Any]], wanted: str, source: Path) -> set[Any]:
    ids = {one["id"] for one in categories if _plain(one["name"]) == _plain(wanted)}
    if not ids:
        names = ", ".join(repr(one["name"]) for one in categories[:10]) or "none"
        more = ", …" if len(categories) > 10 else ""
        raise ValueError(f"no category {wanted!r} in {source}; it has {names}{more}: pass category=…")
    return ids


def _plain(name: object) -> str:
    return str(name).casefold().translate(str.maketrans("", "", " -_"))


def _by_image(content: dict[str, Any], wanted: set[Any], source: Path) -> dict[Any, list[dict[str, Any]]]:
    found: dict[Any, list[dict[str, Any]]] = {}
    for image in content["images"]:
        if image["id"] in found:
            raise ValueError(f"two images in {source} have the id {image['id']!r}")
        found[image["id"]] = []
    for annotation in content["annotations"]:
        image_id = annotation["image_id"]
        if image_id not in found:
            raise ValueError(
                f"annotation {annotation.get('id')!r} in {source}: no image has the id {image_id!r}"
            )
        if annotation["category_id"] in wanted:
            found[image_id].append(annotation)
    return found


def _picture_roots(folder: Path, split: str, source: Path) -> list[Path]:
    names = dict.fromkeys((*_split_names(split), source.stem.removeprefix("instances_")))
    candidates: Iterator[Path] = (
        root
        for root in (
            *(folder / name for name in names),
            *(folder / "images" / name for name in names),
            folder / "images",
            folder,
            source.parent,
        )
        if root.is_dir()
    )
    return list(dict.fromkeys(candidates))


def _find(name: str, roots: Sequence[Path]) -> Path | None:
    relative = PurePosixPath(name.replace("\\", "/"))
    leads_out = relative.is_absolute() or ".." in relative.parts or ":" in name
    if leads_out:
        relative = PurePosixPath(relative.name)
    return next((path for root in roots if (path := root / relative).is_file()), None)


def _checked_size(path: Path, image: dict[str, Any]) -> tuple[int, int]:
    with _opened(path) as opened:
        width, height = opened.size
        if opened.getexif().get(_EXIF_ORIENTATION) in _ROTATES:
            width, height = height, width
    stated = (image.get("width", width), image.get("height", height))
    if stated != (width, height):
        raise ValueError(
            f"picture {path} is {width}x{height} (as shown, EXIF rotation applied), its annotation says "
            f"{stated[0]}x{stated[1]}: its boxes can't be trusted"
        )
    return width, height


def _box(annotation: dict[str, Any], name: str, source: Path) -> tuple[float, float, float, float]:
    box = annotation.get("bbox")
    if isinstance(box, list) and len(box) == 4 and all(_is_finite(value) for value in box):
        x, y, width, height = (float(value) for value in box)
        return x, y, width, height
    raise ValueError(
        f"annotation {annotation.get('id')!r} of {name} in {source} has the bbox {str(box)[:60]}: "
        "it needs four finite numbers [x, y, width, height]"
    )


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _cut(
    box: tuple[float, float, float, float], width: int, height: int
) -> tuple[float, float, float, float] | None:
    left, top = max(box[0], 0.0), max(box[1], 0.0)
    right, bottom = min(box[0] + box[2], float(width)), min(box[1] + box[3], float(height))
    if right <= left or bottom <= top:
        return None
    return left, top, right - left, bottom - top


def _some(names: list[str]) -> str:
    few = ", ".join(names[:3])
    return f"{len(names)} picture{'s' if len(names) > 1 else ''} ({few}{', …' if len(names) > 3 else ''})"


def _warn(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=3)
