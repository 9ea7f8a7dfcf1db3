"""Where an experiment came from: notebook, revision, machine, versions and switches."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import platform
import subprocess
import sys
import sysconfig
import uuid
from pathlib import Path
from typing import Any

from optbook.benchmark.machine.fingerprint import fingerprint

GIT_SECONDS = 2.0
LIBRARIES = ("optbook", "torch", "numpy")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "CUDA_VISIBLE_DEVICES")


def origin() -> dict[str, Any]:
    """The fields of an experiment that say where it came from."""
    revision, dirty = _git()
    return {
        "notebook": notebook_name(),
        "session": _session(os.getpid()),
        "machine": fingerprint(),
        "git_revision": revision,
        "git_dirty": dirty,
        "modules_hash": _local_modules_hash(),
        "versions": _versions(),
        "flags": _flags(),
        "seed": _seed(),
    }


def notebook_name() -> str:
    """The notebook (as Jupyter or VS Code names it to the kernel) or script that runs; empty if unknown."""
    named = os.environ.get("OPTBOOK_NOTEBOOK") or os.environ.get("JPY_SESSION_NAME")
    main = sys.modules.get("__main__")
    named = named or getattr(main, "__vsc_ipynb_file__", None) or getattr(main, "__file__", None) or ""
    return Path(str(named)).name


@functools.cache
def _session(pid: int) -> str:
    return uuid.uuid4().hex[:12]


def _git() -> tuple[str, bool | None]:
    def ask(*words: str) -> str:
        command = ["git", "--no-optional-locks", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_SECONDS, check=True)
        return done.stdout.strip()

    try:
        revision = ask("rev-parse", "HEAD")
    except (OSError, subprocess.SubprocessError):
        return "", None
    try:
        return revision, bool(ask("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return revision, None


def _local_modules_hash() -> str:
    """Hash of the imported modules that lie below the working directory and are not installed."""
    try:
        here = _inside(Path.cwd().resolve())
    except FileNotFoundError:  # the working directory is gone
        return ""
    installed = tuple(
        _inside(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "purelib", "platlib")
    )
    digest, seen = hashlib.sha256(), False
    for name, module in sorted(sys.modules.copy().items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py"):
            continue
        path = os.path.normcase(file)
        if not path.startswith(here) or path.startswith(installed):
            continue
        try:
            digest.update(name.encode() + b"\0" + Path(file).read_bytes())
        except OSError:
            continue
        seen = True
    return digest.hexdigest()[:12] if seen else ""


def _inside(folder: Path) -> str:
    """What the paths in a folder begin with: of thousands of modules, text is compared ten times as fast."""
    return os.path.normcase(os.path.join(folder, ""))


@functools.cache
def _version(library: str) -> str:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _versions() -> dict[str, str]:
    found = {name: _version(name) for name in LIBRARIES if name in sys.modules}
    return {"python": platform.python_version()} | {
        name: version for name, version in found.items() if version
    }


def _flags() -> dict[str, str]:
    flags = {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ}
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_num_threads"):
        flags |= {
            "threads": str(torch.get_num_threads()),
            "anomaly_detection": str(torch.is_anomaly_enabled()),
            "deterministic": str(torch.are_deterministic_algorithms_enabled()),
            "matmul_precision": torch.get_float32_matmul_precision(),
            "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        }
    return flags


def _seed() -> int | None:
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "initial_seed"):
        return None
    seed = int(torch.initial_seed())
    return seed - 2**64 if seed >= 2**63 else seed
