"""What %optbook and %progress show."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import optbook
from optbook.errors import OptionError
from optbook.experiments.location import Location
from optbook.experiments.record import Experiment
from optbook.repeat.overview import Overview, Progress, overview, progress, table_html, table_rows
from tests.logs import frame_of, measured, store_at, story

HERE = Location("x", "/tmp/<x>.sqlite", "as OPTBOOK_LOG says", "it is <slow>")


class Reader(HTMLParser):
    """Tags and text of a page; fails the test on a tag that is never closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        self.tags.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + " "


def test_the_rows_say_what_is_known() -> None:
    first, stubbed, failed, *_ = table_rows(frame_of(*story()))
    assert first == (
        "1", "first version", "ok", "4.00 batches/s", "± 5.0 %", "250 ms", "1.0×", "1.4", "1.00 GiB", "", ""
    )  # fmt: skip
    assert stubbed[6] == "(9.8×)"
    assert stubbed[9] == "load"
    assert failed == ("3", "more workers", "failed", "", "", "", "", "", "", "", "")
    assert table_rows(frame_of(*story()))[5][6:] == ("(7.5×)", "1.4", "1.00 GiB", "", "1")


def test_the_table_shows_the_last_ones_by_their_number_in_the_log() -> None:
    rows = table_rows(frame_of(*story()), last=2)
    assert [row[0] for row in rows] == ["7", "8"]
    assert "6 earlier ones are in optbook.log()" in table_html(frame_of(*story()), last=2)


def test_the_page_and_the_text_say_the_same() -> None:
    shown = Overview(frame_of(*story()), HERE, "batch")
    page, text = Reader(shown._repr_html_()), str(shown)
    for words in (
        "first version",
        "39.0 batches/s",
        "(9.8×)",
        "interrupted",
        "/tmp/<x>.sqlite",
        "it is <slow>",
    ):
        assert words in page.text
        assert words in text
    assert "svg" in page.tags
    assert "best 16.0 batches/s, 4.0× the first" in text
    assert 'aria-label="8 experiments (1 stubbed' in shown._repr_html_()


def test_nothing_in_the_log_is_trusted_as_html() -> None:
    evil = '<img src=x onerror="alert(1)">'
    hostile = measured(evil, 2.0, stubs=evil, warnings=(evil,)).replace(unit=evil, units={evil: 2.0})
    frame = frame_of(hostile, Experiment(label=evil, status="failed", error=evil), measured("b", 3.0))
    for page in (
        Overview(frame, Location(evil, evil, evil, evil), evil)._repr_html_(),
        Progress(frame, evil)._repr_html_(),
    ):
        assert "img" not in Reader(page).tags
        assert "<img" not in page


def test_colours_come_from_the_theme() -> None:
    page = Overview(frame_of(*story()), HERE, "batch")._repr_html_()
    assert all("," in use for use in re.findall(r"var\(--jp-[^)]*\)", page))  # each has a fallback
    assert "currentColor" in page


def test_an_empty_log_says_how_to_fill_it(log_path: Path) -> None:
    for shown in (overview(), progress()):
        assert "No experiments yet: measure something with %%bench" in str(shown)
        assert "No experiments yet" in Reader(shown._repr_html_()).text
    assert str(log_path) in str(overview())
    assert not log_path.exists()


def test_progress_reads_the_log(log_path: Path) -> None:
    store_at(log_path, *story())
    assert len(progress().frame) == 8
    assert optbook.progress is progress
    assert len(progress(label="E").frame) == 6
    assert list(progress(label="e", last=2).frame["label"]) == ["compiled", "two workers"]
    assert progress(unit="image").unit == "image"
    assert progress().figure().axes[0].get_ylabel() == "batches/s"
    assert "in words" in progress()._repr_html_()
    with pytest.raises(OptionError, match="'tokens': use one of batch, image"):
        progress(unit="tokens")
    with pytest.raises(OptionError, match="last is -1"):
        progress(last=-1)
    assert "No experiments yet" not in str(overview())


def test_the_figures_are_those_of_the_log_and_where_it_lies(log_path: Path) -> None:
    store_at(log_path, *story())
    shown = overview(last=3)
    assert shown.unit == "batch"
    assert str(shown).count("\n") == 8
    assert f"The log lies in {log_path}, as OPTBOOK_LOG says." in str(shown)


def test_a_terminal_gets_the_text() -> None:
    class Printer:
        written = ""

        def text(self, words: str) -> None:
            self.written += words

    printer = Printer()
    Progress(frame_of(*story()), "batch")._repr_pretty_(printer, False)
    Overview(frame_of(*story()), HERE, "batch")._repr_pretty_(printer, False)
    assert "two workers" in printer.written
