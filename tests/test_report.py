"""The report: what it tells, that nothing in a log is trusted, and where it may be written."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import optbook
from optbook import cli
from optbook.errors import OptionError
from optbook.experiments.checked import ResultCheck, record_check, result_checks
from optbook.experiments.log import record_profile, session
from optbook.experiments.record import Experiment
from optbook.formatting import duration
from optbook.repeat.journey import journey
from optbook.repeat.pictures import MOST_BARS, bars, waterfall, waterfall_in_words
from optbook.repeat.report import Report
from optbook.simplify.predictions import Predictions
from tests.logs import frame_of, measured, store_at, story
from tests.test_overview import Reader
from tests.test_stopping import ceiling_of

EVIL = "<script>alert(1)</script>|`x`*y*[z](javascript:1)\n<img src=x>"
EVIL_IN_MARKDOWN = r"\<script\>alert(1)\</script\>\|\`x\`\*y\*\[z\](javascript:1) \<img src=x\>"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.main, ["report", *arguments], prog_name="optbook")


@pytest.fixture
def told(log_path: Path) -> None:
    """A log with a goal, a price, a ceiling and a check of results."""
    experiments = story()
    store_at(log_path, *experiments)
    optbook.goal("100 batches/s", because="we meet at 8", price="$0.90/h", training=72_000)
    record_profile(ceiling_of(experiments[-1], 2.0))
    record_check(ResultCheck("as it was", "decode once", True, "same results: 3 values, all equal"))


def both(report: Any) -> tuple[str, str]:
    return Reader(report._repr_html_()).text, report.markdown().replace("\\", "")


@pytest.mark.usefixtures("told")
def test_before_and_after_are_told_in_time_and_in_money() -> None:
    for page in both(optbook.report()):
        words = " ".join(re.sub(r"[|\s]+", " ", page).split())
        assert "From 4.00 batches/s to 16.0 batches/s: 4.00× as fast" in words
        assert "throughput 4.00 batches/s 16.0 batches/s 4.00× as fast" in words
        assert "time for a training run 5 h 00 min 75 min 00 s 3 h 45 min saved" in words
        assert "cost of a training run 4.50 $ 1.12 $ 3.38 $ saved" in words
        assert "the goal 84 % 63 min 00 s 0.95 $" in words
        assert "the ceiling (decode free) 50 % 37 min 30 s 0.56 $" in words


@pytest.mark.usefixtures("told")
def test_what_to_do_what_brought_it_and_what_was_not_checked_are_told() -> None:
    for page in both(optbook.report()):
        words = " ".join(re.sub(r"[|\s]+", " ", page).split())
        assert "Goal: 100 batches/s, because we meet at 8" in words
        assert "Go on with decode, 2.00× to gain" in words
        assert "4 decode once 8.00 batches/s 2.00× 2.00× same results: 3 values, all equal" in words
        assert "8 two workers 16.0 batches/s 2.00× 4.00× not checked" in words
        assert "nobody checked that the results are the same: two workers." in words
        assert "1 experiment with stubs: not figures of the real system" in words
        assert "1 experiment void" in words
        assert "reuse one batch" in words
        assert "float32" not in words.split("Experiments")[0].split("What brought it")[1]


@pytest.mark.usefixtures("told")
def test_the_page_needs_nothing_else_and_every_plot_has_words() -> None:
    page = optbook.report().html()
    assert page.startswith("<!DOCTYPE html>")
    assert not re.search(r"<script|\bsrc=|href=\"http|@import|url\(http", page.replace('xlink:href="#', ""))
    assert "default-src 'none'" in page
    assert len(re.findall(r'<svg role="img" aria-label="[^"]{20,}"', page)) == page.count("<svg ") == 3
    assert page.count("<figcaption>") == 3
    assert "@media print" in page
    assert "color-scheme: light dark" in page


def hostile(label: str) -> Experiment:
    return measured(label, 2.0, stubs="", participant=label, machine=label, gpu=label, git_revision=label,
                    warnings=(label,), versions={label: label}, metrics={label: 0.5}, expected=label,
                    git_dirty=True).replace(unit="batch")  # fmt: skip


def test_nothing_in_a_log_is_trusted_as_markup(log_path: Path) -> None:
    unit = "<b>x</b>_*"
    first = hostile(EVIL).replace(unit=unit, units={unit: 2.0})
    second = first.replace(
        id="b" * 32, throughput=9.0, throughput_low=8.9, throughput_high=9.1, units={unit: 9.0}
    )
    store_at(log_path, first, second, Experiment(label=EVIL, status="failed", error=EVIL))
    record_profile(ceiling_of(second, 1.9, EVIL))
    record_check(ResultCheck(EVIL, EVIL, False, EVIL))
    report = optbook.report(unit=unit)
    assert not {"script", "img", "b"} & set(Reader(report._repr_html_()).tags)
    assert not re.search("<(script|img|b)[ >]", report.html())
    text = report.markdown()
    assert EVIL_IN_MARKDOWN in text
    assert not re.search(r"(?<!\\)<|(?<!\\)`", text)
    table = [line for line in text.splitlines() if line.startswith("| 1 |")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {7, 12}


def test_a_goal_is_not_trusted_either(log_path: Path) -> None:
    store_at(log_path, measured("a", 2.0), measured("b", 4.0))
    optbook.goal("5 batches/s", because=EVIL)
    report = optbook.report()
    assert "<script" not in report.html()
    assert EVIL_IN_MARKDOWN in report.markdown()


def test_a_password_is_never_shown(log_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store_at(log_path, measured("a", 2.0))
    found = optbook.report()
    monkeypatch.setenv("OPTBOOK_LOG", "postgresql+psycopg://ann:secret@127.0.0.1:1/room")
    assert "secret" not in str(session().location.shown)
    assert "secret" not in found.html()
    result = run("-o", "x.html")
    assert result.exit_code == 1
    assert "secret" not in result.output


@pytest.mark.parametrize(
    "experiments",
    [
        (),
        (measured("only", 4.0),),
        (Experiment(label="a", unit="batch", status="failed"), Experiment(label="b", status="interrupted")),
        (measured("a", 4.0, stubs="load"),),
        (measured("a", 4.0), measured("b", 3.0)),
        (measured("there", 40.0, machine="big"), measured("here", 4.0, machine="small")),
        (Experiment(label="bare", throughput=1.0), Experiment(label="more", throughput=3.0)),
    ],
)
def test_any_log_gives_a_report(log_path: Path, experiments: tuple[Experiment, ...]) -> None:
    if experiments:
        store_at(log_path, *experiments)
    report = optbook.report()
    assert Reader(report._repr_html_()).text.strip()
    assert report.markdown().startswith("# ")
    assert "nan" not in report.markdown().lower()
    assert str(report) == report.markdown()


def test_a_million_units_stand_in_for_a_training_run(log_path: Path) -> None:
    store_at(log_path, measured("a", 2.0), measured("b", 4.0))
    optbook.goal("5 batches/s", price=3.6)
    assert "cost of a million batches | 500.00 | 250.00 | 250.00 saved" in optbook.report().markdown()
    assert "time for a million images | 8 h 41 min" in optbook.report(unit="image").markdown()


def test_figures_of_both_stand_beside_each_other(log_path: Path) -> None:
    store_at(log_path, measured("a", 2.0, metrics={"acc": 0.97}), measured("b", 4.0, metrics={"acc": 0.5}))
    text = optbook.report().markdown()
    assert "| acc | 0.9700 | 0.5000 |" in text
    assert "acc 0.5000, was 0.9700" in text


def test_the_same_experiment_measured_again_is_no_silent_improvement(log_path: Path) -> None:
    store_at(log_path, measured("train", 10), measured("train", 13), measured("other", 20))
    page, text = both(optbook.report())
    for told in (page, text):
        assert "train (#2) bears the name of #1" in told
        assert "the 1.30× are the machine" in told
        assert "other (#" not in told


def test_another_module_makes_it_another_experiment(log_path: Path) -> None:
    store_at(log_path, measured("train", 10), measured("train", 13, modules_hash="b"))
    assert "bears the name" not in str(optbook.report())


def test_a_long_log_shows_the_last(log_path: Path) -> None:
    store_at(log_path, *(measured(f"try {n}", 2.0 + n) for n in range(130)))
    text = optbook.report().markdown()
    assert text.count("| try ") < 130 + 30
    assert "| 130 | try 129 |" in text


def test_the_unit_is_the_goals_if_something_counts_it(log_path: Path) -> None:
    store_at(log_path, measured("a", 2.0))
    optbook.goal("100 images/s")
    optbook.goal("5 tokens/s")
    assert optbook.report().journey.unit == "image"
    assert optbook.report(unit="batch").journey.goal is None
    with pytest.raises(OptionError, match="'tokens': use one of batch, image"):
        optbook.report(unit="tokens")


def test_it_is_written_as_its_suffix_says(log_path: Path, tmp_path: Path) -> None:
    store_at(log_path, *story())
    for name, start in (
        ("a.html", "<!DOCTYPE"),
        ("b.HTM", "<!DOCTYPE"),
        ("c.md", "# From"),
        ("d.markdown", "# From"),
    ):
        optbook.report(tmp_path / name)
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def to_a_file(tmp_path: Path) -> str:
    (tmp_path / "there.html").write_text("mine")
    return "there.html"


def to_a_missing_folder(tmp_path: Path) -> str:
    return "nowhere/report.html"


def to_a_folder(tmp_path: Path) -> str:
    (tmp_path / "folder.html").mkdir()
    return "folder.html"


def as_a_pdf(tmp_path: Path) -> str:
    return "report.pdf"


def files_in(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if not path.name.startswith("experiments.sqlite")}


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (to_a_file, "is there already: give another name, or --force"),
        (to_a_missing_folder, "the folder .* is not there: create it"),
        (to_a_folder, "is a folder: name a file in it"),
        (as_a_pdf, "ends neither in .html nor in .md"),
    ],
)
def test_where_it_can_not_be_written_is_one_line(
    log_path: Path, tmp_path: Path, prepare: Callable[[Path], str], said: str
) -> None:
    store_at(log_path, *story())
    path = tmp_path / prepare(tmp_path)
    before = files_in(tmp_path)
    result = run("-o", str(path))
    assert result.exit_code == 1
    assert re.fullmatch(f"Error: .*{said}.*\n", result.output)
    assert files_in(tmp_path) == before
    with pytest.raises(OptionError, match=said):
        optbook.report(path)


def test_a_file_is_replaced_only_when_asked(log_path: Path, tmp_path: Path) -> None:
    store_at(log_path, *story())
    path = tmp_path / to_a_file(tmp_path)
    assert run("-o", str(path)).exit_code == 1
    assert path.read_text() == "mine"
    assert run("-o", str(path), "--force").exit_code == 0
    assert path.read_text().startswith("<!DOCTYPE")


def test_no_rights_to_write_is_one_line(
    log_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_at(log_path, *story())

    def refuse(self: Path, *args: object, **kwargs: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(OptionError, match=r"can't be written \(Permission denied\): give another path"):
        optbook.report(tmp_path / "report.md")
    assert not (tmp_path / "report.md").exists()


def test_the_command_prints_it_or_says_where_it_is(log_path: Path, tmp_path: Path) -> None:
    store_at(log_path, *story())
    assert run().output.startswith("# From 4.00 batches/s")
    result = run("--output", str(tmp_path / "x.md"), "--unit", "image")
    assert (result.exit_code, result.output) == (0, f"Written to {tmp_path / 'x.md'}.\n")
    assert "256 images/s" in (tmp_path / "x.md").read_text(encoding="utf-8")
    assert run("--unit", "tokens").exit_code == 1


def test_a_foreign_file_for_a_log_is_one_line(log_path: Path) -> None:
    log_path.write_text("not a database")
    result = run()
    assert result.exit_code == 1
    assert result.output.count(os.linesep) == 1


def test_a_comparison_that_checks_results_is_kept(log_path: Path) -> None:
    def work() -> int:
        return sum(range(100))

    optbook.compare(work, work, ("before", "after"), same=True, budget=0.05)
    optbook.compare(work, work, ("unchecked", "too"), budget=0.05)
    (check,) = result_checks(session().profiles())
    assert (check.first, check.second, check.holds) == ("before", "after", True)
    assert len(optbook.log()) == 0


def test_checks_that_can_not_be_read_are_passed_over(log_path: Path) -> None:
    import dataclasses

    record_check(ResultCheck("a", "b", True, "same"))
    (profile,) = session().profiles()
    for table in ("", "{}", '{"columns": [], "data": []}', '{"columns": ["first"], "data": [[1]]}'):
        assert result_checks([dataclasses.replace(profile, table=table)]) == []


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (5, "5.00 s"),
        (3000, "50 min 00 s"),
        (7200, "2 h 00 min"),
        (86_400, "24 h 00 min"),
        (8.64e5, "10.0 days"),
    ],
)
def test_long_times_are_told_in_hours_and_days(seconds: float, written: str) -> None:
    assert duration(seconds) == written


def test_many_experiments_make_no_large_page(log_path: Path) -> None:
    frame = frame_of(*(measured(f"try {n}", 1.0 + n) for n in range(1200)))
    way = journey(frame, "batch", None, ())
    nobody = Predictions(())
    page = Report(frame, way, "here", nobody, (), datetime(2026, 1, 1)).html()
    assert len(page) < 600_000
    assert "image/png;base64" in page
    assert "img-src data:" in page
    assert page.count("<rect") < 200
    assert "try 1199" in page
    assert re.search(r"nobody checked .*, try \d+ and \d+ more\.", page)


def test_a_waterfall_of_many_steps_starts_at_the_step_before(log_path: Path) -> None:
    way = journey(frame_of(*(measured(f"try {n}", 2.0**n) for n in range(30))), "batch", None, ())
    assert [point.label for point in bars(way)] == [f"try {n}" for n in range(30 - MOST_BARS, 30)]
    assert waterfall_in_words(way).startswith(f"From {2 ** (30 - MOST_BARS):.1f} batches/s: try 7 2.00×")
    drawn = [text.get_text() for text in waterfall(way).axes[0].texts]
    assert drawn == ["64.0 batches/s", *["2.00×"] * (MOST_BARS - 1)]
