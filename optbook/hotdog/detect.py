"""From a trained network to hot dogs found, counted and drawn."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from torch import Tensor, nn
from tqdm.auto import tqdm

from optbook.hotdog.batched import Images, on_all, on_all_pairs
from optbook.hotdog.coco import Picture
from optbook.hotdog.cores import cores_left_by, stay_on_one_core
from optbook.hotdog.network import STRIDE, keep_channels_last
from optbook.hotdog.pixels import Source, pixels_of
from optbook.hotdog.precision import autocast
from optbook.hotdog.weights import DEFAULT_WEIGHTS, load_weights

if TYPE_CHECKING:
    from optbook.hotdog.recipe import Recipe


@dataclass(frozen=True)
class Detections:
    """The hot dogs found in one picture, the surest first."""

    boxes: NDArray[np.float32]  # (n, 4): x, y, width, height in pixels of the original picture
    scores: NDArray[np.float32]  # (n,): between the recipe's threshold and 1

    @property
    def count(self) -> int:
        return len(self.boxes)


def detect(
    network: nn.Module, recipe: Recipe, pictures: Sequence[Picture | Source], progress: bool = False
) -> list[Detections]:
    """What the network finds in each picture: a `Picture`, a file, or pixels as uint8 (height, width, 3)."""
    network = network.eval().to(recipe.dtype)
    if recipe.channels_last:
        network = keep_channels_last(network)
    found: list[Detections] = []
    with tqdm(total=len(pictures), unit="picture", disable=not progress) as bar:
        for images, sizes in prepared(pictures, recipe):
            with torch.inference_mode() if recipe.inference_mode else nullcontext():
                with autocast(recipe.autocast):
                    output = network(images)
                heat, sides = output.heat.to(recipe.dtype).sigmoid(), output.sides.to(recipe.dtype)
                for i, size in enumerate(sizes):
                    found.append(boxes_of(heat[i], sides[i], size, recipe))
            bar.update(len(sizes))
    return found


def prepared(
    pictures: Sequence[Picture | Source], recipe: Recipe
) -> Iterator[tuple[Tensor, list[tuple[int, int]]]]:
    """`prepare` on `recipe.inference_batch_size` pictures at a time; threads, if any, work ahead."""
    size, threads = recipe.inference_batch_size, recipe.inference_threads
    chunks = (pictures[start : start + size] for start in range(0, len(pictures), size))
    if not threads:
        yield from (prepare(chunk, recipe) for chunk in chunks)
        return
    pool = ThreadPoolExecutor(threads, initializer=stay_on_one_core)
    with pool, cores_left_by(threads) as left_over:
        ahead: deque[Future[tuple[Tensor, list[tuple[int, int]]]]] = deque()
        for chunk in chunks:
            ahead.append(pool.submit(prepare, chunk, recipe))
            if len(ahead) > threads:
                ready = ahead.popleft().result()
                torch.set_num_threads(left_over)  # a thread that has just started sets it for all
                yield ready
        while ahead:
            yield ahead.popleft().result()


def prepare(pictures: Sequence[Picture | Source], recipe: Recipe) -> tuple[Tensor, list[tuple[int, int]]]:
    """The pictures as the network sees them (B, 3, S, S), and their original widths and heights."""
    sources: list[Source] = []
    sizes = []
    for picture in pictures:
        if isinstance(picture, Picture):
            sources.append(picture.path)
            sizes.append((picture.width, picture.height))
        else:
            pixels = pixels_of(picture)
            sources.append(pixels)
            sizes.append((pixels.shape[1], pixels.shape[0]))
    images: Images = [recipe.decode(source, recipe.input_size) for source in sources]
    no_boxes = [np.zeros((0, 4)) for _ in sources]
    images, _ = on_all_pairs(recipe.resize, images, no_boxes, settings=(recipe.input_size,))
    normal = on_all(recipe.normalise, images)
    batch = (
        normal if isinstance(normal, Tensor) else torch.stack([torch.as_tensor(image) for image in normal])
    )
    batch = batch.to(recipe.dtype)
    if recipe.channels_last:
        batch = batch.contiguous(memory_format=torch.channels_last)
    return batch, sizes


def boxes_of(heat: Tensor, sides: Tensor, size: tuple[int, int], recipe: Recipe) -> Detections:
    """The hot dogs in one answer of the network, in pixels of the original picture, `size` wide and high."""
    corners, scores = recipe.find(heat, sides, recipe.threshold)
    kept = recipe.suppress(corners, scores, recipe.overlap)
    width, height = size
    stretch = np.array([width, height, width, height]) / recipe.input_size
    original = corners[kept].detach().numpy() * stretch
    original = np.clip(original, 0, [width, height, width, height])
    boxes = np.concatenate([original[:, :2], original[:, 2:] - original[:, :2]], axis=1)
    return Detections(boxes.astype(np.float32), scores[kept].detach().numpy().astype(np.float32))


def every_hot_cell(heat: Tensor, sides: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """A box for every cell whose heat exceeds the threshold; neighbours give nearly the same box.

    `heat` (1, G, G) in 0…1 and `sides` (4, G, G) become corners (n, 4): left, top, right, bottom in input
    pixels, and scores (n,).
    """
    corners = []
    scores = []
    grid = heat.shape[-1]
    for y in range(grid):
        for x in range(grid):
            if heat[0, y, x] > threshold:
                left, top, right, bottom = sides[:, y, x]
                middle_x, middle_y = (x + 0.5) * STRIDE, (y + 0.5) * STRIDE
                corners.append(
                    torch.stack([middle_x - left, middle_y - top, middle_x + right, middle_y + bottom])
                )
                scores.append(heat[0, y, x])
    if not corners:
        return heat.new_zeros(0, 4), heat.new_zeros(0)
    return torch.stack(corners), torch.stack(scores)


def hot_cells_together(heat: Tensor, sides: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """The same boxes and scores, in the same order, from all cells at once."""
    hot, distances = heat[0].detach().numpy(), sides.detach().numpy()
    ys, xs = np.nonzero(hot > threshold)
    left, top, right, bottom = distances[:, ys, xs]
    middle_x, middle_y = (((cell + 0.5) * STRIDE).astype(distances.dtype) for cell in (xs, ys))
    corners = np.stack([middle_x - left, middle_y - top, middle_x + right, middle_y + bottom], axis=1)
    return torch.from_numpy(corners), torch.from_numpy(hot[ys, xs])


def suppress_one_by_one(corners: Tensor, scores: Tensor, overlap: float) -> list[int]:
    """Which boxes to keep: the hottest, then the hottest of those that don't overlap it, and so on."""
    waiting = sorted(range(len(scores)), key=lambda i: scores[i].item(), reverse=True)
    kept = []
    while waiting:
        best = waiting.pop(0)
        kept.append(best)
        waiting = [i for i in waiting if intersection_over_union(corners[best], corners[i]) <= overlap]
    return kept


def intersection_over_union(one: Tensor, other: Tensor) -> Tensor:
    """Shared area of two boxes (4,) given by their corners, divided by the area they cover together."""
    left, top = torch.max(one[0], other[0]), torch.max(one[1], other[1])
    right, bottom = torch.min(one[2], other[2]), torch.min(one[3], other[3])
    shared = (right - left).clamp(min=0) * (bottom - top).clamp(min=0)
    area = (one[2] - one[0]) * (one[3] - one[1])
    other_area = (other[2] - other[0]) * (other[3] - other[1])
    return shared / (area + other_area - shared)


def count_hotdogs(
    picture: Picture | Source, weights: Path | str = DEFAULT_WEIGHTS, recipe: Recipe | None = None
) -> int:
    """How many hot dogs there are in a picture: a file, or its pixels as uint8 (height, width, 3)."""
    return find_hotdogs(picture, weights, recipe).count


def find_hotdogs(
    picture: Picture | Source, weights: Path | str = DEFAULT_WEIGHTS, recipe: Recipe | None = None
) -> Detections:
    """The hot dogs in a picture, found with stored weights; `recipe` defaults to the first version's."""
    from optbook.hotdog.recipe import Recipe

    loaded = load_weights(weights)
    recipe = (recipe or Recipe.first()).replace(input_size=loaded.input_size)
    return detect(loaded.network, recipe, [picture])[0]


def draw_boxes(picture: Picture | Source, detections: Detections) -> Image.Image:
    """The picture with a box and a score round each hot dog found; notebooks show it at the end of a cell."""
    source = picture.path if isinstance(picture, Picture) else picture
    image = Image.fromarray(pixels_of(source))
    draw = ImageDraw.Draw(image)
    thickness = max(2, round(max(image.size) / 150))
    for (x, y, width, height), score in zip(detections.boxes, detections.scores, strict=True):
        draw.rectangle((x, y, x + width, y + height), outline=(0, 114, 178), width=thickness)
        label = f"{score:.2f}"
        place = draw.textbbox((x + thickness, y + thickness), label)
        draw.rectangle(place, fill=(0, 114, 178))
        draw.text((x + thickness, y + thickness), label, fill="white")
    return image
