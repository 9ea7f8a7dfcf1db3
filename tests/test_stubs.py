"""Stubs: replaced wherever it is held, counted, and restored exactly."""

from __future__ import annotations

import importlib
import inspect
import itertools
import math
import pickle
import signal
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import optbook
from optbook.benchmark.compilation import compiled_frames
from optbook.errors import OptionError
from optbook.simplify import kinds, stubs
from optbook.simplify.stubs import stub
from tests.zoo import REAL, STUB, WAYS


@pytest.fixture(autouse=True)
def _none_left() -> Iterator[None]:
    yield
    left = stubs.remove_all()
    assert left == ()


def test_the_zoo_is_large() -> None:
    assert len(WAYS) >= 40


@pytest.mark.parametrize("name", WAYS)
def test_a_function_is_replaced_wherever_it_is_held_or_that_is_declared(name: str) -> None:
    held = WAYS[name]()
    made = held.stub()
    assert held.call() == REAL
    with made:
        found = held.call()
        if held.declared:
            assert found == REAL
            assert any(held.declared in note for note in made.declared)
        else:
            assert found == STUB
            counted = made.calls
            assert counted >= 1
            held.call()
            assert made.calls > counted
    assert held.call() == REAL


# A stub in its place


def component(x: float, factor: float = 2.0, *, shift: float = 0.0) -> float:
    """Says something."""
    return x * factor + shift


class Thing:
    def method(self) -> str:
        return "real"


def test_signature_name_and_pickling_stay_the_same() -> None:
    before = inspect.signature(component), component.__doc__, component.__code__.co_firstlineno
    with stub("component", "skip"):
        assert (inspect.signature(component), component.__doc__, component.__code__.co_firstlineno) == before
        assert pickle.loads(pickle.dumps(component)) is component
        assert inspect.getsource(component).startswith("def component")


def test_wrong_calls_still_fail() -> None:
    with stub("component", "skip"):
        with pytest.raises(TypeError, match=r"component\(\) missing 1 required positional argument"):
            component()  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            component(1, wrong=2)  # type: ignore[call-arg]


def test_a_stub_gets_all_arguments_and_the_real_one_keeps_its_defaults() -> None:
    seen: list[Any] = []
    with stub("component", lambda *args, **kwargs: seen.append((args, kwargs))):
        component(1)
        component(1, shift=3)
    assert seen == [((1, 2.0), {"shift": 0.0}), ((1, 2.0), {"shift": 3})]
    with stub("component", "body", body="real(x) + real(x, factor, shift=shift)"):
        assert component(1, 3, shift=1) == 2 + 4


def test_coroutine_functions_stay_coroutine_functions() -> None:
    async def later() -> None: ...

    def items() -> Any:
        yield 1

    async def items_later() -> Any:
        yield 1

    with stub(later, "skip"), stub(items, "skip"), stub(items_later, "skip"):
        assert inspect.iscoroutinefunction(later)
        assert inspect.isgeneratorfunction(items)
        assert inspect.isasyncgenfunction(items_later)


def test_stubs_lie_on_each_other_and_leave_in_any_order() -> None:
    for order in itertools.permutations(range(3)):
        made = [stub("component", "value", value=n).install() for n in range(3)]
        left = set(order)
        assert component(1) == 2
        for number in order:
            made[number].remove()
            left.discard(number)
            assert component(1) == (max(left) if left else 2.0)
        assert stubs.active() == ()


def test_stubs_of_a_built_in_lie_on_each_other_too() -> None:
    real = math.cbrt
    for order in itertools.permutations(range(2)):
        made = [stub("math.cbrt", "value", value=n).install() for n in range(2)]
        assert math.cbrt(8.0) == 1
        made[order[0]].remove()
        assert math.cbrt(8.0) == order[1]
        made[order[1]].remove()
        assert math.cbrt is real


def test_the_upper_stub_calls_the_lower_one() -> None:
    with stub("component", "value", value=5.0), stub("component", "body", body="real(x) + 1"):
        assert component(1) == 6


def test_stubs_of_two_objects_of_a_class() -> None:
    first, second, third = Thing(), Thing(), Thing()
    with stub("first.method", "value", value=1) as one, stub("second.method", "value", value=2) as two:
        found: list[object] = [first.method(), second.method(), third.method()]
        assert found == [1, 2, "real"]
        assert (one.calls, two.calls) == (1, 1)


def test_restored_after_an_error_exactly() -> None:
    code, held, holder = component.__code__, math.cbrt, types.SimpleNamespace(c=(math.cbrt, 1))
    members = holder.c
    with pytest.raises(ZeroDivisionError), stub("component", "skip"), stub("math.cbrt", "skip"):
        1 / (holder.c is members)
    assert component.__code__ is code
    assert component.__dict__ == {}
    assert math.cbrt is held
    assert holder.c is members


def test_references_made_while_it_is_replaced_are_put_right() -> None:
    later: list[Any] = []
    with stub("math.cbrt", "skip"):
        later.append(math.cbrt)
        later.append((math.cbrt,))
    assert later == [math.cbrt, (math.cbrt,)]


def test_a_built_in_in_a_class_is_the_same_again() -> None:
    kind = type("Kind", (), {"c": math.cbrt})
    with stub("math.cbrt", "value", value=1):
        assert kind().c(8.0) == 1
    assert vars(kind)["c"] is math.cbrt


def test_a_module_that_is_reloaded_is_not_stubbed_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "reloaded_here.py").write_text("def f():\n    return 'real'\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("reloaded_here")
    before = module.f
    with stub("reloaded_here.f", "skip") as s:
        assert module.f() is None
        importlib.reload(module)
        assert module.f() == "real"
        assert any("reloaded" in note for note in s.declared)
    assert module.f() == before() == "real"


def test_code_that_others_put_there_stays() -> None:
    def f() -> str:
        return "real"

    def other() -> str:
        return "other"

    with stub(f, "skip") as s:
        f.__code__ = other.__code__
        assert any("its code was changed" in note for note in s.declared)
    assert f() == "other"


def test_an_interrupt_waits_until_a_stub_is_in_place_and_gone_again() -> None:
    class Interrupting(kinds.Skip):
        def filling(self, backward: bool) -> Any:
            filling, recording = super().filling(backward)

            class Filling:
                def fill(self, real: Any) -> Any:
                    signal.raise_signal(signal.SIGINT)
                    return filling.fill(real)

            return Filling(), recording

    with pytest.raises(KeyboardInterrupt), stub("component", Interrupting()):
        pass
    assert stubs.active() == ()
    assert component(1) == 2


def test_a_stub_that_cannot_be_made_leaves_nothing() -> None:
    def items() -> Any:
        yield 1

    code = items.__code__
    with pytest.raises(OptionError, match="give a list"):
        stub(items, "value", value=3).install()
    assert items.__code__ is code
    assert stubs.active() == ()


def test_installing_and_removing_by_name() -> None:
    installed = stubs.install("component", "skip")
    assert stubs.active() == (installed,)
    with pytest.raises(OptionError, match="already"):
        installed.install()
    with pytest.raises(OptionError, match="did you mean component"):
        stubs.remove("compnent")
    assert stubs.remove("component") is installed
    with pytest.raises(OptionError, match="none is active"):
        stubs.remove("component")
    installed.remove()
    stubs.install("component", "skip")
    stubs.install("math.cbrt", "skip")
    assert [s.name for s in stubs.remove_all()] == ["math.cbrt", "component"]
    assert component(1) == 2


def test_a_stub_can_be_put_in_place_again() -> None:
    again = stub("component", "value", value=1)
    for _ in range(2):
        with again:
            assert component(1) == 1
        assert component(1) == 2
    assert again.calls == 2


def test_zero_calls_are_counted_as_such() -> None:
    with stub("component", "skip") as s:
        assert s.calls == 0
    assert "0 calls" in repr(s)


def test_it_is_public() -> None:
    assert optbook.stub is stub
    with optbook.stub("component", "skip"):
        assert component(1) is None


def test_compiled_code_is_used_again_after_a_stub() -> None:
    def part(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    compiled = torch.compile(lambda x: part(x) * 2, backend="eager")
    x = torch.ones(())
    assert float(compiled(x)) == 4
    compilations = compiled_frames()
    with stub(part, "value", value=torch.zeros(())):
        assert float(compiled(x)) == 0
        assert compiled_frames() > compilations
    compilations = compiled_frames()
    assert float(compiled(x)) == 4
    assert compiled_frames() == compilations
