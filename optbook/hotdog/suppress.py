"""Of boxes that overlap, keep the hottest: two quicker ways than `detect.suppress_one_by_one`.

Both take corners (n, 4) and scores (n,), and give the same picks in the same order, equal scores included.
"""

from __future__ import annotations

import functools
import shutil
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from optbook.hotdog.compiler import need_compiler

INSTEAD = "take suppress_together, which does without"


def suppress_together(corners: Tensor, scores: Tensor, overlap: float) -> list[int]:
    """One kept box against all that are still waiting, at once."""
    waiting = np.argsort(-scores.detach().numpy(), kind="stable")
    left, top, right, bottom = corners.detach().numpy().T
    areas = (right - left) * (bottom - top)
    kept = []
    with np.errstate(invalid="ignore"):  # two boxes without any area: not a number, and so not kept
        while len(waiting):
            best, waiting = waiting[0], waiting[1:]
            kept.append(int(best))
            wide = np.minimum(right[best], right[waiting]) - np.maximum(left[best], left[waiting])
            high = np.minimum(bottom[best], bottom[waiting]) - np.maximum(top[best], top[waiting])
            shared = np.maximum(wide, 0) * np.maximum(high, 0)
            waiting = waiting[shared / (areas[best] + areas[waiting] - shared) <= overlap]
    return kept


def suppress_in_cpp(corners: Tensor, scores: Tensor, overlap: float) -> list[int]:
    """The same in C++, for float32 and float64. The first call ever builds it, which takes some seconds.

    Raises RuntimeError where it can't be built, as without a compiler.
    """
    boxes = np.ascontiguousarray(corners.detach().numpy())
    return built().suppress(boxes, np.ascontiguousarray(scores.detach().numpy()), overlap)


class Built(Protocol):
    def suppress(self, corners: NDArray[Any], scores: NDArray[Any], overlap: float) -> list[int]: ...


@functools.cache
def built() -> Built:
    """The C++ next to this file, loaded; built if torch's folder for extensions does not hold it yet.

    Raises RuntimeError when there is no compiler, no ninja, or the build fails.
    """
    need_compiler("suppress_in_cpp", INSTEAD)
    if not shutil.which("ninja"):
        raise RuntimeError(f"suppress_in_cpp is built with ninja: `pip install ninja`, or {INSTEAD}")
    from torch.utils import cpp_extension

    try:
        module: Built = cpp_extension.load(
            name="optbook_hotdog_suppress",
            sources=[str(Path(__file__).with_suffix(".cpp"))],
            # No fused multiply-add: it would round once where Python rounds twice.
            extra_cflags=["-O3", "-ffp-contract=off"],
        )
    except (RuntimeError, ImportError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RuntimeError(f"suppress_in_cpp could not be built ({reason}): {INSTEAD}") from error
    return module
