"""Learning: a learner takes one step after the other.

    learner = recipe.learner(pictures)
    for batch in recipe.loader(pictures):
        recipe.step(learner, batch)

is one epoch; `train` does `recipe.epochs` of them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR
from tqdm.auto import tqdm

from optbook.hotdog.coco import Picture
from optbook.hotdog.dataset import Batch
from optbook.hotdog.loss import Losses

if TYPE_CHECKING:
    from optbook.hotdog.recipe import Recipe

WARM_UP = 0.15  # share of all steps in which the learning rate rises
WEIGHT_DECAY = 1e-4


@dataclass
class Learner:
    """A network on its way. `steps` counts those taken; `history` holds what the recipe remembers of each."""

    recipe: Recipe
    network: nn.Module
    optimiser: Optimizer
    schedule: LambdaLR
    steps: int = 0
    history: list[Any] = field(default_factory=list)

    @property
    def losses(self) -> list[float]:
        """The loss of each step taken."""
        return [float(torch.as_tensor(loss).detach()) for loss in self.history]


@dataclass(frozen=True)
class Trained:
    """A trained network, the loss of each step, and how long it took (seconds, pictures seen per second)."""

    recipe: Recipe
    network: nn.Module
    losses: list[float]
    seconds: float
    pictures_per_second: float


def new_learner(recipe: Recipe, pictures: Sequence[Picture]) -> Learner:
    """A fresh network whose learning rate is planned for `recipe.epochs` epochs of these pictures.

    The first weights follow from `recipe.seed` alone; torch's global random state is left as it was.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        network = recipe.network(recipe.width).to(recipe.dtype)
    optimiser = recipe.optimiser(network.parameters(), recipe.lr)
    all_steps = recipe.epochs * math.ceil(len(pictures) / recipe.batch_size)
    schedule = LambdaLR(optimiser, lambda step: share_of_lr(step, all_steps))
    return Learner(recipe, network, optimiser, schedule)


def adamw(parameters: Iterable[nn.Parameter], lr: float) -> Optimizer:
    """Adam with weight decay, as torch makes it by itself: one parameter after the other."""
    return AdamW(parameters, lr=lr, weight_decay=WEIGHT_DECAY)


def share_of_lr(step: int, all_steps: int) -> float:
    """Up in a straight line for the first steps, then down along a cosine; near 0 from the last step on."""
    warm_up = max(1, round(all_steps * WARM_UP))
    if step < warm_up:
        return (step + 1) / warm_up
    done = min(1.0, (step - warm_up) / max(1, all_steps - warm_up))
    return 0.01 + 0.99 * (1 + math.cos(math.pi * done)) / 2


def step_by_step(learner: Learner, batch: Batch) -> None:
    """One step of gradient descent on one batch.

    Raises FloatingPointError when the loss is no longer a number, TypeError for a batch of another dtype.
    """
    recipe = learner.recipe
    if batch.images.dtype != recipe.dtype:
        raise TypeError(
            f"the network has dtype {recipe.dtype}, the batch {batch.images.dtype}: check `collate`"
        )
    learner.network.train()
    with torch.autograd.set_detect_anomaly(recipe.anomaly_detection):
        losses = recipe.loss(learner.network(batch.images), batch)
        if not math.isfinite(losses.total.item()):
            lr = learner.schedule.get_last_lr()[0]
            raise FloatingPointError(
                f"step {learner.steps + 1}: the loss is {losses.total.item()} (learning rate {lr:.2g}): "
                f"try a lower lr than {recipe.lr:g}, or look at this batch's pictures and targets"
            )
        learner.optimiser.zero_grad()
        losses.total.backward()  # type: ignore[no-untyped-call]
    learner.optimiser.step()
    learner.schedule.step()
    learner.steps += 1
    learner.history.append(recipe.remember(losses))
    recipe.log(learner, losses)


def remember_tensor(losses: Losses) -> Tensor:
    """The loss as it is: a tensor, with everything that hangs on it."""
    return losses.total


def remember_number(losses: Losses) -> float:
    """The loss as a plain number."""
    return losses.total.item()


def print_every_step(learner: Learner, losses: Losses) -> None:
    """A line after each step, with the mean loss of all steps so far."""
    mean = torch.as_tensor(sum(learner.history) / len(learner.history)).item()
    print(
        f"step {learner.steps}: heat {losses.heat.item():.4f}, sides {losses.sides.item():.4f}, "
        f"loss {losses.total.item():.4f}, mean loss {mean:.4f}"
    )


def print_nothing(learner: Learner, losses: Losses) -> None:
    """For those who watch a progress bar."""


def train(recipe: Recipe, pictures: Sequence[Picture], progress: bool = True) -> Trained:
    """Train a fresh network on these pictures, `recipe.epochs` times over, with a progress bar if wanted.

    Raises ValueError when there are no pictures, FloatingPointError (naming the step) when the loss is lost.
    """
    loader = recipe.loader(pictures)
    learner = recipe.learner(pictures)
    start = time.perf_counter()
    with tqdm(total=recipe.epochs * len(pictures), unit="picture", disable=not progress) as bar:
        for _ in range(recipe.epochs):
            for batch in loader:
                recipe.step(learner, batch)
                bar.update(len(batch.images))
    seconds = time.perf_counter() - start
    seen = recipe.epochs * len(pictures)
    return Trained(recipe, learner.network.eval(), learner.losses, seconds, seen / seconds)
