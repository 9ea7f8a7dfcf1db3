"""A fresh copy of a chapter, as git has it; the reader's own is kept aside."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from optbook.errors import OptbookError


@dataclass(frozen=True)
class Reset:
    """The chapter's file, whether it was replaced, and where the reader's own lies, if there was one."""

    path: Path
    replaced: bool
    aside: Path | None

    def __str__(self) -> str:
        if not self.replaced:
            return f"{self.path} is as it was published: nothing to do."
        kept = f" Yours is kept as {self.aside.name}." if self.aside else ""
        return f"{self.path} is fresh.{kept} If it is open in JupyterLab: File, Reload Notebook from Disk."


def original(path: Path, revision: str) -> bytes:
    """The file as it is in a revision of the git repository that it lies in.

    Raises:
        OptbookError: git is missing, knows no such revision, or not this file.
    """
    what = f"{revision}^{{commit}}:./{path.name}"
    command = ["git", "-C", str(path.parent), "show", "--end-of-options", what]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        raise OptbookError("reset takes the fresh copy from git: install it.") from None
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().splitlines()[:1] or ["git failed"]
        raise OptbookError(
            f"no fresh copy of {path.name} in git's {revision!r} ({reason[0]}): "
            "reset works in a clone, and takes another revision by --from."
        )
    return done.stdout


def reset(path: Path, fresh: bytes, today: date) -> Reset:
    """Put ``fresh`` in the file's place, after the reader's own was copied to ``NAME.mine-DATE.ipynb``.

    Raises:
        OptbookError: there are no rights to write; the reader's own is untouched then.
    """
    try:
        mine = path.read_bytes() if path.exists() else None
        if mine == fresh:
            return Reset(path, False, None)
        aside = None if mine is None else _keep(mine, path, today)
        beside = path.with_name(f".{path.name}.fresh")
        beside.write_bytes(fresh)
        os.replace(beside, path)
    except OSError as error:
        raise OptbookError(f"{path} can't be replaced: {error.strerror}.") from error
    return Reset(path, True, aside)


def _keep(content: bytes, path: Path, today: date) -> Path:
    """Write to the first name that is not taken."""
    number = 1
    while True:
        more = f"-{number}" if number > 1 else ""
        aside = path.with_name(f"{path.stem}.mine-{today.isoformat()}{more}.ipynb")
        try:
            with aside.open("xb") as file:
                file.write(content)
        except FileExistsError:
            number += 1
        else:
            return aside
