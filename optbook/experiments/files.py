"""Files that are written for a reader: never over another one unless asked, and whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from optbook.errors import OptionError


def write_file(path: str | os.PathLike[str], write: Callable[[Path], object], *, force: bool = False) -> Path:
    """Let `write` write a file, and return its path.

    Parameters
    ----------
    path
        Where it is to lie; its folder must be there.
    write
        Is given the path of a new file with the same suffix, which is moved into place afterwards.
    force
        Whether a file that is there may be replaced.

    Raises
    ------
    OptionError
        A file is there and `force` is off, or the path can't be written to.
    """
    place = Path(path).expanduser()
    if place.is_dir():
        raise OptionError(f"{place} is a folder: name a file in it")
    if not force and os.path.lexists(place):
        raise OptionError(
            f"{place} is there already: give another name, or --force (force=True) to replace it"
        )
    if not place.parent.is_dir():
        raise OptionError(f"the folder {place.parent} is not there: create it, or give another path")
    made = place.with_name(f".{place.stem[:40]}-{os.getpid()}{place.suffix}")
    try:
        try:
            write(made)
            made.replace(place)
        finally:
            made.unlink(missing_ok=True)
    except OSError as error:
        raise OptionError(
            f"{place} can't be written ({error.strerror or error}): give another path"
        ) from error
    return place
