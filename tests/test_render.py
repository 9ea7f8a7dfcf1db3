from __future__ import annotations

from html.parser import HTMLParser

import pytest

from optbook.experiments import render
from optbook.experiments.record import Experiment

FULL = Experiment(
    label="tracked", unit="batch", throughput=340.2, throughput_low=335.0, throughput_high=345.0,
    units={"batch": 340.2, "sample": 10886.4}, seconds=0.00294, steps=30, runs=1, warmup=5, executions=1,
    times=(0.0029,) * 28 + (0.003, 0.02), wait_share=0.61, startup_seconds=0.2, parts={"augment": 0.05},
    cpu_cores=1.1, cpu_share=0.55, cores=2.0,
    memory_peak=512 * 2**20, memory_growth=2**20, memory_children=2**30,
    metrics={"acc": 0.97}, warnings=("look out",),
)  # fmt: skip


class Tags(HTMLParser):
    """Collects the tags of a document."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)


def test_text_says_all_that_html_says() -> None:
    text = render.as_text(FULL)
    html = render.as_html(FULL)
    for name, value in render.rows(FULL):
        assert value in text
        assert name in html
    assert "340 batches/s ± 1.5 %" in text
    assert "10\u202f900 samples/s" in text
    assert "30 steps after 5 of warm-up; the workload ran once" in text
    assert "1.1 of 2 cores busy (55 %)" in text
    assert "slowest 20.0 ms" in text
    assert "  ! look out" in text
    assert "look out" in html


def test_what_is_not_known_is_not_shown() -> None:
    assert render.as_text(Experiment(label="nothing")) == "nothing"


def test_a_stubbed_experiment_never_passes_for_a_real_one() -> None:
    for shown in (
        render.as_text(FULL.replace(stubs="augment")),
        render.as_html(FULL.replace(stubs="augment")),
    ):
        assert "augment replaced by stubs: not a figure of the real system" in shown


@pytest.mark.parametrize("status", ["failed", "interrupted", "void"])
def test_status_is_shown(status: str) -> None:
    e = Experiment(label="x", status=status, error="why")  # type: ignore[arg-type]
    assert f"x [{status}]" in render.as_text(e)
    assert "why" in render.as_html(e)


def test_hostile_text_stays_text() -> None:
    bad = "<img src=x onerror=alert(1)>\"'\n\x00"
    e = FULL.replace(label=bad, error=bad, stubs=bad, unit=bad, units={bad: 1.0}, parts={bad: 1.0},
                     metrics={bad: 1.0}, warnings=(bad,), status="failed")  # fmt: skip
    assert set(Tags(render.as_html(e)).tags) <= {
        "div", "table", "tr", "th", "td", "ul", "li", "svg", "title", "g", "circle", "line", "text", "tbody",
    }  # fmt: skip
    assert "\x00" not in render.as_text(e)
    assert len(render.as_text(e.replace(label="y" * 10_000)).splitlines()[0]) < 250


def test_the_strip_keeps_spikes_and_says_in_words_what_it_shows() -> None:
    times = [0.001] * 10_000
    times[5_000] = 0.1
    picture = render.strip(times, "run")
    assert picture.count("<circle") <= render.STRIP_POINTS
    assert 'cy="3.0"' in picture  # the slowest, at the top
    assert "10000 runs in their order, from 0 to 100 ms" in picture
    assert ">100 ms</text>" in picture
    assert render.strip([1.0], "run") == ""
    assert "nan" not in render.strip([0.0, 0.0], "run")


def test_an_unknown_status_is_refused() -> None:
    with pytest.raises(ValueError, match="use one of ok, failed"):
        Experiment(label="x", status="great")  # type: ignore[arg-type]
