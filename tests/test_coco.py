"""Pictures and boxes from COCO folders of all kinds, and what is done with the awkward ones."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from optbook.hotdog.coco import load_folder, open_rgb

HOT_DOG = {"id": 58, "name": "hot dog"}


def picture(path: Path, size: tuple[int, int] = (40, 30), mode: str = "RGB", **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size).save(path, **options)
    return path


def annotate(
    path: Path,
    boxes: list[Any],
    images: list[dict[str, Any]] | None = None,
    categories: list[dict[str, Any]] | None = None,
    **extra: Any,
) -> None:
    """One picture a.png of 40x30 with these boxes, unless told otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "images": images or [{"id": 7, "file_name": "a.png", "width": 40, "height": 30}],
        "categories": categories or [{"id": 1, "name": "person"}, HOT_DOG],
        "annotations": [
            {"id": number, "image_id": 7, "category_id": 58, "bbox": box, **extra}
            for number, box in enumerate(boxes)
        ],
    }
    path.write_text(json.dumps(content), encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    picture(tmp_path / "train" / "a.png")
    annotate(tmp_path / "annotations" / "train.json", [[1, 2, 10, 5], [20.5, 3, 4, 5]])
    return tmp_path


def test_a_picture_knows_its_boxes_and_count(folder: Path) -> None:
    (only,) = load_folder(folder)
    assert only.path == folder / "train" / "a.png"
    assert (only.width, only.height, only.count) == (40, 30, 2)
    assert only.boxes.dtype == np.float32
    np.testing.assert_array_equal(only.boxes, [[1, 2, 10, 5], [20.5, 3, 4, 5]])


@pytest.mark.parametrize(
    ("annotations", "pictures", "split"),
    [
        ("annotations/instances_train2017.json", "train2017", "train"),
        ("annotations/instances_train2017.json", "images/train2017", "train2017"),
        ("annotations/instances_val.json", "images", "val"),
        ("valid/_annotations.coco.json", "valid", "val"),
        ("test.json", "test", "test"),
        ("whatever.json", ".", "train"),
    ],
)
def test_the_usual_layouts_are_found(tmp_path: Path, annotations: str, pictures: str, split: str) -> None:
    picture(tmp_path / pictures / "a.png")
    annotate(tmp_path / annotations, [[1, 2, 10, 5]])
    (only,) = load_folder(tmp_path, split)
    assert only.path == tmp_path / pictures / "a.png"
    assert only.count == 1


def test_two_candidates_are_a_question(tmp_path: Path) -> None:
    for year in (2014, 2017):
        annotate(tmp_path / "annotations" / f"instances_train{year}.json", [])
    with pytest.raises(ValueError, match=r"instances_train2014.json, instances_train2017.json.*'train2017'"):
        load_folder(tmp_path)


def test_missing_folder_and_annotations_say_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere"):
        load_folder(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"no annotations for 'val'.*annotations/val\.json"):
        load_folder(tmp_path, "val")


@pytest.mark.parametrize("name", ["hot dog", "Hot-Dog", "hotdog", "HOT_DOG"])
def test_the_category_is_found_by_name(folder: Path, name: str) -> None:
    annotate(folder / "annotations" / "train.json", [[1, 2, 3, 4]], categories=[{"id": 58, "name": name}])
    assert load_folder(folder)[0].count == 1


def test_other_categories_are_not_counted(folder: Path) -> None:
    assert load_folder(folder, category="person")[0].count == 0


def test_an_unknown_category_names_those_there_are(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"no category 'cat'.*'person', 'hot dog'.*category="):
        load_folder(folder, category="cat")


def test_a_picture_without_boxes_counts_zero(folder: Path) -> None:
    annotate(folder / "annotations" / "train.json", [])
    (only,) = load_folder(folder)
    assert only.count == 0
    assert only.boxes.shape == (0, 4)


def test_boxes_are_cut_at_the_border(folder: Path) -> None:
    annotate(folder / "annotations" / "train.json", [[-5, 20, 15, 100]])
    np.testing.assert_array_equal(load_folder(folder)[0].boxes, [[0, 20, 10, 10]])


@pytest.mark.parametrize("box", [[50, 50, 10, 10], [5, 5, 0, 4], [5, 5, -3, 4], [-10, 0, 10, 10]])
def test_boxes_with_nothing_inside_are_left_out_aloud(folder: Path, box: list[float]) -> None:
    annotate(folder / "annotations" / "train.json", [box, [1, 1, 5, 5]])
    with pytest.warns(UserWarning, match=r"without any area.* 1 picture \(a\.png\)"):
        (only,) = load_folder(folder)
    assert only.count == 1


@pytest.mark.parametrize(
    "box", [None, [], [1, 2, 3], [1, 2, 3, "4"], [1, 2, 3, float("nan")], [1, 2, 3, True]]
)
def test_broken_boxes_are_named(folder: Path, box: Any) -> None:
    annotate(folder / "annotations" / "train.json", [box])
    with pytest.raises(ValueError, match=r"annotation 0 of a\.png .*four finite numbers"):
        load_folder(folder)


def test_pictures_with_a_crowd_are_left_out_aloud(folder: Path) -> None:
    picture(folder / "train" / "b.png")
    images = [
        {"id": 7, "file_name": "a.png", "width": 40, "height": 30},
        {"id": 8, "file_name": "b.png", "width": 40, "height": 30},
    ]
    annotate(folder / "annotations" / "train.json", [[1, 2, 10, 5]], images, iscrowd=1)
    with pytest.warns(UserWarning, match=r"crowd box hides.*a\.png"):
        pictures = load_folder(folder)
    assert [one.path.name for one in pictures] == ["b.png"]


def test_missing_pictures_are_counted_and_named_or_skipped(folder: Path) -> None:
    images = [{"id": number, "file_name": f"{number}.png"} for number in range(5)]
    images.append({"id": 7, "file_name": "a.png"})
    annotate(folder / "annotations" / "train.json", [], images)
    with pytest.raises(FileNotFoundError, match=r"5 pictures \(0\.png, 1\.png, 2\.png, …\).*skip_missing"):
        load_folder(folder)
    assert [one.path.name for one in load_folder(folder, skip_missing=True)] == ["a.png"]


def test_no_picture_at_all_is_an_error(folder: Path) -> None:
    annotate(folder / "annotations" / "train.json", [], [{"id": 7, "file_name": "gone.png"}])
    with pytest.raises(ValueError, match="no pictures left of the 1"):
        load_folder(folder, skip_missing=True)


@pytest.mark.parametrize("name", ["../../secret.png", "/secret.png", "C:\\pictures\\secret.png"])
def test_no_picture_outside_the_folder_is_read(tmp_path: Path, name: str) -> None:
    picture(tmp_path / "secret.png")
    folder = tmp_path / "deep" / "folder"
    annotate(folder / "train.json", [], [{"id": 7, "file_name": name}])
    with pytest.raises(FileNotFoundError, match="not found in"):
        load_folder(folder)


def test_windows_paths_are_understood(folder: Path) -> None:
    picture(folder / "train" / "sub" / "a.png")
    annotate(folder / "annotations" / "train.json", [], [{"id": 7, "file_name": "sub\\a.png"}])
    assert load_folder(folder)[0].path == folder / "train" / "sub" / "a.png"


def test_a_size_that_disagrees_is_named(folder: Path) -> None:
    picture(folder / "train" / "a.png", (30, 40))
    with pytest.raises(ValueError, match=r"a\.png is 30x40 .*its annotation says 40x30"):
        load_folder(folder)


def test_sizes_are_those_of_the_upright_picture(folder: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    picture(folder / "train" / "a.png", (30, 40), exif=exif)
    (only,) = load_folder(folder)
    assert (only.height, only.width, 3) == open_rgb(only.path).shape


def test_a_file_that_is_no_picture_is_named(folder: Path) -> None:
    (folder / "train" / "a.png").write_bytes(b"")
    with pytest.raises(OSError, match=r"a\.png is no picture"):
        load_folder(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not valid JSON"),
        ("[]", "no list 'images'"),
        ('{"images": [], "annotations": []}', "no list 'categories'"),
        ('{"images": [{"id": 1}], "annotations": [], "categories": []}', "lacks 'id' or 'file_name'"),
        ('{"images": [], "annotations": [3], "categories": []}', "lacks 'image_id' or 'category_id': 3"),
        (
            '{"images": [], "annotations": [], "categories": [{"id": [1], "name": "x"}]}',
            "lacks 'id' or 'name'",
        ),
    ],
)
def test_files_that_are_not_coco_are_named(folder: Path, content: str, message: str) -> None:
    (folder / "annotations" / "train.json").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=f"train.json.*{message}"):
        load_folder(folder)


def test_ids_that_do_not_fit_are_named(folder: Path) -> None:
    source = folder / "annotations" / "train.json"
    twice = [{"id": 7, "file_name": "a.png"}, {"id": 7, "file_name": "a.png"}]
    annotate(source, [], twice)
    with pytest.raises(ValueError, match=r"two images .* have the id 7"):
        load_folder(folder)
    annotate(source, [[1, 2, 3, 4]], [{"id": "7", "file_name": "a.png"}])
    with pytest.raises(ValueError, match=r"annotation 0 .*no image has the id 7"):
        load_folder(folder)


@pytest.mark.parametrize(
    ("mode", "colour", "name", "expected"),
    [
        ("RGB", (10, 20, 30), "a.png", (10, 20, 30)),
        ("L", 90, "a.png", (90, 90, 90)),
        ("1", 1, "a.png", (255, 255, 255)),
        ("RGBA", (10, 20, 30, 255), "a.png", (10, 20, 30)),
        ("RGBA", (10, 20, 30, 0), "a.png", (255, 255, 255)),
        ("LA", (90, 0), "a.png", (255, 255, 255)),
        ("I;16", 0x5AFF, "a.png", (0x5A, 0x5A, 0x5A)),
        ("I;16", 0x5AFF, "a.tiff", (0x5A, 0x5A, 0x5A)),
        ("CMYK", (0, 255, 255, 0), "a.tiff", (255, 0, 0)),
    ],
)
def test_every_kind_of_pixel_becomes_rgb(
    tmp_path: Path, mode: str, colour: Any, name: str, expected: tuple[int, int, int]
) -> None:
    Image.new(mode, (4, 3), colour).save(tmp_path / name)
    pixels = open_rgb(tmp_path / name)
    assert pixels.dtype == np.uint8
    assert pixels.shape == (3, 4, 3)
    np.testing.assert_array_equal(pixels[1, 2], expected)


def test_palettes_keep_their_colours_and_their_holes(tmp_path: Path) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([200, 10, 20, 1, 2, 3])
    image.putpixel((1, 0), 1)
    image.save(tmp_path / "a.gif", transparency=1)
    np.testing.assert_array_equal(open_rgb(tmp_path / "a.gif")[0], [[200, 10, 20], [255, 255, 255]])


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotation_is_applied(tmp_path: Path, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = Image.new("RGB", (3, 2))
    image.putpixel((0, 0), (255, 255, 255))
    image.save(tmp_path / "a.png", exif=exif)
    pixels = open_rgb(tmp_path / "a.png")
    corner = {1: (0, 0), 2: (0, 2), 3: (1, 2), 4: (1, 0), 5: (0, 0), 6: (0, 1), 7: (2, 1), 8: (2, 0)}
    assert pixels.shape == ((2, 3, 3) if orientation < 5 else (3, 2, 3))
    assert pixels[corner[orientation]].tolist() == [255, 255, 255]


def test_truncated_pictures_are_named(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    for name in ("a.jpg", "a.png"):
        path = tmp_path / name
        Image.fromarray(noise).save(path)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        with pytest.raises(OSError, match=re.escape(f"{name} is damaged or cut short")):
            open_rgb(path)


def test_missing_and_floating_point_pictures_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no picture .*gone"):
        open_rgb(tmp_path / "gone.png")
    Image.new("F", (2, 2)).save(tmp_path / "a.tiff")
    with pytest.raises(ValueError, match=r"a\.tiff has floating-point pixels"):
        open_rgb(tmp_path / "a.tiff")
