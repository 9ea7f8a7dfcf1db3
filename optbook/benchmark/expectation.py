"""What a measurement can be held against: a prediction made before it."""

from __future__ import annotations

from typing import Any, Protocol

from optbook.benchmark.profiles.request import Request


class Expectation(Protocol):
    """A prediction of what a measurement will come to; `optbook.expect` makes one."""

    def judged(
        self, request: Request, problem: BaseException | None
    ) -> tuple[dict[str, Any], BaseException | None]:
        """Hold a measurement against the prediction, which may take a further pass.

        Args:
            request: what was measured, and the experiment, not recorded yet.
            problem: what the workload, or what came after it, raised.

        Returns:
            Fields of the experiment to set, and what the further pass raised.
        """
