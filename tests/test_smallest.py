"""The component alone on its recorded inputs: what is recorded, called again, checked, and refused."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import optbook
from optbook.benchmark.clock import Clock
from optbook.errors import OptbookError, OptionError
from optbook.simplify.result import Estimate
from optbook.simplify.smallest import Agreement, Smallest, smallest
from optbook.simplify.witness import Witness
from tests.shells import shell_with_optbook

take = functools.partial(smallest, budget=0.05)


def loop(each: Callable[[int], object], steps: int = 20) -> Callable[[], None]:
    def work() -> None:
        for step in optbook.track(range(steps)):
            each(step)

    return work


def test_it_makes_as_many_calls_as_a_step_with_the_real_inputs_in_turn() -> None:
    seen: list[tuple[int, int]] = []

    def part(step: int, *, scale: int) -> None:
        seen.append((step, scale))

    def each(step: int) -> None:
        part(step, scale=1)
        part(step, scale=2)

    found = take(loop(each), part)
    assert (found.per_run, found.number) == (2.0, 2)
    seen.clear()
    found()
    found()
    start = seen[0][0]
    assert seen == [(start, 1), (start, 2), (start + 1, 1), (start + 1, 2)]


def test_a_workload_without_steps_is_one_run() -> None:
    def part(number: int) -> int:
        return number

    found = take(lambda: [part(number) for number in range(7)], part)
    assert (found.number, len(found.calls)) == (7, 7)


def test_inputs_that_are_changed_are_copied_before_each_call() -> None:
    seen: list[float] = []

    def part(values: Any, names: list[str]) -> None:
        seen.append(float(values[0]) + len(names))
        values += 1
        names.append("more")

    found = take(loop(lambda step: part(np.zeros(3), [])), part)
    assert found.changes
    assert any("prepare() does so untimed" in note for note in found.notes)
    seen.clear()
    for _ in range(2 * len(found.calls)):
        found.prepare()
        found()
    assert set(seen) == {0.0}


def test_what_those_who_get_the_result_change_does_not_spoil_the_inputs() -> None:
    def part(values: torch.Tensor) -> torch.Tensor:
        return values

    found = take(loop(lambda step: part(torch.zeros(3)).add_(1)), part)
    assert not found.changes
    assert all(float(call.args[0].sum()) == 0 for call in found.calls)


def test_a_method_gets_its_object_and_says_that_it_is_shared() -> None:
    class Decoder:
        factor = 3

        def part(self, number: int) -> int:
            made.append(self.factor * number)
            return number

    made: list[int] = []
    decoder = Decoder()
    found = take(loop(decoder.part), "decoder.part", namespace={"decoder": decoder})
    made.clear()
    found()
    assert made[0] % 3 == 0
    assert any("shared, not copied: Decoder" in note for note in found.notes)


def test_a_module_runs_forward_and_backward_without_touching_its_gradients() -> None:
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def each(step: int) -> None:
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()

    found = take(loop(each), model)
    assert found.calls[0].parameters is not None
    assert {id(p) for p in found.calls[0].parameters} == {id(p) for p in model.parameters()}
    backwards: list[int] = []
    before = [p.detach().clone() for p in model.parameters()]
    model.zero_grad()
    model.weight.register_hook(lambda gradient: backwards.append(1))  # type: ignore[no-untyped-call]
    found()
    assert len(backwards) == 1
    assert [p.grad for p in model.parameters()] == [None, None]
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_without_a_graph_there_is_no_backward() -> None:
    model = torch.nn.Linear(4, 4)

    def each(step: int) -> None:
        with torch.inference_mode() if step < 0 else torch.no_grad():
            model(torch.ones(2, 4))

    found = take(loop(each), model)
    assert (found.calls[0].grad, found.calls[0].parameters) == (False, None)
    found()


def test_autocast_is_as_it_was() -> None:
    seen: list[torch.dtype] = []

    def part(values: torch.Tensor) -> None:
        seen.append((values @ values).dtype)

    def each(step: int) -> None:
        with torch.autocast("cpu", torch.bfloat16):
            part(torch.ones(2, 2))

    found = take(loop(each), part)
    seen.clear()
    found()
    assert seen == [torch.bfloat16]


def test_a_generator_is_taken_as_far_as_it_was() -> None:
    taken: list[int] = []

    def part(number: int) -> Iterator[int]:
        for item in range(number):
            taken.append(item)
            yield item

    def each(step: int) -> None:
        for item in part(10):
            if item == 2:
                break

    found = take(loop(each), part)
    taken.clear()
    found()
    assert taken == [0, 1, 2]


def test_coroutines_and_async_generators_are_awaited() -> None:
    awaited: list[str] = []

    async def later(name: str) -> str:
        await asyncio.sleep(0)
        awaited.append(name)
        return name

    async def items() -> AsyncIterator[int]:
        for item in range(2):
            awaited.append("item")
            yield item

    async def work() -> None:
        await later("one")
        async for _ in items():
            pass

    one, two = take(work, later), take(work, items)
    awaited.clear()
    one()
    two()
    assert awaited == ["one", "item", "item"]


def test_calls_that_a_component_makes_of_itself_belong_to_it() -> None:
    def part(number: int) -> int:
        return number if number == 0 else part(number - 1)

    assert take(loop(lambda step: part(3)), part).per_run == 1.0


def test_a_call_that_raised_is_not_made_again() -> None:
    def part(number: int) -> None:
        if number % 2:
            raise ValueError

    def each(step: int) -> None:
        try:
            part(step)
        except ValueError:
            return

    found = take(loop(each), part)
    assert {call.args[0] % 2 for call in found.calls} == {0}


def test_another_function_takes_the_same_calls() -> None:
    got: list[int] = []

    def part(number: int) -> int:
        return number

    found = take(loop(part), part)
    faster = found.calling(got.append)
    faster()
    assert len(got) == 1
    assert faster.agreement is None
    assert str(faster).startswith("append alone")
    with pytest.raises(OptionError, match="calling got 3"):
        found.calling(3)  # type: ignore[arg-type]


def test_its_experiments_are_marked_as_simplified_and_later_ones_are_not() -> None:
    def part(number: int) -> int:
        return sum(range(number))

    found = take(loop(lambda step: part(2_000)), "part", namespace={"part": part})
    alone = optbook.bench(found, budget=0.02)
    assert (alone.label, alone.stubs) == ("part alone", "all but part")
    assert optbook.bench(lambda: part(2_000), "real", budget=0.02).stubs == ""


def test_the_memory_bound_is_kept_and_said() -> None:
    def part(values: Any) -> Any:
        return values

    found = take(loop(lambda step: part(np.zeros(1_000))), part, limit=20_000)
    assert len(found.calls) == 2
    assert found.bytes <= 20_000
    assert any("the memory limit was reached" in note for note in found.notes)


# The check


@pytest.mark.alone
def test_a_call_takes_about_as_long_alone_as_in_a_system_that_leaves_it_alone() -> None:
    def part(number: int) -> int:
        return sum(range(number))

    found = take(loop(lambda step: part(20_000)), part)
    assert found.agreement is not None
    assert 0.3 < found.agreement.ratio.ratio < 3
    [kept] = [profile for profile in optbook.experiments.log.profiles() if profile.kind == "smallest"]
    assert kept.experiment == found.experiment
    assert kept.to_frame()["component"].tolist() == [found.component]


@pytest.mark.parametrize(
    ("ratio", "agrees", "says"),
    [
        (Estimate(1.05, 1.02, 1.08), True, "agrees"),
        (Estimate(1.5, 0.9, 2.0), True, "agrees"),
        (
            Estimate(1.5, 1.4, 1.6),
            False,
            "alone it is 1.50× as fast (1.40 to 1.60): in the full system it shares",
        ),
        (Estimate(0.5, 0.4, 0.6), False, "alone it is only 0.50×"),
    ],
)
def test_what_the_check_says(ratio: Estimate, agrees: bool, says: str) -> None:
    found = Agreement(1e-3, 1e-3, ratio, 6)
    assert found.agrees is agrees
    assert says in found.sentence


def test_html_is_escaped() -> None:
    made = Smallest("<b>", print, Witness(Clock()), 1.0, "id")
    made.notes = ("<i>",)
    assert "<b> alone" not in made._repr_html_()
    assert "<i>" not in made._repr_html_()


# What can't be


def never(number: int) -> int:
    return number


def test_a_component_that_is_never_called() -> None:
    with pytest.raises(OptbookError, match="is never called"):
        take(loop(lambda step: step), never)


class Squares(Dataset[int]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return never(index)


def test_a_component_in_worker_processes_is_to_be_run_in_one_first() -> None:
    def work() -> None:
        for _ in optbook.track(loader):
            pass

    loader = DataLoader(Squares(), num_workers=1)
    with pytest.raises(OptbookError, match="runs in worker processes: run all in one first"):
        take(work, never)


def test_the_workload_itself_a_wrong_name_and_a_wrong_limit() -> None:
    work = loop(never)
    with pytest.raises(OptionError, match="is the workload itself"):
        take(work, work)
    with pytest.raises(OptionError, match="no_such"):
        take(work, "no_such")
    with pytest.raises(OptionError, match="limit is 0"):
        take(work, never, limit=0)


def test_backward_needs_its_forward() -> None:
    with pytest.raises(OptionError, match="whose backward it is"):
        take(loop(never), torch.Tensor.backward)


def test_one_call_larger_than_the_memory_bound() -> None:
    with pytest.raises(OptbookError, match="raise limit"):
        take(loop(lambda step: never(np.zeros(1_000))), never, limit=100)  # type: ignore[arg-type]


def test_what_works_once_only_is_refused() -> None:
    class Source:
        def __init__(self) -> None:
            self.left = 3

        def fetch(self) -> int:
            if not self.left:
                raise RuntimeError("empty")
            self.left -= 1
            return self.left

    source = Source()

    def work() -> None:
        source.left = 3
        for _ in range(3):
            source.fetch()

    with pytest.raises(OptbookError, match="can't be called by itself: it raised RuntimeError: empty"):
        take(work, source.fetch)


def test_what_the_workload_raises_comes_through() -> None:
    def broken() -> None:
        raise KeyError("gone")

    with pytest.raises(KeyError):
        take(broken, never)


def test_inside_a_measurement_it_is_refused() -> None:
    def work() -> None:
        take(loop(never), never)

    with pytest.raises(OptbookError, match="a measurement is running already"):
        optbook.bench(work, budget=0.01)


def test_in_a_notebook_its_inputs_are_prepared_untimed() -> None:
    with shell_with_optbook() as shell:
        shell.run_cell(
            "import optbook\n"
            "def part(names):\n    names.append(1)\n    return len(names)\n"
            "def work():\n    for _ in optbook.track(range(12)): part([])\n"
            "small = optbook.smallest(work, 'part', budget=0.02)"
        )
        done = shell.run_cell("%%bench --setup small.prepare()\nsmall()")
    assert done.result.stubs == "all but part"
    assert done.result.status == "ok"
