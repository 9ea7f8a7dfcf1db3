"""Learning: a learner takes one step after the other.

    learner = recipe.learner(pictures)
    for batch in recipe.loader(pictures):
        recipe.step(learner, batch)

is one epoch; `train` does `recipe.epochs` of them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR
from tqdm.auto import tqdm

from optbook.hotdog.background import Background
from optbook.hotdog.coco import Picture
from optbook.hotdog.compiler import need_compiler
from optbook.hotdog.dataset import Batch
from optbook.hotdog.loss import Losses, as_number
from optbook.hotdog.network import Output, keep_channels_last
from optbook.hotdog.precision import autocast

if TYPE_CHECKING:
    from optbook.hotdog.recipe import Recipe

WARM_UP = 0.15  # share of all steps in which the learning rate rises
WEIGHT_DECAY = 1e-4
CHECK_EVERY = 20  # steps after which `step_without_waiting` looks whether the losses are still numbers


@dataclass
class Learner:
    """A network on its way. `steps` counts those taken; `history` holds what the recipe remembers of each."""

    recipe: Recipe
    network: nn.Module
    optimiser: Optimizer
    schedule: LambdaLR
    forward: Callable[[Tensor], Output]  # the network, compiled if the recipe says so
    steps: int = 0
    history: list[Any] = field(default_factory=list)
    unchecked: list[Tensor] = field(
        default_factory=list
    )  # losses that `step_without_waiting` has not read yet
    background: Background = field(default_factory=Background)

    @property
    def losses(self) -> list[float]:
        """The loss of each step taken."""
        return [as_number(loss) for loss in self.history]

    def finish(self) -> None:
        """Wait for what is done in the background, and look at the losses not looked at yet.

        Raises the errors that happened there, and FloatingPointError for a lost loss.
        """
        try:
            check_losses(self)
        finally:
            self.background.finish()


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
    Raises RuntimeError when the network shall be compiled and there is no compiler.
    """
    if recipe.compile:
        need_compiler("compile=True", "take compile=False")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        network = recipe.network(recipe.width).to(recipe.dtype)
    if recipe.channels_last:
        network = keep_channels_last(network)
    optimiser = recipe.optimiser(network.parameters(), recipe.lr)
    all_steps = recipe.epochs * math.ceil(len(pictures) / recipe.batch_size)
    schedule = LambdaLR(optimiser, lambda step: share_of_lr(step, all_steps))
    forward = torch.compile(network) if recipe.compile else network
    return Learner(recipe, network, optimiser, schedule, forward)


def adamw(parameters: Iterable[nn.Parameter], lr: float) -> Optimizer:
    """Adam with weight decay, as torch makes it by itself: one parameter after the other."""
    return AdamW(parameters, lr=lr, weight_decay=WEIGHT_DECAY)


def fused_adamw(parameters: Iterable[nn.Parameter], lr: float) -> Optimizer:
    """The same in one call a step, written in C++ for all parameters together."""
    return AdamW(parameters, lr=lr, weight_decay=WEIGHT_DECAY, fused=True)


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
    with torch.autograd.set_detect_anomaly(recipe.anomaly_detection):
        losses = losses_of(learner, batch)
        if not math.isfinite(losses.total.item()):
            raise lost_loss(learner, learner.steps + 1, losses.total.item())
        learner.optimiser.zero_grad()
        losses.total.backward()  # type: ignore[no-untyped-call]
    learner.optimiser.step()
    learner.schedule.step()
    learner.steps += 1
    learner.history.append(recipe.remember(losses))
    recipe.log(learner, losses)


def step_without_waiting(learner: Learner, batch: Batch) -> None:
    """The same, but the loss is only read every CHECK_EVERY steps: a GPU can work ahead until then.

    Raises TypeError for a batch of another dtype, and FloatingPointError when the loss was no longer a number
    at one of the last CHECK_EVERY steps, which it names; the network is lost then too.
    """
    recipe = learner.recipe
    with torch.autograd.set_detect_anomaly(recipe.anomaly_detection):
        losses = losses_of(learner, batch)
        total = losses.total
        learner.optimiser.zero_grad()
        total.backward()  # type: ignore[no-untyped-call]
    learner.optimiser.step()
    learner.schedule.step()
    learner.steps += 1
    learner.history.append(recipe.remember(losses))
    learner.unchecked.append(total.detach())
    if len(learner.unchecked) == CHECK_EVERY:
        check_losses(learner)
    recipe.log(learner, losses)


def losses_of(learner: Learner, batch: Batch) -> Losses:
    """What the network answers to this batch, and how wrong that is."""
    recipe = learner.recipe
    images = batch.images
    if images.dtype != recipe.dtype:
        raise TypeError(f"the network has dtype {recipe.dtype}, the batch {images.dtype}: check `collate`")
    if recipe.channels_last:
        images = images.contiguous(memory_format=torch.channels_last)
    learner.network.train()
    with autocast(recipe.autocast):
        output = learner.forward(images)
    return recipe.loss(Output(*(answer.to(recipe.dtype) for answer in output)), batch)


def check_losses(learner: Learner) -> None:
    """Look at the losses that were not read yet, all at once.

    Raises FloatingPointError for the first that is no longer a number.
    """
    unchecked, learner.unchecked = learner.unchecked, []
    for i, loss in enumerate(torch.stack(unchecked).tolist() if unchecked else ()):
        if not math.isfinite(loss):
            raise lost_loss(learner, learner.steps - len(unchecked) + 1 + i, loss)


def lost_loss(learner: Learner, step: int, loss: float) -> FloatingPointError:
    lr = learner.schedule.get_last_lr()[0]
    return FloatingPointError(
        f"step {step}: the loss is {loss} (learning rate {lr:.2g}): "
        f"try a lower lr than {learner.recipe.lr:g}, or look at this batch's pictures and targets"
    )


def remember_tensor(losses: Losses) -> Tensor:
    """The loss as it is: a tensor, with everything that hangs on it."""
    return losses.total


def remember_detached(losses: Losses) -> Tensor:
    """The loss as a tensor that nothing hangs on; nobody waits for its value."""
    return losses.total.detach()


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


def train(
    recipe: Recipe, pictures: Sequence[Picture], progress: bool = True, keep_in: Path | None = None
) -> Trained:
    """Train a fresh network on these pictures, `recipe.epochs` times over, with a progress bar if wanted.

    With a folder `keep_in`, a checkpoint `epoch-003.pt` is kept there after every `recipe.checkpoint_every`
    epochs. Raises ValueError when there are no pictures, FloatingPointError (naming the step) when the loss
    is lost.
    """
    loader = recipe.loader(pictures)
    learner = recipe.learner(pictures)
    start = time.perf_counter()
    with tqdm(total=recipe.epochs * len(pictures), unit="picture", disable=not progress) as bar:
        for epoch in range(1, recipe.epochs + 1):
            for batch in loader:
                recipe.step(learner, batch)
                bar.update(len(batch.images))
            if keep_in and recipe.checkpoint_every and epoch % recipe.checkpoint_every == 0:
                recipe.checkpoint(learner, keep_in / f"epoch-{epoch:03}.pt")
        learner.finish()
    seconds = time.perf_counter() - start
    seen = recipe.epochs * len(pictures)
    return Trained(recipe, learner.network.eval(), learner.losses, seconds, seen / seconds)
