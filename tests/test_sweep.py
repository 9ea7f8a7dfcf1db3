"""Sweeps on a clock that moves only when told to: the curve, its knee, failures, and the log."""

from __future__ import annotations

import errno
import math
import random
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
import torch

import optbook
from optbook.benchmark.bench import bench
from optbook.errors import OptbookError, OptionError
from optbook.optimize.knee import Point, knee
from optbook.optimize.sweep import Sweep, out_of_memory, sweep
from tests.fakes import FakeClock
from tests.shells import shell_with_optbook

pytestmark = pytest.mark.usefixtures("collected_heap")

SIZES = (8, 16, 32, 64)


def point(size: float, throughput: float | None, spread: float = 0.01, **more: Any) -> Point:
    if throughput is None:
        return Point({"batch_size": size}, "out of memory", error="boom")
    low, high = throughput * (1 - spread), throughput * (1 + spread)
    return Point({"batch_size": size}, "ok", throughput, low, high, **more)


def curve(*throughputs: float | None, spread: float = 0.01) -> list[Point]:
    return [point(size, value, spread) for size, value in zip(SIZES, throughputs, strict=False)]


@pytest.mark.parametrize(
    ("throughputs", "at"),
    [
        ((50, 80, 100, 101), 32),
        ((100, 100, 101, 100), 8),
        ((50, 80, 100, None), 32),  # what fits is the largest, and no larger one does
        ((50, 100, 80, 60), 16),
        ((100, 90, 80, 70), 8),
        ((50, None, 100, 100), 32),
    ],
)
def test_the_knee_is_the_smallest_setting_with_enough_of_the_best(
    throughputs: tuple[float | None, ...], at: int
) -> None:
    seen = knee(curve(*throughputs))
    assert seen.point is not None
    assert seen.point.settings == {"batch_size": at}
    assert seen.candidates == (seen.point,)
    assert f"knee at batch_size={at}" in seen.why


@pytest.mark.parametrize(
    ("points", "why", "candidates"),
    [
        (curve(25, 50, 75, 100), "still rising at batch_size=64", [64]),
        (curve(50, 95, 100, 101), "not clear, batch_size=16 or batch_size=32", [16, 32]),
        (
            curve(50, 80, 100, 101, spread=0.2),
            "not clear, batch_size=16, batch_size=32 or batch_size=64",
            [16, 32, 64],
        ),
        (curve(100), "one point alone", [8]),
        (curve(None, None), "no point could be measured", []),
        ([Point({"n": 1}, "ok", 1.0), Point({"n": 2}, "ok", 2.0)], "too few runs", []),
    ],
)
def test_a_knee_that_is_not_clear_is_not_named(points: list[Point], why: str, candidates: list[int]) -> None:
    seen = knee(points)
    assert seen.point is None
    assert why in seen.why
    assert [p.settings["batch_size"] for p in seen.candidates] == candidates


def test_a_machine_that_changed_makes_the_knee_doubtful() -> None:
    points = curve(50, 80, 100, 101)
    assert knee(points, drift=0.01).point is not None
    assert knee(points, drift=0.2).point is None


def test_of_two_settings_the_knee_is_smaller_than_all_others_that_may_be_enough() -> None:
    def at(n: int, workers: int, value: float) -> Point:
        return Point({"n": n, "workers": workers}, "ok", value, value * 0.99, value * 1.01)

    clear = [at(1, 0, 50), at(1, 2, 80), at(2, 0, 100), at(2, 2, 100)]
    assert knee(clear).point is clear[2]
    several = [at(1, 0, 50), at(1, 2, 100), at(2, 0, 100), at(2, 2, 100)]
    assert knee(several).point is None
    assert knee(several).why == "no single knee: each of n=1 with workers=2 and n=2 with workers=0 is enough"
    assert "still rising" in knee([at(1, 0, 50), at(1, 2, 80), at(2, 0, 80), at(2, 2, 100)]).why


def test_a_knee_is_rarely_named_wrongly() -> None:
    rng = random.Random(5)
    truth = {8: 60.0, 16: 94.0, 32: 100.0, 64: 100.0}  # 16 is just below enough
    wrong = right = 0
    for _ in range(400):
        points = [point(n, value * rng.gauss(1, 0.005), 1.96 * 0.005) for n, value in truth.items()]
        seen = knee(points)
        wrong += seen.point is not None and seen.point.settings["batch_size"] != 32
        right += seen.point is not None and seen.point.settings["batch_size"] == 32
    assert wrong <= 0.05 * 400
    easy = [
        knee([point(n, v * rng.gauss(1, 0.005), 0.0098) for n, v in {**truth, 16: 80}.items()])
        for _ in range(100)
    ]
    assert sum(seen.point is not None for seen in easy) >= 95


def limited(fake: FakeClock, called: list[int] | None = None) -> Callable[[int], None]:
    """Throughput rises up to a batch size of 32, and stays."""

    def train(batch_size: int) -> None:
        if called is not None:
            called.append(batch_size)
        fake.spend(0.001 * max(batch_size, 32))

    return train


def swept(fake: FakeClock, function: Callable[..., object], **more: Any) -> Sweep:
    given: dict[str, Any] = {
        "units": {"sample": lambda batch_size: batch_size},
        "budget": 4.0,
        "clock": fake.clock,
    }
    given |= more
    return sweep(function, {"batch_size": [64, 8, 32, 16]}, **given)


def test_each_point_is_an_experiment_in_the_log_and_the_knee_is_found() -> None:
    fake = FakeClock()
    seen = swept(fake, limited(fake), label="train")
    assert [p.settings["batch_size"] for p in seen.points] == [8, 16, 32, 64]
    assert [p.throughput for p in seen.points] == pytest.approx([250, 500, 1000, 1000])
    assert seen.unit == "sample"
    assert seen.knee is seen.points[2]
    log = optbook.log()
    assert sorted(log["label"]) == sorted(f"train [batch_size={n}]" for n in SIZES)
    assert set(log["unit"]) == {"sample"}
    experiments = [p.experiment for p in seen.points]
    assert {e.id for e in experiments if e} == set(log.get("id", log.index))


def test_the_order_is_random_so_that_drift_makes_no_trend() -> None:
    orders = set()
    for seed in range(6):
        fake = FakeClock()
        called: list[int] = []
        swept(fake, limited(fake, called), seed=seed, runs=2)
        orders.add(tuple(dict.fromkeys(called)))
    assert len(orders) > 3
    assert all(set(order) == set(SIZES) for order in orders)


def test_the_budget_is_split_over_the_points() -> None:
    fake = FakeClock()
    swept(fake, limited(fake), budget=8.0)
    assert 7 < fake.time < 9


def test_out_of_memory_is_a_result_and_the_rest_is_kept() -> None:
    fake = FakeClock()
    train = limited(fake)

    def hungry(batch_size: int) -> None:
        if batch_size == 64:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        train(batch_size)

    seen = swept(fake, hungry, label="hungry")
    assert [p.status for p in seen.points] == ["ok", "ok", "ok", "out of memory"]
    assert seen.knee is seen.points[2]
    assert "Tried to allocate" in seen.points[3].error
    assert "out of memory: OutOfMemoryError" in str(seen)
    assert 'class="failed"' in seen._repr_html_()
    assert (
        dict(zip(optbook.log()["label"], optbook.log()["status"], strict=True))["hungry [batch_size=64]"]
        == "failed"
    )


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes"), True),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling"), True),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), True),
        (OSError(errno.ENOENT, "out of memory"), False),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_what_counts_as_out_of_memory(error: BaseException, expected: bool) -> None:
    assert out_of_memory(error) is expected
    outer = OptionError("the expression raised")
    outer.__cause__ = error
    assert out_of_memory(outer) is expected


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_any_other_exception_ends_the_sweep_and_what_was_measured_is_kept(kind: type[BaseException]) -> None:
    fake = FakeClock()
    called: list[int] = []
    train = limited(fake, called)

    def broken(batch_size: int) -> None:
        train(batch_size)
        if len(set(called)) == 3:
            raise kind("third")

    with pytest.raises(kind, match="third") as caught:
        swept(fake, broken, label="broken")
    assert (
        f"raised at batch_size={called[-1]}; points measured before it, now in the log: 2"
        in caught.value.__notes__
    )
    status = "interrupted" if kind is KeyboardInterrupt else "failed"
    assert list(optbook.log()["status"]) == ["ok", "ok", status]


def test_of_tracked_loops_what_an_item_holds_is_counted() -> None:
    fake = FakeClock()

    def train(batch_size: int, workers: int) -> None:
        for _ in optbook.track(range(100), sample=lambda item: batch_size):
            fake.spend(0.01 + 0.001 * batch_size - 0.002 * workers)

    seen = sweep(train, {"batch_size": [4, 8], "workers": range(0, 3, 2)}, steps=20, clock=fake.clock)
    assert seen.unit == "sample"
    assert seen.names == ("batch_size", "workers")
    assert [tuple(p.settings.values()) for p in seen.points] == [(4, 0), (4, 2), (8, 0), (8, 2)]
    assert seen.points[0].throughput == pytest.approx(4 / 0.014)
    by_batch = sweep(train, {"batch_size": [4, 8], "workers": [0]}, unit="batch", steps=20, clock=fake.clock)
    assert by_batch.points[0].throughput == pytest.approx(1 / 0.014)
    assert "count what stays the same" in by_batch.notes[0]
    with pytest.raises(OptionError, match="unit is 'token': no point counts it, but batch, sample"):
        sweep(train, {"batch_size": [4], "workers": [0]}, unit="token", steps=20, clock=fake.clock)


def test_setup_and_metrics_get_the_settings_that_they_take() -> None:
    fake = FakeClock()
    made: list[int] = []

    def build(batch_size: int) -> None:
        made.append(batch_size)
        fake.spend(5)

    seen = swept(
        fake, limited(fake), setup=build, metrics={"double": lambda batch_size: 2 * batch_size, "one": 1}
    )
    assert set(made) == set(SIZES)
    assert [p.experiment.metrics["double"] for p in seen.points if p.experiment] == [16, 32, 64, 128]
    assert seen.points[0].throughput == pytest.approx(250)


def test_too_few_runs_leave_the_knee_open() -> None:
    fake = FakeClock()
    seen = swept(fake, limited(fake), runs=3)
    assert seen.knee is None
    assert "too few runs" in str(seen)


def test_a_void_point_is_marked_and_not_used() -> None:
    fake = FakeClock()
    runs = iter(range(10**6))

    def used_up(batch_size: int) -> None:
        if batch_size == 64:
            fake.spend(1.0 if next(runs) == 0 else 0.001)
        else:
            fake.spend(0.1)

    seen = sweep(used_up, {"batch_size": [8, 64]}, clock=fake.clock)
    assert seen.points[1].status == "void"
    assert seen.points[1].throughput is None
    assert "void: run 2" in str(seen)


def test_frame_and_text_and_page() -> None:
    fake = FakeClock()
    seen = swept(fake, limited(fake), label="train")
    frame = seen.to_frame()
    assert frame.index.name == "batch_size"
    assert frame.loc[8, "throughput"] == pytest.approx(250)
    two = sweep(lambda a, b: fake.spend(0.1), {"a": [1, 2], "b": [1, 2]}, runs=8, clock=fake.clock)
    assert list(two.to_frame().index.names) == ["a", "b"]
    text = str(seen)
    assert text.splitlines()[0] == "train: knee at batch_size=32: the best"
    assert "samples/s" in text
    assert 'class="knee"' in seen._repr_html_()


class Tags(HTMLParser):
    tags: set[str]

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)


def test_hostile_names_stay_text() -> None:
    evil = '"><script>alert(1)</script>\n<img>'
    points = tuple(
        Point({evil: n, "b": m}, "ok" if n < 3 else "void", 1.0 * n if n < 3 else None, error=evil)
        for n in (1, 2, 3)
        for m in (1, 2)
    )
    seen = Sweep(evil, evil, points, points[0], (), evil, (), (evil,))
    parser = Tags()
    parser.tags = set()
    parser.feed(seen._repr_html_())
    assert not parser.tags & {"script", "img"}
    assert "svg" in parser.tags
    assert "alert" in str(seen)
    assert "var(--jp-" in seen._repr_html_()


def no_settings() -> None:
    pass


def taking(batch_size: int, *, other: int = 1) -> None:
    raise AssertionError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": []}, "batch_size has no values"),
        ({}, "got 0 settings: give one or two"),
        ({"a": [1], "b": [1], "c": [1]}, "got 3 settings: give one or two"),
        ([8, 16], "give one or two"),
        ({"batch size": [1]}, "'batch size' is no name"),
        ({"class": [1]}, "'class' is no name"),
        ({3: [1]}, "3 is no name"),
        ({"batch": [1]}, r"taking\(\) can't be called with batch"),
        ({"batch_size": "8,16"}, "got '8,16': give a list of numbers"),
        ({"batch_size": ["8", "16"]}, "got '8': give numbers"),
        ({"batch_size": [True, False]}, "got True: give numbers"),
        ({"batch_size": [8, math.nan]}, "got nan: give numbers"),
        ({"batch_size": 8}, "got 8: give a list of numbers"),
        ({"batch_size": (n for n in SIZES)}, "generator .*: give a list of numbers"),
        ({"batch_size": {8, 16}}, "give a list of numbers"),
        ({"batch_size": [8, 8]}, "a value twice"),
        ({"batch_size": range(1000)}, "batch_size has 1000 values, and 64 is the most: give fewer"),
        ({"batch_size": range(9), "other": range(9)}, "these are 81 points, and 64 is the most: give fewer"),
    ],
)
def test_bad_settings_are_refused_before_anything_runs(settings: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        sweep(taking, settings, clock=FakeClock().clock)
    assert len(optbook.log()) == 0


def test_other_bad_input() -> None:
    with pytest.raises(OptionError, match=r"no_settings\(\) can't be called"):
        sweep(no_settings, {"n": [1]})
    with pytest.raises(OptionError, match="budget is"):
        sweep(taking, {"batch_size": [1]}, budget=-1)
    with pytest.raises(OptionError, match="bench"):
        sweep(3, {"n": [1]})  # type: ignore[arg-type]
    with pytest.raises(OptbookError, match="don't sweep inside"):
        bench(lambda: sweep(taking, {"batch_size": [1]}), runs=1)
    settings: Any = {"n": np.array([2, 1])}
    assert [p.settings["n"] for p in sweep(lambda n: None, settings, runs=2).points] == [1, 2]


def test_it_is_public() -> None:
    assert optbook.sweep is sweep


# The magic

CELL = "seen.append((batch_size, workers))\nsum(range(100 * batch_size))"


def test_the_magic_sets_the_names_and_puts_back_what_was_there(capsys: pytest.CaptureFixture[str]) -> None:
    with shell_with_optbook() as shell:
        shell.run_cell("seen, batch_size = [], 'mine'")
        result = shell.run_cell(
            f"%%sweep my label batch_size=8,16 workers=0,2 --runs 7 --samples batch_size -o s -q\n{CELL}"
        )
        assert result.success
        assert set(shell.user_ns["seen"]) == {(8, 0), (8, 2), (16, 0), (16, 2)}
        assert shell.user_ns["batch_size"] == "mine"
        assert "workers" not in shell.user_ns
        s = shell.user_ns["s"]
        assert s.label == "my label"
        assert s.unit == "sample"
        assert "my label [batch_size=8, workers=0]" in set(optbook.log()["label"])
        ratio = s.points[0].experiment.units["sample"] / s.points[0].experiment.units["run"]
        assert ratio == pytest.approx(8)


def test_names_are_put_back_after_an_exception_too_and_the_cell_fails_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with shell_with_optbook() as shell:
        shell.run_cell("batch_size = 'mine'")
        result = shell.run_cell("%%sweep batch_size=8,16 workers=0 --runs 2\n1 / (batch_size - 16 + workers)")
        assert isinstance(result.error_in_exec, ZeroDivisionError)
        assert capsys.readouterr().out.count("ZeroDivisionError: division by zero") == 1
        assert shell.user_ns["batch_size"] == "mine"
        assert "workers" not in shell.user_ns
        assert "failed" in set(optbook.log()["status"])


def test_out_of_memory_in_a_cell_is_no_failure_of_it() -> None:
    with shell_with_optbook() as shell:
        cell = "if n > 1:\n    raise MemoryError('no more')\nsum(range(1000))"
        result = shell.run_cell(f"%%sweep n=1,2 --runs 7 -o s\n{cell}")
        assert result.success
        assert [p.status for p in shell.user_ns["s"].points] == ["ok", "out of memory"]


def test_what_the_cell_prints_appears_once(capsys: pytest.CaptureFixture[str]) -> None:
    with shell_with_optbook() as shell:
        shell.run_cell("%%sweep n=1,2,3 --runs 3 -q\nprint('hello', n)")
    assert capsys.readouterr().out.count("hello") == 1


def test_names_may_be_used_in_functions_of_the_notebook_and_in_the_setup() -> None:
    with shell_with_optbook() as shell:
        shell.run_cell("def work():\n    return sum(range(n))")
        assert shell.run_cell("%%sweep n=1,2 --runs 2 -q\nwork()").success
        assert shell.run_cell("%%setup fresh\nnumbers = list(range(n))").success
        assert shell.run_cell("%%sweep n=1,2 --runs 2 -q --setup fresh\nsum(numbers)").success
        shell.run_cell("sizes = [1, 2, 4]")
        assert shell.run_cell("%%sweep n=sizes --runs 2 -q -o s\nwork()").success
        assert len(shell.user_ns["s"].points) == 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%%sweep n=1,2\nm = 1", "the cell does not use n"),
        ("%%sweep n=1,2\nn = 4\nprint(n)", "the cell sets n itself"),
        ("%%sweep n=1,2\nfor n in range(3): pass", "the cell sets n itself"),
        ("%%sweep n=1, 2\nn", "write the values without spaces"),
        ("%%sweep n=1,2 n=3\nn", "got a setting twice"),
        ("%%sweep n=\nn", "n has no values"),
        ("%%sweep n=a,b\nn", "NameError"),
        ("%%sweep n=1,,2\nn", "give a number or an expression"),
        ("%%sweep n='ab'\nn", "give a list of numbers"),
        ("%%sweep\nn", "got 0 settings"),
        ("%%sweep n=range(99)\nn", "64 is the most"),
        ("%%sweep n-m=1,2\nn", "is no name"),
        ("%%sweep n=1 --count token --runs 2\nn", "no point counts it"),
        ("%%sweep n=1 --stepz 3\nn", "did you mean --steps"),
        ("%sweep n=1", "write %%sweep on its first line"),
    ],
)
def test_bad_input_of_the_magic_gives_one_line(line: str, message: str) -> None:
    with shell_with_optbook() as shell:
        result = shell.run_cell(line)
    error = result.error_before_exec or result.error_in_exec
    assert type(error).__name__ == "UsageError"
    assert message in str(error)
    assert "\n" not in str(error)


def test_unloading_takes_the_magic_away() -> None:
    with shell_with_optbook() as shell:
        shell.run_line_magic("unload_ext", "optbook")
        assert "sweep" not in shell.magics_manager.magics["cell"]
        shell.run_line_magic("load_ext", "optbook")
        assert "sweep" in shell.magics_manager.magics["cell"]
