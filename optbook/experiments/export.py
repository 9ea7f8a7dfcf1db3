"""The log as a file for other programs: CSV, JSON or Parquet."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optbook.errors import OptbookError, OptionError
from optbook.experiments.files import write_file
from optbook.experiments.render import one_line

if TYPE_CHECKING:
    import pandas as pd

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What makes a spreadsheet take a text for a formula:
https://owasp.org/www-community/attacks/CSV_Injection"""


def export(frame: pd.DataFrame, path: str | os.PathLike[str], *, force: bool = False) -> Path:
    """Write a log, as the suffix says: .csv, .json or .parquet.

    In CSV and Parquet, columns that hold dicts or tuples are JSON texts. In CSV, a text that a spreadsheet
    would take for a formula begins with an apostrophe. JSON is an array with an object an experiment.

    Parameters
    ----------
    frame
        As `optbook.log` gives it.
    path
        Where to write it; its folder must be there.
    force
        Whether a file that is there may be replaced.

    Raises
    ------
    OptionError
        The suffix is another one, a file is there and `force` is off, or the path can't be written to.
    OptbookError
        Parquet needs pyarrow, which isn't installed.
    """
    writers: dict[str, Callable[[pd.DataFrame, Path], None]] = {
        ".csv": _csv,
        ".json": _json,
        ".parquet": _parquet,
    }
    write = writers.get(Path(path).suffix.lower())
    if write is None:
        raise OptionError(
            f"{one_line(os.fspath(path))} ends in none of {', '.join(writers)}: write one of them"
        )
    return write_file(path, lambda place: write(frame, place), force=force)


def _csv(frame: pd.DataFrame, path: Path) -> None:
    flat = _flat(frame)
    texts = [str(name) for name, dtype in flat.dtypes.items() if dtype == "str"]
    harmless = {
        name: flat[name].map(lambda text: f"'{text}" if text.startswith(_FORMULA) else text) for name in texts
    }
    flat.assign(**harmless).to_csv(path, index=False, encoding="utf-8")


def _json(frame: pd.DataFrame, path: Path) -> None:
    frame.to_json(
        path,
        orient="records",
        date_format="iso",
        date_unit="us",
        double_precision=15,
        force_ascii=False,
        indent=1,
    )


def _parquet(frame: pd.DataFrame, path: Path) -> None:
    try:
        _flat(frame).to_parquet(path, engine="pyarrow", index=False)
    except ImportError as error:
        raise OptbookError(
            'Parquet needs pyarrow: run `pip install "optbook[parquet]"`, or export to .csv or .json'
        ) from error


def _flat(frame: pd.DataFrame) -> pd.DataFrame:
    """Dicts, tuples and whole numbers too large for a column as texts."""
    nested = [name for name, dtype in frame.dtypes.items() if dtype == "object"]
    return frame.assign(**{str(name): frame[name].map(_as_json).astype("str") for name in nested})


def _as_json(value: Any) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False)
