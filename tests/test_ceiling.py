"""Ceilings: exact on a clock that components move, whatever the system's shape; nothing is left behind."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import optbook
from optbook.benchmark.progress import Progress
from optbook.errors import OptbookError, OptionError
from optbook.experiments import log
from optbook.simplify import stubs
from optbook.simplify.ceiling import ceiling
from optbook.simplify.result import Ceiling, Estimate, Pair, Part
from optbook.simplify.whatif import added, agreed, possible, within
from tests.fakes import FakeClock
from tests.shells import shell_with_optbook

TIME = FakeClock()
BUDGET = 1.3
STATE: dict[str, Any] = {"runs": 0}


def decode(i: int) -> int:
    TIME.spend(0.003)
    return i


def augment(x: int) -> int:
    TIME.spend(0.001)
    return x + 1


def train(x: int) -> float:
    TIME.spend(0.002)
    return x * 0.5


def serial() -> None:
    """A sum: 3 + 1 + 2 ms, and 1 ms that is no component's."""
    for i in range(2):
        train(augment(decode(i)))
    TIME.spend(0.002)


def tracked() -> None:
    for i in optbook.track(range(40)):
        train(augment(decode(i)))


def overlapped() -> None:
    """Two that run side by side: the slower one decides."""
    start = TIME.time
    decode(1)
    ready = TIME.time
    TIME.time = start
    train(1)
    TIME.time = max(ready, TIME.time)


def never() -> None: ...


def fragile(x: int) -> int:
    TIME.spend(0.001)
    STATE["runs"] += 1
    return int(STATE["runs"])


def needs_it() -> None:
    before = STATE["runs"]
    decode(1)
    fragile(1)
    if STATE["runs"] == before:
        raise RuntimeError("nothing moved")


def take(function: Callable[[], object], names: list[Any] | None = None, **options: Any) -> Ceiling:
    return ceiling(function, names, clock=TIME.clock, budget=BUDGET, **options)


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    assert stubs.active() == ()


@pytest.mark.parametrize(("work", "unit"), [(serial, "run"), (tracked, "batch")])
def test_free_alone_and_gaps_of_a_sum_are_exact(work: Callable[[], None], unit: str) -> None:
    found = take(work, ["decode", "augment", "train"], steps=8)
    rest = 0.002 if unit == "run" else 0.0
    per = 2 if unit == "run" else 1
    whole = per * 0.006 + rest
    assert found.unit == unit
    assert found.seconds == pytest.approx(whole)
    for name, cost in (("decode", 0.003), ("augment", 0.001), ("train", 0.002)):
        part = found[name]
        assert part.calls == per
        assert part.seconds == pytest.approx(cost, rel=0.01)
        assert part.free is not None
        assert part.alone is not None
        assert part.free.ratio == pytest.approx(whole / (whole - per * cost))
        assert part.free.gap == pytest.approx(per * cost / whole)
        assert part.alone.ratio == pytest.approx(whole / (per * cost + rest))
    assert found["decode"].next == "train"
    assert found["train"].next == "decode"
    assert found.bottleneck is found["decode"]
    assert found.pairs == ()


def test_a_speed_up_of_a_summand_needs_no_imitation() -> None:
    found = take(serial, ["decode", "train"], speedup=[4, 2])
    whole = 0.014
    for speedup in (2.0, 4.0):
        left = whole - 0.006 * (1 - 1 / speedup)
        assert found["decode"].faster[speedup].ratio == pytest.approx(whole / left, rel=1e-3)
        assert not found["decode"].faster[speedup].doubtful


def test_what_another_hides_is_told() -> None:
    found = take(overlapped, ["decode", "train"])
    assert found["train"].free == Estimate(1.0, 1.0, 1.0)
    assert found["decode"].free is not None
    assert found["decode"].free.ratio == pytest.approx(1.5)
    assert found["decode"].next == "train"
    [pair] = found.pairs
    assert (pair.hiding, pair.hidden) == ("decode", "train")
    assert "train alone brings nothing because decode hides it" in str(found)
    assert "decode limits" in str(found)
    assert "train limits next" in str(found)


def test_the_frame_has_what_scripts_rely_on() -> None:
    frame = take(serial, ["decode"], speedup=[2]).to_frame()
    assert list(frame["component"]) == ["decode", "decode"]
    assert list(frame["speedup"]) == [2.0, math.inf]
    assert frame["predicted_ratio"].is_monotonic_increasing
    assert {"low", "high", "alone_ratio"} <= set(frame)
    alone = frame["alone_ratio"].iloc[0]
    assert alone == pytest.approx(0.014 / 0.006, rel=0.01)


def test_what_cannot_be_removed_is_told_and_the_others_go_on() -> None:
    found = take(needs_it, ["decode", "fragile", "never"])
    assert "RuntimeError: nothing moved" in found["fragile"].error
    assert "never called" in found["never"].error
    assert found["decode"].free is not None
    assert "not removable" in str(found)


def test_every_variant_is_logged_as_simplified_beside_the_real_one() -> None:
    found = take(serial, ["decode", "augment", "train"], label="sum")
    frame = optbook.log()
    mine = frame[frame["label"].str.startswith("sum")]
    real = mine[mine["stubs"] == ""]
    assert list(real["id"]) == [found.experiment]
    assert set(mine["stubs"]) >= {"decode", "augment", "train", "decode,augment,train", "augment,train"}
    [stored] = log.profiles("sum")
    assert (stored.kind, stored.experiment, str(stored)) == ("ceiling", found.experiment, str(found))


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        ([], {}, "components is empty"),
        ("decode", {}, "give a list"),
        (["decod"], {}, "did you mean decode"),
        (["decode", "decode"], {}, "named twice"),
        (["serial"], {}, "is the workload itself"),
        (["print"], {}, "can't be replaced"),
        (["decode"], {"speedup": [1]}, "factors above 1"),
        (["decode"], {"speedup": [0.5]}, "factors above 1"),
        (["decode"], {"speedup": ["2"]}, "factors above 1"),
        (["decode"], {"speedup": [True]}, "factors above 1"),
        (["decode"], {"speedup": [math.nan]}, "factors above 1"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_runs(
    names: Any, options: dict[str, Any], message: str
) -> None:
    before = TIME.time
    with pytest.raises(OptionError, match=message):
        take(serial, names, **options)
    assert TIME.time == before


def test_a_real_workload_that_raises_ends_it_and_is_recorded() -> None:
    def work() -> None:
        decode(1)
        raise KeyError("gone")

    with pytest.raises(KeyError, match="gone"):
        take(work, ["decode"], label="broken")
    assert optbook.log().iloc[-1]["status"] == "failed"


def test_an_interrupt_under_a_stub_takes_the_stubs_away() -> None:
    calls = 0

    def work() -> None:
        nonlocal calls
        calls += 1
        decode(1)
        if calls > 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        take(work, ["decode"])
    assert decode(7) == 7


def test_a_ceiling_inside_a_measured_workload_is_refused() -> None:
    with pytest.raises(OptbookError, match="running already"):
        optbook.bench(lambda: take(serial, ["decode"]), "outer", runs=1)


def test_candidates_are_found_without_names() -> None:
    with shell_with_optbook() as shell:
        shell.run_cell(
            "def slow(n):\n    return sum(i * i for i in range(n))\n"
            "def quick(n):\n    return sum(range(n))\n"
            "def work():\n    slow(60_000); quick(60_000)"
        )
        found = shell.run_cell("%%ceiling --budget 0.5\nfor _ in range(3): work()").result
    assert {part.component for part in found.parts} >= {"slow"}
    assert found.bottleneck is not None
    assert found.bottleneck.component == "slow"
    assert any("taken apart" in note for note in found.notes) or "work" in {p.component for p in found.parts}


def test_inside_looks_at_the_parts_of_a_component() -> None:
    with shell_with_optbook() as shell:
        shell.run_cell(
            "def slow(n):\n    return sum(i * i for i in range(n))\n"
            "def quick(n):\n    return sum(range(n))\n"
            "def work():\n    slow(60_000); quick(60_000)\n"
            "def other():\n    return sum(i for i in range(30_000))"
        )
        found = shell.run_cell("%%ceiling work --inside --budget 0.5\nwork(); other()").result
    names = {part.component for part in found.parts}
    assert "slow" in names
    assert "other" not in names


def test_the_magic_says_what_is_wrong_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with shell_with_optbook() as shell:
        for cell, message in (
            ("%%ceiling nothing\nx = 1", "there is no 'nothing' here"),
            ("%%ceiling --speedup 2,x\nx = 1", "--speedup got 'x'"),
            ("%%ceiling --speedup 1\nx = 1", "factors above 1"),
            ("%ceiling decode", "write %%ceiling"),
        ):
            assert not shell.run_cell(cell).success
            err = capsys.readouterr().err.strip()
            assert message in err
            assert "\n" not in err


def test_a_cell_that_raises_fails() -> None:
    with shell_with_optbook() as shell:
        shell.run_cell("def f(): return 1")
        result = shell.run_cell("%%ceiling f --budget 0.1\nf()\n1 / 0")
        assert isinstance(result.error_in_exec, ZeroDivisionError)


def test_a_sum_gains_what_is_saved() -> None:
    free = Estimate(2.0, 1.9, 2.1)
    assert added(free, 2).ratio == pytest.approx(1 / 0.75)
    assert added(free, math.inf).ratio == pytest.approx(2.0)
    assert added(Estimate(1.0, 1.0, 1.0), 4).ratio == 1.0


def test_no_speed_up_brings_more_than_is_possible() -> None:
    assert list(possible(Estimate(3.0, 3.0, 3.0), 2)) == pytest.approx([1.5, 2.0])
    assert list(possible(Estimate(1.2, 1.2, 1.2), 4)) == pytest.approx([1 / (1 - 0.75 / 6), 1.2])
    free = Estimate(3.0, 2.8, 3.2)
    assert within(Estimate(1.7, 1.6, 1.8), free, 2) == Estimate(1.7, 1.6, 1.8)
    beyond = within(Estimate(5.0, 0.5, 6.0), free, 2)
    assert beyond.ratio == pytest.approx(2)
    assert beyond.low == pytest.approx(0.98 / (1 - 0.5 * (1 - 1 / 2.8)))
    assert beyond.high == pytest.approx(2 * 1.02)


def test_imitations_that_disagree_give_a_range() -> None:
    one, other = Estimate(1.5, 1.48, 1.52), Estimate(1.52, 1.5, 1.54)
    together = agreed([one, other])
    assert together.ratio == pytest.approx(1.51, abs=0.001)
    assert (together.low, together.high) == pytest.approx((1.49, 1.53), abs=0.001)
    assert not together.doubtful
    assert agreed([one, Estimate(1.8, 1.7, 1.9)]) == Estimate(1.5, 1.48, 1.9, doubtful=True)


def made(**changes: Any) -> Ceiling:
    part = Part("<b>decode</b>", 4.0, 0.003, Estimate(1.5, 1.4, 1.6), Estimate(2.0, 1.9, 2.1))
    shown = Ceiling("<script>", "batch", 0.01, (part,), None, rounds=6)
    return dataclasses.replace(shown, **changes)


def test_the_view_is_static_and_escaped() -> None:
    html = made()._repr_html_()
    assert "<script" not in html
    assert "<b>decode" not in html
    assert 'role="img"' in html
    assert "1.50× (1.40 to 1.60)" in html


def test_nothing_worth_it_is_said() -> None:
    nothing = Part("f", 1.0, 0.001, Estimate(1.001, 0.99, 1.01), Estimate(9, 9, 9))
    found = made(parts=(nothing,))
    assert found.bottleneck is None
    assert "none of f is worth it" in str(found)
    assert "no: even at no cost at all" in str(found)


def test_only_broken_components_give_no_picture() -> None:
    found = made(parts=(Part("f", error="without it the workload raises <i>"),))
    assert "<svg" not in found._repr_html_()
    assert "&lt;i&gt;" in found._repr_html_()
    assert math.isnan(found.to_frame()["predicted_ratio"].iloc[0])


def test_pairs_are_told() -> None:
    found = made(pairs=(Pair("a", "b", Estimate(2.0, 1.9, 2.1)),))
    assert "b alone brings nothing because a hides it: both free bring 2.00× (1.90 to 2.10)" in str(found)


def test_progress_is_told_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[float] = []
    monkeypatch.setattr(Progress, "elapsed", lambda self, seconds: told.append(seconds))
    take(serial, ["decode", "train"], speedup=[2])
    assert told
    assert max(told) <= BUDGET * 1.001


def test_a_slow_workload_gets_fewer_variants_and_rounds_and_says_the_range_it_saw() -> None:
    found = ceiling(serial, ["decode", "augment", "train"], clock=TIME.clock, budget=0.01)
    assert found.rounds == 3
    assert all(part.free is not None for part in found.parts)
    assert found.all_free is None
    assert found["decode"].alone_how.startswith("its calls × its time a call")
    assert "only 3 rounds fitted" in str(found)
    assert "not all combinations were run" in str(found)
    assert "≈ " in found._repr_html_()
    free = found["decode"].free
    assert free is not None
    assert [free.ratio, free.low, free.high] == pytest.approx([1.75] * 3)
