"""JupyterLab as a reader has it: the real server on a copy of the workbook, and a headless Chromium."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import nbformat
import psutil
from playwright.sync_api import Locator, Page, sync_playwright

ROOT = Path(__file__).parent.parent
ARTEFACTS = ROOT / "artefacts"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
TOKEN = "only-for-this-test"
START_SECONDS = 120
CELL_SECONDS = 180
LOOK_SECONDS = 60


def chromium(find: Callable[[str], str | None] = shutil.which) -> str:
    """The path of Chromium. Raises `RuntimeError` with what to install where there is none."""
    for name in CHROMIUM:
        if path := find(name):
            return path
    raise RuntimeError(
        f"no browser to test with: none of {', '.join(CHROMIUM)} is on the path. "
        "Install Chromium (Debian: apt install chromium), or leave this test out with -m 'not browser'."
    )


def copy_workbook(to: Path) -> Path:
    """A workbook with chapters that may be changed; pictures and weights are those of the source."""
    to.mkdir(parents=True)
    shutil.copy(ROOT / "pyproject.toml", to)
    shutil.copytree(ROOT / "notebooks", to / "notebooks", ignore=shutil.ignore_patterns(".*"))
    (to / "data").mkdir()
    for item in (ROOT / "data").iterdir():
        if item.is_dir():
            (to / "data" / item.name).symlink_to(item)
    return to


@contextmanager
def lab_server(workbook: Path, home: Path, **environment: str) -> Iterator[str]:
    """JupyterLab, started as `optbook lab` does for someone who never had it; yields its address.

    At the end the server and all its kernels are gone, also after an error.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folders = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    own = {name: str(home / name.lower()) for name in folders}
    home.mkdir(parents=True)
    with (home / "server.log").open("w+", encoding="utf-8") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", "optbook", "lab", "--no-browser", "--port", str(port)],
            cwd=workbook,
            env=os.environ | own | {"JUPYTER_TOKEN": TOKEN} | environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            address = f"http://127.0.0.1:{port}"
            _wait_for(address, server, home / "server.log")
            yield address
        finally:
            _end(server)


def _wait_for(address: str, server: subprocess.Popen[bytes], output: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/api?token={TOKEN}", timeout=5):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.2)
    raise RuntimeError(f"JupyterLab did not start:\n{output.read_text(encoding='utf-8')}")


def _end(server: subprocess.Popen[bytes]) -> None:
    try:
        kernels = psutil.Process(server.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        kernels = []
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(20)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait(20)
    for kernel in psutil.wait_procs(kernels, timeout=5)[1]:
        kernel.kill()


@contextmanager
def browser_page(address: str, width: int = 1400, height: int = 900) -> Iterator[Page]:
    """A page of Chromium, logged in to the server, that may reach nothing but this server."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=QUIET)
        try:
            page = browser.new_page(viewport={"width": width, "height": height})
            page.set_default_timeout(1000 * LOOK_SECONDS)
            page.goto(f"{address}/?token={TOKEN}", timeout=1000 * START_SECONDS)
            yield page
        finally:
            browser.close()


@dataclass(frozen=True)
class Chapter:
    """An open notebook in JupyterLab, driven by keyboard."""

    page: Page
    path: Path

    @property
    def panel(self) -> Locator:
        return self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")

    @property
    def notebook(self) -> Locator:
        return self.panel.locator(".jp-Notebook")

    def cell(self, index: int) -> Locator:
        """The cell at this place, which is attached only while it is in or near the view."""
        return self.notebook.locator(f'.jp-Cell[data-windowed-list-index="{index}"]')

    def wait_until_ready(self) -> None:
        """Until the kernel is there. (Before it has its name, JupyterLab asks which one a cell is for.)"""
        self.cell(0).wait_for(timeout=1000 * START_SECONDS)
        name = self.panel.locator(".jp-Toolbar-kernelName", has_text="Python 3")
        name.wait_for(timeout=1000 * START_SECONDS)
        self.until(lambda: self.kernel == "idle", START_SECONDS, "the kernel is not ready")

    @property
    def kernel(self) -> str:
        """What the kernel does, in JupyterLab's words."""
        indicator = self.panel.locator(".jp-Notebook-ExecutionIndicator")
        return indicator.get_attribute("data-status") or ""

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def run_cell(self, index: int) -> None:
        """Press Shift+Enter in the selected cell, which must be this one, and wait until it has run."""
        prompt = self.cell(index).locator(".jp-InputArea-prompt")
        is_code = "jp-CodeCell" in (self.cell(index).get_attribute("class") or "")
        self.page.locator(f'.jp-Cell.jp-mod-active[data-windowed-list-index="{index}"]').wait_for()
        self.press("Shift+Enter")
        if is_code:
            self.until(
                lambda: prompt.inner_text().strip("[]: \n").isdigit(), CELL_SECONDS, f"cell {index} runs"
            )
            self.until(lambda: self.kernel == "idle", CELL_SECONDS, f"the kernel is busy after cell {index}")

    def run_new_cell(self, source: str) -> None:
        """Below the selected cell."""
        self.press("Escape", "b", "Enter")
        self.page.keyboard.type(source)
        self.press("Shift+Enter")

    def stored(self) -> Any:
        """The notebook as it is on disk."""
        return nbformat.read(self.path, as_version=4)  # type: ignore[no-untyped-call]

    def saved(self) -> Any:
        """Save by keyboard, and read the notebook with its outputs."""
        before = self.path.stat().st_mtime_ns
        self.press("Control+s")
        self.until(lambda: self._is_written_since(before), LOOK_SECONDS, "the chapter is not saved")
        return self.stored()

    def _is_written_since(self, moment: int) -> bool:
        if self.path.stat().st_mtime_ns <= moment:
            return False
        try:
            json.loads(self.path.read_text(encoding="utf-8"))
        except json.JSONDecodeError:  # half of it
            return False
        return True

    def until(self, holds: Callable[[], bool], seconds: float, otherwise: str) -> None:
        """Wait for a condition. Raises `AssertionError` when it does not come true in time."""
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end:
                self.screenshot("failed")
                raise AssertionError(f"{otherwise}, after {seconds:g} s")
            self.page.wait_for_timeout(50)

    def screenshot(self, name: str) -> None:
        ARTEFACTS.mkdir(exist_ok=True)
        self.page.screenshot(path=ARTEFACTS / f"lab_{name}.png")

    def theme(self, name: Literal["Light", "Dark"]) -> None:
        """Choose a theme in the menu."""
        self.page.get_by_role("menuitem", name="Settings").click()
        self._menu_item("Theme").click()
        self._menu_item(f"JupyterLab {name}").click()
        light = str(name == "Light").lower()
        self.page.locator(f'body[data-jp-theme-light="{light}"]').wait_for(state="attached")

    def _menu_item(self, text: str) -> Locator:
        return self.page.locator(".lm-Menu-itemLabel").get_by_text(text, exact=True)


def errors(cells: Sequence[Any]) -> list[str]:
    """What went wrong in the outputs of these cells."""
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    return [f"{each.ename}: {each.evalue}" for each in outputs if each.output_type == "error"]
