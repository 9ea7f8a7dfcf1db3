"""Take the README's picture anew: python -m docs.screenshot, from the root, where nothing else is running.

Chapter 00 runs up to its first plot of progress, by keyboard and with all of its work; the live view of the
log stands beside it.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from PIL import Image

from optbook.lab import FIRST_NOTEBOOK
from tests.browser import Chapter, browser_page, copy_workbook, lab_server

PICTURE = Path(__file__).with_suffix(".png")
SIZE = (1400, 900)
SEEN = (1600, 1029)  # pixels of the page; more of it fits in than into SIZE


def take(folder: Path) -> None:
    os.environ.pop("OPTBOOK_QUICK", None)
    workbook = copy_workbook(folder / "workbook")
    log = str(folder / "experiments.sqlite")
    with (
        lab_server(workbook, folder / "home", OPTBOOK_LOG=log) as address,
        browser_page(address, *SEEN) as page,
    ):
        chapter = Chapter(page, workbook / FIRST_NOTEBOOK)
        chapter.wait_until_ready()
        sources = [cell.source for cell in chapter.stored().cells]
        last = sources.index("%progress")
        chapter.cell(0).click()
        for index in range(last + 1):
            chapter.run_cell(index)
        chapter.run_new_cell("%optbook --live")
        label_filter = page.get_by_label("Label")
        label_filter.wait_for()
        page.locator(".jp-OutputArea-output", has=label_filter).click(
            button="right", position={"x": 20, "y": 60}
        )
        page.get_by_text("Create New View for Cell Output").click()
        page.locator(".jp-LinkedOutputView").get_by_role("table").wait_for()
        page.get_by_role("tab", name="Output View").hover()
        page.mouse.down()
        page.mouse.move(SEEN[0] - 60, SEEN[1] / 3, steps=20)  # from below the chapter to its right
        page.mouse.up()
        page.locator(".lm-DockPanel-handle[data-orientation=horizontal]:visible").hover()
        page.mouse.down()
        page.mouse.move(SEEN[0] * 0.55, SEEN[1] / 2, steps=10)
        page.mouse.up()
        page.get_by_role("tab", name="File Browser").click()  # folds it away
        bench = max(n for n in range(last) if sources[n].startswith("%%bench"))
        chapter.cell(bench).evaluate("element => element.scrollIntoView({block: 'start'})")
        page.screenshot(path=PICTURE)
    shrink(PICTURE)


def shrink(path: Path) -> None:
    """To the README's size, with 256 colours, which is a quarter of the bytes."""
    with Image.open(path) as picture:
        small = picture.convert("RGB").resize(SIZE, Image.Resampling.LANCZOS)
    few = small.quantize(256, method=Image.Quantize.MAXCOVERAGE, kmeans=3, dither=Image.Dither.NONE)
    few.save(path, optimize=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        take(Path(folder))
