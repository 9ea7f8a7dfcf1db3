"""The bar shown while a long workload is measured."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest

from optbook.benchmark.progress import DELAY_SECONDS, Progress
from tests.fakes import FakeClock


def test_a_short_measurement_shows_and_imports_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    fake = FakeClock()
    with Progress("quick", 5.0, now=lambda: fake.time) as progress:
        assert progress.step is not None
        progress.step()
        progress.elapsed(0.5)
    assert capsys.readouterr().err == ""


def test_a_long_one_shows_steps_or_seconds_and_leaves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for total, shown in ((40, "3/40"), (None, "4/5")):
        fake = FakeClock()
        with Progress("slow cell", 4.5, total, now=lambda fake=fake: fake.time) as progress:  # type: ignore[misc]
            for _ in range(3):
                fake.spend(DELAY_SECONDS)
                if total is None:
                    progress.elapsed(4.2)
                else:
                    assert progress.step is not None
                    progress.step()
            bar = progress._bar
            assert (bar.n, bar.total) == tuple(int(part) for part in shown.split("/"))
        assert bar.disable
        assert bar.total == bar.n  # a notebook keeps the bar of what has not reached its end
        err = capsys.readouterr().err
        assert "slow cell" in err
        assert err.rstrip(" ").endswith("\r")


def test_it_can_be_switched_off(capsys: pytest.CaptureFixture[str]) -> None:
    fake = FakeClock()
    with Progress("hidden", 5.0, shown=False, now=lambda: fake.time) as progress:
        fake.spend(100)
        progress.elapsed(100)
    assert progress.step is None
    assert capsys.readouterr().err == ""


def test_what_the_bars_library_complains_about_when_imported_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "tqdm").mkdir()
    (tmp_path / "tqdm" / "__init__.py").write_text("")
    (tmp_path / "tqdm" / "auto.py").write_text(
        "import warnings\nwarnings.warn('IProgress not found')\n"
        "class tqdm:\n    n = 0\n    def __init__(self, **options): pass\n"
        "    def update(self, n): pass\n    def close(self): pass\n"
    )
    for name in [name for name in sys.modules if name.split(".")[0] == "tqdm"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    fake = FakeClock()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with Progress("slow", 5.0, now=lambda: fake.time) as progress:
            fake.spend(10)
            progress.elapsed(3)
    assert "tqdm.auto" in sys.modules
    assert not seen
    for name in ("tqdm", "tqdm.auto"):
        monkeypatch.delitem(sys.modules, name)
