"""Stubs and ceilings given what they can't use, or what behaves badly: told, and all is what it was after."""

from __future__ import annotations

import contextlib
import copy
import gc
import random
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import optbook
from optbook.errors import OptionError
from optbook.simplify import stubs
from optbook.simplify.ceiling import ceiling
from optbook.simplify.components import find
from optbook.simplify.imitate import Filled
from optbook.simplify.result import Ceiling
from optbook.simplify.roofline import Counting
from tests.fakes import FakeClock
from tests.shells import shell_with_optbook

Run = Callable[[str], Any]
TIME = FakeClock()
SYSTEM = """
import time
seen = []
def decode(i):
    time.sleep(1e-3)
    return [i] * 3
def augment(x):
    return [v * 2 for v in x]
def work():
    return [augment(decode(i)) for i in range(3)]
"""


@pytest.fixture
def run() -> Iterator[Run]:
    with shell_with_optbook() as shell:
        shell.run_cell(SYSTEM)
        yield lambda cell: shell.run_cell(cell, store_history=True)
        assert stubs.active() == ()


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    left = stubs.remove_all()
    assert left == ()


def take(function: Callable[[], object], names: list[str], **options: Any) -> Ceiling:
    """Names are those that the caller sees."""
    seen = {**globals(), **sys._getframe(1).f_locals}
    return ceiling(function, names, clock=TIME.clock, budget=0.1, namespace=seen, **options)


def other(x: int = 0) -> int:
    TIME.spend(0.002)
    return x


# Names and options


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("%%ceiling decod\nwork()", "there is no 'decod' here: did you mean decode?"),
        ("%%ceiling decode decode\nwork()", "decode is named twice"),
        ("same = decode\n", ""),
        ("%%ceiling print\nwork()", "print can't be replaced"),
        ("%%ceiling time\nwork()", "time is a module"),
        ("%%ceiling seen.append\nwork()", "a list has no place for another"),
        ("%%ceiling decode --steps 0\nwork()", "steps is 0: give a whole number from 1 on"),
        ("%%ceiling decode --budget -1\nwork()", "budget is -1: give seconds between"),
        ("%%ceiling decode --speedup 1\nwork()", "speedup got 1: give factors above 1"),
        ("%%ceiling loss.backward\nwork()", "did you mean torch.Tensor.backward?"),
        ("%%ceiling see.backwards\nwork()", "there is no 'see.backwards' here: give a name"),
    ],
)
def test_what_a_ceiling_cannot_use_is_told_in_one_line(
    run: Run, capsys: pytest.CaptureFixture[str], cell: str, message: str
) -> None:
    assert run(cell).success == (not message)
    err = capsys.readouterr().err.strip()
    assert message in err
    assert "\n" not in err
    assert len(optbook.log()) == 0


def test_two_names_of_one_component_are_one_component() -> None:
    layer = torch.nn.Linear(1, 1)
    assert layer is not None
    with pytest.raises(OptionError, match="also is named twice, as other too"):
        ceiling(lambda: other(), ["other", "also"], namespace={"other": other, "also": other})
    names = {"layer": layer}
    with pytest.raises(OptionError, match="named twice, as layer too"):
        ceiling(lambda: None, ["layer", "layer.forward"], namespace=names)


def test_parts_of_a_module_that_are_numbered_can_be_named() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    with optbook.stub("model.0", "value", value=torch.ones(2)):
        assert torch.equal(model(torch.zeros(2)), torch.ones(2))
    with pytest.raises(OptionError, match=r"model.7: Sequential has no '7'"):
        optbook.stub("model.7")
    with pytest.raises(OptionError, match="is no name"):
        optbook.stub("0.model")


# Stubs that are there already


def test_a_ceiling_of_what_is_stubbed_is_refused() -> None:
    with optbook.stub("other", "skip"), pytest.raises(OptionError, match="%unstub other first"):
        take(lambda: other(), ["other"])


def test_a_ceiling_beside_a_stub_says_so_and_leaves_it() -> None:
    def first() -> None:
        TIME.spend(0.001)

    def both() -> None:
        first()
        other()

    with optbook.stub("other", "skip") as left:
        found = take(both, ["first"])
        assert left.active
        assert stubs.active() == (left,)
    assert any("other stubbed throughout" in note for note in found.notes)


def test_unloading_and_loading_again_in_the_shell(run: Run) -> None:
    code = run("decode.__code__").result
    run("%stub decode skip")
    run("%stub decode value --value 3")
    run("%stub time.sleep skip")
    assert run("%reload_ext optbook").success
    assert stubs.active() == ()
    assert run("decode.__code__").result is code
    assert run("time.sleep").result is time.sleep
    assert run("%stub").success


def test_stubs_leave_in_any_order_in_the_shell(run: Run) -> None:
    run("%stub decode value --value 1")
    run("%stub augment skip")
    run("%stub decode value --value 2")
    assert run("decode(0)").result == 2
    run("%unstub augment decode")
    assert run("decode(0), augment([1])").result == (1, [2])
    run("%unstub decode")
    assert run("decode(0)").result == [0, 0, 0]


def test_a_module_reloaded_in_the_shell_while_stubbed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "reloaded_in_shell.py").write_text("def f():\n    return 'real'\n")
    monkeypatch.syspath_prepend(tmp_path)
    run("import importlib, reloaded_in_shell")
    run("%stub reloaded_in_shell.f skip")
    run("importlib.reload(reloaded_in_shell)")
    assert "reloaded" in str(run("%stub").result)
    assert run("reloaded_in_shell.f()").result == "real"
    found = run("%%ceiling reloaded_in_shell.f\nfor _ in range(9): reloaded_in_shell.f()").result
    assert found["reloaded_in_shell.f"].calls == 9
    assert run("%unstub --all; ").success
    assert run("reloaded_in_shell.f()").result == "real"


# Components that behave badly


def test_an_interrupt_in_the_middle_puts_everything_back(run: Run) -> None:
    run("rounds = [0]\nweights = {'a': 1}")
    code = run("decode.__code__").result
    result = run(
        "%%ceiling decode augment\n"
        "rounds[0] += 1\nweights['b'] = 2\nmade = 1\nwork()\n"
        "import signal\n"
        "if augment.__code__ is not kept or decode.__code__ is not also: signal.raise_signal(signal.SIGINT)"
    )
    assert isinstance(result.error_in_exec, NameError)
    run("kept, also = augment.__code__, decode.__code__")
    result = run(
        "%%ceiling decode augment\n"
        "weights['b'] = 2\nwork()\n"
        "import signal\n"
        "if augment.__code__ is not kept or decode.__code__ is not also: signal.raise_signal(signal.SIGINT)"
    )
    assert isinstance(result.error_in_exec, KeyboardInterrupt)
    assert stubs.active() == ()
    assert run("decode.__code__").result is code
    assert run("work()").result[0] == [0, 0, 0]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_while_a_stub_is_installed_leaves_none() -> None:
    class Interrupting:
        def fill(self, real: Any) -> Any:
            signal.raise_signal(signal.SIGINT)
            return lambda *args: None

    code = other.__code__
    for install in (stubs.Stub.install, stubs.Stub.__enter__):
        with pytest.raises(KeyboardInterrupt):
            install(stubs.Stub(find(other), Filled(Interrupting())))
        assert stubs.active() == ()
        assert other.__code__ is code


def test_a_component_that_raises_cannot_be_removed_and_the_others_go_on() -> None:
    def fails() -> None:
        TIME.spend(0.001)
        raise ValueError("always")

    def work() -> None:
        other()
        with contextlib.suppress(ValueError):
            fails()

    found = take(work, ["fails", "other"])
    assert "nothing that it returns could be recorded" in found["fails"].error
    assert found["other"].free is not None
    assert found["other"].free.ratio == pytest.approx(3.0)


def test_without_it_the_workload_raises_what_is_told() -> None:
    def fills(x: list[int]) -> None:
        TIME.spend(0.001)
        x.append(1)

    def work() -> None:
        x: list[int] = []
        fills(x)
        other()
        if not x:
            raise RuntimeError

    found = take(work, ["fills", "other"])
    assert found["fills"].error == "without it the workload raises RuntimeError"
    assert found["other"].free is not None


@pytest.mark.parametrize("values", [[1, "a", None, 2.5, [1], (1,)], [threading.Lock()], [sys._getframe()]])
def test_values_of_many_types_and_those_that_cannot_be_copied(values: list[Any]) -> None:
    turn = [0]

    def odd() -> Any:
        TIME.spend(0.001)
        turn[0] += 1
        return values[turn[0] % len(values)]

    def work() -> None:
        for _ in range(6):
            odd()
        other()

    found = take(work, ["odd", "other"])
    assert found["odd"].free is not None
    assert found["odd"].free.ratio == pytest.approx(4.0)


def test_more_than_the_bound_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optbook.simplify.recording.Recording.__init__.__defaults__", (4, 1000))

    def large() -> bytes:
        TIME.spend(0.001)
        return bytes(800)

    found = take(lambda: (large(), large(), other()), ["large"])
    assert any("outputs are kept, of a limit of 1000 B" in note for note in found["large"].notes)
    assert found["large"].free is not None
    assert found["large"].free.ratio == pytest.approx(2.0)


def test_one_called_from_c_and_one_that_is_never_called() -> None:
    def key(x: int) -> int:
        TIME.spend(0.001)
        return -x

    def never() -> None: ...

    found = take(lambda: (sorted(range(4), key=key), other()), ["key", "never"])
    assert found["key"].calls == 4
    assert found["key"].free is not None
    assert found["key"].free.ratio == pytest.approx(3.0)
    assert "never called" in found["never"].error


def test_calls_that_run_at_the_same_time_are_no_sum() -> None:
    def shared() -> int:
        TIME.spend(0.003)
        return 1

    def work() -> None:
        start = TIME.time
        for _ in range(4):
            TIME.time = start
            shared()

    part = take(work, ["shared"])["shared"]
    assert part.alone is None
    assert part.free is not None


def test_what_something_iterated_takes_is_its_items_time() -> None:
    class Loader:
        def __iter__(self) -> Iterator[int]:
            return map(other, range(5))

    loader = Loader()

    def work() -> None:
        for _ in loader:
            TIME.spend(0.003)

    part = take(work, ["loader"])["loader"]
    assert part.calls == 1
    assert part.seconds == pytest.approx(0.010)
    assert part.alone is not None
    assert part.alone.ratio == pytest.approx(2.5)


def test_what_is_done_while_iterating_has_no_roofline() -> None:
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 8)), 8)
    counting = Counting(None)
    with stubs.Stub(find(loader), Filled(counting)) as made:
        assert len(list(loader)) == 8
    assert (made.calls, counting.calls, counting.moved) == (1, 0, 0)


def test_what_freeing_a_component_saves_is_its_own() -> None:
    def cheap() -> int:
        later[0] = 0.004
        TIME.spend(0.001)
        return 1

    later = [0.0]

    def work() -> None:
        later[0] = 0.0
        cheap()
        TIME.spend(0.005 + later[0])

    part = take(work, ["cheap"])["cheap"]
    assert part.free is not None
    assert part.free.ratio == pytest.approx(2.0)
    assert part.alone is not None
    assert part.alone.ratio == pytest.approx(2.0)


def test_the_small_beside_the_large_is_not_hidden_by_it() -> None:
    def large() -> None:
        TIME.spend(0.030)

    def small() -> None:
        TIME.spend(0.0008)

    def work() -> None:
        large()
        small()
        TIME.spend(0.0008)

    found = take(work, ["large", "small"])
    assert found.pairs == ()


# What is left of it


def test_what_was_recorded_is_let_go() -> None:
    class Value: ...

    made: list[weakref.ref[Value]] = []

    def gives() -> Value:
        TIME.spend(0.001)
        value = Value()
        made.append(weakref.ref(value))
        return value

    assert take(lambda: gives(), ["gives"])["gives"].free is not None
    gc.collect()
    assert made
    assert not [each for each in made if each() is not None]


def test_inside_a_module_that_torch_defines_are_its_parts() -> None:
    model = torch.nn.Sequential(*[torch.nn.Conv2d(8, 8, 3, padding=1) for _ in range(3)])
    x = torch.randn(4, 8, 64, 64)
    found = ceiling(lambda: model(x), [model], inside=True, budget=0.5)
    assert any("Conv2d.forward" in part.component for part in found.parts)


# Under autograd


class Training:
    """A small system, and what a ceiling must put back."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.body = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout())
        self.model = torch.nn.Sequential(self.body, torch.nn.Linear(16, 4))
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2)
        self.criterion = torch.nn.CrossEntropyLoss()
        self.losses: list[float] = []

    def step(self) -> None:
        x, y = torch.randn(6, 8), torch.randint(0, 4, (6,))
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()

    def state(self) -> Any:
        return copy.deepcopy(
            (
                self.model.state_dict(),
                [parameter.grad for parameter in self.model.parameters()],
                self.optimizer.state_dict(),
                self.scheduler.state_dict(),
                torch.get_rng_state(),
                random.getstate(),
            )
        )


def same(one: Any, two: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, two)
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(two) and all(map(same, one, two))
    return bool(one == two)


def test_parameters_gradients_optimizer_and_random_state_are_put_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    t = Training()
    measured: list[Any] = []

    def watched(*args: Any, **kwargs: Any) -> Any:
        experiment = optbook.bench(*args, **kwargs)
        measured.append(t.state())
        return experiment

    monkeypatch.setattr("optbook.simplify.ceiling.bench", watched)

    def work() -> None:
        for _ in optbook.track(range(20)):
            t.step()

    components = [t.body, torch.Tensor.backward, t.optimizer.step]
    found = ceiling(work, components, budget=0.1, steps=4)
    assert [part.error for part in found.parts] == [""] * 3
    assert same(t.state(), measured[0])
    assert t.losses == []


def test_with_forward_free_the_optimizer_keeps_its_work() -> None:
    t = Training()
    with optbook.stub(t.model, "replay"):
        for _ in range(8):
            t.step()
        gradients = [parameter.grad for parameter in t.model.parameters()]
        before = [parameter.detach().clone() for parameter in t.model.parameters()]
        assert all(gradient is not None and gradient.abs().sum() > 0 for gradient in gradients)
        t.step()
    assert all(not torch.equal(one, two) for one, two in zip(before, t.model.parameters(), strict=True))


def test_a_free_forward_says_that_its_backward_is_free_too() -> None:
    t = Training()
    found = ceiling(lambda: t.step(), [t.model, t.optimizer.step], budget=0.1)
    notes = {part.component.rpartition(".")[2]: part.notes for part in found.parts}
    assert any("forward and its backward" in note for note in notes["Sequential"])
    assert not any("backward" in note for note in notes["step"])


# What a ceiling remembers of functions


def test_what_is_known_of_a_function_is_kept_only_meanwhile() -> None:
    def f() -> str:
        return "real"

    def changed() -> str:
        return "changed"

    code = f.__code__
    before = dict(stubs._REGISTRY.patches)
    with stubs.known():
        for _ in range(2):
            with optbook.stub(f, "skip"):
                assert f() is None
            assert f.__code__ is code
        [patch] = set(stubs._REGISTRY.patches.values()) - set(before.values())
        with optbook.stub(f, "skip"):
            assert stubs._REGISTRY.patches[id(f)] is patch
        f.__code__ = changed.__code__
        with optbook.stub(f, "skip"):
            assert f() is None
        assert f() == "changed"
    assert stubs._REGISTRY.patches == before
