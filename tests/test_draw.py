"""Drawn pictures: the truth is exact, the same seed gives the same, and things are drawn whole."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from pycocotools.coco import COCO

from optbook.hotdog.coco import load_folder, open_rgb
from optbook.hotdog.draw import draw_folder, draw_picture, draw_scene, main
from optbook.hotdog.foods import Bread, HotDog, Sausage, Thing
from optbook.hotdog.lookalikes import Banana, Carrot, Cucumber
from optbook.hotdog.scene import APART, MOST, SEEN, Table
from optbook.hotdog.shapes import Light, Pose, cover, patch
from optbook.hotdog.tableware import Chip, Cup, Fork, Napkin, Plate

COMMITTED = Path(__file__).parents[1] / "data" / "hotdogs"
KINDS = (HotDog, Sausage, Bread, Carrot, Banana, Cucumber, Plate, Napkin, Fork, Cup, Chip)


def straight_hot_dog(x: float, y: float) -> HotDog:
    """100 pixels long, its bun 22 + 18 pixels wide, lying along x."""
    return HotDog(
        pose=Pose(x, y, 1.0, 0.0),
        half=50,
        radius=9,
        curve=0,
        bun=42,
        near=(11, 11),
        far=(9, 9),
        skin=(0.7, 0.3, 0.2),
        crust=(0.8, 0.5, 0.2),
        grill=0,
        sauces=(),
        relish=0,
        seed=1,
    )


def napkin_over(x: float, y: float, half: float) -> Napkin:
    return Napkin(Pose(x, y, 1.0, 0.0), half, half, (1, 1, 1))


def test_a_box_is_the_smallest_around_a_hot_dog() -> None:
    table = Table(200, 100)
    assert table.put(straight_hot_dog(100, 50))
    boxes, areas = table.truth()
    np.testing.assert_array_equal(boxes, [[50, 32, 100, 40]])
    assert 0.75 * 100 * 40 < areas[0] < 100 * 40


def test_what_lies_over_a_hot_dog_shortens_its_box() -> None:
    table = Table(200, 100)
    table.put(straight_hot_dog(100, 50))
    _, whole = table.truth()
    assert table.put(napkin_over(185, 50, 40))
    boxes, areas = table.truth()
    np.testing.assert_array_equal(boxes, [[50, 32, 95, 40]])
    assert SEEN * whole[0] <= areas[0] < whole[0]


def test_nothing_is_put_where_it_hides_too_much_of_a_hot_dog() -> None:
    table = Table(200, 100)
    table.put(straight_hot_dog(100, 50))
    before = table.truth()
    assert not table.put(napkin_over(140, 50, 40))
    for now, then in zip(table.truth(), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_the_border_counts_as_hiding() -> None:
    table = Table(200, 100)
    assert not table.put(straight_hot_dog(180, 50))
    assert table.put(straight_hot_dog(160, 50))
    np.testing.assert_array_equal(table.truth()[0], [[110, 32, 90, 40]])


def test_hot_dogs_keep_apart() -> None:
    table = Table(400, 200)
    assert table.put(straight_hot_dog(200, 60))
    assert not table.put(straight_hot_dog(200, 60 + 400 * APART - 2))
    assert table.put(straight_hot_dog(200, 60 + 400 * APART + 2))


@pytest.mark.parametrize("index", range(12))
def test_scenes_keep_their_promises(index: int) -> None:
    scene = draw_scene(np.random.default_rng([5, index]), 260, 200)
    assert scene.pixels.dtype == np.uint8
    assert scene.pixels.shape == (200, 260, 3)
    assert scene.boxes.dtype == np.float32
    assert scene.count == len(scene.boxes) == len(scene.areas) <= 4
    assert (scene.boxes == np.rint(scene.boxes)).all()
    corners = scene.boxes[:, :2] + scene.boxes[:, 2:]
    assert (scene.boxes >= 0).all()
    assert (corners <= (260, 200)).all()
    assert (scene.areas <= scene.boxes[:, 2] * scene.boxes[:, 3]).all()
    centres = scene.boxes[:, :2] + scene.boxes[:, 2:] / 2
    for number, one in enumerate(centres):
        assert all(math.dist(one, other) > APART * 260 for other in centres[:number])


def test_every_number_of_hot_dogs_can_be_asked_for() -> None:
    for count in range(MOST + 1):
        counts = [draw_scene(np.random.default_rng([9, i]), 150, 150, count=count).count for i in range(4)]
        assert max(counts) == count


@pytest.mark.parametrize(
    ("size", "count"), [((20, 300), None), ((300, 31), None), ((300, 300), 5), ((300, 300), -1)]
)
def test_impossible_scenes_are_refused(size: tuple[int, int], count: int | None) -> None:
    with pytest.raises(ValueError, match=r"too small|hot dogs can't be placed"):
        draw_scene(np.random.default_rng(0), *size, count=count)


def test_the_same_state_gives_the_same_picture() -> None:
    one, same, other = (draw_scene(np.random.default_rng([3, i]), 128, 96) for i in (1, 1, 2))
    np.testing.assert_array_equal(one.pixels, same.pixels)
    np.testing.assert_array_equal(one.boxes, same.boxes)
    assert (one.pixels != other.pixels).mean() > 0.5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_things_end_within_their_reach_and_have_a_colour(kind: type[HotDog], seed: int) -> None:
    rng = np.random.default_rng(seed)
    thing: Thing = kind.random(Pose.random_direction(150, 150, rng), 90, rng)
    around = patch(thing.pose, (140, 140), 300, 300)
    inside = thing.distance(around.u, around.v) < 0
    assert inside.sum() > 40
    assert np.abs(around.u[inside]).max() <= thing.reach[0]
    assert np.abs(around.v[inside]).max() <= thing.reach[1]
    light = Light(0.3, -0.4, 0.866, 0.5, (1, 1, 1), 0.5, 0.5)
    colour = thing.colour(around.u[inside], around.v[inside], light)
    assert colour.shape == (3, inside.sum())
    assert np.isfinite(colour).all()
    assert 0.05 < colour.mean() < 1.2


def test_a_pixel_is_more_than_half_covered_just_where_it_is_owned() -> None:
    distance = np.linspace(-3, 3, 601, dtype=np.float32)
    for softness in (0.5, 1.0, 4.0):
        np.testing.assert_array_equal(cover(distance, softness) > 0.5, distance < 0)


def test_a_folder_is_what_it_says(tmp_path: Path) -> None:
    draw_folder(tmp_path, train=3, val=2, seed=4, size=(80, 120), progress=False)
    for split, amount in (("train", 3), ("val", 2)):
        pictures = load_folder(tmp_path, split)
        assert len(pictures) == amount
        for number, picture in enumerate(pictures):
            scene = draw_picture(4, split, number, (80, 120))
            np.testing.assert_array_equal(picture.boxes, scene.boxes)
            stored = open_rgb(picture.path)
            assert stored.shape == scene.pixels.shape
            assert np.abs(stored.astype(int) - scene.pixels).mean() < 12
            assert all(80 <= side <= 120 for side in stored.shape[:2])


def test_annotations_are_the_same_to_the_last_byte(tmp_path: Path) -> None:
    for name in ("one", "two"):
        draw_folder(tmp_path / name, train=4, val=0, seed=8, size=(64, 90), progress=False)
    one, two = ((tmp_path / name / "annotations" / "train.json").read_bytes() for name in ("one", "two"))
    assert one == two
    assert not (tmp_path / "one" / "val").exists()


def test_a_picture_does_not_depend_on_how_many_are_drawn(tmp_path: Path) -> None:
    draw_folder(tmp_path / "few", train=1, val=1, seed=8, size=(64, 90), progress=False)
    draw_folder(tmp_path / "many", train=3, val=1, seed=8, size=(64, 90), progress=False)
    for name in ("train/000000.jpg", "val/000000.jpg", "annotations/val.json"):
        assert (tmp_path / "few" / name).read_bytes() == (tmp_path / "many" / name).read_bytes()
    assert (tmp_path / "few/train/000000.jpg").read_bytes() != (tmp_path / "few/val/000000.jpg").read_bytes()


def test_other_tools_read_the_annotations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw_folder(tmp_path, train=6, val=0, seed=2, size=(64, 90), progress=False)
    coco = COCO(str(tmp_path / "annotations" / "train.json"))
    capsys.readouterr()
    assert coco.getCatIds(catNms=["hot dog"]) == [1]
    assert len(coco.getAnnIds()) == sum(picture.count for picture in load_folder(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--train 0", "nothing to draw"),
        ("--train -3", "-3 pictures for train"),
        ("--train 1 --size 300 200", "size 300 to 200"),
        ("--train 1 --size 8 200", "size 8 to 200"),
        ("--train 1 --quality 99", "quality 99"),
        ("--train 1 --seed -1", "seed -1"),
        ("--train many", "invalid int value: 'many'"),
    ],
)
def test_bad_arguments_get_one_line(
    tmp_path: Path, arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main([str(tmp_path / "new"), *arguments.split()])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "new").exists()


def test_nothing_is_drawn_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(tmp_path), "--train", "1", "--size", "64", "64"])
    before = (tmp_path / "train" / "000000.jpg").read_bytes()
    with pytest.raises(SystemExit):
        main([str(tmp_path), "--train", "1", "--seed", "2"])
    assert "is there already" in capsys.readouterr().err
    assert (tmp_path / "train" / "000000.jpg").read_bytes() == before


@pytest.mark.parametrize("split", ["train", "val"])
def test_the_committed_pictures_are_drawn_again(split: str) -> None:
    content = json.loads((COMMITTED / "annotations" / f"{split}.json").read_text(encoding="utf-8"))
    words = content["info"]["command"].split()
    seed, low, high = (
        int(words[words.index(option) + nth]) for option, nth in (("--seed", 1), ("--size", 1), ("--size", 2))
    )
    assert words[words.index(f"--{split}") + 1] == str(len(content["images"]))
    for number in range(0, len(content["images"]), len(content["images"]) // 8):
        image = content["images"][number]
        scene = draw_picture(seed, split, number, (low, high))
        mine = [one for one in content["annotations"] if one["image_id"] == image["id"]]
        assert scene.pixels.shape == (image["height"], image["width"], 3)
        assert [one["bbox"] for one in mine] == scene.boxes.astype(int).tolist()
        assert [one["area"] for one in mine] == scene.areas.tolist()


@pytest.mark.parametrize(("split", "amount"), [("train", 1000), ("val", 200)])
def test_the_committed_pictures_are_all_there(split: str, amount: int) -> None:
    pictures = load_folder(COMMITTED, split)
    assert len(pictures) == amount
    assert {picture.count for picture in pictures} == set(range(MOST + 1))


def test_the_committed_pictures_stay_small() -> None:
    assert sum(path.stat().st_size for path in COMMITTED.rglob("*") if path.is_file()) < 10_000_000
