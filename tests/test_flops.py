"""FLOPs against counts done by hand, and that counting leaves a workload as it was."""

from __future__ import annotations

import copy
import functools
import math
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from optbook import bench, track
from optbook.benchmark import flop_formulas, flops, restore
from optbook.benchmark.flop_counter import FlopCounter, Tally
from optbook.benchmark.machine import peaks as peaks_module
from optbook.benchmark.machine.peaks import Peak, Peaks

BUSY = Peaks({"cpu": {"float32": Peak(1e15, "matmul", 6, 64.0)}}, {}, None, None, "m", 2, "", "2026", 1.0)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def _known_peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks_module, "peaks", lambda refresh=False: BUSY)
    monkeypatch.setattr(peaks_module, "known", lambda: BUSY)


def counted(run: Callable[[], object]) -> Tally:
    counter = FlopCounter()
    with counter.counting():
        run()
    counter.keep()
    return counter.kept


@dataclass(frozen=True)
class Case:
    """A module or function, its inputs, and the FLOPs counted by hand."""

    build: Callable[[], Callable[..., Any]]
    inputs: tuple[torch.Tensor, ...]
    forward: int
    backward: int


def given(*shape: int) -> torch.Tensor:
    return torch.randn(shape, requires_grad=True)


def fixed(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


class ResidualBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(4, 8, 3, stride=2, padding=1, bias=False)
        self.second = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.short = nn.Conv2d(4, 8, 1, stride=2, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inside = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(inside)) + self.norms[2](self.short(x)))


def without_weights(attention: nn.MultiheadAttention) -> Callable[..., Any]:
    return lambda q, k, v: attention(q, k, v, need_weights=False)


# Two FLOPs a multiply-add. Where an input asks for its gradient, a linear map's backward pass is the forward
# pass twice: once for the input, once for the weights.
LINEAR = 2 * 6 * 5 * 7
CONV = 2 * (2 * 8 * 8) * 6 * (4 * 3 * 3)
GROUPED = 2 * (2 * 8 * 8) * 6 * (2 * 3 * 3)
DEPTHWISE = 2 * (2 * 8 * 8) * 16 * (1 * 3 * 3)
CONV1D = 2 * (2 * 6) * 6 * (4 * 5)
CONV3D = 2 * (1 * 2 * 3 * 4) * 5 * (2 * 27)
TRANSPOSED = 2 * (2 * 5 * 5) * 4 * (6 * 3 * 3)
TRANSPOSED_GROUPED = 2 * (2 * 5 * 5) * 4 * (3 * 3 * 3)
LSTM = 2 * (5 * 4) * 4 * 16 * (8 + 16)
DEEP_LSTM = 2 * (5 * 4) * 4 * 16 * (2 * (8 + 16) + 2 * (32 + 16))
GRU_IN, GRU_STATE = 2 * (5 * 4) * 3 * 16 * 8, 2 * (5 * 4) * 3 * 16 * 16
RNN_IN, RNN_STATE = 2 * (5 * 4) * 16 * 8, 2 * (5 * 4) * 16 * 16
# The hidden state before the first of five steps is zeros and needs no gradient.
GRU_BACK = 2 * GRU_IN + GRU_STATE + GRU_STATE * 4 // 5
RNN_BACK = 2 * RNN_IN + RNN_STATE + RNN_STATE * 4 // 5
SCORES = 2 * (2 * 4) * 6 * 6 * 8
CROSS_SCORES = 2 * (2 * 4) * 6 * 9 * 8
PROJECTIONS = 4 * (2 * (3 * 5) * 12 * 12)
MHA_SCORES = 2 * 3 * 5 * 5 * 12
FEED_FORWARD = 2 * (2 * (3 * 5) * 12 * 20)
BILINEAR = 2 * 7 * 5 * 3 * 4 + 2 * 7 * 5 * 4
BMM = 2 * 2 * 3 * 4 * 5
BLOCK = 2 * (2 * 4 * 4) * 8 * (4 * 9 + 8 * 9 + 4)

CASES = {
    "Linear": Case(lambda: nn.Linear(5, 7), (given(6, 5),), LINEAR, 2 * LINEAR),
    "Linear, fixed input": Case(lambda: nn.Linear(5, 7), (fixed(6, 5),), LINEAR, LINEAR),
    "Conv1d": Case(lambda: nn.Conv1d(4, 6, 5), (given(2, 4, 10),), CONV1D, 2 * CONV1D),
    "Conv2d": Case(lambda: nn.Conv2d(4, 6, 3), (given(2, 4, 10, 10),), CONV, 2 * CONV),
    "Conv2d, fixed input": Case(lambda: nn.Conv2d(4, 6, 3), (fixed(2, 4, 10, 10),), CONV, CONV),
    "Conv2d, fixed weight": Case(
        lambda: nn.Conv2d(4, 6, 3).requires_grad_(False), (given(2, 4, 10, 10),), CONV, CONV
    ),
    "Conv2d, 2 groups": Case(
        lambda: nn.Conv2d(4, 6, 3, groups=2), (given(2, 4, 10, 10),), GROUPED, 2 * GROUPED
    ),
    "Conv2d, depthwise": Case(
        lambda: nn.Conv2d(16, 16, 3, groups=16), (given(2, 16, 10, 10),), DEPTHWISE, 2 * DEPTHWISE
    ),
    "Conv3d": Case(lambda: nn.Conv3d(2, 5, 3), (given(1, 2, 4, 5, 6),), CONV3D, 2 * CONV3D),
    "ConvTranspose2d": Case(
        lambda: nn.ConvTranspose2d(4, 6, 3, stride=2), (given(2, 4, 5, 5),), TRANSPOSED, 2 * TRANSPOSED
    ),
    "ConvTranspose2d, 2 groups": Case(
        lambda: nn.ConvTranspose2d(4, 6, 3, groups=2),
        (given(2, 4, 5, 5),),
        TRANSPOSED_GROUPED,
        2 * TRANSPOSED_GROUPED,
    ),
    "LSTM": Case(lambda: nn.LSTM(8, 16), (given(5, 4, 8),), LSTM, 2 * LSTM),
    "LSTM, two layers, both ways": Case(
        lambda: nn.LSTM(8, 16, 2, bidirectional=True), (given(5, 4, 8),), DEEP_LSTM, 2 * DEEP_LSTM
    ),
    "GRU": Case(lambda: nn.GRU(8, 16), (given(5, 4, 8),), GRU_IN + GRU_STATE, GRU_BACK),
    "RNN, tanh": Case(lambda: nn.RNN(8, 16), (given(5, 4, 8),), RNN_IN + RNN_STATE, RNN_BACK),
    "MultiheadAttention": Case(
        lambda: nn.MultiheadAttention(12, 3, batch_first=True),
        (given(3, 5, 12), given(3, 5, 12), given(3, 5, 12)),
        PROJECTIONS + 2 * MHA_SCORES,
        2 * PROJECTIONS + 4 * MHA_SCORES,
    ),
    "MultiheadAttention, fused": Case(
        lambda: without_weights(nn.MultiheadAttention(12, 3, batch_first=True)),
        (given(3, 5, 12), given(3, 5, 12), given(3, 5, 12)),
        PROJECTIONS + 2 * MHA_SCORES,
        2 * PROJECTIONS + 5 * MHA_SCORES,
    ),
    "attention to itself": Case(
        lambda: F.scaled_dot_product_attention,
        (given(2, 4, 6, 8), given(2, 4, 6, 8), given(2, 4, 6, 8)),
        2 * SCORES,
        5 * SCORES,
    ),
    "attention to another": Case(
        lambda: F.scaled_dot_product_attention,
        (given(2, 4, 6, 8), given(2, 4, 9, 8), given(2, 4, 9, 8)),
        2 * CROSS_SCORES,
        5 * CROSS_SCORES,
    ),
    "attention, causal": Case(
        lambda: lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        (given(2, 4, 6, 8), given(2, 4, 6, 8), given(2, 4, 6, 8)),
        2 * SCORES,
        5 * SCORES,
    ),
    "bmm": Case(lambda: torch.bmm, (given(2, 3, 4), given(2, 4, 5)), BMM, 2 * BMM),
    "einsum": Case(
        lambda: lambda a, b: torch.einsum("bij,bjk->bik", a, b),
        (given(2, 3, 4), given(2, 4, 5)),
        BMM,
        2 * BMM,
    ),
    "baddbmm": Case(lambda: torch.baddbmm, (given(2, 3, 5), given(2, 3, 4), given(2, 4, 5)), BMM, 2 * BMM),
    "matrix times vector": Case(lambda: torch.mv, (fixed(6, 5), given(5)), 2 * 6 * 5, 2 * 6 * 5),
    "Bilinear": Case(
        lambda: nn.Bilinear(3, 4, 5), (fixed(7, 3), fixed(7, 4)), BILINEAR, 2 * 7 * 5 * 3 * (1 + 4)
    ),
    "ResNet block": Case(ResidualBlock, (given(2, 4, 8, 8),), BLOCK, 2 * BLOCK),
    "transformer layer": Case(
        lambda: nn.TransformerEncoderLayer(12, 3, 20, dropout=0.0, batch_first=True),
        (given(3, 5, 12),),
        PROJECTIONS + 2 * MHA_SCORES + FEED_FORWARD,
        2 * PROJECTIONS + 5 * MHA_SCORES + 2 * FEED_FORWARD,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_as_counted_by_hand(name: str) -> None:
    case = CASES[name]
    module = case.build()
    results: list[torch.Tensor] = []

    def forward() -> None:
        out = module(*case.inputs)
        results.append(out[0] if isinstance(out, tuple) else out)

    assert counted(forward).total == case.forward
    assert counted(functools.partial(torch.autograd.backward, results[0].sum())).total == case.backward


def test_what_torch_counts_wrongly_is_still_wrong_there() -> None:
    """If this fails, a correction may be dropped."""
    wrong = {}
    for name in ("LSTM", "attention to itself", "Conv2d, depthwise", "matrix times vector", "Bilinear"):
        case = CASES[name]
        module = case.build()
        with FlopCounterMode(display=False) as theirs:
            out = module(*case.inputs)
            (out[0] if isinstance(out, tuple) else out).sum().backward()
        wrong[name] = theirs.get_total_flops()
    depthwise = wrong.pop("Conv2d, depthwise")
    assert depthwise == DEPTHWISE * (1 + 1 + 16)
    assert set(wrong.values()) == {0}


def test_inference_kernels_of_whole_layers() -> None:
    layer = nn.TransformerEncoderLayer(12, 2, 20, batch_first=True).eval()
    attention = nn.MultiheadAttention(12, 2, batch_first=True).eval()
    x, linear = torch.randn(3, 5, 12), nn.Linear(12, 4)
    with torch.inference_mode():
        whole, part = counted(lambda: layer(x)), counted(lambda: attention(x, x, x))
        single = counted(lambda: linear(x))
    assert "_transformer_encoder_layer_fwd" in whole.counted_seconds
    assert "_native_multi_head_attention" in part.counted_seconds
    assert whole.total == PROJECTIONS + 2 * MHA_SCORES + FEED_FORWARD
    assert part.total == PROJECTIONS + 2 * MHA_SCORES
    assert single.total == 2 * (3 * 5) * 12 * 4


def test_formulas_of_kernels_that_this_machine_lacks() -> None:
    ours = flop_formulas._OURS
    x, w_in, w_state, bias = fixed(5, 4, 8), fixed(64, 8), fixed(64, 16), fixed(64)
    weights = [w_in, w_state, bias, bias]
    assert ours["_cudnn_rnn"]([x, weights], None) == LSTM
    back: list[Any] = [None] * 22
    back[0], back[1], back[21] = x, weights, [True, True, True, True]
    assert ours["_cudnn_rnn_backward"](back, None) == 2 * LSTM
    back[21] = [True, True, True, False]
    assert ours["_cudnn_rnn_backward"](back, None) == LSTM
    assert ours["_lstm_mps"]([x, None, weights], None) == LSTM
    mps: list[Any] = [None] * 9
    mps[5], mps[8] = x, weights
    assert ours["lstm_mps_backward"](mps, None) == 2 * LSTM
    linear = [fixed(6, 5), fixed(6, 7), fixed(7, 5), [True, True, True]]
    assert ours["linear_backward"](linear, None) == 2 * LINEAR


@pytest.mark.parametrize("name", sorted(flop_formulas._OURS))
def test_a_formula_belongs_to_an_operator_of_torch(name: str) -> None:
    assert hasattr(torch.ops.aten, name)


def test_arguments_are_where_the_schemas_say() -> None:
    def places(name: str) -> list[str]:
        return [argument.name for argument in getattr(torch.ops.aten, name).default._schema.arguments]

    assert places("_cudnn_rnn_backward")[21] == "output_mask"
    assert places("miopen_rnn_backward")[20] == "output_mask"
    assert (places("_lstm_mps")[0], places("_lstm_mps")[2]) == ("input", "params")
    assert (places("lstm_mps_backward")[5], places("lstm_mps_backward")[8]) == ("input", "params")
    for place in (14, 16):
        assert places("_transformer_encoder_layer_fwd")[place].startswith("ffn_weight")
    assert places("convolution_backward")[10] == "output_mask"


def test_complex_counts_four_times_and_integers_and_sparse_not_at_all() -> None:
    a = torch.randn(3, 4, dtype=torch.complex64)
    assert counted(lambda: a @ a.T).total == 4 * (2 * 3 * 4 * 3)
    whole = torch.ones(3, 4, dtype=torch.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls its sparse tensors a beta feature
        sparse = torch.eye(4).to_sparse()
    for tally in (counted(lambda: whole @ whole.T), counted(lambda: sparse @ torch.ones(4, 4))):
        assert tally.total == 0
        assert tally.coverage == 0.0


def test_a_formula_that_does_not_fit_leaves_the_operator_uncounted(monkeypatch: pytest.MonkeyPatch) -> None:
    def odd(args: Any, out: Any) -> int:
        raise IndexError

    linear = nn.Linear(3, 3)
    monkeypatch.setitem(flop_formulas.formulas()._ours, torch.ops.aten.addmm, odd)
    tally = counted(lambda: linear(torch.ones(2, 3)))
    assert tally.total == 0
    assert "addmm" in tally.other_seconds


def test_coverage_is_the_share_of_operator_time() -> None:
    class Ticks:
        """A clock by which every operator takes a second."""

        time = 0.0

        def __call__(self) -> float:
            self.time += 1
            return self.time

    counter = FlopCounter(now=Ticks())
    a = torch.ones(3, 3)
    with counter.counting():
        for _ in range(3):
            torch.mm(a, a)
        torch.sin(a)
    counter.keep()
    assert counter.kept.coverage == 0.75
    assert dict(counter.kept.other_seconds) == {"sin": 1.0}


# What a counting pass leaves behind.


def gradient(parameter: torch.Tensor) -> Any:
    return copy.deepcopy(parameter.grad)


class Training:
    """A few steps of training, with dropout, batch normalisation and augmentation that draws numbers."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1)
        self.generator = np.random.default_rng(0)
        self.weight = torch.ones(4, requires_grad=True)
        self.steps = 0
        self.history: list[float] = []

    def step(self) -> None:
        self.optimizer.zero_grad()
        noise = torch.as_tensor(self.generator.random((6, 4)), dtype=torch.float32) * random.random()
        loss = (self.model(noise + torch.randn(6, 4) * np.random.rand()) * self.weight.sum()).sum()
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            self.weight -= 0.1
        self.scheduler.step()
        self.steps += 1
        self.history.append(loss.item())

    def state(self) -> list[Any]:
        optimizer = self.optimizer.state_dict()
        return [
            [value.clone() for value in self.model.state_dict().values()],
            [gradient(p) for p in self.model.parameters()],
            [{k: v.clone() for k, v in state.items()} for state in optimizer["state"].values()],
            [group["lr"] for group in optimizer["param_groups"]],
            self.scheduler.last_epoch,
            [self.steps, *self.history],
            self.weight.detach().clone(),
            torch.get_rng_state(),
            random.getstate(),
            [np.asarray(part).tolist() for part in np.random.get_state()],
            self.generator.bit_generator.state,
        ]


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return bool(a == b)


@pytest.mark.parametrize("warm", [0, 2])
def test_what_learns_and_all_random_state_are_put_back(warm: int) -> None:
    training = Training()
    for _ in range(warm):
        training.step()
    before = training.state()
    kept = restore.Kept(training.step)
    training.step()
    training.step()
    assert not same(training.state()[0], before[0])
    kept.put_back()
    after = training.state()
    assert [same(a, b) for a, b in zip(before, after, strict=True)] == [True] * len(before)
    assert kept.problems == []
    training.step()  # and it goes on


def test_names_and_the_lists_bound_to_them_are_put_back() -> None:
    namespace: dict[str, Any] = {"history": [1], "seen": {1}, "table": {"a": 1}, "count": 0}
    exec("def run():\n global count, new\n count += 1; new = 2; history.append(2); seen.add(2)", namespace)
    exec("def more():\n run(); table['b'] = 2", namespace)
    history = namespace["history"]
    kept = restore.Kept(namespace["more"])
    namespace["more"]()
    assert namespace["count"] == 1
    kept.put_back()
    assert "new" not in namespace
    assert (namespace["count"], namespace["history"], namespace["seen"]) == (0, [1], {1})
    assert namespace["table"] == {"a": 1}
    assert namespace["history"] is history


def test_closure_variables_are_put_back() -> None:
    total, items = 0, [1]

    def run() -> None:
        nonlocal total
        total += 1
        items.append(2)

    kept = restore.Kept(run)
    run()
    kept.put_back()
    assert (total, items) == (0, [1])


def test_a_generator_that_only_a_loader_holds_is_put_back() -> None:
    generator = torch.Generator().manual_seed(1)
    numbers = torch.utils.data.TensorDataset(torch.arange(3))
    loader = torch.utils.data.DataLoader(numbers, shuffle=True, generator=generator)
    state = generator.get_state()
    holder = {"run": lambda: list(loader)}
    kept = restore.Kept(holder["run"])
    holder["run"]()
    assert not torch.equal(generator.get_state(), state)
    kept.put_back()
    assert torch.equal(generator.get_state(), state)


def test_too_much_to_copy_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "FREE_SHARE", 0.0)
    model = nn.Linear(2, 2)
    kept = restore.Kept(lambda: model)
    assert "were not put back" in kept.problems[0]


# In a bench.


def test_a_workload_that_is_run() -> None:
    linear, x = nn.Linear(5, 7), torch.ones(6, 5)
    experiment = bench(lambda: linear(x), "run", runs=8, flops=True)
    assert experiment.seconds is not None
    assert experiment.flops_counted == LINEAR
    assert experiment.flops is not None
    assert experiment.flops == pytest.approx(LINEAR / experiment.seconds)
    assert experiment.flops_dtype == "float32"
    assert experiment.flops_share == pytest.approx(experiment.flops / 1e15)
    assert experiment.flops_coverage is not None
    assert 0 < experiment.flops_coverage <= 1
    assert experiment.executions == 9
    assert "once more" in experiment.flops_note
    assert "of operator time counted" in str(experiment)
    assert "1.00 PFLOP/s, the best of 6 kernels: matmul, 2 threads, float32" in str(experiment)


def test_of_a_tracked_loop_only_a_few_steps_and_only_what_is_inside() -> None:
    linear, x, executed = nn.Linear(5, 7), torch.ones(6, 5), []

    def run() -> None:
        torch.mm(torch.ones(50, 50), torch.ones(50, 50))
        for i in track(range(20)):
            executed.append(i)
            linear(x)
        for _ in track(range(3), unit="picture"):
            linear(x)

    experiment = bench(run, "tracked", flops=True)
    assert experiment.flops_counted == LINEAR
    assert experiment.flops == pytest.approx(LINEAR * experiment.steps / math.fsum(experiment.times))
    assert f"({flops.MOST_STEPS} steps)" in experiment.flops_note
    assert len(executed) == 20


def test_steps_that_differ_are_said() -> None:
    linear = nn.Linear(5, 7)

    def run() -> None:
        for i in track(range(10)):
            linear(torch.ones(i + 1, 5))

    note = bench(run, "growing", flops=True).flops_note
    assert "the steps differ: 70" in note


def test_without_torch_operators_it_is_said_in_a_sentence_and_never_zero() -> None:
    experiment = bench(lambda: sum(range(100)), "plain", runs=7, flops=True)
    assert experiment.flops is None
    assert "can't be counted: it runs no torch operator" in experiment.flops_note
    assert "can't be counted" in str(experiment)
    pointwise = bench(lambda: torch.ones(3) + 1, "pointwise", runs=7, flops=True)
    assert pointwise.flops is None
    assert "have no formula" in pointwise.flops_note


def test_without_torch_in_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    found, problem = flops.measured(None, lambda: None, None, {})  # type: ignore[arg-type]
    assert problem is None
    assert found == {"flops_note": "this workload's FLOPs can't be counted: it does not use torch"}


def test_used_up_input_is_said() -> None:
    iterator = iter(range(9))

    def run() -> None:
        for _ in track(iterator):
            torch.ones(3)

    assert "use up its input" in bench(run, "once", flops=True).flops_note


def test_a_workload_that_raises_in_the_pass_is_recorded_and_raises() -> None:
    from optbook import log

    calls = iter(range(7))
    with pytest.raises(StopIteration) as caught:
        bench(lambda: next(calls) + torch.ones(1), "raises", runs=7, flops=True)
    assert "counts FLOPs" in caught.value.__notes__[0]
    row = log().iloc[-1]
    assert row["status"] == "ok"
    assert row["throughput"] > 0
    assert "raised StopIteration" in row["flops_note"]


def test_mixed_data_types_are_said() -> None:
    single, half = nn.Linear(5, 7), nn.Linear(5, 7).bfloat16()
    small, large = torch.ones(3, 5), torch.ones(9, 5, dtype=torch.bfloat16)
    experiment = bench(lambda: (single(small), half(large)), "mixed", runs=7, flops=True)
    assert experiment.flops_dtype == "bfloat16"
    assert "several dtypes (bfloat16 75 %, float32 25 %)" in experiment.flops_note
    assert "no measured peak for bfloat16" in experiment.flops_note
    assert experiment.flops_share is None


def test_above_the_peak_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Peaks({"cpu": {"float32": Peak(1.0, "matmul", 6, 64.0)}}, {}, None, None, "m", 2, "", "", 1.0)
    monkeypatch.setattr(peaks_module, "peaks", lambda refresh=False: slow)
    linear = nn.Linear(5, 7)
    experiment = bench(lambda: linear(torch.ones(6, 5)), "fast", runs=7, flops=True)
    assert experiment.flops_share is None
    assert experiment.flops_peak == 1.0
    assert "no share of peak" in experiment.flops_note


def test_a_peak_taken_beside_other_work_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = Peaks({"cpu": {"float32": Peak(1e15, "matmul", 6, 0.1)}}, {}, None, None, "m", 2, "", "", 1.0)
    monkeypatch.setattr(peaks_module, "peaks", lambda refresh=False: busy)
    linear = nn.Linear(5, 7)
    experiment = bench(lambda: linear(torch.ones(6, 5)), "beside", runs=7, flops=True)
    assert experiment.flops_counted == LINEAR
    assert experiment.flops_share is None
    assert experiment.flops_peak is None
    assert "other work took part" in experiment.flops_note


def test_compiled_functions_run_as_written() -> None:
    import torch._dynamo

    torch._dynamo.reset()
    linear = torch.compile(nn.Linear(5, 7), backend="eager")
    x = torch.ones(6, 5)
    linear(x)
    experiment = bench(lambda: linear(x), "compiled", runs=7, flops=True)
    torch._dynamo.reset()
    assert experiment.flops_counted == LINEAR
    assert "ran uncompiled" in experiment.flops_note


def test_the_model_is_left_as_the_measured_runs_left_it() -> None:
    def trained(count: bool) -> list[Any]:
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)
        training = Training()

        def run() -> None:
            for _ in track(range(6)):
                training.step()

        bench(run, "train", flops=count)
        return training.state()

    plain, with_flops = trained(False), trained(True)
    assert [same(a, b) for a, b in zip(plain, with_flops, strict=True)] == [True] * len(plain)


def test_an_interrupt_keeps_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    from optbook import log

    def interrupted(refresh: bool = False) -> Peaks:
        raise KeyboardInterrupt

    monkeypatch.setattr(peaks_module, "peaks", interrupted)
    linear = nn.Linear(5, 7)
    with pytest.raises(KeyboardInterrupt):
        bench(lambda: linear(torch.ones(6, 5)), "stopped", runs=7, flops=True)
    row = log().iloc[-1]
    assert row["throughput"] > 0
    assert row["flops_note"] == "interrupted while FLOPs were counted"


def test_in_a_notebook() -> None:
    from IPython.core.interactiveshell import InteractiveShell

    InteractiveShell.clear_instance()
    shell: Any = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "optbook")
    try:
        before = "import torch\na = torch.ones(3, 3)\nseen, count = [], 0"
        cell = "%%bench product --runs 8 --flops\nseen.append(1)\ncount = count + 1\nb = a @ a"
        assert shell.run_cell(before).success
        result = shell.run_cell(cell)
    finally:
        shell.run_line_magic("unload_ext", "optbook")
        InteractiveShell.clear_instance()
    assert result.success
    assert result.result.flops_counted == 2 * 3 * 3 * 3
    assert "FLOP/s in float32" in result.result._repr_html_()
    assert (shell.user_ns["count"], len(shell.user_ns["seen"])) == (8, 8)
