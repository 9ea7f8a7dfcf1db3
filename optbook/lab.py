"""Start JupyterLab on the workbook without touching anyone's own Jupyter settings."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from optbook.errors import OptbookError
from optbook.experiments.location import workbook

FIRST_NOTEBOOK = Path("notebooks/00_start_here.ipynb")


class LabError(OptbookError):
    """JupyterLab can't be started; the message is one line that says what to do."""


@dataclass(frozen=True)
class Launch:
    """What JupyterLab is started with: its arguments, and environment variables to set."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]


def find_workbook(start: Path) -> Path:
    """The root of the workbook that `start` lies in, else of the clone that this package runs from.

    Raises `LabError` where neither has the notebooks.
    """
    for folder in (start, Path(__file__).resolve().parent):
        root = workbook(folder)
        if root is not None and (root / FIRST_NOTEBOOK).is_file():
            return root
    raise LabError(
        f"no workbook here: {start} is not in a clone of optbook with {FIRST_NOTEBOOK.as_posix()}. "
        "The notebooks come with the repository, not with the package: clone it and start there."
    )


def has_display(environ: Mapping[str, str], platform: str) -> bool:
    """Whether a browser window could be opened: not over SSH, and not on Linux without a display."""
    if platform in ("win32", "darwin"):
        return "SSH_CONNECTION" not in environ
    return any(environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME"))


def plan(
    root: Path, environ: Mapping[str, str], *, browser: bool, port: int | None = None, superuser: bool = False
) -> Launch:
    """How to start JupyterLab in the workbook at `root`.

    Everything is passed by arguments and environment. The kernel `python3` is this environment's, whatever
    the user has registered; the news prompt is switched off by a default that the user's own settings
    override; window layouts are kept with the workbook. Without `port`, it is the first free from 8888.
    """
    arguments = [
        f"--ServerApp.root_dir={root}",
        f"--LabApp.default_url=/lab/tree/{FIRST_NOTEBOOK.as_posix()}",
        "--Application.log_level=ERROR",
    ]
    if port is not None:
        arguments += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    if not browser:
        arguments.append("--no-browser")
    if superuser:
        arguments.append("--allow-root")
    environment = {
        "JUPYTER_PREFER_ENV_PATH": "1",
        "JUPYTER_PATH": _prepend(Path(sys.prefix, "share", "jupyter"), environ.get("JUPYTER_PATH")),
        "JUPYTER_CONFIG_PATH": _prepend(
            Path(__file__).with_name("jupyter_config"), environ.get("JUPYTER_CONFIG_PATH")
        ),
        **_tensorboard(environ),
        "JUPYTERLAB_WORKSPACES_DIR": environ.get("JUPYTERLAB_WORKSPACES_DIR")
        or str(root / ".jupyter" / "workspaces"),
    }
    return Launch(tuple(arguments), environment)


def _tensorboard(environ: Mapping[str, str]) -> dict[str, str]:
    """Where ``%tensorboard`` finds its program if this environment is not on the path."""
    program = shutil.which("tensorboard", path=str(Path(sys.executable).parent))
    return {"TENSORBOARD_BINARY": program} if program and "TENSORBOARD_BINARY" not in environ else {}


def start(launch: Launch) -> None:
    """Run JupyterLab in this process until it is stopped. Raises `LabError` where it isn't installed."""
    os.environ.update(launch.environment)  # before the import: Jupyter reads its paths there
    try:
        from jupyterlab.labapp import LabApp
    except ModuleNotFoundError as error:
        raise LabError(
            f"{error.name} is missing, which the workbook needs: pip install 'optbook[workbook]'."
        ) from error
    LabApp.launch_instance(list(launch.arguments))


def _prepend(folder: Path, path: str | None) -> str:
    return os.pathsep.join([str(folder), *([path] if path else [])])
