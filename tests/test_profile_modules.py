"""The module profile: times add up, counts are exact, and nothing is left in the model."""

from __future__ import annotations

import gc
import math
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import module as module_hooks
from torch.optim import optimizer as optimizers
from torch.utils import data
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from optbook import track
from optbook.benchmark.bench import bench
from optbook.benchmark.machine import peaks as machine
from optbook.benchmark.machine.peaks import Peak, Peaks
from optbook.benchmark.profiles.module_account import LOSS, OTHER, stretches
from optbook.benchmark.profiles.module_tree import Module
from optbook.benchmark.profiles.module_watch import DATA, END, IN, MARK, OFF, ON, OPTIMIZER, OUT, Watch
from optbook.benchmark.profiles.modules import ModulesProfile, modules_profile
from optbook.benchmark.profiles.request import Request
from optbook.benchmark.runner import Workload
from optbook.errors import OptbookError
from tests.fakes import FakeClock
from tests.shells import shell_with_optbook

FLOPS, BANDWIDTH = 1e3, 1e3
PEAKS = Peaks(
    {"cpu": {"float32": Peak(FLOPS, "matmul", 1, 64.0)}}, {"cpu": Peak(BANDWIDTH, "copy", 1, 64.0)},
    None, None, "m", 1, "", "2026", 1.0,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _known_peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "peaks", lambda refresh=False: PEAKS)
    monkeypatch.setattr(machine, "known", lambda: PEAKS)


@pytest.fixture
def fake() -> FakeClock:
    return FakeClock()


def profiled(
    work: Callable[[], object], fake: FakeClock | None = None, runs: int | None = 2, **given: Any
) -> ModulesProfile:
    clock = None if fake is None else fake.clock
    experiment = bench(work, runs=runs, clock=clock, **given)
    setup = given.get("setup")
    return modules_profile(Request(Workload(work, setup), work, experiment, clock=clock))


def found(profile: ModulesProfile, path: str) -> Module:
    return next(m for model in profile.models for m in model.walk() if m.path == path)


def paths(profile: ModulesProfile) -> list[str]:
    return [m.path for model in profile.models for m in model.walk()]


class _Timed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, fake: FakeClock, seconds: float) -> Tensor:
        ctx.fake, ctx.seconds = fake, seconds
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        ctx.fake.spend(ctx.seconds)
        return gradients[0], None, None


def timed(x: Tensor, fake: FakeClock, forward: float, backward: float) -> Tensor:
    """Spends seconds now, and others in the backward pass."""
    fake.spend(forward)
    return _Timed.apply(x, fake, backward)  # type: ignore[no-any-return, no-untyped-call]


class Layer(nn.Module):
    """A layer with known times, and a parameter that the backward pass needs."""

    def __init__(self, fake: FakeClock, forward: float, backward: float) -> None:
        super().__init__()
        self.fake, self.seconds, self.backward_seconds = fake, forward, backward
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        self.fake.spend(self.seconds)
        return timed(x * self.weight, self.fake, 0.0, self.backward_seconds)


class Residual(nn.Module):
    """Work of its own before, between and after two layers, and a connection past them."""

    def __init__(self, fake: FakeClock) -> None:
        super().__init__()
        self.fake = fake
        self.a, self.b = Layer(fake, 1.0, 10.0), Layer(fake, 2.0, 20.0)

    def forward(self, x: Tensor) -> dict[str, list[Tensor]]:
        x = timed(x, self.fake, 0.1, 0.5)
        y = timed(self.a(x), self.fake, 0.2, 0.6)
        side = timed(x, self.fake, 0.3, 0.7)
        return {"sum": [timed(self.b(y) + side, self.fake, 0.4, 0.8)]}


def inputs() -> Tensor:
    return torch.ones(2, 3, requires_grad=True)


def test_forward_and_backward_times_are_exact_and_add_up(fake: FakeClock) -> None:
    net = Residual(fake)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    optimizer.register_step_pre_hook(lambda *_: fake.spend(3.0))
    x = inputs()

    def step() -> None:
        fake.spend(5.0)
        loss = timed(net(x)["sum"][0], fake, 7.0, 4.0).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        fake.spend(6.0)

    profile = profiled(step, fake)
    total = found(profile, "net").total
    assert (total.forward, total.backward) == pytest.approx((4.0, 32.6))
    own = found(profile, "net").own
    assert (own.forward, own.backward) == pytest.approx((1.0, 2.6))
    assert (
        vars(found(profile, "net.a").own).items() >= {"forward": 1.0, "backward": 10.0, "calls": 1.0}.items()
    )
    assert (found(profile, "net.b").own.forward, found(profile, "net.b").own.backward) == (2.0, 20.0)
    assert profile.rest == pytest.approx({LOSS: 11.0, OTHER: 11.0, OPTIMIZER: 3.0})
    assert profile.seconds == pytest.approx(61.6)
    assert profile.seconds * profile.run.executions == pytest.approx(profile.run.total)
    assert profile.overhead == pytest.approx(1.0)


def test_nothing_is_left_in_the_model(fake: FakeClock) -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU(inplace=True), nn.Dropout(0.5)).eval()
    x, kept = torch.ones(4, 3), []
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    dicts = [{**vars(module)} for module in net.modules()]
    following = data.dataloader._BaseDataLoaderIter.__next__

    def step() -> None:
        net.train()
        loss = net(x).sum()
        loss.backward(retain_graph=True)
        kept.append(loss)
        torch.optim.SGD(net.parameters(), lr=1.0).step()

    experiment = bench(step, runs=1)
    net.eval().zero_grad()
    net.load_state_dict(before)
    profile = modules_profile(Request(Workload(step), step, experiment))
    assert found(profile, "net.2").own.calls == 1
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert [module.training for module in net.modules()] == [False] * 5
    assert all(parameter.grad is None for parameter in net.parameters())
    assert [{name: vars(m)[name] for name in d} for m, d in zip(net.modules(), dicts, strict=True)] == dicts
    assert not module_hooks._global_forward_hooks
    assert not module_hooks._global_forward_pre_hooks
    assert not module_hooks._global_forward_hooks_always_called
    assert not optimizers._global_optimizer_pre_hooks
    assert not optimizers._global_optimizer_post_hooks
    assert data.dataloader._BaseDataLoaderIter.__next__ is following
    assert len(kept) == 1


def test_graphs_that_live_on_lose_their_hooks(fake: FakeClock) -> None:
    net, x = Layer(fake, 1.0, 1.0), inputs()
    escaped: dict[str, list[Tensor]] = {"kept": []}

    def step() -> None:
        loss = net(x).sum()
        loss.backward(retain_graph=True)
        escaped["kept"].append(loss)

    profiled(step, fake)
    gc.collect()
    assert len(escaped["kept"]) == 4
    assert not [thing for thing in gc.get_objects() if type(thing) is Watch]


def test_counts_are_exact() -> None:
    net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(inplace=True), nn.Linear(5, 2, bias=False))
    x = torch.ones(8, 4)

    def step() -> None:
        net(x).sum().backward()

    profile = profiled(step, None)
    first, second = found(profile, "net.0"), found(profile, "net.2")
    assert (first.own.forward_flops, first.own.backward_flops) == (2 * 8 * 4 * 5, 2 * 8 * 4 * 5)
    assert (second.own.forward_flops, second.own.backward_flops) == (2 * 8 * 5 * 2, 2 * 2 * 8 * 5 * 2)
    assert (first.parameters, second.parameters, found(profile, "net").all_parameters) == (25, 10, 35)
    assert first.own.activations == x.numel() * 4
    assert found(profile, "net.1").own.activations == 8 * 5 * 4
    assert second.own.activations == 0  # its input is kept already, its weight is a parameter
    bytes_of_addmm = 4 * (5 + 8 * 4 + 4 * 5 + 8 * 5)
    assert first.own.moved >= bytes_of_addmm
    in_forward = profiled(lambda: net(x), None)
    assert found(in_forward, "net.0").own.moved == bytes_of_addmm
    assert found(in_forward, "net.1").own.moved == 2 * 4 * 8 * 5
    assert profile.rest.keys() >= {LOSS, OTHER}


def test_the_roof_is_the_higher_of_the_two_times(fake: FakeClock) -> None:
    net = nn.Sequential(nn.Linear(64, 64, bias=False), nn.ReLU())
    net.register_forward_pre_hook(lambda *_: fake.spend(0.0))
    net[0].register_forward_pre_hook(lambda *_: fake.spend(2000.0))
    net[1].register_forward_pre_hook(lambda *_: fake.spend(20.0))
    x = torch.ones(100, 64)
    profile = profiled(lambda: net(x), fake)
    linear, relu = found(profile, "net.0"), found(profile, "net.1")
    assert (linear.total.roof, relu.total.roof) == ("arithmetic", "memory")
    assert linear.total.share == pytest.approx(2 * 100 * 64 * 64 / FLOPS / 2000.0)
    assert relu.total.memory == pytest.approx(2 * 4 * 6400 / BANDWIDTH)
    assert relu.total.share == pytest.approx(2.56)
    assert any("above 100 %" in note for note in profile.notes)
    assert "memory —" in str(profile)


def test_recurrent_shared_tied_and_frozen_modules() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = self.again = nn.LSTM(4, 4)
            self.tied = nn.Linear(4, 4)
            self.other = nn.Linear(4, 4)
            self.other.weight = self.tied.weight
            self.frozen = nn.Linear(4, 4).requires_grad_(False)
            self.unused = nn.Linear(4, 4)

        def forward(self, *, x: Tensor) -> Tensor:
            x = self.again(self.first(x)[0])[0]
            return self.frozen(self.other(self.tied(x)))  # type: ignore[no-any-return]

    net, x = Odd(), torch.ones(5, 2, 4)
    profile = profiled(lambda: net(x=x).sum().backward())
    lstm = 2 * 4 * 4 * 4 + 2 * 4 * 4
    assert found(profile, "net").all_parameters == lstm + 20 + 4 + 20 + 20
    assert found(profile, "net").all_trainable == lstm + 20 + 4 + 20
    assert found(profile, "net.first").own.calls == 2
    assert found(profile, "net.first").own.forward_flops == 2 * 2 * 10 * (2 * 4 * 4 * 4)
    assert found(profile, "net.first").own.backward > 0
    assert found(profile, "net.first").remarks == ("also at net.again",)
    assert found(profile, "net.other").remarks == ("weight is net.tied.weight",)
    assert found(profile, "net.frozen").remarks == ("frozen",)
    assert found(profile, "net.frozen").own.backward_flops == 2 * 10 * 4 * 4
    assert found(profile, "net.unused").own.calls == 0
    assert "net.again" not in paths(profile)


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_is_part_of_the_backward_pass(fake: FakeClock, reentrant: bool) -> None:
    layer = Layer(fake, 1.0, 10.0)

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor) -> Any:
            return checkpoint(self.layer, x, use_reentrant=reentrant)

    net, x = Checkpointed(), inputs()
    profile = profiled(lambda: net(x).sum().backward(), fake)
    assert (found(profile, "net.layer").own.forward, found(profile, "net.layer").own.backward) == (1.0, 11.0)
    assert (found(profile, "net.layer").own.calls, len(profile.models)) == (2, 1)
    assert profile.seconds == pytest.approx(12.0)


@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
def test_without_gradients_there_is_only_a_forward_pass(fake: FakeClock, guard: Any) -> None:
    net = nn.Sequential(Layer(fake, 1.0, 10.0))

    @guard()  # type: ignore[untyped-decorator]
    def infer() -> None:
        net(torch.ones(2, 3))

    profile = profiled(infer, fake)
    assert (found(profile, "net.0").own.forward, found(profile, "net.0").own.backward) == (1.0, 0.0)
    assert found(profile, "net").total.activations == 0


def test_part_of_the_graph_alone(fake: FakeClock) -> None:
    net, x = Residual(fake), inputs()
    profile = profiled(lambda: torch.autograd.grad(net(x)["sum"][0].sum(), [net.b.weight]), fake)
    assert found(profile, "net.a").own.backward == 0.0
    assert found(profile, "net.b").own.backward == pytest.approx(20.0)
    assert found(profile, "net").own.backward == pytest.approx(0.8)


def test_several_models_and_several_backward_passes(fake: FakeClock) -> None:
    generator, critic = Layer(fake, 1.0, 10.0), Layer(fake, 2.0, 20.0)
    x = inputs()

    def step() -> None:
        made = generator(x)
        critic(made.detach()).sum().backward()
        critic(timed(made, fake, 0.0, 0.5)).sum().backward()

    profile = profiled(step, fake)
    assert (found(profile, "critic").own.forward, found(profile, "critic").own.backward) == (4.0, 40.0)
    assert (found(profile, "generator").own.forward, found(profile, "generator").own.backward) == (1.0, 10.0)
    assert profile.rest == pytest.approx({LOSS: 0.5})
    assert [model.path for model in profile.models] == ["critic", "generator"]


def test_a_model_that_every_run_builds_is_one_tree(fake: FakeClock) -> None:
    def step() -> None:
        for _ in range(2):
            nn.Sequential(Layer(fake, 1.0, 1.0))(inputs()).sum().backward()

    profile = profiled(step, fake, runs=4)
    assert [model.path for model in profile.models] == ["Sequential", "Sequential (2)"]
    assert [model.total.seconds for model in profile.models] == [2.0, 2.0]


def test_waits_for_data_are_told_apart_with_and_without_track(fake: FakeClock) -> None:
    net = Layer(fake, 1.0, 10.0)

    def batches() -> Iterator[Tensor]:
        for _ in range(6):
            fake.spend(4.0)
            yield torch.ones(2, 3)

    def tracked() -> None:
        for batch in track(batches()):
            net(batch).sum().backward()

    profile = profiled(tracked, fake, runs=None)
    assert profile.run.steps == 4
    assert profile.rest == pytest.approx({DATA: 4.0})
    assert profile.seconds == pytest.approx(15.0)
    loader = DataLoader(TensorDataset(torch.ones(4, 3)), 2, collate_fn=lambda items: fake.spend(2.0))

    def untracked() -> None:
        for _ in loader:
            net(inputs())

    assert profiled(untracked, fake).rest == pytest.approx({DATA: 4.0})


def test_another_thread_stands_beside_the_sum(fake: FakeClock) -> None:
    net, beside = Layer(fake, 1.0, 10.0), nn.Linear(3, 3)

    def step() -> None:
        thread = threading.Thread(target=lambda: beside(torch.ones(2, 3)), name="feeder")
        thread.start()
        thread.join()
        net(inputs()).sum().backward()

    profile = profiled(step, fake)
    assert [(model.path, model.thread) for model in profile.models] == [("net", ""), ("beside", "feeder")]
    assert profile.seconds == pytest.approx(11.0)
    assert found(profile, "beside").own.calls == 1
    assert "in thread feeder" in str(profile)
    assert any("other threads" in note for note in profile.notes)


def test_a_device_is_waited_for_at_the_edges_of_modules() -> None:
    fake = FakeClock(device=True)

    class Queues(nn.Module):
        def __init__(self, seconds: float) -> None:
            super().__init__()
            self.seconds = seconds

        def forward(self, x: Tensor) -> Tensor:
            fake.queue(self.seconds)
            return x

    net = nn.Sequential(Queues(1.0), Queues(2.0))
    profile = profiled(lambda: net(torch.ones(1)), fake)
    assert [found(profile, f"net.{i}").own.forward for i in range(2)] == [1.0, 2.0]
    assert any("waited for at the edges of each module" in note for note in profile.notes)
    assert not any("works on while Python goes on" in note for note in profile.notes)


def test_wrapped_scripted_and_compiled_models() -> None:
    plain = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    wrapped, scripted = nn.DataParallel(plain), torch.jit.script(nn.Linear(3, 4))
    x = torch.ones(2, 3)
    assert paths(profiled(lambda: wrapped(x))) == [
        "wrapped",
        "wrapped.module",
        "wrapped.module.0",
        "wrapped.module.1",
    ]
    profile = profiled(lambda: scripted(x).sum().backward())
    assert found(profile, "scripted").own.forward_flops == 2 * 2 * 3 * 4
    assert any("TorchScript" in note for note in profile.notes)
    assert "TorchScript" in str(profile)
    compiled: Any = torch.compile(plain, backend="eager")
    compiled(x)
    profile = profiled(lambda: compiled(x).sum().backward())
    assert paths(profile) == ["compiled", "compiled.0", "compiled.1"]
    assert found(profile, "compiled").own.calls == 1
    assert found(profile, "compiled.0").own.forward_flops == 2 * 2 * 3 * 4
    assert "compiled, run eagerly here" in found(profile, "compiled").remarks
    assert any("uncompiled (eagerly)" in note for note in profile.notes)


def test_a_model_without_parameters_and_one_held_by_an_object() -> None:
    class Holder:
        def __init__(self) -> None:
            self.part = nn.Sequential(nn.ReLU(), nn.Softmax(dim=0))

    holder, nested = Holder(), nn.ModuleDict({"inner": nn.ReLU()})
    profile = profiled(lambda: (holder.part(torch.ones(2)), nested["inner"](torch.ones(2))))
    assert {model.path for model in profile.models} == {"holder.part", "nested.inner"}
    assert found(profile, "holder.part").all_parameters == 0
    assert math.isfinite(profile.to_frame()["share"].sum())


def test_a_forward_pass_that_fails_fails_and_leaves_no_hooks() -> None:
    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, x: Tensor) -> Tensor:
            FAILED.append(x)
            if len(FAILED) > 2:
                raise KeyError("third")
            return x

    FAILED: list[Tensor] = []  # noqa: N806
    net = nn.Sequential(Fails())
    with pytest.raises(KeyError) as caught:
        profiled(lambda: net(torch.ones(1)))
    assert any("module profile pass" in note for note in caught.value.__notes__)
    assert not module_hooks._global_forward_hooks
    assert not module_hooks._global_forward_pre_hooks


def test_a_forward_failure_that_the_model_catches_is_timed(fake: FakeClock) -> None:
    class Raises(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            fake.spend(1.0)
            raise ValueError(x)

    class Tries(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Raises()

        def forward(self, x: Tensor) -> Tensor:
            try:
                return self.inner(x)  # type: ignore[no-any-return]
            except ValueError:
                fake.spend(2.0)
                return x

    net = Tries()
    profile = profiled(lambda: net(torch.ones(1)), fake)
    assert (found(profile, "net").own.forward, found(profile, "net.inner").own.forward) == (2.0, 1.0)


def test_without_torch_or_a_module_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> None:
        torch.ones(3)

    with pytest.raises(OptbookError, match=r"no torch\.nn\.Module was called"):
        profiled(work)
    experiment = bench(work, runs=1)
    monkeypatch.delitem(sys.modules, "torch")
    with pytest.raises(OptbookError, match="does not use torch: profile calls or lines"):
        modules_profile(Request(Workload(work), work, experiment))


def test_disturbed_peaks_give_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Peaks({"cpu": {"float32": Peak(1e9, "matmul", 1, 0.0)}}, {}, None, None, "m", 2, "", "2026", 1.0)
    monkeypatch.setattr(machine, "peaks", lambda refresh=False: slow)
    net = nn.Linear(3, 3)
    profile = profiled(lambda: net(torch.ones(2, 3)))
    assert found(profile, "net").total.share is None
    assert any("no share of the roofline" in note for note in profile.notes)


def test_a_dtype_without_a_peak_is_named() -> None:
    net = nn.Linear(3, 3).double()
    profile = profiled(lambda: net(torch.ones(2, 3).double()))
    assert any("no peak was measured for float64 on cpu" in note for note in profile.notes)


def test_torch_func_hides_what_autograd_keeps() -> None:
    net, x = nn.Linear(4, 1), torch.ones(2, 4)
    parameters: dict[str, Tensor] = dict(net.named_parameters())

    def loss(given: dict[str, Tensor]) -> Any:
        return torch.func.functional_call(net, given, (x,)).sum()

    profile = profiled(lambda: torch.func.grad(loss)(parameters))
    assert found(profile, "Linear").own.forward_flops == 2 * 2 * 4
    assert any("activations are not known" in note for note in profile.notes)


def test_modules_in_a_plain_list_are_models_of_their_own(fake: FakeClock) -> None:
    class Lists(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = [Layer(fake, 1.0, 10.0)]

        def forward(self, x: Tensor) -> Tensor:
            return self.layers[0](timed(x, fake, 0.5, 5.0))  # type: ignore[no-any-return]

    net, x = Lists(), inputs()
    profile = profiled(lambda: net(x).sum().backward(), fake)
    assert [(model.path, model.total.seconds) for model in profile.models] == [("Layer", 11.0), ("net", 5.5)]


def test_the_frame_holds_every_module_and_the_rest(fake: FakeClock) -> None:
    net, x = Residual(fake), inputs()
    profile = profiled(lambda: net(x)["sum"][0].sum().backward(), fake)
    frame = profile.to_frame().set_index("path")
    assert list(frame.index) == ["net", "net.a", "net.b", *profile.rest]
    assert frame.loc["net", "backward"] == pytest.approx(32.6)
    assert frame.loc["net", "share"] == pytest.approx(1.0)
    assert (frame.loc["net.a", "parameters"], frame.loc["net.a", "calls"]) == (3, 1)


def test_text_and_html_show_the_tree_and_escape_names(fake: FakeClock) -> None:
    net = nn.Sequential()
    net.add_module("<b>", Layer(fake, 3.0, 0.0))
    net.add_module("tiny", Layer(fake, 0.0001, 0.0))
    profile = profiled(lambda: net(inputs()), fake, runs=2)
    text, html = str(profile), profile._repr_html_()
    assert "  <b>: Layer" in text
    assert "1 module that takes little time" in text
    assert "&lt;b&gt;: Layer" in html
    assert "<b>: Layer" not in html
    assert "padding-left:1em" in html
    assert "linear-gradient" in html


def test_a_large_model_is_shown_in_part(fake: FakeClock) -> None:
    net = nn.Sequential(*(Layer(fake, 1.0 + i / 100, 0.0) for i in range(100)))
    profile = profiled(lambda: net(inputs()), fake)
    assert str(profile).count(": Layer") == 59
    assert "41 modules that take little time" in str(profile)
    assert len(profile.to_frame()) == 101


def test_stretches_of_events() -> None:
    model, inner = object(), object()
    events = [
        (0.0, ON, None), (1.0, IN, model), (2.0, IN, inner), (4.0, OUT, inner), (5.0, OUT, model),
        (7.0, MARK, (1, model)), (8.0, MARK, (1, inner)), (11.0, MARK, (1, None)), (12.0, END, 1),
        (13.0, IN, OPTIMIZER), (15.0, OUT, OPTIMIZER), (16.0, OUT, "never entered"), (17.0, OFF, None),
        (20.0, ON, None), (21.0, OFF, None),
    ]  # fmt: skip
    found = [(s.whose, s.backward, s.end - s.begin) for s in stretches(events)]
    assert found[:6] == [
        (OTHER, False, 1.0), (model, False, 1.0), (inner, False, 2.0), (model, False, 1.0),
        (LOSS, False, 2.0), (model, True, 1.0),
    ]  # fmt: skip
    assert found[6:] == [
        (inner, True, 3.0), (LOSS, True, 1.0), (OTHER, False, 1.0), (OPTIMIZER, False, 2.0),
        (OTHER, False, 1.0), (OTHER, False, 1.0), (OTHER, False, 1.0),
    ]  # fmt: skip


def test_a_cell_is_profiled_and_one_that_fails_fails() -> None:
    with shell_with_optbook() as shell:
        shell.run_cell(
            "import torch\nnet = torch.nn.Sequential(torch.nn.Linear(3, 4))\nseen = {'inputs': []}"
        )
        shell.run_cell("net.register_forward_pre_hook(lambda m, given: seen['inputs'].append(given))")
        result = shell.run_cell("%%profile modules --runs 2\nnet(torch.ones(2, 3)).sum().backward()")
        assert result.success
        assert paths(result.result) == ["net", "net.0"]
        assert result.result.executions == len(shell.user_ns["seen"]["inputs"]) == 4
        assert shell.user_ns["net"][0].weight.grad.tolist() == [[4.0] * 3] * 4  # of the two measured runs
        result = shell.run_cell(
            "%%profile modules --runs 1\nassert len(seen['inputs']) < 4\nnet(torch.ones(2, 3))"
        )
        assert isinstance(result.error_in_exec, AssertionError)
        result = shell.run_cell(
            "%%profile modules --runs 1\nnet(torch.ones(2, 5 if len(seen['inputs']) > 4 else 3))"
        )
        assert isinstance(result.error_in_exec, RuntimeError)
        assert not module_hooks._global_forward_hooks
        result = shell.run_cell("%%profile modules --runs 1\nsum([1, 2])")
        assert "no torch.nn.Module was called" in str(result.error_in_exec)
