"""From the network's answer to boxes, counts and scores."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from optbook.hotdog.coco import Picture, load_folder, open_rgb
from optbook.hotdog.detect import (
    Detections,
    boxes_of,
    count_hotdogs,
    detect,
    draw_boxes,
    every_hot_cell,
    find_hotdogs,
    hot_cells_together,
    intersection_over_union,
    prepared,
    suppress_one_by_one,
)
from optbook.hotdog.evaluate import evaluate
from optbook.hotdog.network import HotdogNet
from optbook.hotdog.recipe import Recipe
from optbook.hotdog.suppress import suppress_together
from optbook.hotdog.train import HOTDOGS
from optbook.hotdog.weights import DEFAULT_WEIGHTS, load_weights
from tests.test_hotdog_stages import paint


def found(*boxes: tuple[float, float, float, float], scores: tuple[float, ...] = ()) -> Detections:
    return Detections(
        np.array(boxes, dtype=np.float32).reshape(-1, 4),
        np.array(scores or [0.9] * len(boxes), dtype=np.float32),
    )


def test_hot_cells_become_boxes_round_their_middles() -> None:
    heat = torch.zeros(1, 8, 8)
    heat[0, 2, 3] = 0.9
    heat[0, 5, 5] = 0.3
    sides = torch.ones(4, 8, 8)
    sides[:, 2, 3] = torch.tensor([4.0, 3, 6, 5])
    corners, scores = every_hot_cell(heat, sides, threshold=0.5)
    # The middle of cell (3, 2) is the pixel position (14, 10).
    assert corners.tolist() == [[10, 7, 20, 15]]
    assert scores.tolist() == [pytest.approx(0.9)]
    nothing = every_hot_cell(heat, sides, threshold=0.95)
    assert [part.shape for part in nothing] == [(0, 4), (0,)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_hot_cells_together_are_the_same(dtype: torch.dtype) -> None:
    chance = torch.Generator().manual_seed(0)
    heat = torch.rand(1, 8, 8, generator=chance).to(dtype)
    sides = (torch.rand(4, 8, 8, generator=chance) * 30).to(dtype).requires_grad_()
    for threshold in (0.5, float(heat[0, 3, 4]), 2.0):
        expected = every_hot_cell(heat, sides.detach(), threshold)
        for ours, theirs in zip(hot_cells_together(heat, sides, threshold), expected, strict=True):
            assert ours.dtype == theirs.dtype
            assert ours.shape == theirs.shape
            assert torch.equal(ours, theirs)


def test_suppression_keeps_the_hottest_of_those_that_overlap() -> None:
    corners = torch.tensor([[0.0, 0, 10, 10], [1, 0, 11, 10], [20, 0, 30, 10], [8, 0, 18, 10]])
    scores = torch.tensor([0.6, 0.9, 0.5, 0.4])
    assert suppress_one_by_one(corners, scores, overlap=0.5) == [1, 2, 3]
    assert suppress_one_by_one(corners, scores, overlap=0.1) == [1, 2]
    assert suppress_one_by_one(torch.zeros(0, 4), torch.zeros(0), overlap=0.5) == []


def test_intersection_over_union() -> None:
    box = torch.tensor([0.0, 0, 10, 10])
    assert intersection_over_union(box, box) == 1
    assert intersection_over_union(box, torch.tensor([5.0, 0, 15, 10])) == pytest.approx(1 / 3)
    assert intersection_over_union(box, torch.tensor([10.0, 10, 20, 20])) == 0


def test_boxes_come_back_in_pixels_of_the_original_picture() -> None:
    recipe = Recipe.first().replace(input_size=32)
    heat = torch.zeros(1, 8, 8)
    heat[0, 2, 3] = 0.9
    sides = torch.full((4, 8, 8), 100.0)
    sides[:, 2, 3] = torch.tensor([6.0, 6, 10, 6])  # corners (8, 4) and (24, 16) of 32
    detections = boxes_of(heat, sides, (64, 320), recipe)
    assert detections.boxes.tolist() == [[16, 40, 32, 120]]
    assert detections.boxes.dtype == np.float32
    assert detections.count == 1
    sides[:] = 100.0
    assert boxes_of(heat, sides, (64, 320), recipe).boxes.tolist() == [[0, 0, 64, 320]]


@pytest.mark.parametrize("inference_batch_size", [1, 2, 5])
@pytest.mark.parametrize("inference_mode", [False, True])
def test_files_pixels_and_pictures_give_the_same_detections(
    tmp_path: Path, inference_batch_size: int, inference_mode: bool
) -> None:
    pictures = paint(tmp_path)
    recipe = Recipe.first().replace(
        input_size=16,
        inference_batch_size=inference_batch_size,
        inference_mode=inference_mode,
        threshold=0.01,
    )
    torch.manual_seed(0)
    network = HotdogNet(4)
    by_picture = detect(network, recipe, pictures)
    by_file = detect(network, recipe, [picture.path for picture in pictures])
    by_pixels = detect(network, recipe, [open_rgb(picture.path) for picture in pictures])
    one_by_one = [detect(network, recipe.replace(inference_batch_size=1), [p])[0] for p in pictures]
    assert sum(detections.count for detections in by_picture) > 0
    for a, b, c, d in zip(by_picture, by_file, by_pixels, one_by_one, strict=True):
        assert a.boxes.tolist() == b.boxes.tolist() == c.boxes.tolist()
        assert a.boxes == pytest.approx(d.boxes, abs=1e-4)
    assert detect(network, recipe, []) == []


@pytest.mark.parametrize(
    ("change", "tolerance"),
    [
        ({"inference_threads": 2, "inference_batch_size": 2}, 1e-4),
        ({"inference_threads": 1}, 0),
        ({"find": hot_cells_together}, 0),
        ({"suppress": suppress_together}, 0),
        ({"channels_last": True}, 1e-3),
        ({"inference_batch_size": 32}, 1e-4),
        ({"dtype": torch.float64}, 1e-3),
    ],
    ids=lambda change: next(iter(change)) if isinstance(change, dict) else "",
)
def test_a_cure_finds_the_same_hotdogs(tmp_path: Path, change: dict[str, Any], tolerance: float) -> None:
    pictures = paint(tmp_path)
    recipe = Recipe.first().replace(input_size=16, dtype=torch.float32, threshold=0.01)
    torch.manual_seed(0)
    network = HotdogNet(4)
    before = detect(network, recipe, pictures)
    after = detect(network, recipe.replace(**change), pictures)
    assert sum(found.count for found in before) > 3
    for one, other in zip(before, after, strict=True):
        assert one.boxes == pytest.approx(other.boxes, abs=tolerance)
        assert one.scores == pytest.approx(other.scores, abs=tolerance)


def test_a_picture_that_cannot_be_read_stops_the_threads_too(tmp_path: Path) -> None:
    pictures = paint(tmp_path)
    pictures[1].path.write_bytes(b"no picture")
    recipe = Recipe.first().replace(input_size=16, inference_threads=2)
    with pytest.raises(OSError, match=re.escape(str(pictures[1].path))):
        detect(HotdogNet(4), recipe, pictures)


def test_threads_that_prepare_get_cores_of_their_own() -> None:
    pictures = load_folder(HOTDOGS, "val")[:4]
    recipe = Recipe.tuned().replace(inference_threads=2, inference_batch_size=1)
    before, seen = torch.get_num_threads(), []
    try:
        torch.set_num_threads(5)
        for _ in prepared(pictures, recipe):
            seen.append(torch.get_num_threads())
        assert torch.get_num_threads() == 5
    finally:
        torch.set_num_threads(before)
    assert seen == [3] * 4


def test_the_tuned_recipe_counts_as_the_first() -> None:
    pictures = load_folder(HOTDOGS, "val")[:40]
    network = load_weights().network
    first, tuned = (
        detect(network, recipe, pictures)
        for recipe in (Recipe.first().replace(dtype=torch.float32), Recipe.tuned())
    )
    same = sum(one.count == other.count for one, other in zip(first, tuned, strict=True))
    assert same >= 38


def test_perfect_detections_score_one_and_wrong_ones_zero(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pictures = paint(tmp_path)
    perfect = evaluate([Detections(p.boxes, np.ones(p.count, np.float32)) for p in pictures], pictures)
    assert (perfect.exact, perfect.count_error, perfect.pictures) == (1, 0, 3)
    assert perfect.ap50 == pytest.approx(1)

    far = np.array([0, 0, 40, 40], dtype=np.float32)
    elsewhere = [Detections(p.boxes + far, np.ones(p.count, np.float32)) for p in pictures]
    wrong = evaluate(elsewhere, pictures)
    assert wrong.exact == 1
    assert wrong.ap50 == 0

    none = evaluate([found(), found(), found()], pictures)
    assert none.exact == pytest.approx(1 / 3)
    assert none.count_error == 1
    assert none.ap50 == 0
    assert capsys.readouterr().out == ""


def test_average_precision_is_not_a_number_where_there_is_nothing_to_find(tmp_path: Path) -> None:
    empty = paint(tmp_path, 1)
    assert np.isnan(evaluate([found()], empty).ap50)


def test_scores_need_one_detection_a_picture(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one detection for each picture, not 0 for 3"):
        evaluate([], paint(tmp_path))
    with pytest.raises(ValueError, match="one detection for each picture, not 0 for 0"):
        evaluate([], [])


def test_drawn_boxes_lie_where_the_hotdogs_are(tmp_path: Path) -> None:
    picture = paint(tmp_path)[1]
    drawn = np.asarray(draw_boxes(picture, found((5, 10, 40, 25))))
    assert drawn.shape == (40, 60, 3)
    assert drawn[35, 25].tolist() == [0, 114, 178]
    assert drawn[38, 25].tolist() == [200, 200, 200]
    assert (np.asarray(draw_boxes(picture, found())) == open_rgb(picture.path)).all()


def test_the_stored_weights_are_small_and_count_hotdogs() -> None:
    assert DEFAULT_WEIGHTS.stat().st_size < 600_000
    pictures = load_folder(HOTDOGS, "val")
    recipe = Recipe.first().replace(dtype=torch.float32, inference_batch_size=32, inference_mode=True)
    scores = evaluate(detect(load_weights().network, recipe, pictures), pictures)
    assert scores.exact >= 0.95
    assert scores.count_error < 0.1
    assert scores.ap50 > 0.9


def test_one_picture_is_counted_at_once() -> None:
    pictures: list[Picture] = load_folder(HOTDOGS, "val")[:8]
    counts = [count_hotdogs(picture.path) for picture in pictures]
    assert sum(count == picture.count for count, picture in zip(counts, pictures, strict=True)) >= 6
    assert find_hotdogs(pictures[0]).count == counts[0]
