"""Every test has a log of its own and default settings; tests marked alone run in a pass of their own."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from optbook.settings import OptBook


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--alone", action="store_true", help="run only the tests that need the machine to themselves"
    )


def pytest_configure(config: pytest.Config) -> None:
    if in_parallel(config):
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # each process has one of the cores


def in_parallel(config: pytest.Config) -> bool:
    """Whether this is one of the processes between which pytest-xdist divides the tests."""
    return hasattr(config, "workerinput")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The tests of this pass, the longest first."""
    alone = config.getoption("alone")
    if alone or in_parallel(config):
        chosen: list[pytest.Item] = []
        left_out: list[pytest.Item] = []
        for item in items:
            of_this_pass = (item.get_closest_marker("alone") is not None) == alone
            (chosen if of_this_pass else left_out).append(item)
        items[:] = chosen
        config.hook.pytest_deselected(items=left_out)
    items.sort(key=lambda item: not item.get_closest_marker("notebook"))


@pytest.fixture(scope="session", autouse=True)
def _log_outside_of_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPTBOOK_LOG", str(tmp_path_factory.getbasetemp() / "experiments.sqlite"))
        yield


@pytest.fixture(scope="module")
def collected_heap() -> Iterator[None]:
    """What is there already, half a million objects, left out of the collection that starts a measurement.

    For tests that measure often and don't look for objects: what is frozen has no referrers.
    """
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def log_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "experiments.sqlite"
    monkeypatch.setenv("OPTBOOK_LOG", str(path))
    return path


@pytest.fixture(scope="session", autouse=True)
def _interrupts() -> None:
    """The processes of pytest-xdist start with interrupts switched off; tests raise them on purpose."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _fresh_settings() -> Iterator[None]:
    OptBook.clear_instance()
    yield
    OptBook.clear_instance()
