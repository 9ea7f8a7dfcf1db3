"""The network, its loss, its steps and its weights on disk."""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from optbook.hotdog.coco import Picture
from optbook.hotdog.dataset import Batch
from optbook.hotdog.loss import focal_and_l1
from optbook.hotdog.network import NETWORKS, HotdogNet, Output
from optbook.hotdog.recipe import Recipe
from optbook.hotdog.train import main
from optbook.hotdog.training import (
    CHECK_EVERY,
    fused_adamw,
    print_nothing,
    remember_detached,
    share_of_lr,
    step_without_waiting,
    train,
)
from optbook.hotdog.weights import load_weights, save_weights
from tests.test_hotdog_stages import paint


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def pictures(tmp_path: Path) -> list[Picture]:
    return paint(tmp_path)


def small() -> Recipe:
    return Recipe.first().replace(input_size=32, width=4, batch_size=2, epochs=1, log=print_nothing)


def test_the_network_is_as_light_as_promised() -> None:
    with FlopCounterMode(display=False) as counter:
        output = HotdogNet(Recipe.first().width)(torch.zeros(1, 3, 128, 128))
    assert 30e6 <= counter.get_total_flops() <= 60e6
    assert output.heat.shape == (1, 1, 32, 32)
    assert output.sides.shape == (1, 4, 32, 32)


def answer(heat: float, sides: float = 0.0) -> Output:
    return Output(torch.full((1, 1, 4, 4), heat), torch.full((1, 4, 4, 4), sides))


def wanted(hot: bool) -> Batch:
    heat = torch.zeros(1, 1, 4, 4)
    heat[0, 0, 1, 1] = float(hot)
    return Batch(torch.zeros(1, 3, 16, 16), heat, torch.full((1, 4, 4, 4), 16.0) * heat, heat.clone())


def test_the_right_answer_costs_nothing() -> None:
    batch = wanted(hot=True)
    right = Output((batch.heat * 2 - 1) * 50, batch.sides)
    losses = focal_and_l1(right, batch)
    assert losses.heat.item() == pytest.approx(0)
    assert losses.sides.item() == 0


def test_wrong_distances_cost_their_error_where_they_count() -> None:
    # 16 pixels of error on each side are half a unit.
    assert focal_and_l1(answer(0.0), wanted(hot=True)).sides.item() == pytest.approx(4 * 0.5)


def test_a_batch_without_hotdogs_has_a_loss_that_rewards_cold_maps() -> None:
    cold = focal_and_l1(answer(-9.0), wanted(hot=False))
    warm = focal_and_l1(answer(0.0), wanted(hot=False))
    assert 0 <= cold.heat.item() < 1e-4 < warm.heat.item()
    assert warm.sides.item() == 0


def test_the_learning_rate_rises_then_falls() -> None:
    shares = [share_of_lr(step, 100) for step in range(120)]
    assert shares[0] < shares[10] < shares[15] == 1
    assert shares[15:] == sorted(shares[15:], reverse=True)
    assert shares[100] == shares[119] == pytest.approx(0.01)


def test_a_few_steps_on_one_batch_bring_the_loss_down(pictures: list[Picture]) -> None:
    recipe = small().replace(batch_size=3, epochs=30)
    learner = recipe.learner(pictures)
    batch = next(iter(recipe.loader(pictures, training=False)))
    for _ in range(30):
        recipe.step(learner, batch)
    assert learner.steps == 30
    assert learner.losses[-1] < learner.losses[0] / 2


def test_training_repeats_and_leaves_the_global_chance_alone(pictures: list[Picture]) -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    one = train(small(), pictures, progress=False)
    assert torch.rand(1) == expected
    same = train(small(), pictures, progress=False)
    other = train(small().replace(seed=1), pictures, progress=False)
    assert one.losses == same.losses
    assert len(one.losses) == 2
    assert one.losses != other.losses
    assert one.pictures_per_second > 0


def test_the_first_recipe_prints_every_step(
    pictures: list[Picture], capsys: pytest.CaptureFixture[str]
) -> None:
    train(small().replace(log=Recipe.first().log), pictures, progress=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["step 1", "step 2"]
    assert "mean loss" in lines[1]


def test_no_pictures_to_learn_from() -> None:
    with pytest.raises(ValueError, match="no pictures"):
        train(Recipe.first(), [], progress=False)


def test_a_lost_loss_names_the_step(pictures: list[Picture]) -> None:
    recipe = small()
    learner = recipe.learner(pictures)
    batch = next(iter(recipe.loader(pictures)))
    recipe.step(learner, batch)
    broken = batch._replace(images=torch.full_like(batch.images, math.nan))
    with pytest.raises(FloatingPointError, match="step 2: the loss is nan") as caught:
        recipe.step(learner, broken)
    assert "\n" not in str(caught.value)


def test_a_batch_of_another_dtype_is_refused(pictures: list[Picture]) -> None:
    learner = small().learner(pictures)
    batch = next(iter(small().replace(dtype=torch.float32).loader(pictures)))
    with pytest.raises(TypeError, match=r"network has dtype torch.float64, the batch torch.float32"):
        learner.recipe.step(learner, batch)


def losses_of(pictures: list[Picture], **changes: Any) -> list[float]:
    return train(small().replace(dtype=torch.float32, epochs=4, **changes), pictures, progress=False).losses


@pytest.mark.parametrize(
    "change",
    [
        {"step": step_without_waiting},
        {"remember": remember_detached},
        {"optimiser": fused_adamw},
        {"channels_last": True},
        {"anomaly_detection": False},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_cure_of_the_step_does_not_change_what_is_learnt(
    pictures: list[Picture], change: dict[str, Any]
) -> None:
    assert losses_of(pictures, **change) == pytest.approx(losses_of(pictures), rel=1e-3)


def test_bfloat16_learns_nearly_the_same(pictures: list[Picture]) -> None:
    halves = losses_of(pictures, autocast=torch.bfloat16)
    assert halves == pytest.approx(losses_of(pictures), rel=0.1, abs=0.02)
    assert halves != losses_of(pictures)


def test_other_networks_learn_too(pictures: list[Picture]) -> None:
    for network in NETWORKS.values():
        losses = losses_of(pictures, network=network, batch_size=3)
        assert losses[-1] < losses[0]


def test_remembered_losses_hold_no_graph(pictures: list[Picture]) -> None:
    learner = small().replace(remember=remember_detached).learner(pictures)
    learner.recipe.step(learner, next(iter(small().loader(pictures))))
    assert learner.history[0].grad_fn is None
    assert learner.history[0].requires_grad is False


@pytest.mark.parametrize("steps_after", [0, CHECK_EVERY - 2])
def test_a_lost_loss_is_found_later_without_waiting(pictures: list[Picture], steps_after: int) -> None:
    recipe = small().replace(step=step_without_waiting, anomaly_detection=False)
    learner = recipe.learner(pictures)
    batch = next(iter(recipe.loader(pictures)))
    broken = batch._replace(images=torch.full_like(batch.images, math.nan))
    recipe.step(learner, batch)
    with pytest.raises(FloatingPointError, match="step 2: the loss is nan") as caught:  # noqa: PT012
        recipe.step(learner, broken)
        for _ in range(steps_after):
            recipe.step(learner, batch)
        assert steps_after == 0
        learner.finish()
    assert "\n" not in str(caught.value)
    assert learner.steps <= 2 + CHECK_EVERY
    learner.finish()


def test_compiling_without_a_compiler_says_what_to_do(
    pictures: list[Picture], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(RuntimeError, match=r"compile=True needs a C.. compiler.* take compile=False"):
        small().replace(compile=True).learner(pictures)


def test_a_compiled_network_is_called_and_saved_as_itself(
    pictures: list[Picture], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def compile_in_no_time(network: torch.nn.Module) -> Callable[..., Any]:
        def compiled(images: torch.Tensor) -> Any:
            seen.append(images.shape)
            return network(images)

        return compiled

    monkeypatch.setattr(torch, "compile", compile_in_no_time)
    monkeypatch.setattr("optbook.hotdog.training.need_compiler", lambda *_: None)
    trained = train(small().replace(compile=True), pictures, progress=False)
    assert len(seen) == 2
    assert isinstance(trained.network, HotdogNet)


@pytest.mark.parametrize("build", NETWORKS.values(), ids=NETWORKS)
def test_weights_survive_the_disk(tmp_path: Path, build: Callable[[int], torch.nn.Module]) -> None:
    network = build(4).double().eval()
    path = tmp_path / "new" / "weights.pt"
    save_weights(path, network, width=4, input_size=32, facts={"exact": 0.5})
    loaded = load_weights(path)
    assert loaded.input_size == 32
    assert loaded.facts == {"exact": 0.5}
    assert type(loaded.network) is build
    images = torch.rand(1, 3, 32, 32)
    assert torch.allclose(loaded.network(images).heat, network(images.double()).heat.float(), atol=1e-4)


def test_missing_damaged_and_foreign_weights_each_say_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no weights at .*make them with"):
        load_weights(tmp_path / "none.pt")

    good = tmp_path / "good.pt"
    save_weights(good, HotdogNet(4), width=4, input_size=32, facts={})
    cut, text, code, other, misfit = (
        tmp_path / f"{name}.pt" for name in ("cut", "text", "code", "other", "misfit")
    )
    cut.write_bytes(good.read_bytes()[:1000])
    text.write_text("not weights", encoding="utf-8")
    code.write_bytes(pickle.dumps(re.compile("code"), protocol=2))
    torch.save({"some": "thing"}, other)
    content = torch.load(good, weights_only=True)
    torch.save({**content, "width": 8}, misfit)
    for path in (cut, text, code, other, misfit):
        with pytest.raises(ValueError, match=re.escape(str(path))) as caught:
            load_weights(path)
        assert "\n" not in str(caught.value)


def test_weights_of_the_first_format_are_of_the_first_network(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    save_weights(path, HotdogNet(4), width=4, input_size=32, facts={})
    content = torch.load(path, weights_only=True)
    del content["network"]
    torch.save({**content, "format": "optbook hotdog 1"}, path)
    assert type(load_weights(path).network) is HotdogNet


def test_weights_of_an_unknown_network_name_it(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"

    class TheirNet(HotdogNet):
        pass

    save_weights(path, TheirNet(4), width=4, input_size=32, facts={})
    with pytest.raises(ValueError, match="holds weights of TheirNet, which is none of HotdogNet, ") as caught:
        load_weights(path)
    assert "\n" not in str(caught.value)


def test_the_command_trains_and_keeps_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    annotations = {
        "images": [{"id": 1, "file_name": "0.png", "width": 60, "height": 40}],
        "annotations": [],
        "categories": [{"id": 1, "name": "hot dog"}],
    }
    paint(tmp_path, 1)
    (tmp_path / "annotations").mkdir()
    for split in ("train", "val"):
        (tmp_path / "annotations" / f"{split}.json").write_text(str(annotations).replace("'", '"'), "utf-8")
    output = tmp_path / "weights.pt"
    main(["--data", str(tmp_path), "--output", str(output), "--epochs", "1"])
    assert "1 counted exactly" in capsys.readouterr().out.replace("100.0% of ", "").replace("0.0% of ", "")
    assert load_weights(output).facts["epochs"] == 1
    assert np.isfinite([p.sum().item() for p in load_weights(output).network.parameters()]).all()
