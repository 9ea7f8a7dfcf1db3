"""Is this machine ready for a workshop? One line for each thing that the day needs."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from optbook import formatting as write
from optbook.benchmark.machine.fingerprint import usable_memory
from optbook.benchmark.meters import cgroup, cpu
from optbook.errors import OptbookError
from optbook.experiments.errors import AwayError, LogError
from optbook.experiments.location import locate
from optbook.experiments.probe import probe
from optbook.experiments.render import one_line
from optbook.workshop.chapters import CHAPTERS

GIB = 1024**3
LITTLE_DISK, VERY_LITTLE_DISK = 2 * GIB, GIB // 2
LITTLE_MEMORY, VERY_LITTLE_MEMORY = 3 * GIB, GIB
KERNEL_SECONDS = 120
EXTRAS = ("", "hotdog", "workbook")


@dataclass(frozen=True)
class Line:
    """What was found, and whether it is well, worth a look, or stops the day."""

    state: Literal["ok", "warning", "severe"]
    what: str

    def __str__(self) -> str:
        return f"{self.state:<8} {self.what}"


def before_the_day(root: Path | None) -> Iterable[Line]:
    """Look at everything, one after the other; ``root`` is the workbook, None if there is none."""
    import psutil

    yield python(sys.version_info[:3], _required("Requires-Python"))
    yield libraries(_requirements(), metadata.version)
    yield cores(cpu.usable_cores())
    available, left = psutil.virtual_memory().available, cgroup.memory_free()
    yield memory(available if left is None else min(available, left), usable_memory())
    place = root or Path.cwd()
    yield disk(shutil.disk_usage(place).free, place)
    yield kernel(place)
    yield log()
    if root is None:
        yield Line("severe", "workbook: not here; clone the repository, and start in its folder")
        return
    yield chapters(root / "notebooks")
    yield pictures(root / "data" / "hotdogs")
    yield weights(root / "data" / "weights" / "hotdog.pt")
    yield git(root)


def python(version: tuple[int, ...], required: str) -> Line:
    """The version against the package's own bound."""
    from packaging.specifiers import SpecifierSet

    told = ".".join(map(str, version))
    if not SpecifierSet(required).contains(told):
        return Line("severe", f"Python: {told}, but {required} is needed; make the environment anew")
    return Line("ok", f"Python: {told}")


def libraries(requirements: Iterable[str], version_of: Callable[[str], str]) -> Line:
    """Those of the core, the sample and the workbook against their bounds."""
    from packaging.requirements import Requirement

    wrong, fine = [], 0
    for requirement in map(Requirement, requirements):
        marker = requirement.marker
        if requirement.name == "optbook" or (
            marker is not None and not any(marker.evaluate({"extra": extra}) for extra in EXTRAS)
        ):
            continue
        try:
            found = version_of(requirement.name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{requirement.name} is missing")
            continue
        if requirement.specifier.contains(found, prereleases=True):
            fine += 1
        else:
            wrong.append(f"{requirement.name} is {found}, not {requirement.specifier}")
    if wrong:
        return Line(
            "severe", f'libraries: {", ".join(wrong)}; pip install -c constraints.txt -e ".[workbook]"'
        )
    return Line("ok", f"libraries: {fine}, all within their bounds")


def cores(usable: float) -> Line:
    """Cores that this process may use."""
    told = f"cores: {usable:g}"
    return (
        Line("ok", told)
        if usable >= 2
        else Line("warning", f"{told}; work side by side, as in chapter 05, gains nothing with less than 2")
    )


def memory(free: float, total: float) -> Line:
    """Free memory, in bytes."""
    told = f"memory: {write.bytes_(free)} of {write.bytes_(total)} free"
    if free >= LITTLE_MEMORY:
        return Line("ok", told)
    return Line("severe" if free < VERY_LITTLE_MEMORY else "warning", f"{told}; close what you don't need")


def disk(free: float, place: Path) -> Line:
    """Free space where the workbook lies, in bytes."""
    told = f"disk: {write.bytes_(free)} free at {place}"
    if free >= LITTLE_DISK:
        return Line("ok", told)
    return Line("severe" if free < VERY_LITTLE_DISK else "warning", f"{told}; the log and traces need room")


def kernel(
    folder: Path, source: str = "%load_ext optbook\nimport ipywidgets, torch\ntorch.ones(2) + 1"
) -> Line:
    """Start a kernel and run a cell in it."""
    from optbook.workshop.headless import execute, workbook_extra

    started = time.perf_counter()
    try:
        with workbook_extra():
            from nbformat.v4 import new_code_cell, new_notebook

        notebook = new_notebook(cells=[new_code_cell(source)])  # type: ignore[no-untyped-call]
        failure = execute(notebook, folder, os.environ, timeout=KERNEL_SECONDS)
    except OptbookError as error:
        failure = str(error)
    if failure:
        return Line("severe", f"kernel: {failure}")
    return Line("ok", f"kernel: started and ran a cell in {write.seconds(time.perf_counter() - started)}")


def log() -> Line:
    """Write a row to the log and take it back; where it is a server, that reaches it. Shows no password."""
    started = time.perf_counter()
    try:
        place = locate()
        probe(place)
    except AwayError as error:
        return Line("severe", f"log: the server can't be used: {one_line(str(error), 300)}")
    except LogError as error:
        return Line("severe", f"log: {one_line(str(error), 300)}")
    if place.warning:
        return Line("warning", f"log: {place.warning}")
    taken = write.seconds(time.perf_counter() - started)
    return Line("ok", f"log: {place.shown} can be written (opened and tried in {taken})")


def chapters(folder: Path) -> Line:
    """All notebooks are there."""
    missing = [each.name for each in CHAPTERS if not (folder / f"{each.name}.ipynb").is_file()]
    if missing:
        return Line("severe", f"chapters: {', '.join(missing)} missing; `optbook reset {missing[0]}`")
    return Line("ok", f"chapters: {len(CHAPTERS)}")


def pictures(folder: Path) -> Line:
    """Every picture that the annotations name is there."""
    names = []
    try:
        for part in ("train", "val"):
            told = json.loads((folder / "annotations" / f"{part}.json").read_text(encoding="utf-8"))
            names += [folder / part / image["file_name"] for image in told["images"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Line(
            "severe", f"pictures: annotations can't be read ({one_line(str(error), 120)}); clone anew"
        )
    missing = sum(not path.is_file() for path in names)
    if missing or not names:
        return Line("severe", f"pictures: {missing} of {len(names)} missing in {folder}; clone anew")
    return Line("ok", f"pictures: {len(names)}")


def weights(path: Path) -> Line:
    """The trained weights are there, and whole as far as their first bytes tell."""
    try:
        with path.open("rb") as file:
            start = file.read(2)
    except OSError as error:
        return Line("severe", f"weights: {path}: {error.strerror}; clone anew")
    if start != b"PK":  # torch.save writes zip archives
        return Line("severe", f"weights: {path} is damaged; clone anew")
    return Line("ok", f"weights: {write.bytes_(path.stat().st_size)}")


def git(root: Path, which: Callable[[str], str | None] = shutil.which) -> Line:
    """What `optbook reset` takes fresh chapters from."""
    if which("git") is None or not (root / ".git").exists():
        return Line("warning", "git: not here, or this is no clone; `optbook reset` will not work")
    return Line("ok", "git: `optbook reset` has fresh chapters")


def _required(field: str) -> str:
    try:
        return metadata.metadata("optbook")[field] or ""
    except metadata.PackageNotFoundError:
        return ""


def _requirements() -> list[str]:
    try:
        return metadata.requires("optbook") or []
    except metadata.PackageNotFoundError:
        return ["optbook-is-not-installed"]
