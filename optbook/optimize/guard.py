"""Is this revision slower than another one? Both are measured in turn, in this job, on this machine.

A figure stored by yesterday's job comes from another machine, or from a busier hour of the same one. So the
other revision is checked out beside this one, and both run in fresh interpreters, interleaved.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from optbook.errors import OptbookError, OptionError
from optbook.optimize.compare import Comparison
from optbook.optimize.isolate import Task, compare_isolated

SOURCES = ("src", "")
"""Where a repository keeps its packages: first on the path of each revision."""


@dataclass(frozen=True)
class Guarded:
    """The working tree against a revision: ``fell`` says that throughput fell by more than is tolerated."""

    comparison: Comparison
    tolerated: float

    @property
    def fell(self) -> bool:
        """Whether the verdict is "slower", and the loss more than is tolerated."""
        return self.comparison.verdict == "slower" and self.comparison.ratio < 1 - self.tolerated

    def __str__(self) -> str:
        if self.fell:
            end = f"FAIL: throughput fell by {100 * (1 - self.comparison.ratio):.1f} %"
        elif self.comparison.verdict == "slower":
            end = f"ok: slower, but by no more than the {100 * self.tolerated:g} % that are tolerated"
        else:
            end = "ok: throughput did not fall"
        return f"{self.comparison}\n{end}"


def guard(
    script: Path | str,
    against: str,
    *,
    tolerated: float = 0.0,
    budget: float | None = None,
    pairs: int | None = None,
    seed: int | None = None,
) -> Guarded:
    """Compare a script as it is in the working tree with the same script at another revision.

    Args:
        script: a path, ``path::function`` for a function in it that is called without arguments. Of a
            script that tracks its steps a step is timed, of others a run.
        against: the revision, as git understands it.
        tolerated: loss of throughput that does not count, between 0 and 1.
        budget: seconds for all samples; twice the setting `OptBook.budget` if None.
        pairs: pairs of fresh interpreters; ten if None.
        seed: of the random order.

    Raises:
        OptionError: the script, the revision or a number can't be used; nothing was run.
        OptbookError: the script raised in one of the revisions, or both ran the same code.
    """
    if not 0 <= tolerated < 1:
        raise OptionError(f"tolerated is {tolerated!r}: give a share between 0 and 1, such as 0.02")
    path, _, function = str(script).partition("::")
    file = Path(path).resolve()
    if not file.is_file():
        raise OptionError(f"no script {path}: give the path of a Python file")
    root = Path(_git(file.parent, "rev-parse", "--show-toplevel").strip()).resolve()
    inside = file.relative_to(root)
    commit = _commit(root, against)
    with _worktree(root, commit) as other:
        if not (other / inside).is_file():
            raise OptionError(f"{inside} is not in {against}: guard a script that both revisions have")
        now, then = (_task(place, inside, function, root) for place in (root, other))

        def check(files_then: Sequence[str], files_now: Sequence[str]) -> None:
            strays = [Path(each).relative_to(root) for each in files_then if Path(each).is_relative_to(root)]
            if found := [stray for stray in strays if (other / stray).exists()]:
                raise OptbookError(
                    f"{against} would run {found[0]} of the working tree, as it is installed from there: "
                    "install other packages only, or start guard where this one is not installed"
                )

        labels = (against, "working tree")
        found = compare_isolated(then, now, labels, budget=budget, pairs=pairs, seed=seed, check=check)
    return Guarded(found, tolerated)


def _task(place: Path, script: Path, function: str, root: Path) -> Task:
    """The script at ``place``: what this interpreter would import from ``root`` comes from there."""
    own = [place / script.parent, *(place / source for source in SOURCES)]
    path = [str(each) for each in own if each.is_dir()]
    for entry in sys.path:
        given = Path(entry or ".").resolve()
        moved = place / given.relative_to(root) if given.is_relative_to(root) else given
        path.append(str(moved if moved.exists() else given))
    return Task(
        script=str(place / script), function=function, path=tuple(dict.fromkeys(path)), folder=str(place)
    )


def _commit(root: Path, against: str) -> str:
    try:
        return _git(
            root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{against}^{{commit}}"
        ).strip()
    except OptionError as error:
        raise OptionError(
            f"no revision {against!r} in {root}: fetch it (git fetch --unshallow) or give another"
        ) from error


@contextmanager
def _worktree(root: Path, commit: str) -> Iterator[Path]:
    """The commit, checked out in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="optbook-guard-") as folder:
        place = Path(folder).resolve() / root.name
        try:
            _git(root, "worktree", "add", "--detach", "--quiet", str(place), commit)
            yield place
        finally:
            if place.exists():
                _git(root, "worktree", "remove", "--force", str(place))
            _git(root, "worktree", "prune")


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise OptionError("guard needs git: install it") from None
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or ["it failed"]
        raise OptionError(f"git {arguments[0]} in {folder}: {reason[0]}")
    return done.stdout
