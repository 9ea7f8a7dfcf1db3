"""An interrupt while a module is imported: the import is complete all the same."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest

from optbook.experiments.imports import import_whole


def test_an_interrupt_comes_after_the_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "slow_to_import"
    package.mkdir()
    (package / "__init__.py").write_text("import time\nSTARTED = time.perf_counter()\nfrom . import part\n")
    (package / "part.py").write_text("import time\ntime.sleep(0.3)\nDONE = time.perf_counter()\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    started = time.perf_counter()
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt):
            import_whole("slow_to_import")
    finally:
        signal.signal(signal.SIGALRM, before)
    module = import_whole("slow_to_import")
    assert module is sys.modules["slow_to_import"]
    assert started < module.STARTED < module.part.DONE


def test_what_cannot_be_imported_is_told() -> None:
    with pytest.raises(ImportError, match="no_such_module_here"):
        import_whole("no_such_module_here")
