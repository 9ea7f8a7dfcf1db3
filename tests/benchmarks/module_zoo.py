"""The module profile beside fvcore and torchinfo on eight public architectures, and what it costs a step.

The architectures are those of transformers, with random weights, full width and (where that is an argument)
two layers of each kind, in evaluation mode; attention is written out: fvcore does not know the fused one.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import random
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from optbook.benchmark.profiles.module_watch import Watch
from optbook.benchmark.profiles.modules import ModulesProfile, modules_profile
from optbook.benchmark.profiles.request import Request
from optbook.benchmark.runner import Workload
from optbook.experiments.record import Experiment
from tests.benchmarks.run import Row

PAIRS = 20
CONTRACTIONS = frozenset({"conv", "linear", "matmul", "addmm", "bmm", "baddbmm", "einsum"})
"""fvcore's names of the operators that we count too. It counts others, such as norms, as well."""
Work = Callable[[], object]


def architectures() -> dict[str, Callable[[], nn.Module]]:
    hf: Any = importlib.import_module("transformers")
    two, plain = {"num_hidden_layers": 2}, {"attn_implementation": "eager"}
    return {
        "BERT": lambda: hf.BertModel(hf.BertConfig(**two, **plain)),
        "GPT-2": lambda: hf.GPT2LMHeadModel(hf.GPT2Config(n_layer=2, use_cache=False, **plain)),
        "T5": lambda: hf.T5ForConditionalGeneration(hf.T5Config(num_layers=2, use_cache=False, **plain)),
        "CLIP": lambda: hf.CLIPModel(hf.CLIPConfig(text_config=two, vision_config=two, **plain)),
        "ViT": lambda: hf.ViTForImageClassification(hf.ViTConfig(**two, **plain)),
        "Swin": lambda: hf.SwinForImageClassification(hf.SwinConfig(**plain)),
        "ResNet-50": lambda: hf.ResNetForImageClassification(hf.ResNetConfig()),
        "ConvNeXt": lambda: hf.ConvNextForImageClassification(hf.ConvNextConfig()),
    }


def inputs(model: nn.Module) -> dict[str, Tensor]:
    """32 tokens, a picture, or both, as the model's forward pass asks for."""
    tokens, picture = torch.arange(32)[None], torch.randn(1, 3, 224, 224)
    known = {"input_ids": tokens, "decoder_input_ids": tokens, "pixel_values": picture}
    return {name: known[name] for name in inspect.signature(model.forward).parameters if name in known}


class _Positional(nn.Module):
    """What fvcore can trace: positional arguments and a tuple of tensors."""

    def __init__(self, model: nn.Module, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        out = self.model(**dict(zip(self.names, given, strict=True)), return_dict=False)
        return tuple(value for value in out if isinstance(value, Tensor))


def ours(name: str, model: nn.Module, given: Mapping[str, Tensor]) -> dict[str, tuple[float, int, float]]:
    """By a module's path: multiply-adds of the forward pass, parameters, and calls."""

    def work() -> None:
        with torch.no_grad():
            model(**given)

    profile = profiled(name, work, 1)
    (tree,) = profile.models
    return {
        module.path.partition(".")[2]: (
            module.total.forward_flops / 2,
            module.all_parameters,
            module.own.calls,
        )
        for module in tree.walk()
    }


def of_fvcore(model: nn.Module, given: Mapping[str, Tensor]) -> dict[str, tuple[float, float]]:
    """By a module's path: multiply-adds, and what fvcore counts of norms and pooling."""
    fvcore: Any = importlib.import_module("fvcore.nn")
    counted = fvcore.FlopCountAnalysis(_Positional(model, list(given)), tuple(given.values()))
    counted.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
    found = {}
    for path, operators in counted.by_module_and_operator().items():
        whole = sum(operators.values())
        contracted = sum(value for operator, value in operators.items() if operator in CONTRACTIONS)
        if path.startswith("model"):
            found[path.partition(".")[2]] = (contracted, whole - contracted)
    return found


def of_architecture(name: str, build: Callable[[], nn.Module]) -> Row:
    torchinfo: Any = importlib.import_module("torchinfo")
    model = build().eval()
    given = inputs(model)
    mine, theirs = ours(name, model, given), of_fvcore(model, given)
    info = torchinfo.summary(model, input_data=dict(given), verbose=0, depth=99)
    called = [module for path, module in model.named_modules() if path in mine and mine[path][2]]
    of_each = sum(p.numel() for module in called for p in module.parameters(recurse=False))
    twice = of_each - sum(p.numel() for p in {p for module in called for p in module.parameters()})
    same = sum(mine[path][0] == theirs[path][0] for path in mine.keys() & theirs.keys())
    holds = mine.keys() == theirs.keys() and same == len(mine) and info.total_params - twice == mine[""][1]
    tied = f" ({twice:,} of them tied, counted at each module called)" if twice else ""
    return Row(
        f"modules: {name}, multiply-adds of each of {len(mine)} modules and parameters",
        f"{same} equal; {mine[''][0]:,.0f}; {mine[''][1]:,} parameters",
        "all equal, or explained",
        holds,
        {
            "fvcore": f"{theirs[''][0]:,.0f} (and {theirs[''][1]:,.0f} of norms and pooling)",
            "torchinfo": f"{info.total_params:,} parameters{tied}",
        },
    )


def profiled(name: str, work: Work, runs: int) -> ModulesProfile:
    """The profile of a workload that was not measured before."""
    return modules_profile(Request(Workload(work), work, Experiment(label=name, runs=runs)))


def conv_net() -> Work:
    """A training step of a plain convolutional network: three blocks, 16 pictures of 64 × 64."""
    blocks: list[nn.Module] = []
    for before, after in ((3, 16), (16, 32), (32, 64)):
        blocks += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(inplace=True)]
        blocks.append(nn.MaxPool2d(2))
    net = nn.Sequential(*blocks, nn.Flatten(), nn.Linear(64 * 8 * 8, 10))
    optimizer, loss = torch.optim.SGD(net.parameters(), lr=0.01), nn.CrossEntropyLoss()
    pictures, labels = torch.randn(16, 3, 64, 64), torch.randint(0, 10, (16,))

    def step() -> None:
        optimizer.zero_grad()
        loss(net(pictures), labels).backward()
        optimizer.step()

    return step


@contextmanager
def watched() -> Iterator[None]:
    watch = Watch(time.perf_counter, waits=True)
    watch.start()
    watch.running(True)
    try:
        yield
    finally:
        watch.stop()


def torch_profiler() -> AbstractContextManager[object]:
    return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_modules=True)


def overhead(work: Work, instrument: Callable[[], AbstractContextManager[object]], pairs: int) -> float:
    """Median of instrumented ÷ bare time over pairs in random order."""

    def bare() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    def with_it() -> float:
        with instrument():
            return bare()

    ratios, order = [], random.Random(0)
    for _ in range(pairs):
        if order.random() < 0.5:
            ratios.append(1 / (bare() / with_it()))
        else:
            ratios.append(with_it() / bare())
    return statistics.median(ratios)


def of_step(name: str, work: Work, pairs: int) -> list[Row]:
    work()
    profile = profiled(name, work, 20)
    total = profile.run.total / profile.run.executions
    modules = sum(model.total.seconds for model in profile.models)
    gap = abs(profile.seconds / total - 1)
    factor = overhead(work, watched, pairs)
    rest = ", ".join(f"{part} {seconds / total:.1%}" for part, seconds in profile.rest.items())
    return [
        Row(f"modules: {name}, modules + named remainder against the instrumented step (difference)", gap,
            "at most 0.01", gap <= 0.01, {"modules": f"{modules / total:.1%}", "remainder": rest}),
        Row(f"modules: {name}, instrumented ÷ bare, paired", factor, "at most 1.05", factor <= 1.05,
            {"torch.profiler": overhead(work, torch_profiler, max(6, pairs // 3))}),
    ]  # fmt: skip


def rows() -> list[Row]:
    """All of them; takes some minutes."""
    from tests.benchmarks.bench_profiles import training_step

    logging.getLogger("fvcore").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    found = [
        *of_step("sample's training step", training_step(), 6),
        *of_step("plain conv net", conv_net(), PAIRS),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [*found, *(of_architecture(name, build) for name, build in architectures().items())]
