from __future__ import annotations

import math

import pytest

from optbook import formatting as write

NUMBERS = [
    (0, "0"), (1, "1.00"), (0.1234, "0.123"), (99.96, "100"), (9.999, "10.0"), (1234.6, "1\u202f230"),
    (1e20, "1.00e+20"), (-3.14159, "-3.14"), (5e-324, "4.94e-324"),
    (None, "—"), (math.nan, "—"), (math.inf, "—"),
]  # fmt: skip
SECONDS = [
    (0, "0 s"), (1.5, "1.50 s"), (0.0123, "12.3 ms"), (0.99996, "1.00 s"), (2e-6, "2.00 µs"),
    (3e-9, "3.00 ns"), (125, "2 min 05 s"), (None, "—"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), NUMBERS)
def test_number(value: float | None, text: str) -> None:
    assert write.number(value) == text


@pytest.mark.parametrize(("value", "text"), SECONDS)
def test_seconds(value: float | None, text: str) -> None:
    assert write.seconds(value) == text


def test_bytes_percent_rate_and_spread() -> None:
    assert write.bytes_(512 * 2**20) == "512 MiB"
    assert write.bytes_(12) == "12 B"
    assert write.bytes_(None) == "—"
    assert write.percent(0.5) == "50 %"
    assert write.percent(1.0) == "100 %"
    assert write.percent(None) == "—"
    assert write.rate(340.2, "batch") == "340 batches/s"
    assert write.rate(None, "env_step") == "— env steps/s"
    assert write.spread(100, 98, 102) == "± 2.0 %"
    assert write.spread(100, None, 102) == ""


def test_plurals() -> None:
    assert [write.plural(u) for u in ("run", "batch", "env_step", "pictures")] == [
        "runs", "batches", "env steps", "pictures",
    ]  # fmt: skip
