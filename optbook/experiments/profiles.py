"""A profile as the log keeps it: its text and its table, beside the experiment it belongs to."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any

from optbook.experiments.errors import LogError
from optbook.experiments.record import Experiment

if TYPE_CHECKING:
    import pandas

LONGEST_TEXT = 200_000
MOST_ROWS = 2_000


@dataclass(frozen=True)
class StoredProfile:
    """What a profile showed.

    ``experiment`` is the id of the measurement it belongs to, ``kind`` such as 'calls', ``text`` its plain
    text, and ``table`` its DataFrame as JSON (columns, index and rows; at most its first 2 000 rows).
    """

    experiment: str
    label: str
    kind: str
    created: datetime
    text: str
    table: str

    @classmethod
    def of(cls, experiment: Experiment, kind: str, text: str, frame: pandas.DataFrame) -> StoredProfile:
        """A profile of this experiment, made now."""
        rows = frame.head(MOST_ROWS).reset_index(drop=True)
        table = rows.to_json(orient="split", default_handler=str)
        return cls(experiment.id, experiment.label, kind, datetime.now(UTC), text[:LONGEST_TEXT], table)

    def to_frame(self) -> pandas.DataFrame:
        """The table.

        Raises:
            LogError: what the log holds is no table.
        """
        import pandas as pd

        try:
            table = json.loads(self.table)
            return pd.DataFrame(table["data"], columns=table["columns"])
        except (ValueError, TypeError, KeyError) as error:
            raise LogError(f"the {self.kind} profile of {self.label!r} has no readable table") from error

    def __str__(self) -> str:
        return (
            self.text or f"{self.label}: {self.kind} profile (text not stored: OptBook.store_source is off)"
        )

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        """Its text; nothing that was read from a log is trusted as HTML."""
        return f'<pre class="optbook-profile">{escape(str(self))}</pre>'
