"""Every test has a log of its own and default settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from optbook.settings import OptBook


@pytest.fixture(autouse=True)
def log_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "experiments.sqlite"
    monkeypatch.setenv("OPTBOOK_LOG", str(path))
    return path


@pytest.fixture(autouse=True)
def _fresh_settings() -> Iterator[None]:
    OptBook.clear_instance()
    yield
    OptBook.clear_instance()
