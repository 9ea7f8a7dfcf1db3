"""Each stage from a picture to a batch, with exact expectations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from optbook.hotdog import augment, pixels
from optbook.hotdog.coco import Picture
from optbook.hotdog.dataset import EveryPictureOnce, HotdogDataset, Turn, boxes_in
from optbook.hotdog.recipe import Recipe
from optbook.hotdog.targets import draw_cell_by_cell


@pytest.fixture
def image() -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.random.default_rng(0).random((40, 60, 3))


def paint(folder: Path, count: int = 3) -> list[Picture]:
    """Pictures of 60 × 40 with as many red boxes as their position in the list says."""
    pictures = []
    for number in range(count):
        canvas = np.full((40, 60, 3), 200, dtype=np.uint8)
        boxes = np.array([[5 + 18 * i, 10, 12, 20] for i in range(number)], dtype=np.float32).reshape(-1, 4)
        for x, y, width, height in boxes.astype(int):
            canvas[y : y + height, x : x + width] = (200, 30, 30)
        path = folder / f"{number}.png"
        Image.fromarray(canvas).save(path)
        pictures.append(Picture(path, 60, 40, boxes))
    return pictures


def test_decoding_gives_floats_of_the_whole_picture(tmp_path: Path) -> None:
    picture = paint(tmp_path)[1]
    image = pixels.decode_full_size(picture.path, 16)
    assert image.shape == (40, 60, 3)
    assert image[0, 0] == pytest.approx([200 / 255] * 3)
    assert image[10, 5] == pytest.approx([200 / 255, 30 / 255, 30 / 255])


@pytest.mark.parametrize(
    "wrong", [np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3)), np.zeros((0, 4, 3), np.uint8)]
)
def test_pixels_of_another_kind_are_refused(wrong: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> None:
    with pytest.raises(ValueError, match=r"a picture must be uint8 \(height, width, 3\), not"):
        pixels.pixels_of(wrong)


def test_resizing_stretches_the_boxes_too() -> None:
    image, boxes = pixels.resize_through_bytes(np.full((40, 60, 3), 0.6), np.array([[6.0, 4, 30, 20]]), 32)
    assert image.shape == (32, 32, 3)
    assert image == pytest.approx(np.full((32, 32, 3), 153 / 255))
    assert boxes.tolist() == [pytest.approx([3.2, 3.2, 16, 16])]


def test_a_picture_of_the_right_size_is_left_alone(
    image: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
) -> None:
    square = image[:, :40]
    same, _ = pixels.resize_through_bytes(square, np.zeros((0, 4)), 40)
    assert same is square


def test_normalising_moves_colours_first_and_centres_them() -> None:
    normal = pixels.normalise(np.ones((2, 5, 3)) * pixels.MEAN)
    assert normal.shape == (3, 2, 5)
    assert normal == pytest.approx(np.zeros((3, 2, 5)))


def test_flipping_twice_changes_nothing(image: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> None:
    boxes = np.array([[5.0, 6, 20, 10]])
    once, moved = augment.flip(image, boxes)
    assert moved.tolist() == [[35, 6, 20, 10]]
    assert (once[:, 0] == image[:, -1]).all()
    twice, back = augment.flip(once, moved)
    assert (twice == image).all()
    assert (back == boxes).all()


def test_a_quarter_turn_moves_pixels_and_boxes_alike() -> None:
    image = np.zeros((41, 41, 3))
    image[5, 10] = 1.0  # the pixel covers x from 10 to 11, y from 5 to 6
    turned, boxes = augment.rotate(image, np.array([[8.0, 4, 5, 3]]), degrees=90)
    (y, x) = np.argwhere(turned[..., 0] > 0.99)[0]
    assert (y, x) == (10, 35)
    assert boxes.tolist() == [pytest.approx([34, 8, 3, 5])]


def test_turning_a_box_a_little_hardly_changes_its_size() -> None:
    _, boxes = augment.rotate(np.zeros((50, 50, 3)), np.array([[15.0, 15, 20, 20]]), degrees=30)
    assert boxes.tolist() == [pytest.approx([15, 15, 20, 20])]


def test_enlarging_doubles_the_boxes_about_the_centre() -> None:
    _, boxes = augment.rescale(np.zeros((40, 60, 3)), np.array([[25.0, 15, 10, 10]]), factor=2.0)
    assert boxes.tolist() == [pytest.approx([20, 10, 20, 20])]


def test_warping_by_nothing_changes_nothing(
    image: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
) -> None:
    assert augment.warp(image, np.eye(2)) == pytest.approx(image)


def test_colours_stay_in_range_and_neutral_factors_change_nothing(
    image: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
) -> None:
    assert augment.recolour(image, 1.0, 1.0, 1.0) == pytest.approx(image)
    wild = augment.recolour(image, 2.0, 3.0, 4.0)
    assert wild.min() >= 0
    assert wild.max() <= 1
    grey = augment.recolour(image, 1.0, 1.0, 0.0)
    assert grey[..., 0] == pytest.approx(grey[..., 2])


def test_boxes_are_cut_at_the_border_and_dropped_when_their_centre_left() -> None:
    boxes = np.array([[-4.0, 10, 10, 10], [-9, 10, 10, 10], [50, 30, 20, 16]])
    assert augment.keep_visible(boxes, 62, 40).tolist() == [[0, 10, 6, 10], [50, 30, 12, 10]]


def test_augmentation_repeats_with_the_same_chance(
    image: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
) -> None:
    boxes = np.array([[20.0, 10, 20, 15]])
    one = augment.augment_step_by_step(image, boxes, np.random.default_rng(7))
    same = augment.augment_step_by_step(image, boxes, np.random.default_rng(7))
    other = augment.augment_step_by_step(image, boxes, np.random.default_rng(8))
    assert (one[0] == same[0]).all()
    assert (one[1] == same[1]).all()
    assert not np.array_equal(one[0], other[0])
    assert one[0].shape == image.shape


def test_targets_peak_in_the_cell_that_holds_the_centre() -> None:
    targets = draw_cell_by_cell(np.array([[20.0, 8, 24, 16]]), grid=16)  # centre (32, 16): cell (8, 4)
    assert targets.heat.shape == (1, 16, 16)
    assert np.argwhere(targets.heat[0] == 1).tolist() == [[4, 8]]
    assert targets.close[0, 4, 8] == 1
    # The middle of that cell is the pixel position (34, 18).
    assert targets.sides[:, 4, 8].tolist() == [14, 10, 10, 6]
    assert (targets.sides[:, targets.close[0] == 0] == 0).all()


def test_targets_of_no_hotdog_are_cold() -> None:
    targets = draw_cell_by_cell(np.zeros((0, 4)), grid=8)
    assert not targets.heat.any()
    assert not targets.close.any()


def test_where_hotdogs_overlap_each_keeps_its_own_centre() -> None:
    boxes = np.array([[0.0, 0, 32, 32], [12, 0, 32, 32]])
    targets = draw_cell_by_cell(boxes, grid=16)
    assert np.argwhere(targets.heat[0] == 1).tolist() == [[4, 4], [4, 7]]
    assert targets.sides[0, 4, 4] == 18
    assert targets.sides[0, 4, 7] == 18


def test_a_centre_on_the_far_border_stays_on_the_grid() -> None:
    targets = draw_cell_by_cell(np.array([[60.0, 60, 8, 8]]), grid=16)
    assert targets.heat[0, 15, 15] == 1


def test_boxes_follow_the_size_at_which_a_picture_was_decoded(tmp_path: Path) -> None:
    picture = paint(tmp_path)[1]
    halved = np.zeros((20, 30, 3))
    assert boxes_in(halved, picture).tolist() == [[2.5, 5, 6, 10]]


def test_every_epoch_shows_each_picture_once_in_an_order_of_its_own() -> None:
    sampler = EveryPictureOnce(20, seed=3, shuffle=True)
    first, second = list(sampler), list(sampler)
    assert sorted(turn.picture for turn in first) == list(range(20))
    assert {turn.epoch for turn in second} == {1}
    assert [turn.picture for turn in first] != [turn.picture for turn in second]
    assert list(EveryPictureOnce(20, seed=3, shuffle=True)) == first
    assert [turn.picture for turn in EveryPictureOnce(3, seed=3, shuffle=False)] == [0, 1, 2]


def test_keeping_decoded_pictures_decodes_each_once(tmp_path: Path) -> None:
    decoded = []

    def decode(source: pixels.Source, size: int) -> pixels.Floats:
        decoded.append(source)
        return pixels.decode_full_size(source, size)

    pictures = paint(tmp_path, 1)
    kept = HotdogDataset(Recipe.first().replace(decode=decode, keep_decoded=True), pictures, training=True)
    assert not np.array_equal(kept[Turn(0, 0)].image, kept[Turn(1, 0)].image)
    assert len(decoded) == 1
    forgotten = HotdogDataset(Recipe.first().replace(decode=decode), pictures, training=True)
    assert np.array_equal(forgotten[Turn(0, 0)].image, kept[Turn(0, 0)].image)
    assert np.array_equal(forgotten[Turn(0, 0)].image, forgotten[Turn(0, 0)].image)
    assert len(decoded) == 4


def test_batches_hold_what_the_recipe_says(tmp_path: Path) -> None:
    recipe = Recipe.first().replace(batch_size=2, input_size=64, dtype=torch.float32)
    first, last = recipe.loader(paint(tmp_path), training=False)
    assert first.images.shape == (2, 3, 64, 64)
    assert first.heat.shape == (2, 1, 16, 16)
    assert first.sides.shape == (2, 4, 16, 16)
    assert first.images.dtype == first.sides.dtype == torch.float32
    assert (last.heat == 1).sum() == 2  # the third picture has two hot dogs
    assert next(iter(Recipe.first().loader(paint(tmp_path)))).images.dtype == torch.float64


def test_no_pictures_is_an_error_that_says_so() -> None:
    with pytest.raises(ValueError, match="no pictures to load"):
        Recipe.first().loader([])


def test_spawned_workers_give_the_same_batches(tmp_path: Path) -> None:
    pictures = paint(tmp_path)
    recipe = Recipe.first().replace(batch_size=2, input_size=32)
    alone = list(recipe.loader(pictures))
    spawned = list(recipe.replace(workers=1, start_method="spawn").loader(pictures))
    assert len(alone) == len(spawned) == 2
    for one, other in zip(alone, spawned, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_stages_from_a_notebook_cannot_travel_to_spawned_workers(tmp_path: Path) -> None:
    def mine(boxes: object, grid: int) -> object: ...

    mine.__module__ = "__main__"
    recipe = Recipe.first().replace(targets=mine, workers=1, start_method="spawn")
    with pytest.raises(ValueError, match="can't see mine, which is defined in the notebook"):
        recipe.loader(paint(tmp_path))
