"""Who else holds the places where Python lets a profiler or debugger in."""

from __future__ import annotations

import sys
from typing import Any

from optbook.errors import OptbookError


def refuse_others() -> None:
    """Make sure that nobody else traces lines in this thread.

    Raises:
        OptbookError: a debugger, a coverage tool or another profiler does.
    """
    holder: Any = sys.gettrace()
    name = getattr(holder, "__qualname__", None) or type(holder).__qualname__
    monitoring: Any = getattr(sys, "monitoring", None)
    if holder is None and monitoring is not None:
        for tool in (monitoring.DEBUGGER_ID, monitoring.PROFILER_ID):
            holder = holder or monitoring.get_tool(tool)
            name = str(holder)
    if holder is not None:
        module = getattr(holder, "__module__", None) or type(holder).__module__
        whose = name if isinstance(holder, str) else f"{module}.{name}"
        raise OptbookError(
            f"a debugger or another profiler ({whose}) traces lines already: end it, then profile lines again"
        )
