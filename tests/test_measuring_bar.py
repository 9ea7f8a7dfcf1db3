"""The bar shown while a long workload is measured."""

from __future__ import annotations

import sys
import warnings
from types import SimpleNamespace

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


def test_missing_widgets_are_not_complained_about(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "tqdm"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    kernel = SimpleNamespace(config={"IPKernelApp": {}})
    monkeypatch.setattr("IPython.get_ipython", lambda: kernel)
    fake = FakeClock()
    with (
        warnings.catch_warnings(record=True) as seen,
        Progress("slow", 5.0, now=lambda: fake.time) as progress,
    ):
        warnings.simplefilter("always")
        fake.spend(10)
        progress.elapsed(3)
    assert not seen
