"""How good detections are: exact counts, the error in the count, and average precision."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optbook.hotdog.coco import Picture
from optbook.hotdog.detect import Detections


@dataclass(frozen=True)
class Scores:
    """`exact`: share of pictures whose count is right; `count_error`: mean |found − true|; `ap50`: AP."""

    pictures: int
    exact: float
    count_error: float
    ap50: float


def evaluate(detections: Sequence[Detections], pictures: Sequence[Picture]) -> Scores:
    """Compare what was found with what is there, picture by picture.

    Raises ValueError when there is nothing to compare or the two differ in length.
    """
    if not pictures or len(detections) != len(pictures):
        raise ValueError(f"need one detection for each picture, not {len(detections)} for {len(pictures)}")
    errors = [abs(found.count - picture.count) for found, picture in zip(detections, pictures, strict=True)]
    return Scores(
        pictures=len(pictures),
        exact=sum(error == 0 for error in errors) / len(errors),
        count_error=sum(errors) / len(errors),
        ap50=average_precision(detections, pictures),
    )


def average_precision(
    detections: Sequence[Detections], pictures: Sequence[Picture], least_iou: float = 0.5
) -> float:
    """COCO's average precision, boxes counting as found from this IoU on; NaN when there is no hot dog.

    Computed by pycocotools, whose prints are swallowed.
    """
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    if not any(picture.count for picture in pictures):
        return float("nan")
    truth = COCO()
    truth.dataset = _as_coco(pictures)
    results = [
        {"image_id": i, "category_id": 1, "bbox": [float(v) for v in box], "score": float(score)}
        for i, found in enumerate(detections)
        for box, score in zip(found.boxes, found.scores, strict=True)
    ]
    if not results:
        return 0.0
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        scorer = COCOeval(truth, truth.loadRes(results), "bbox")
        scorer.params.iouThrs = np.array([least_iou])
        scorer.evaluate()
        scorer.accumulate()
    everything, hundred = 0, -1  # all sizes of box; up to 100 boxes a picture
    precision = scorer.eval["precision"][0, :, 0, everything, hundred]
    return float(precision.mean())


def _as_coco(pictures: Sequence[Picture]) -> dict[str, Any]:
    boxes = [(i, [float(v) for v in box]) for i, picture in enumerate(pictures) for box in picture.boxes]
    return {
        "images": [{"id": i, "width": p.width, "height": p.height} for i, p in enumerate(pictures)],
        "categories": [{"id": 1, "name": "hot dog"}],
        "annotations": [
            {"id": n, "image_id": i, "category_id": 1, "bbox": box, "area": box[2] * box[3], "iscrowd": 0}
            for n, (i, box) in enumerate(boxes, start=1)
        ],
    }
