"""The tuned stages against those of the first version: the same results, up to what is said of each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from optbook.hotdog import augment, pixels
from optbook.hotdog.augment_together import (
    add_noise_together,
    augment_together,
    draw_changes,
    recolour_together,
    turn_together,
    warp_together,
)
from optbook.hotdog.batched import as_batch, as_floats, for_a_batch, on_all, takes_a_batch
from optbook.hotdog.coco import load_folder
from optbook.hotdog.dataset import HotdogDataset, Sample, Turn, collate_arrays, collate_into_buffers
from optbook.hotdog.recipe import Recipe
from optbook.hotdog.targets import Targets, draw_cell_by_cell, draw_together, draw_with_arrays
from optbook.hotdog.train import HOTDOGS
from tests.test_hotdog_stages import paint

Floats = NDArray[np.floating]
SIZE = 48


def chances(count: int) -> list[np.random.Generator]:
    return [np.random.default_rng((3, i)) for i in range(count)]


def smooth(seed: int = 0, height: int = SIZE, width: int = SIZE) -> NDArray[np.uint8]:
    """A picture without sharp edges, so that resampling it twice hardly differs from once."""
    coarse = np.random.default_rng(seed).integers(60, 190, (5, 5, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


def some_boxes(seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    corners = rng.uniform(0, SIZE - 14, (seed % 4, 2))
    return np.concatenate([corners, rng.uniform(4, 14, (seed % 4, 2))], axis=1)


IMAGES = [smooth(seed) for seed in range(8)]
BOXES = [some_boxes(seed) for seed in range(8)]


def shrunk(path: Path, size: int) -> Floats:
    image, _ = pixels.resize_through_bytes(pixels.decode_full_size(path, size), np.zeros((0, 4)), size)
    return image


def test_a_small_decoded_picture_is_the_shrunk_one_in_bytes() -> None:
    for picture in load_folder(HOTDOGS, "val")[:12]:
        small = pixels.decode_small(picture.path, 128)
        assert small.dtype == np.uint8
        assert small.shape == (128, 128, 3)
        difference = np.abs(small / 255.0 - shrunk(picture.path, 128))
        if min(picture.width, picture.height) < 256:
            assert difference.max() < 1e-9
        else:  # the JPEG was decoded at half its size, by another filter than Pillow's
            assert 0 < difference.mean() < 0.02
            assert difference.max() < 0.25


def test_a_picture_without_draft_decodes_exactly_as_the_first_version_shrinks_it(tmp_path: Path) -> None:
    picture = paint(tmp_path, 2)[1]
    small = pixels.decode_small(picture.path, 16)
    assert np.abs(small / 255.0 - shrunk(picture.path, 16)).max() < 1e-9
    in_memory = pixels.decode_small(pixels.pixels_of(picture.path), 16)
    assert (small == in_memory).all()
    assert (pixels.decode_small(small, 16) == small).all()


def test_the_same_chance_draws_the_same_changes() -> None:
    changes = draw_changes(chances(8))
    for i, rng in enumerate(chances(8)):
        flipped = rng.random() < 0.5
        degrees, factor = (
            rng.uniform(-augment.MOST_DEGREES, augment.MOST_DEGREES),
            rng.uniform(*augment.SCALES),
        )
        turn = np.array([[np.cos(np.radians(degrees)), -np.sin(np.radians(degrees))]])
        first_row = factor * turn[0] * [-1 if flipped else 1, 1]
        assert changes.matrices[i][0] == pytest.approx(first_row)
        for drawn, ends in (
            (changes.brightness, augment.BRIGHTNESSES),
            (changes.contrast, augment.CONTRASTS),
            (changes.saturation, augment.SATURATIONS),
        ):
            assert drawn[i].item() == pytest.approx(rng.uniform(*ends), rel=1e-6)
        assert changes.noise[i] == pytest.approx(rng.uniform(0, augment.MOST_NOISE))


def test_one_warp_by_the_product_is_what_the_first_warp_makes_of_it() -> None:
    matrices = draw_changes(chances(8)).matrices
    together = warp_together(as_batch(IMAGES).permute(0, 3, 1, 2), matrices).permute(0, 2, 3, 1).numpy()
    for image, matrix, warped in zip(IMAGES, matrices, together, strict=True):
        # A neighbour's weight may differ by what float32 leaves of a position among some 100 pixels.
        assert warped == pytest.approx(augment.warp(image / 255.0, matrix), abs=2e-4)


def test_a_picture_that_is_not_square_is_warped_about_its_own_centre() -> None:
    image = smooth(1, height=30, width=50)
    matrices = draw_changes(chances(1)).matrices
    warped = warp_together(as_batch([image]).permute(0, 3, 1, 2), matrices)[0].permute(1, 2, 0).numpy()
    assert warped == pytest.approx(augment.warp(image / 255.0, matrices[0]), abs=2e-4)


def test_colours_change_as_in_the_first_version() -> None:
    changes = draw_changes(chances(8))
    batch = as_batch(IMAGES).permute(0, 3, 1, 2).contiguous()
    recolour_together(batch, changes)
    for i, image in enumerate(IMAGES):
        three = (changes.brightness[i].item(), changes.contrast[i].item(), changes.saturation[i].item())
        alone = augment.recolour(image / 255.0, *three)
        assert batch[i].permute(1, 2, 0).numpy() == pytest.approx(alone, abs=1e-5)


def test_noise_has_the_strength_drawn_and_is_another_one_for_each_picture() -> None:
    changes = draw_changes(chances(8))
    batch = torch.full((8, 3, SIZE, SIZE), 0.5)
    add_noise_together(batch, changes)
    noise = (batch - 0.5).flatten(1).numpy()
    assert noise.std(axis=1) == pytest.approx(changes.noise, rel=0.05)
    assert np.abs(noise.mean(axis=1)).max() < 0.003
    assert np.abs(np.corrcoef(noise) - np.eye(8)).max() < 0.06


def test_boxes_turn_as_in_the_first_version() -> None:
    changes = draw_changes(chances(8))
    at_the_border = np.array([[0.0, 0, 4, 4], [SIZE - 4, SIZE - 4, 4, 4]])
    before = [np.concatenate([boxes, at_the_border]) if len(boxes) else boxes for boxes in BOXES]
    together = turn_together(before, changes.matrices, SIZE, SIZE)
    for boxes, matrix, turned in zip(before, changes.matrices, together, strict=True):
        alone = augment.keep_visible(augment.turned_boxes(boxes, matrix, SIZE, SIZE), SIZE, SIZE)
        assert turned == pytest.approx(alone)
    assert 0 < sum(map(len, together)) < sum(map(len, before))


def test_augmentation_together_is_the_first_one_but_for_noise_and_the_border(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("augment", "augment_together"):
        monkeypatch.setattr(f"optbook.hotdog.{module}.MOST_NOISE", 0.0)
    images, boxes = augment_together(IMAGES, BOXES, chances(8))
    assert isinstance(images, torch.Tensor)
    assert images.dtype == torch.float32
    inside = slice(SIZE // 4, -SIZE // 4)  # beyond, the two repeat different borders
    for i, rng in enumerate(chances(8)):
        image, kept = augment.augment_step_by_step(IMAGES[i] / 255.0, BOXES[i], rng)
        assert boxes[i] == pytest.approx(kept)
        difference = np.abs(images[i].numpy() - image)
        assert difference[inside, inside].max() < 0.02
        assert difference.mean() < 0.02


def test_augmentation_together_repeats_and_does_not_depend_on_its_batch() -> None:
    images, boxes = augment_together(IMAGES, BOXES, chances(8))
    again, _ = augment_together(IMAGES, BOXES, chances(8))
    alone, its_boxes = augment_together(IMAGES[5:6], BOXES[5:6], chances(8)[5:6])
    assert torch.equal(torch.as_tensor(images), torch.as_tensor(again))
    assert np.asarray(alone[0]) == pytest.approx(np.asarray(images[5]), abs=1e-6)
    assert its_boxes[0] == pytest.approx(boxes[5])
    many, their_boxes = augment_together(IMAGES * 2, BOXES * 2, chances(8) * 2)
    assert np.asarray(many[:8]) == pytest.approx(np.asarray(images), abs=1e-6)
    assert len(many) == len(their_boxes) == 16
    other, _ = augment_together(IMAGES, BOXES, chances(9)[1:])
    assert not torch.equal(torch.as_tensor(images), torch.as_tensor(other))
    assert (IMAGES[0] == smooth(0)).all()  # nothing was changed in place


def test_pictures_of_different_sizes_are_augmented_one_by_one() -> None:
    mixed = [smooth(0), smooth(1, height=30, width=50)]
    images, boxes = augment_together(mixed, BOXES[:2], chances(2))
    assert [tuple(image.shape) for image in images] == [(SIZE, SIZE, 3), (30, 50, 3)]
    alone, _ = augment_together(mixed[1:], BOXES[1:2], chances(2)[1:])
    assert torch.equal(torch.as_tensor(images[1]), torch.as_tensor(alone[0]))
    assert len(boxes) == 2


@pytest.mark.parametrize("size", [32, 64])
def test_resizing_floats_gives_what_the_way_through_bytes_gives(size: int) -> None:
    mixed = [smooth(0), smooth(1, height=80, width=50)]
    images, boxes = pixels.resize_floats(mixed, [BOXES[3], BOXES[2]], size)
    for image, some, before, whole in zip(images, boxes, (BOXES[3], BOXES[2]), mixed, strict=True):
        through_bytes, stretched = pixels.resize_through_bytes(whole / 255.0, before, size)
        assert np.asarray(image) == pytest.approx(through_bytes, abs=1.5 / 255)
        assert some == pytest.approx(stretched)


def test_resizing_leaves_what_fits_alone() -> None:
    images, boxes = pixels.resize_floats(IMAGES, BOXES, SIZE)
    assert images is IMAGES
    assert boxes is BOXES


def test_normalising_together_is_normalising() -> None:
    together = pixels.normalise_together(IMAGES)
    assert together.dtype == torch.float32
    for image, normal in zip(IMAGES, together, strict=True):
        assert normal.numpy() == pytest.approx(pixels.normalise(image / 255.0), abs=1e-5)


def random_boxes(seed: int, count: int) -> Floats:
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.uniform(0, 100, (count, 2)), rng.uniform(1, 90, (count, 2))], axis=1)


@pytest.mark.parametrize("draw", [draw_with_arrays, lambda boxes, grid: draw_together([boxes], grid)[0]])
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_targets_are_the_same_however_they_are_drawn(draw: object, count: int) -> None:
    for seed in range(4):
        boxes = random_boxes(seed, count)
        expected = draw_cell_by_cell(boxes, 32)
        drawn = draw(boxes, 32)  # type: ignore[operator]
        assert drawn.heat == pytest.approx(expected.heat, abs=1e-6)
        assert drawn.sides == pytest.approx(expected.sides, abs=1e-4)
        assert (drawn.close == expected.close).all()
        assert ((drawn.heat == 1) == (expected.heat == 1)).all()


def test_targets_of_a_batch_are_those_of_its_pictures() -> None:
    boxes = [random_boxes(seed, count) for seed, count in enumerate((0, 3, 1, 0, 5))]
    for some, drawn in zip(boxes, draw_together(boxes, 32), strict=True):
        assert drawn.heat.dtype == np.float32
        assert drawn.heat == pytest.approx(draw_cell_by_cell(some, 32).heat, abs=1e-6)
        assert drawn.sides == pytest.approx(draw_cell_by_cell(some, 32).sides, abs=1e-4)
    assert all(not drawn.heat.any() for drawn in draw_together([np.zeros((0, 4))] * 2, 8))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_collating_into_buffers_is_collating(dtype: torch.dtype) -> None:
    rng = np.random.default_rng(0)
    samples = [
        Sample(rng.random((16, 16, 3)).transpose(2, 0, 1)[:, ::-1], Targets(*rng.random((3, 2, 4, 4))))
        for _ in range(3)
    ]
    expected = collate_arrays(samples, dtype)
    for tensor, same in zip(collate_into_buffers(samples, dtype), expected, strict=True):
        assert tensor.dtype == dtype
        assert torch.equal(tensor, same)


def test_a_marked_stage_sees_the_batch_and_another_sees_pictures() -> None:
    calls: list[object] = []

    @for_a_batch
    def together(images: list[object]) -> list[int]:
        calls.append(len(images))
        return [1] * len(images)

    def alone(image: Floats) -> float:
        calls.append(image.dtype)
        return float(image.max())

    assert takes_a_batch(together)
    assert not takes_a_batch(alone)
    assert on_all(together, IMAGES) == [1] * 8
    assert on_all(alone, IMAGES[:2]) == [IMAGES[0].max() / 255, IMAGES[1].max() / 255]
    assert on_all(alone, as_batch(IMAGES[:1])) == [pytest.approx(IMAGES[0].max() / 255)]
    assert calls == [8, np.float64, np.float64, np.float32]
    assert as_floats(IMAGES[0] / 255.0).dtype == np.float64


BATCHED = {
    "decode": pixels.decode_small,
    "augment": augment_together,
    "resize": pixels.resize_floats,
    "normalise": pixels.normalise_together,
    "targets": draw_together,
}


@pytest.mark.parametrize("names", [[name] for name in BATCHED] + [["decode", "targets"], list(BATCHED)])
def test_any_mixture_of_stages_gives_about_the_same_batch(tmp_path: Path, names: list[str]) -> None:
    pictures = paint(tmp_path)
    first = Recipe.first().replace(input_size=32)
    mixed = first.replace(**{name: BATCHED[name] for name in names})
    turns = [Turn(0, i) for i in range(3)]
    for training in (False, True):
        expected = collate_arrays(HotdogDataset(first, pictures, training).__getitems__(turns), torch.float32)
        samples = HotdogDataset(mixed, pictures, training).__getitems__(turns)
        batch = collate_arrays(samples, torch.float32)
        one = HotdogDataset(mixed, pictures, training)[turns[2]]
        assert np.asarray(one.image) == pytest.approx(np.asarray(samples[2].image), abs=1e-6)
        # Sharp red boxes on 32 × 32 pixels, shrunk before instead of after: a few pixels do differ.
        assert (batch.images - expected.images).abs().mean() < (0.35 if training else 0.02)
        assert (batch.heat.amax((1, 2, 3)) == expected.heat.amax((1, 2, 3))).all()
        if not training:
            assert torch.allclose(batch.heat, expected.heat, atol=1e-5)
            assert torch.allclose(batch.sides, expected.sides, atol=1e-4)
