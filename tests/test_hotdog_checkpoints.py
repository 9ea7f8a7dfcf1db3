"""Checkpoints: learning goes on exactly, and a file that can't be used says so."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from optbook.hotdog.checkpoints import load_checkpoint, save_in_background, save_now
from optbook.hotdog.coco import Picture
from optbook.hotdog.dataset import Batch
from optbook.hotdog.network import HotdogNet, PatchNet
from optbook.hotdog.recipe import Recipe
from optbook.hotdog.training import Learner, adamw, fused_adamw, print_nothing, train
from tests.test_hotdog_stages import paint


@pytest.fixture
def pictures(tmp_path: Path) -> list[Picture]:
    return paint(tmp_path)


def small() -> Recipe:
    return Recipe.first().replace(input_size=32, width=4, batch_size=3, epochs=8, log=print_nothing)


def go(learner: Learner, batch: Batch, steps: int) -> None:
    for _ in range(steps):
        learner.recipe.step(learner, batch)


@pytest.mark.parametrize("save", [save_now, save_in_background])
@pytest.mark.parametrize("optimiser", [adamw, fused_adamw])
def test_learning_goes_on_exactly_from_a_checkpoint(
    tmp_path: Path,
    pictures: list[Picture],
    save: Callable[[Learner, Path], None],
    optimiser: Callable[..., torch.optim.Optimizer],
) -> None:
    recipe = small().replace(optimiser=optimiser)
    path = tmp_path / "new" / "checkpoint.pt"
    learner = recipe.learner(pictures)
    batch = next(iter(recipe.loader(pictures)))
    go(learner, batch, 3)
    save(learner, path)
    go(learner, batch, 3)
    learner.finish()

    resumed = load_checkpoint(path, recipe, pictures)
    assert resumed.steps == 3
    assert resumed.losses == learner.losses[:3]
    go(resumed, batch, 3)
    assert resumed.losses == learner.losses
    assert resumed.schedule.get_last_lr() == learner.schedule.get_last_lr()
    ours, theirs = resumed.network.state_dict(), learner.network.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_checkpoint_has_its_name_only_once_it_is_complete(
    tmp_path: Path, pictures: list[Picture], monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = small().learner(pictures)
    path = tmp_path / "checkpoint.pt"
    save_now(learner, path)
    before = path.read_bytes()

    def out_of_space(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(torch, "save", out_of_space)
    with pytest.raises(OSError, match="no space left"):
        save_now(learner, path)
    assert path.read_bytes() == before
    save_in_background(learner, path)
    with pytest.raises(OSError, match="no space left"):
        learner.finish()
    assert path.read_bytes() == before


def test_files_that_are_no_checkpoint_say_what_they_are(tmp_path: Path, pictures: list[Picture]) -> None:
    recipe = small()
    good = tmp_path / "good.pt"
    save_now(recipe.learner(pictures), good)
    with pytest.raises(FileNotFoundError, match=r"no checkpoint at .*none.pt: save one with"):
        load_checkpoint(tmp_path / "none.pt", recipe, pictures)

    cut, code, other = tmp_path / "cut.pt", tmp_path / "code.pt", tmp_path / "other.pt"
    cut.write_bytes(good.read_bytes()[:5000])
    code.write_bytes(pickle.dumps(re.compile("code"), protocol=2))
    torch.save([1], other)
    for path, reason in (
        (cut, "is cut short"),
        (code, "no file of plain tensors"),
        (other, "holds no checkpoint"),
    ):
        with pytest.raises(ValueError, match=f"{re.escape(str(path))} .*{reason}") as caught:
            load_checkpoint(path, recipe, pictures)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("change", [{"width": 8}, {"network": PatchNet}])
def test_a_checkpoint_of_another_network_is_refused(
    tmp_path: Path, pictures: list[Picture], change: dict[str, object]
) -> None:
    path = tmp_path / "checkpoint.pt"
    save_now(small().replace(network=HotdogNet).learner(pictures), path)
    with pytest.raises(ValueError, match=r"is a checkpoint of HotdogNet\(4\), the recipe's network is"):
        load_checkpoint(path, small().replace(**change), pictures)


def test_training_keeps_checkpoints_where_it_is_told_to(tmp_path: Path, pictures: list[Picture]) -> None:
    folder = tmp_path / "kept"
    recipe = small().replace(epochs=4, checkpoint_every=2, checkpoint=save_in_background)
    trained = train(recipe, pictures, progress=False, keep_in=folder)
    assert sorted(path.name for path in folder.iterdir()) == ["epoch-002.pt", "epoch-004.pt"]
    assert load_checkpoint(folder / "epoch-002.pt", recipe, pictures).losses == trained.losses[:2]
