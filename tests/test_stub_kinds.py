"""What each kind of stub returns, how long it takes, and what it keeps."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from optbook.errors import OptionError
from optbook.simplify import kinds, trees
from optbook.simplify.stubs import stub


class Source:
    """Counts real calls, and returns how many there were."""

    def __init__(self) -> None:
        self.calls = 0

    def value(self, x: Any = None) -> Any:
        self.calls += 1
        return self.calls

    def batch(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls

    def items(self, number: int) -> Iterator[int]:
        for index in range(number):
            self.calls += 1
            yield index

    async def later(self, x: Any = None) -> Any:
        await asyncio.sleep(0)
        return self.value(x)

    async def items_later(self, number: int) -> AsyncIterator[int]:
        for index in range(number):
            yield index


@pytest.fixture
def source() -> Source:
    return Source()


# replay


def test_outputs_are_recorded_then_given_out_in_turn(source: Source) -> None:
    with stub("source.value", keep=3) as s:
        assert [source.value(1) for _ in range(7)] == [1, 2, 3, 1, 2, 3, 1]
    assert (s.calls, s.recorded, s.misses, source.calls) == (7, 3, 0, 3)


def test_outputs_match_the_shapes_of_the_arguments(source: Source) -> None:
    with stub("source.batch", keep=1):
        first, second = source.batch(torch.ones(2)), source.batch(torch.ones(3))
        assert source.batch(torch.ones(2)) is first
        assert source.batch(torch.ones(3)) is second
    assert source.calls == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.ones(2), torch.ones(2, dtype=torch.int32)),
        (torch.ones(2), torch.ones(2, requires_grad=True)),
        (np.ones(2), np.ones(3)),
        ([1, 2], [1, 2, 3]),
        ({"a": 1}, {"b": 1}),
        ((torch.ones(2),), (torch.ones(3),)),
        (True, False),
        (1, "1"),
        (None, 1),
        (torch.nn.ReLU(), torch.nn.ReLU()),
    ],
)
def test_calls_that_differ_in_form(one: Any, other: Any) -> None:
    assert trees.form_of_call((one,), {}) != trees.form_of_call((other,), {})
    assert trees.form_of_call((one,), {}) == trees.form_of_call((one,), {})
    assert trees.form_of_call((), {"a": one}) != trees.form_of_call((), {"a": other})
    hash(trees.form_of_call((one,), {"a": other}))


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, 2), ("a", "bc"), (torch.zeros(2), torch.ones(2)), ([1.0], [2.0]), (object(), object())],
)
def test_calls_of_the_same_form(one: Any, other: Any) -> None:
    assert trees.form_of_call((one,), {}) == trees.form_of_call((other,), {})


@dataclasses.dataclass
class Learning:
    """An object of a training script: its history grows with every step."""

    module: torch.nn.Module
    history: list[float]
    batch: torch.Tensor


def test_a_history_that_grows_beside_a_module_is_no_other_form() -> None:
    module, batch = torch.nn.ReLU(), torch.ones(2)
    before = trees.form_of_call((Learning(module, [], batch),), {})
    assert before == trees.form_of_call((Learning(module, [1.0], batch),), {})
    assert before != trees.form_of_call((Learning(module, [], torch.ones(3)),), {})
    assert before != trees.form_of_call((Learning(torch.nn.ReLU(), [], batch),), {})


def test_after_settling_a_call_without_a_match_is_a_miss(source: Source) -> None:
    with stub("source.batch", keep=3) as s:
        source.batch(torch.ones(2))
        s.settle()
        assert source.batch(torch.ones(2)).tolist() == [1, 1]
        assert source.batch(torch.ones(5)).tolist() == [2] * 5
    assert (s.misses, source.calls) == (1, 2)


def test_the_memory_kept_is_bounded_and_told(source: Source) -> None:
    with stub("source.batch", keep=8, limit=1000) as s:
        for _ in range(20):
            source.batch(torch.ones(100))
    assert s.bytes == 800
    assert s.recorded == 3
    assert any("limit" in note for note in s.declared)


def test_what_takes_more_than_the_limit_is_called_for_real(source: Source) -> None:
    with stub("source.batch", limit=10) as s:
        for _ in range(4):
            source.batch(torch.ones(100))
    assert (source.calls, s.misses, s.bytes) == (4, 3, 0)


def test_copies_where_consumers_mutate(source: Source) -> None:
    with stub("source.batch", keep=1, copy=True):
        source.batch(torch.ones(2)).zero_()
        assert source.batch(torch.ones(2)).zero_().tolist() == [0, 0]
        assert source.batch(torch.ones(2)).tolist() == [1, 1]


def test_what_cannot_be_copied_is_given_out_itself_and_that_is_told() -> None:
    lock = threading.Lock()

    def make() -> Any:
        return [lock]

    with stub(make, keep=1, copy=True) as s:
        assert make()[0] is make()[0]
    assert any("can't be copied" in note for note in s.declared)


def test_a_generator_is_recorded_once_as_its_items(source: Source) -> None:
    with stub("source.items") as s:
        assert list(source.items(3)) == [0, 1, 2]
        assert list(source.items(3)) == [0, 1, 2]
    assert (s.calls, source.calls) == (2, 3)


def test_a_generator_that_is_left_ends_there(source: Source) -> None:
    with stub("source.items") as s:
        for item in source.items(100):
            if item == 4:
                break
        assert list(source.items(100)) == [0, 1, 2, 3, 4]
    assert any("left after 5" in note for note in s.declared)


def test_a_long_iteration_keeps_a_few_items_and_its_length(source: Source) -> None:
    with stub("source.items"):
        list(source.items(100))
        assert len(list(source.items(100))) == 100
    assert source.calls == 100


def test_the_items_kept_are_bounded_too() -> None:
    def batches() -> Iterator[torch.Tensor]:
        for index in range(10):
            yield torch.full((100,), float(index))

    with stub(batches, limit=1000) as s:
        list(batches())
        assert [float(batch[0]) for batch in batches()] == [0, 1] * 5
    assert s.bytes == 800


def test_an_iteration_that_fails_is_not_recorded(source: Source) -> None:
    def failing() -> Iterator[int]:
        yield source.value()
        if source.calls < 2:
            raise ValueError("not yet")

    with stub(failing) as s:
        with pytest.raises(ValueError, match="not yet"):
            list(failing())
        assert list(failing()) == list(failing()) == [2]
    assert s.misses == 0


def test_an_empty_iteration_and_a_generators_result_are_replayed(source: Source) -> None:
    def nothing() -> Any:
        source.value()
        yield from ()
        return 5

    def result() -> Any:
        return (yield from nothing())

    with stub(nothing):
        for _ in range(3):
            with pytest.raises(StopIteration) as stop:
                next(result())
            assert stop.value.value == 5
    assert source.calls == 1


def test_an_iterator_that_a_function_returns_is_recorded_as_its_items(source: Source) -> None:
    def numbers() -> Any:
        source.value()
        return iter([1, 2])

    with stub(numbers):
        assert [list(numbers()), list(numbers()), list(numbers())] == [[1, 2]] * 3
    assert source.calls == 1


def test_what_is_sent_to_a_generator_reaches_the_real_one() -> None:
    def echo() -> Any:
        got = yield 0
        return got

    with stub(echo):
        running = echo()
        next(running)
        with pytest.raises(StopIteration) as stop:
            running.send(5)
        assert stop.value.value == 5


def test_coroutines(source: Source) -> None:
    async def main() -> list[Any]:
        return [await source.later() for _ in range(4)]

    with stub("source.later", keep=2) as s:
        assert asyncio.run(main()) == [1, 2, 1, 2]
    assert (s.calls, s.recorded) == (4, 2)


def test_async_generators(source: Source) -> None:
    async def main() -> list[int]:
        return [item async for item in source.items_later(3)]

    with stub("source.items_later"):
        assert asyncio.run(main()) == asyncio.run(main()) == [0, 1, 2]


def test_a_recursive_component_records_outer_calls_whole() -> None:
    def factorial(n: int) -> int:
        return 1 if n < 2 else n * factorial(n - 1)

    with stub(factorial, keep=1):
        assert factorial(5) == 120


def test_an_exception_is_raised_and_not_recorded(source: Source) -> None:
    def sometimes() -> Any:
        if source.value() == 1:
            raise ValueError("first")
        return source.calls

    with stub(sometimes, keep=1) as s:
        with pytest.raises(ValueError, match="first"):
            sometimes()
        assert [sometimes(), sometimes()] == [2, 2]
    assert s.calls == 3


def test_outputs_of_different_types_are_given_out_in_turn(source: Source) -> None:
    def various() -> Any:
        return [1, "a", None][source.value() - 1]

    with stub(various, keep=3):
        assert [various() for _ in range(6)] == [1, "a", None, 1, "a", None]


def test_threads_lose_no_calls(source: Source) -> None:
    with stub("source.value", keep=4) as s:
        threads = [threading.Thread(target=lambda: [source.value() for _ in range(500)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert s.calls == 2000
    assert s.recorded + s.misses == source.calls


# autograd


def _step(model: torch.nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    model.zero_grad()
    model(x).square().mean().backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def _model() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 4), torch.nn.Sequential(torch.nn.Linear(4, 4)), torch.nn.Linear(4, 2)
    )


def test_a_replayed_module_hands_recorded_gradients_to_its_parameters_and_inputs() -> None:
    model, x = _model(), torch.randn(3, 4)
    expected = _step(model, x)
    with stub("model", "replay", namespace={"model": model[1]}, keep=1) as s:
        recorded = _step(model, x)
        replayed = _step(model, x)
    assert s.calls == 2
    assert s.recorded == 1
    for real, first, second in zip(expected, recorded, replayed, strict=True):
        torch.testing.assert_close(first, real)
        torch.testing.assert_close(second, real)


def test_replayed_parameters_are_stepped_by_the_optimizer() -> None:
    model, x = _model(), torch.randn(3, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with stub("model", namespace={"model": model}, keep=1):
        for _ in range(2):
            _step(model, x)
        before = [p.clone() for p in model.parameters()]
        optimizer.step()
    assert all(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_a_forward_replayed_before_any_backward_gives_zeros() -> None:
    model, x = _model(), torch.randn(3, 4)
    with stub("model", namespace={"model": model}, keep=1):
        model(x)
        gradients = _step(model, x)
    assert len(gradients) == len(list(model.parameters()))
    assert all(not gradient.any() for gradient in gradients)


def test_replay_without_gradients_is_another_form() -> None:
    model, x = _model(), torch.randn(3, 4)
    with stub("model", namespace={"model": model}, keep=1):
        assert model(x).requires_grad
        with torch.no_grad():
            assert not model(x).requires_grad
        assert model(x).requires_grad


def test_several_backwards_through_one_recorded_call() -> None:
    model, x = _model(), torch.randn(3, 4)
    with stub("model", namespace={"model": model[1]}, keep=1):
        loss = model(x).sum()
        loss.backward(retain_graph=True)
        loss.backward()


def test_replayed_backward_adds_recorded_gradients() -> None:
    model, x = _model(), torch.randn(3, 4)
    expected = _step(model, x)
    with stub("torch.Tensor.backward", keep=1) as s:
        first, second = _step(model, x), _step(model, x)
    assert s.recorded == 1
    for real, one, other in zip(expected, first, second, strict=True):
        torch.testing.assert_close(one, real)
        torch.testing.assert_close(other, real)


def test_the_backward_of_a_named_loss_is_that_of_every_loss() -> None:
    model, x = _model(), torch.randn(3, 4)
    loss = model(x).sum()
    with stub("loss.backward", keep=1) as s:
        loss.backward()
        _step(model, x)
    assert s.calls == 2


def test_a_component_that_changes_its_input_in_place_is_cut_from_the_graph() -> None:
    def inplace(x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2)

    weight = torch.ones(2, requires_grad=True)
    with stub(inplace, keep=1) as s:
        inplace(weight * 1).sum().backward()  # type: ignore[no-untyped-call]
        assert not inplace(weight * 1).requires_grad
    assert weight.grad is not None
    assert any("in place" in note for note in s.declared)


def test_a_dummy_under_autograd_hands_gradients_too() -> None:
    model, x = _model(), torch.randn(3, 4)
    with stub("model", "dummy", namespace={"model": model[1]}):
        expected, made_up = _step(model, x), _step(model, x)
    assert [g.shape for g in made_up] == [g.shape for g in expected]
    assert all(gradient.any() for gradient in made_up)


# sleep, spin


def test_sleep_takes_its_time_and_gives_out_what_was_recorded(source: Source) -> None:
    with stub("source.value", "sleep", seconds=0.02, keep=1):
        source.value()
        start, cpu = time.perf_counter(), time.thread_time()
        assert source.value() == 1
        assert time.perf_counter() - start >= 0.02
        assert time.thread_time() - cpu < 0.015


def test_sleep_as_measured(source: Source) -> None:
    def slow() -> int:
        time.sleep(0.2)
        return 1

    with stub(slow, "sleep", speedup=2, keep=1):
        slow()
        start = time.perf_counter()
        slow()
        assert 0.1 <= time.perf_counter() - start < 0.2


@pytest.mark.parametrize("holds_gil", [True, False])
def test_spin_uses_up_a_core(holds_gil: bool, source: Source) -> None:
    with stub("source.value", "spin", seconds=0.03, value=7, holds_gil=holds_gil):
        cpu = time.thread_time()
        assert source.value() == 7
        assert 0.03 <= time.thread_time() - cpu < 0.06
    assert source.calls == 0


def test_sleeping_coroutines_wait_together(source: Source) -> None:
    async def main() -> list[Any]:
        return await asyncio.gather(*(source.later() for _ in range(10)))

    with stub("source.later", "sleep", seconds=0.1, value=3):
        start = time.perf_counter()
        assert asyncio.run(main()) == [3] * 10
        assert time.perf_counter() - start < 0.8


def test_a_sleeping_generator_sleeps_at_each_item(source: Source) -> None:
    with stub("source.items", "sleep", seconds=0.01):
        list(source.items(3))
        start = time.perf_counter()
        assert list(source.items(3)) == [0, 1, 2]
        assert time.perf_counter() - start >= 0.03


# value, skip, dummy, body


def test_value(source: Source) -> None:
    value = [1]
    with stub("source.value", "value", value=value):
        assert source.value() is value
    with stub("source.value", "value", value=value, copy=True):
        assert source.value() == [1]
        assert source.value() is not value
    assert source.calls == 0


def test_skip(source: Source) -> None:
    with stub("source.value", "skip"), stub("source.items", "skip"), stub("source.later", "skip"):
        assert source.value() is None
        assert list(source.items(3)) == []
        assert asyncio.run(source.later()) is None


def test_a_dummy_is_made_up_after_one_real_output(source: Source) -> None:
    with stub("source.batch", "dummy") as s:
        first = source.batch(torch.arange(10.0))
        second = source.batch(torch.arange(10.0))
        assert second.shape == first.shape
        assert sorted(second.tolist()) == sorted(first.tolist())
        assert source.batch(torch.arange(10.0)) is second
    assert (s.calls, s.recorded, source.calls) == (3, 1, 1)


def test_a_dummy_of_a_generator(source: Source) -> None:
    with stub("source.items", "dummy"):
        assert list(source.items(3)) == list(source.items(3)) == [0, 1, 2]
    assert source.calls == 3


def test_a_dummy_like_a_sample(source: Source) -> None:
    with stub("source.batch", "dummy", like=torch.ones(2, 3)):
        assert source.batch(torch.ones(9)).shape == (2, 3)
    assert source.calls == 0


def test_a_body_gets_the_arguments(source: Source) -> None:
    with stub("source.value", lambda self, x=None: (self, x)):
        assert source.value(3) == (source, 3)
        assert source.value() == (source, None)


def test_a_body_given_as_source(source: Source) -> None:
    names = {"factor": 10, "source": source}
    with stub("source.value", "body", body="y = x + factor\nreal(self, x) + y", namespace=names):
        assert source.value(1) == 12
    with stub("source.value", "body", body="if x:\n    return x\nreturn 0"):
        assert source.value(5) == 5
    with stub("source.value", "body", body="def other(self, x):\n    return -x"):
        assert source.value(5) == -5
    with stub("source.items", "body", body="yield from [number] * 2"):
        assert list(source.items(4)) == [4, 4]
    with stub("source.later", "body", body="import asyncio\nawait asyncio.sleep(0)\nx"):
        assert asyncio.run(source.later(4)) == 4


def test_an_error_in_a_body_shows_its_line(source: Source) -> None:
    with stub("source.value", "body", body="x = 1\nx / 0"), pytest.raises(ZeroDivisionError) as caught:
        source.value(1)
    last = caught.traceback[-1]
    assert "stub of source.value" in str(last.path)
    assert last.lineno == 1


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("repaly", {}, "did you mean replay"),
        ("wibble", {}, "give one of replay, sleep"),
        (3, {}, "give one of replay, sleep"),
        ("replay", {"keeep": 3}, "did you mean keep"),
        ("replay", {"keep": 0}, "keep is 0"),
        ("replay", {"limit": -1}, "limit is -1"),
        ("sleep", {"seconds": -1}, "seconds is -1"),
        ("sleep", {"speedup": 0}, "speedup is 0"),
        ("sleep", {"value": 1}, "give seconds"),
        ("skip", {"value": 1}, "it has none"),
        ("body", {}, "needs body"),
        ("body", {"body": "x ="}, "can't be read"),
        ("body", {"body": ""}, "is empty"),
        ("body", {"body": 3}, "give a function"),
        (kinds.Skip(), {"value": 1}, "put them into it"),
    ],
)
def test_bad_kinds_and_options(kind: Any, options: dict[str, Any], message: str, source: Source) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        stub("source.value", kind, **options)
    assert "\n" not in str(caught.value)


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: torch.Tensor


def test_containers_are_copied_in_form() -> None:
    value = {"a": [torch.ones(2), (np.ones(3), Frozen(torch.ones(1)))]}
    copy = trees.copied(value)
    assert copy["a"][1][1].x.tolist() == [1]
    assert copy["a"][1][1].x is not value["a"][1][1].x  # type: ignore[index]
    assert trees.size(value) >= 8 + 24 + 4
