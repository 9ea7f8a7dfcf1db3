"""Work beside learning: a thread does it, so that no step waits for a file or a screen."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

from torch import Tensor

from optbook.hotdog.loss import Losses, as_number

if TYPE_CHECKING:
    from optbook.hotdog.training import Learner

MOST_WAITING = 16  # pieces of work; with more, the next one waits, so that memory can't fill up
LOG_EVERY = 20  # steps


class Background:
    """Does one piece of work after the other, in the order given. An error is raised by the next call."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._waiting: deque[Future[None]] = deque()

    def do(self, work: Callable[..., None], *arguments: Any) -> None:
        """Start `work(*arguments)`, or line it up behind what is not done yet."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hotdog")
        while self._waiting and (self._waiting[0].done() or len(self._waiting) >= MOST_WAITING):
            self._waiting.popleft().result()
        self._waiting.append(self._thread.submit(work, *arguments))

    def finish(self) -> None:
        """Wait until all is done."""
        wait(self._waiting)
        while self._waiting:
            self._waiting.popleft().result()


def log_in_background(learner: Learner, losses: Losses) -> None:
    """A line every LOG_EVERY steps, with the mean loss of those steps; a thread reads the numbers."""
    if learner.steps % LOG_EVERY == 0:
        recent = learner.history[-LOG_EVERY:]
        learner.background.do(_print_line, learner.steps, losses.heat.detach(), losses.sides.detach(), recent)


def _print_line(step: int, heat: Tensor, sides: Tensor, recent: Sequence[Any]) -> None:
    mean = sum(as_number(loss) for loss in recent) / len(recent)
    print(
        f"step {step}: heat {heat.item():.4f}, sides {sides.item():.4f}, "
        f"mean loss of {len(recent)} steps {mean:.4f}"
    )
