"""What the sample's benchmark makes of its measurements, on made-up ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import nn

from optbook.hotdog.coco import Picture
from optbook.hotdog.cures import CURES, Cure
from optbook.hotdog.recipe import Recipe
from optbook.optimize.compare import Comparison
from tests.benchmarks import bench_hotdog, train_once, waterfall
from tests.benchmarks.bench_hotdog import Course, Prediction
from tests.benchmarks.waterfall import Bar, Run
from tests.test_hotdog_stages import paint

FIRST = Recipe.first()
TWO = (
    Cure("half as wide", {"dtype": torch.float32}, "M1", "06"),
    Cure("more at <once>", {"inference_batch_size": 32}, "C1", "04"),
)
BARS = (
    Bar("half as wide", "M1", before=10.0, throughput=20.0, alone=2.0),
    Bar("more at once", "C1", before=20.0, throughput=16.0, alone=0.9),
)


def went(*exact: float, seconds: float = 10.0) -> Course:
    times = tuple(seconds * i for i in range(1, len(exact) + 1))
    return Course(times, exact, (True, False), nn.Identity())


def test_cures_in_order_end_at_the_tuned_recipe_and_each_alone_changes_the_first() -> None:
    assert waterfall.in_order(FIRST, CURES)[-1] == Recipe.tuned()
    assert waterfall.in_order(FIRST, ()) == [FIRST]
    both = waterfall.in_order(FIRST, TWO)
    assert [(r.dtype, r.inference_batch_size) for r in both] == [
        (torch.float64, 1),
        (torch.float32, 1),
        (torch.float32, 32),
    ]
    assert [r.dtype for r in waterfall.alone(FIRST, TWO)] == [torch.float32, torch.float64]


def test_each_cure_is_measured_where_it_matters() -> None:
    assert waterfall.for_training(TWO) == TWO[:1]
    assert waterfall.for_counting(TWO) == TWO
    saving = Cure("save", {"checkpoint": FIRST.checkpoint}, "K3", "05")
    assert waterfall.for_training((saving,)) == waterfall.for_counting((saving,)) == ()
    assert waterfall.with_effect((saving, *TWO), FIRST) == TWO
    training, counting = waterfall.for_training(CURES), waterfall.for_counting(CURES)
    missing = [cure for cure in CURES if cure not in (*training, *counting)]
    assert {field for cure in missing for field in cure.changes} <= waterfall.BETWEEN


def test_bars_hold_a_cure_against_the_system_before_it_and_against_the_first() -> None:
    def throughputs(recipes: Sequence[Recipe]) -> list[float]:
        return [10.0 * (2 if r.dtype == torch.float32 else 1) * r.inference_batch_size for r in recipes]

    found = waterfall.bars(FIRST, TWO, throughputs)
    assert [(bar.before, bar.throughput, bar.alone, bar.gain) for bar in found] == [
        (10, 20, 2, 2),
        (20, 640, 32, 32),
    ]


def test_time_and_cost_of_a_run() -> None:
    run = Run(pictures=36_000, price=0.5)
    assert run.seconds(10) == 3600
    assert run.cost(10) == 0.5
    lines = waterfall.table(BARS, run).splitlines()
    assert len(lines) == 5
    assert lines[2].startswith("| the first version |  | 10")
    assert lines[3].split(" | ")[1:] == ["M1", "20.0", "2.00×", "2.00×", "30 min 00 s", "0.250 |"]
    assert "0.80×" in lines[4]


def test_the_waterfall_is_drawn_and_its_table_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_hotdog, "RESULTS", tmp_path / "new")
    row = bench_hotdog.waterfall_row(BARS, Run(36_000, 0.5), "training", "Training")
    assert row.holds
    assert row.measured == "3600 s, 0.500 → 2250 s, 0.312"
    assert row.peers["more at once"] == "0.80× (0.90× alone)"
    with Image.open(tmp_path / "new" / "hotdog_training.png") as picture:
        assert min(picture.size) > 300
        assert len(picture.convert("RGB").getcolors(2**24) or ()) > 10
    assert "more at once" in (tmp_path / "new" / "hotdog_training.md").read_text()


@pytest.mark.parametrize(
    ("exact", "epoch"), [((0.1, 0.95, 0.9), 2), ((0.96,), 1), ((0.1, 0.949), None), ((0.1, 1.0), 2)]
)
def test_the_epoch_in_which_a_goal_is_reached(exact: tuple[float, ...], epoch: int | None) -> None:
    assert went(*exact).reached(0.95) == epoch


def test_time_to_the_goal_says_how_it_is_known() -> None:
    first, tuned = went(0.5, 0.8, 0.95, seconds=1.0), went(0.5, 0.96, seconds=2.0)
    row = bench_hotdog.time_to_goal(first, tuned, first_throughput=10.0, pictures=1000, how="from its pace")
    assert row.measured == "75.0×"
    assert row.holds
    assert row.peers["first"] == "300 s, epoch 3 (from its pace)"
    assert row.peers["tuned"] == "4.0 s, epoch 2 (measured)"
    measured = bench_hotdog.time_to_goal(first, tuned, 0.0, 1000, "measured")
    assert measured.measured == "0.8×"
    assert not measured.holds
    never = bench_hotdog.time_to_goal(first, went(0.2, 0.4), 10.0, 1000, "")
    assert never.measured == "not reached"
    assert not never.holds
    assert never.peers["tuned's best"] == "40.0 %"


def test_accuracy_may_be_better_but_not_worse_by_more_than_chance() -> None:
    good, bad = [True] * 195 + [False] * 5, [True] * 150 + [False] * 50
    for first, tuned, holds in ((good, good, True), (bad, good, True), (good, bad, False)):
        assert bench_hotdog.accuracy(first, tuned, "here").holds == holds


def test_memory_is_what_training_adds() -> None:
    found = {"first": {"before": 300e6, "peak": 500e6}, "tuned": {"before": 310e6, "peak": 390e6}}
    row = bench_hotdog.memory_row(found, 1000)
    assert (row.measured, row.holds) == ("0.40", True)
    found["tuned"]["peak"] = 430e6
    assert not bench_hotdog.memory_row(found, 1000).holds


def test_a_prediction_is_held_against_what_came_of_it() -> None:
    found = [Prediction("a", 4.0, 1.1, 1.0), Prediction("b", 2.0, 0.98, 1.0), Prediction("c", 2.0, 1.0, 1.0)]
    row = bench_hotdog.prediction_row(found, TWO)
    assert (row.measured, row.holds) == ("2.0 %", True)
    assert row.peers["a"] == "10.0 %"
    assert row.peers["not predictable"] == "half as wide; more at <once>"
    assert not bench_hotdog.prediction_row(found[:1], TWO).holds
    assert not bench_hotdog.prediction_row([], TWO).holds


def test_slow_systems_are_timed_over_fewer_pictures() -> None:
    sizes = [bench_hotdog.size_of_run(rate, 32, 512, 8) for rate in (1.0, 16.0, 100.0, 1e6)]
    assert sizes[0] == 32
    assert sizes == sorted(sizes)
    assert sizes[-1] == 512
    assert all(size % 8 == 0 for size in sizes)


def test_what_infers_the_first_versions_epochs_computes_what_it_computes() -> None:
    quick = bench_hotdog.quick_at_the_same(FIRST)
    kept = (
        "decode",
        "augment",
        "resize",
        "normalise",
        "network",
        "loss",
        "batch_size",
        "lr",
        "seed",
        "epochs",
    )
    assert all(getattr(quick, name) == getattr(FIRST, name) for name in kept)
    counting = bench_hotdog.quick_to_count(quick)
    assert (counting.decode, counting.threshold) == (FIRST.decode, FIRST.threshold)


def test_a_comparison_is_written_with_its_interval() -> None:
    result = Comparison(("first", "tuned"), "faster", 21.5, 20.25, 22.75, 0.01, 9, 1, 1, ((4.0,), (0.2,)))
    assert bench_hotdog.times_as_fast(result) == "21.5×, 20.2 to 22.8"
    assert bench_hotdog.per_second(result, 64) == {"first": "16.0/s", "tuned": "320/s", "pairs": 9}


def small(recipe: Recipe) -> Recipe:
    return recipe.replace(input_size=32, width=4, batch_size=2, epochs=2)


@pytest.fixture
def pictures(tmp_path: Path) -> list[Picture]:
    return paint(tmp_path)


def test_a_course_counts_after_each_epoch_and_ends_at_its_goal(
    pictures: list[Picture], capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = small(FIRST)
    found = bench_hotdog.course(recipe, recipe, pictures, pictures)
    assert len(found.seconds) == len(found.exact) == 2
    assert 0 < found.seconds[0] < found.seconds[1]
    assert len(bench_hotdog.course(recipe, recipe, pictures, pictures, stop_at=0.0).exact) == 1
    assert "step" not in capsys.readouterr().out


def test_throughputs_are_measured_for_each_recipe(
    pictures: list[Picture], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_hotdog, "ROUNDS", 1)
    recipes = [small(FIRST), small(Recipe.tuned())]
    found = bench_hotdog.throughputs(bench_hotdog.Training, pictures)(recipes)
    assert len(found) == 2
    assert min(found) > 0
    capsys.readouterr()


def test_a_process_of_its_own_tells_what_memory_it_took(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pictures: list[Picture],
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(train_once, "load_folder", lambda *_: pictures)
    found = train_once.main("tuned", 2, tmp_path)
    assert found["before"] is not None
    assert found["peak"] is not None
    assert found["peak"] >= found["before"] > 0
    capsys.readouterr()
