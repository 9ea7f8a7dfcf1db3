"""Stubs: replaced wherever it is held, counted, and restored exactly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from optbook.simplify import stubs
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
    stub = held.stub()
    assert held.call() == REAL
    with stub:
        found = held.call()
        if held.declared:
            assert found == REAL
            assert any(held.declared in note for note in stub.declared)
        else:
            assert found == STUB
            assert stub.calls >= 1
            counted = stub.calls
            held.call()
            assert stub.calls > counted
    assert held.call() == REAL
