"""The live view: the log, a label filter, a unit and the plot, which follow what any kernel records."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from optbook.errors import OptbookError, OptionError
from optbook.experiments.log import Log, session
from optbook.repeat.overview import Progress, table_html
from optbook.repeat.progress import default_unit, known_units, select

if TYPE_CHECKING:
    import pandas as pd

PERIOD = 1.0
LATEST = ("latest", "")  # a value of None would show as an empty box


class Dashboard:
    """Holds the controls of the view and keeps them up to date.

    Parameters
    ----------
    log
        Where experiments come from.

    Notes
    -----
    Within a running event loop (a kernel's) a task looks for new experiments about each second, until the
    widget is closed. Without one, call `refresh`.
    """

    def __init__(self, log: Log) -> None:
        widgets = _ipywidgets()
        self._log = log
        self._seen: tuple[str, int, int] | None = None
        self._task: asyncio.Task[None] | None = None
        self.filter = widgets.Text(
            description="Label", placeholder="show labels that contain …", continuous_update=True
        )
        self.unit = widgets.Dropdown(description="Unit", options=[LATEST], value="")
        self.status = widgets.HTML()
        self.table = widgets.HTML()
        self.plot = widgets.HTML()
        self.widget = _closing_box(widgets, self)
        self.filter.observe(self._show, names="value")
        self.unit.observe(self._show, names="value")
        self.refresh()
        self._start()

    def _start(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        self._task = loop.create_task(self._follow())

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(PERIOD)
            self.refresh()

    @property
    def following(self) -> bool:
        """Whether a task looks for new experiments."""
        return self._task is not None and not self._task.done()

    def stop(self) -> None:
        """Stop looking for new experiments."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def refresh(self) -> None:
        """Read the log again if something was added to it; a log that cannot be read is named in the view."""
        try:
            now = self._log.location.url, self._log.store.revision(), len(self._log.pending)
            if now == self._seen:
                return
            self._frame: pd.DataFrame = self._log.frame()
        except OptbookError as error:
            self._seen = None
            self.status.value = _line(str(error))
            return
        self._seen = now
        units = [LATEST, *((unit, unit) for unit in known_units(self._frame))]
        if tuple(self.unit.options) != tuple(units):
            chosen = self.unit.value
            self.unit.options = units
            self.unit.value = chosen if chosen in [value for _, value in units] else ""
        self._show()

    def _show(self, change: Any = None) -> None:
        if self._seen is None:
            return
        frame = select(self._frame, self.filter.value)
        self.status.value = _line(f"{len(frame)} of {len(self._frame)} experiments")
        self.table.value = table_html(frame) if len(frame) else ""
        unit = self.unit.value or default_unit(frame)
        try:
            self.plot.value = Progress(frame, unit)._repr_html_()
        except OptionError as error:
            self.plot.value = _line(str(error))


def dashboard(log: Log | None = None) -> Any:
    """The log and the progress as a widget that follows new experiments, also those of other notebooks.

    Close it with its ``close()``; its controls can be reached by keyboard.

    Raises
    ------
    OptbookError
        ipywidgets is not installed.
    """
    return Dashboard(session() if log is None else log).widget


def _ipywidgets() -> Any:
    try:
        import ipywidgets
    except ImportError as error:
        raise OptbookError(
            'the live view needs ipywidgets: run `pip install "optbook[workbook]"`, '
            "or use %optbook without --live"
        ) from error
    return ipywidgets


def _closing_box(widgets: Any, board: Dashboard) -> Any:
    class Board(widgets.VBox):  # type: ignore[misc]
        """The view; closing it also closes its controls and stops looking for new experiments."""

        def close(self) -> None:
            board.stop()
            for child in (board.filter, board.unit, board.status, board.table, board.plot, controls):
                child.close()
            super().close()

    controls = widgets.HBox([board.filter, board.unit])
    box = Board([controls, board.status, board.table, board.plot])
    box.board = board
    return cast(Any, box)


def _line(text: str) -> str:
    from html import escape

    return f'<span style="color:var(--jp-ui-font-color2,gray)">{escape(text)}</span>'
