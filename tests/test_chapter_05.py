"""The exercises of chapter 05: what was handed over, and what was sent sooner."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from optbook.workshop import chapter_05
from optbook.workshop.exercises import Verdict, check, find, solution


def cloned(network: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}


@pytest.mark.parametrize(
    ("snapshot", "message"),
    [
        (cloned, ""),
        (lambda network: copy.deepcopy(network.state_dict()), ""),
        (lambda network: copy.deepcopy(network).state_dict(), ""),
        (lambda network: {k: v.numpy().copy() for k, v in network.state_dict().items()}, ""),
        (lambda network: network.state_dict(), "0.weight in your snapshot changed with it"),
        (lambda network: dict(network.state_dict()), "changed with it"),
        (lambda network: {k: v.detach() for k, v in network.state_dict().items()}, "changed with it"),
        (lambda network: {k: v.numpy() for k, v in network.state_dict().items()}, "changed with it"),
        (lambda network: dict(network.named_parameters()), "it should hold 0.weight"),
        (lambda network: list(network.parameters()), "it should hold 0.weight"),
        (lambda network: ..., "returns nothing yet"),
        (7, "set snapshot to a function"),
    ],
)
def test_a_snapshot_does_not_change_with_the_network(snapshot: Any, message: str) -> None:
    verdict = check("05_snapshot", {"snapshot": snapshot})
    assert verdict.solved == (not message)
    assert message in verdict.message


def judged(serve_sooner: Any) -> Verdict:
    return find("05_sooner").judge({"serve_sooner": serve_sooner})


Fetch = Callable[[int], list[float]]
Send = Callable[[float], None]


def serve(orders: list[int], fetch: Fetch, send_bill: Send) -> list[float]:
    bills = []
    for order in orders:
        bills.append(sum(fetch(order)))
        send_bill(bills[-1])
    return bills


def guess(orders: list[int], fetch: Fetch, send_bill: Send) -> list[float]:
    return [2.5 * order for order in orders]


def nothing_sent(orders: list[int], fetch: Fetch, send_bill: Send) -> list[float]:
    return [sum(fetch(order)) for order in orders]


def fetched_twice(orders: list[int], fetch: Fetch, send_bill: Send) -> list[float]:
    for order in orders:
        fetch(order)
    return serve(orders, fetch, send_bill)


def backwards(orders: list[int], fetch: Fetch, send_bill: Send) -> list[float]:
    return serve(orders[::-1], fetch, send_bill)


def sent_backwards(orders: list[int], fetch: Fetch, send_bill: Send) -> list[float]:
    bills = [sum(fetch(order)) for order in orders]
    for bill in reversed(bills):
        send_bill(bill)
    return bills


def still_on_its_way(orders: list[int], fetch: Fetch, send_bill: Send) -> list[float]:
    bills = serve(orders[:-1], fetch, send_bill)
    return [*bills, sum(fetch(orders[-1]))]


@pytest.mark.parametrize(
    ("serve_sooner", "message"),
    [
        (serve, ""),
        (lambda orders, fetch, send_bill: tuple(serve(orders, fetch, send_bill)), ""),
        (guess, "['bills'][0] is"),
        (nothing_sent, "['sent'] has 8 items in the first, 0 in the second"),
        (still_on_its_way, "['sent'] has 8 items in the first, 7 in the second"),
        (fetched_twice, "['fetched'] has 8 items in the first, 16 in the second"),
        (backwards, "['bills'][0] is"),
        (sent_backwards, "['sent'][0] is"),
        (lambda orders, fetch, send_bill: None, "returns None: let it return the result"),
        (lambda orders, fetch, send_bill: sum(orders), "raised TypeError"),
        (lambda orders, fetch, send_bill: [1.0], "['bills'] has 8 items in the first, 1 in the second"),
        (lambda orders, fetch, send_bill: fetch("1000"), "raised KeyError"),
        (..., "set serve_sooner to your version"),
        (7, "raised TypeError"),
    ],
)
def test_bills_must_be_right_and_sent_in_their_order(
    serve_sooner: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chapter_05, "time", SimpleNamespace(sleep=lambda seconds: None))
    verdict = judged(serve_sooner)
    assert verdict.solved == (not message)
    assert message in verdict.message


def test_what_is_sent_after_the_return_does_not_count() -> None:
    goes_on = threading.Event()

    def too_soon(orders: list[int], fetch: Fetch, send_bill: Send) -> list[float]:
        bills = [sum(fetch(order)) for order in orders]

        def send() -> None:
            goes_on.wait()
            for bill in bills:
                send_bill(bill)

        threading.Thread(target=send).start()
        return bills

    verdict = judged(too_soon)
    goes_on.set()
    assert not verdict.solved
    assert "['sent'] has 8 items in the first, 0 in the second" in verdict.message


@pytest.mark.parametrize("name", ["05_snapshot", "05_sooner"])
def test_the_solutions_solve(name: str) -> None:
    scope: dict[str, Any] = {"ThreadPoolExecutor": ThreadPoolExecutor}
    exec(solution(name).code, scope)
    assert find(name).judge(scope).solved
