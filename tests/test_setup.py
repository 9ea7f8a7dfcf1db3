"""Set-up: dependency lists in step, a Makefile that says what is wrong, a README that tells the truth."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import optbook

ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
OURS = sys.stdlib_module_names | {"__main__", "optbook", "tests"}
CONDA_NAMES = {"matplotlib": "matplotlib-base", "memory-profiler": "memory_profiler", "torch": "pytorch"}


def requirements(lines: list[str]) -> dict[str, Requirement]:
    """The requirements by name, with those of optbook's own extras in place of the extra."""
    found: dict[str, Requirement] = {}
    for requirement in map(Requirement, lines):
        if requirement.name == "optbook":
            for extra in requirement.extras:
                found |= requirements(EXTRAS[extra])
        else:
            found[canonicalize_name(requirement.name)] = requirement
    return found


CORE = requirements(PROJECT["dependencies"])
DECLARED = CORE | requirements(EXTRAS["dev"])
WITH_PEERS = requirements(EXTRAS["bench"]) | DECLARED


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    assert len({canonicalize_name(name) for name, _ in pairs}) == len(pairs), "a package is pinned twice"
    return {str(canonicalize_name(name)): version for name, version in pairs}


def test_dev_contains_every_extra_but_the_peers() -> None:
    for name in EXTRAS.keys() - {"bench"}:
        assert requirements(EXTRAS[name]).keys() <= DECLARED.keys(), name


def test_every_dependency_has_a_lower_bound_and_a_pin_within_it() -> None:
    pinned = pins()
    for name, requirement in WITH_PEERS.items():
        assert any(bound.operator == ">=" for bound in requirement.specifier), f"{name} has no lower bound"
        assert requirement.specifier.contains(pinned[name]), f"{name}=={pinned[name]}, not {requirement}"


def test_the_pins_are_closed_over_what_is_installed() -> None:
    pinned = pins()
    missing = {(name, by) for name, by in closure(DECLARED) if name not in pinned}
    assert missing == set()


def closure(start: Mapping[str, Requirement]) -> set[tuple[str, str]]:
    """Everything that the requirements pull in here, as (name, who asks for it)."""
    found: set[tuple[str, str]] = set()
    waiting = [(requirement, "optbook") for requirement in start.values()]
    visited: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        requirement, by = waiting.pop()
        name = canonicalize_name(requirement.name)
        found.add((name, by))
        if (name, frozenset(requirement.extras)) in visited:
            continue
        visited.add((name, frozenset(requirement.extras)))
        for line in importlib.metadata.requires(name) or ():
            needed = Requirement(line)
            if needed.marker is None or any(
                needed.marker.evaluate({"extra": extra}) for extra in ("", *requirement.extras)
            ):
                waiting.append((needed, name))
    # PyTorch's CUDA build for Linux pins these itself.
    return {
        (name, by)
        for name, by in found
        if not (by == "torch" and name.startswith(("cuda-", "nvidia-", "triton")))
    }


def test_environment_yml_is_in_step() -> None:
    text = (ROOT / "environment.yml").read_text(encoding="utf-8")
    listed = yaml.safe_load(text)["dependencies"]
    pip = next(entry["pip"] for entry in listed if isinstance(entry, dict))
    conda = {r.name: r.specifier for r in map(Requirement, (e for e in listed if isinstance(e, str)))}
    assert pip == ["-e ."]
    assert conda.pop("python") == SpecifierSet(PROJECT["requires-python"])
    assert conda.pop("pip") == SpecifierSet()
    expected = CORE | requirements(EXTRAS["workbook"])
    assert conda == {CONDA_NAMES.get(name, name): r.specifier for name, r in expected.items()}


def test_environment_yml_says_why() -> None:
    lines = (
        (ROOT / "environment.yml").read_text(encoding="utf-8").partition("dependencies:\n")[2].splitlines()
    )
    silent = [line for line in lines if "#" not in line and line.strip() != "- pip:"]
    assert silent == []


def imported(folder: Path) -> Iterator[tuple[str, str]]:
    """(file, distribution) of every third-party import in the folder."""
    distributions = importlib.metadata.packages_distributions()
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for top in {name.partition(".")[0] for name in names} - OURS:
                yield (
                    path.relative_to(ROOT).as_posix(),
                    str(canonicalize_name(distributions.get(top, [top])[0])),
                )


def test_everything_imported_is_declared_and_the_other_way_round() -> None:
    workbook = CORE | requirements(EXTRAS["workbook"])
    used = set(imported(ROOT / "optbook"))
    assert {pair for pair in used if pair[1] not in workbook} == set()
    assert {pair for pair in imported(ROOT / "tests") if pair[1] not in WITH_PEERS} == set()
    # ipykernel is what runs the notebooks; nothing imports it.
    assert workbook.keys() - {name for _, name in used} - {"ipykernel"} == set()


def test_the_core_does_without_the_sample_systems_libraries() -> None:
    """PyTorch and Pillow are imported where a workload already uses them: only they are, outside hotdog."""
    only_hotdog = requirements(EXTRAS["hotdog"]).keys() - {"torch", "pillow"}
    outside = {pair for pair in imported(ROOT / "optbook") if not pair[0].startswith("optbook/hotdog/")}
    assert {pair for pair in outside if pair[1] in only_hotdog} == set()


def test_there_is_one_version() -> None:
    assert PROJECT["version"] == optbook.__version__ == importlib.metadata.version("optbook")


def test_the_licence_and_the_types_are_there() -> None:
    assert "BSD 3-Clause License" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert (ROOT / "optbook" / "py.typed").is_file()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder, with a space in its name, that holds what `make setup` looks at."""
    folder = tmp_path / "a clone"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    return folder


def make(folder: Path, *arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    if path is not None:
        environment["PATH"] = path
    command = [shutil.which("make") or "make", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def fake_python(folder: Path, version: tuple[int, int], modules: str = "") -> Path:
    """A Python that is this one, but for the version it tells and the modules it lacks."""
    script = folder / "python3"
    preamble = (
        f"import platform, sys; sys.version_info = {(*version, 2)}; "
        f"platform.python_version = lambda: '{version[0]}.{version[1]}.2'; "
        f"sys.modules.update(dict.fromkeys('{modules}'.split()))"
    )
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{preamble}\n$2"\n')
    script.chmod(0o755)
    return script


def test_no_python_at_all_says_what_to_install(folder: Path, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("sh", "grep", "cat"):
        (tools / tool).symlink_to(shutil.which(tool) or tool)
    done = make(folder, "setup", path=str(tools))
    assert done.returncode == 2
    assert "Looked for python3 python3.13 python3.12 python3.11 python." in done.stderr
    assert "apt install python3 python3-venv" in done.stderr


def test_an_old_python_says_what_is_needed(folder: Path, tmp_path: Path) -> None:
    done = make(folder, "lab", f"PYTHON={fake_python(tmp_path, (3, 9))}")
    assert done.returncode == 2
    assert "needs Python 3.11 or newer" in done.stderr
    assert "is Python 3.9.2" in done.stderr
    assert "make lab PYTHON=/path/to/python3.12" in done.stderr


def test_a_python_without_venv_says_which_package(folder: Path, tmp_path: Path) -> None:
    done = make(folder, "setup", f"PYTHON={fake_python(tmp_path, (3, 12), 'ensurepip')}")
    assert done.returncode == 2
    assert "apt install python3.12-venv" in done.stderr
    assert not (folder / ".venv").exists()


def installed(folder: Path) -> None:
    """What `make setup` leaves behind, as far as make looks at it."""
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "activate").write_text(f'VIRTUAL_ENV="{folder}/.venv"\n')
    (folder / ".venv" / ".installed-workbook").touch()


def test_a_second_setup_does_nothing(folder: Path) -> None:
    installed(folder)
    done = make(folder, "setup", "PYTHON=/nowhere")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("change", ["pins", "place"])
def test_setup_is_done_again_after_a_change(folder: Path, change: str) -> None:
    installed(folder)
    if change == "pins":
        stamp = folder / ".venv" / ".installed-workbook"
        later = stamp.stat().st_mtime + 10
        os.utime(folder / "constraints.txt", (later, later))
    else:
        folder = folder.rename(folder.with_name("moved"))
    assert "needs Python 3.11" in make(folder, "setup", "PYTHON=/nowhere").stderr


def test_clean_keeps_the_log(folder: Path) -> None:
    kept = folder / "data" / "experiments.sqlite"
    kept.parent.mkdir()
    kept.touch()
    (folder / "build").mkdir()
    assert make(folder, "distclean").returncode == 0
    assert kept.exists()
    assert not (folder / "build").exists()


def test_help_names_every_target() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", text, re.MULTILINE)) - {"help"}
    assert set(re.findall(r"make ([a-z]+)", make(ROOT).stdout)) == targets


def test_the_readme_tells_the_truth() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"^make ([a-z]+)", text, re.MULTILINE)) <= targets
    for place in re.findall(r"\]\(((?!https?:)[^)]+)\)", text):
        path, _, anchor = place.partition("#")
        assert not path or (ROOT / path).exists(), place
        headings = {
            re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in re.findall(r"^#+ (.+)", text, re.M)
        }
        assert not anchor or anchor in headings, place


def test_the_readmes_example_is_valid_python() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        compile(block, "README.md", "exec")
