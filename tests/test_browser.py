"""JupyterLab opens on chapter 00, which runs by keyboard; the live view follows what others record."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from optbook.lab import FIRST_NOTEBOOK
from tests.browser import LOOK_SECONDS, Chapter, browser_page, chromium, copy_workbook, errors, lab_server

expect.set_options(1000 * LOOK_SECONDS)

OTHER_PROCESS = """
import optbook
optbook.bench(lambda: sum(range(10_000)), label="from another process", runs=8)
"""


@pytest.fixture
def chapter(tmp_path: Path) -> Iterator[Chapter]:
    """Chapter 00, as JupyterLab opens it for someone who has just cloned the workbook."""
    workbook = copy_workbook(tmp_path / "workbook")
    with (
        lab_server(workbook, tmp_path / "home", OPTBOOK_QUICK="1", OMP_NUM_THREADS="1") as address,
        browser_page(address) as page,
    ):
        reached: list[str] = []
        faults: list[str] = []
        page.on("request", lambda request: reached.append(request.url))
        page.on("pageerror", lambda error: faults.append(str(error)))
        yield Chapter(page, workbook / FIRST_NOTEBOOK)
        assert [url for url in reached if not url.startswith((address, "data:", "blob:"))] == []
        assert faults == []


@pytest.mark.browser
@pytest.mark.timeout(900)
def test_a_newcomer_runs_chapter_00_by_keyboard_and_the_live_view_follows(chapter: Chapter) -> None:
    chapter.wait_until_ready()
    nothing_asks(chapter)
    chapter.screenshot("1_opened")

    chapter.cell(0).click()
    before = chapter.stored()
    for index in range(len(before.cells)):
        chapter.run_cell(index)
    after = chapter.saved()
    nothing_asks(chapter)
    assert errors(after.cells) == []
    assert [cell.source for cell in after.cells[: len(before.cells)]] == [c.source for c in before.cells]
    assert all(cell.execution_count for cell in after.cells if cell.cell_type == "code" and cell.source)

    benches = [n for n, cell in enumerate(before.cells) if cell.source.startswith("%%bench")]
    plots = [n for n, cell in enumerate(before.cells) if cell.source == "%progress"]
    assert benches
    assert plots
    for index in benches:
        a_bench_shows_its_table(chapter, index)
    for index in plots:
        a_plot_shows_progress(chapter, index, before.cells)
    look_at(chapter, chapter.cell(benches[0]), "2_bench")
    look_at(chapter, chapter.cell(plots[-1]), "3_progress")

    live_view_follows_and_filters(chapter)

    chapter.theme("Dark")
    look_at(chapter, chapter.cell(plots[-1]), "6_dark_progress")
    look_at(chapter, chapter.cell(benches[0]), "7_dark_bench")
    nothing_asks(chapter)


def nothing_asks(chapter: Chapter) -> None:
    """No dialog (such as which kernel), no notification (such as whether news are wanted)."""
    expect(chapter.page.locator(".jp-Dialog")).to_have_count(0)
    expect(chapter.page.locator(".Toastify__toast")).to_have_count(0)


def a_bench_shows_its_table(chapter: Chapter, index: int) -> None:
    table = chapter.cell(index).locator(".jp-OutputArea .optbook-experiment table")
    table.scroll_into_view_if_needed()
    expect(table).to_be_visible()
    expect(table.get_by_role("rowheader", name="throughput")).to_be_visible()
    expect(table).to_contain_text("batches/s")


def a_plot_shows_progress(chapter: Chapter, index: int, cells: list[Any]) -> None:
    plot = chapter.cell(index).locator(".optbook-progress svg[role=img]")
    plot.scroll_into_view_if_needed()
    expect(plot).to_be_visible()
    expect(plot).to_have_attribute("aria-label", re.compile(r"\d+ experiments.*; best .*batches/s"))
    words = chapter.cell(index).locator(".optbook-progress details")
    words.locator("summary").click()
    for cell in cells[:index]:
        if cell.source.startswith("%%bench"):
            label = cell.source.splitlines()[0].removeprefix("%%bench ").split(" --")[0]
            expect(plot.get_by_text(label, exact=True)).to_be_visible()
            expect(words).to_contain_text(label)
    words.locator("summary").click()


def live_view_follows_and_filters(chapter: Chapter) -> None:
    page = chapter.page
    chapter.run_new_cell("%optbook --live")
    label_filter = page.get_by_label("Label")
    view = page.locator(".jp-OutputArea-output", has=label_filter)
    table = view.get_by_role("table")
    expect(label_filter).to_be_visible()
    expect(table).to_contain_text("first version")
    expect(view.locator("svg[role=img]")).to_be_visible()
    look_at(chapter, view, "4_live")

    subprocess.run([sys.executable, "-c", OTHER_PROCESS], check=True, capture_output=True)
    expect(table).to_contain_text("from another process")

    label_filter.click()
    page.keyboard.type("another")
    expect(table).not_to_contain_text("first version")
    expect(table).to_contain_text("from another process")
    expect(table.locator("tbody tr")).to_have_count(1)
    expect(view.get_by_text(re.compile(r"^1 of \d+ experiments$"))).to_be_visible()
    look_at(chapter, view, "5_live_filtered")


def look_at(chapter: Chapter, what: Locator, name: str) -> None:
    what.evaluate("element => element.scrollIntoView({block: 'start'})")
    chapter.screenshot(name)


def test_without_chromium_the_test_fails_with_what_to_install() -> None:
    with pytest.raises(RuntimeError, match="Install Chromium"):
        chromium(lambda name: None)
