"""A component's own roofline in a ceiling: counted by hand and by torch's operators, or said not to be."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import optbook
from optbook.benchmark.machine import peaks as machine
from optbook.benchmark.machine.peaks import Peak, Peaks
from optbook.simplify.ceiling import ceiling
from optbook.simplify.ceiling_render import HEAD
from optbook.simplify.result import Ceiling
from optbook.simplify.roofline import HOW, NO_PEAKS, Counting

FAST = 1e15
FLOPS, BANDWIDTH = 1e12, 1e13


def peaks_of(flops: float, bandwidth: float) -> Peaks:
    return Peaks(
        {"cpu": {"float32": Peak(flops, "matmul", 1, 64.0)}},
        {"cpu": Peak(bandwidth, "copy", 1, 64.0)},
        *(None, None, "m", 1, "", "2026", 1.0),
    )


@pytest.fixture(autouse=True)
def _known_peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "known", lambda: peaks_of(FLOPS, BANDWIDTH))


def found(each: Callable[[], object], *components: object, **names: Any) -> Ceiling:
    def work() -> None:
        for _ in optbook.track(range(12)):
            each()

    return ceiling(work, components, budget=0.05, steps=8, namespace=names)


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


def half(values: torch.Tensor) -> torch.Tensor:
    return values * 0.5


def in_numpy(values: Any) -> Any:
    return values * 0.5


MATRIX = torch.ones(64, 64)


def test_arithmetic_takes_its_flops_at_the_peak() -> None:
    result = found(lambda: product(MATRIX, MATRIX), product)
    part = result.parts[0]
    assert part.bound == pytest.approx(result.seconds / (2 * 64**3 / FLOPS))
    assert any(note == "roofline: 524 kFLOP and 32.0 KiB a call" for note in part.notes)
    assert HOW in result.notes
    assert result.to_frame()["bound_ratio"].tolist() == [part.bound]


def test_moving_takes_its_bytes_at_the_peak_and_every_call_counts() -> None:
    def each() -> None:
        half(MATRIX)
        half(MATRIX)

    result = found(each, half)
    assert result.parts[0].bound == pytest.approx(result.seconds / (2 * 2 * 64**2 * 4 / BANDWIDTH))


def test_a_module_counts_with_its_backward() -> None:
    model = nn.Linear(64, 32, bias=False)
    data = torch.ones(16, 64)

    def each() -> None:
        model(data).sum().backward()

    result = found(each, "model", model=model)
    (part,) = result.parts
    forward, backward = 2 * 16 * 64 * 32, 2 * 16 * 64 * 32  # of the weight; the data need no gradient
    assert any("131 kFLOP" in note and note.endswith("backward included") for note in part.notes)
    assert part.bound is not None
    assert part.bound < result.seconds / ((forward + backward) / FLOPS) * 1.001
    assert model.weight.grad is not None
    assert float(model.weight.grad[0, 0]) == 8 * 16  # of the real measurement's 8 steps alone


def test_components_inside_each_other_are_both_counted() -> None:
    def outer() -> torch.Tensor:
        return half(product(MATRIX, MATRIX))

    result = found(lambda: outer(), outer, product)
    inner, whole = result[_name(result, "product")].bound, result[_name(result, "outer")].bound
    assert inner is not None
    assert whole is not None
    assert inner > whole


def _name(result: Ceiling, end: str) -> str:
    return next(part.component for part in result.parts if part.component.endswith(end))


def test_what_torch_does_not_do_has_no_bound_and_no_note() -> None:
    values = np.ones(4)
    result = found(lambda: in_numpy(values), in_numpy)
    assert result.parts[0].bound is None
    assert not any("roofline" in note for note in (*result.notes, *result.parts[0].notes))
    assert HEAD[-2] == "roofline"
    assert "—" in str(result)


def test_items_of_a_generator_are_not_counted() -> None:
    def items() -> Iterator[torch.Tensor]:
        yield half(MATRIX)

    assert found(lambda: list(items()), items).parts[0].bound is None


def test_faster_than_the_roofline_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "known", lambda: peaks_of(1.0, 1.0))
    part = found(lambda: product(MATRIX, MATRIX), product).parts[0]
    assert part.bound is None
    assert any("can't be done faster than the machine's peaks allow" in note for note in part.notes)


def test_a_data_type_without_a_peak() -> None:
    matrix = MATRIX.double()
    part = found(lambda: product(matrix, matrix), product).parts[0]
    assert part.bound is None
    assert any("no peak was measured for float64 on cpu" in note for note in part.notes)


def test_peaks_that_are_not_known_are_not_measured_but_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "known", lambda: None)
    result = found(lambda: product(MATRIX, MATRIX), product)
    assert result.parts[0].bound is None
    assert NO_PEAKS in result.notes


def test_a_workload_that_does_not_bear_the_counter() -> None:
    from torch.utils._python_dispatch import _get_current_dispatch_mode

    def picky() -> torch.Tensor:
        if _get_current_dispatch_mode() is not None:
            raise RuntimeError("no modes here")
        return half(MATRIX)

    result = found(lambda: picky(), picky)
    assert result.parts[0].bound is None
    assert any(
        "no roofline: while FLOPs were counted, the workload raised RuntimeError" in n for n in result.notes
    )


def test_the_table_shows_it() -> None:
    result = found(lambda: product(MATRIX, MATRIX), product)
    shown = dataclasses.replace(result, parts=(dataclasses.replace(result.parts[0], bound=12.34),))
    assert "12.3×" in str(shown)
    assert "12.3×" in shown._repr_html_()


def test_for_another_process_it_starts_anew() -> None:
    counting = Counting(peaks_of(FLOPS, FAST), calls=3, flops=7)
    other = pickle.loads(pickle.dumps(counting))
    assert (other.calls, other.flops, other.peaks) == (0, 0, counting.peaks)
