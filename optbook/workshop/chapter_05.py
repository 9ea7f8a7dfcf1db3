"""The exercises of chapter 05."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from optbook.workshop.exercises import Exercise, Verdict, choice
from optbook.workshop.fill_in import open_ended

Fetch = Callable[[int], Sequence[float]]
Serve = Callable[[Sequence[int], Fetch, Callable[[float], None]], Sequence[float] | None]

ORDERS = 8
FETCHING, SENDING = 0.006, 0.003  # seconds

_AHEAD = choice(
    "05_ahead",
    "ahead_takes",
    "b",
    {
        "a": "the same work is done, but not one part after the other: what happens at the same time does "
        "not add up",
        "b": "right: the shorter part hides behind the longer one, and the longer one still takes its time",
        "c": "that is so only if both parts take equally long. The longer one still takes its time: compare "
        "the two times above",
    },
    "the shorter part hides behind the longer one",
)
_THREADS = choice(
    "05_threads",
    "two_threads",
    "c",
    {
        "a": "two threads may be on two cores, but only one of them can run Python code at a time: look at "
        "the drawing, whose threads take turns",
        "b": "one thread at a time runs Python code. Pillow's decoder is C, and lets go of the lock while it "
        "works: look at the reading",
        "c": "right: Pillow lets go of the lock while it decodes; the loops in Python hold it, and their two "
        "threads take turns",
        "d": "decoding a JPEG computes too, in C and without the lock. What holds it is Python code, such "
        "as the drawing",
    },
    "C lets go of the lock, loops in Python hold it",
)
_TORN = choice(
    "05_torn",
    "in_the_file",
    "b",
    {
        "a": "state_dict() gives the network's own tensors, not copies: look at what the last cell printed",
        "b": "right: they are the network's own tensors, so the file holds what they are while it is "
        "written. Such a checkpoint looks fine and belongs to no step",
        "c": "nobody stops it: tensors have no lock. Nothing is raised, and that is the trouble",
    },
    "state_dict() holds the network's own tensors",
)
_PIPE = choice(
    "05_pipe",
    "through_the_pipe",
    "b",
    {
        "a": "they are there already: both processes see the same memory. Only where it is must be said",
        "b": "right: what goes through the pipe says where the memory is, and how to read it",
        "c": "nothing is compressed. The bytes stay where they are, and only their address is sent",
    },
    "only where the memory is",
)


def _judge_snapshot(namespace: Mapping[str, Any]) -> Verdict:
    import torch

    snapshot = namespace.get("snapshot", ...)
    if not callable(snapshot):
        return Verdict(False, "set snapshot to a function of the network: run the cell that defines it")
    network = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    then = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    given = snapshot(network)
    if given is ... or given is None:
        return Verdict(False, "snapshot returns nothing yet: return the network's numbers, by name")
    if not isinstance(given, Mapping) or set(given) != set(then):
        return Verdict(False, f"it should hold {', '.join(then)}, as state_dict() does")
    with torch.no_grad():
        for tensor in network.state_dict().values():
            tensor.add_(1)
    changed = [name for name, tensor in then.items() if not torch.equal(torch.as_tensor(given[name]), tensor)]
    if changed:
        return Verdict(False, f"the training went on, and {changed[0]} in your snapshot changed with it")
    return Verdict(True, "it stays what it was, whatever the training does")


class _Stand:
    """A cellar and a cash desk like the reader's, with prices that only they know."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.orders: list[int] = rng.permutation(1000)[:ORDERS].tolist()
        self._prices = {order: (rng.integers(1, 100, 3) / 4).tolist() for order in self.orders}
        self._fetched: list[int] = []
        self._sent: list[float] = []

    def fetch(self, order: int) -> list[float]:
        time.sleep(FETCHING)
        self._fetched.append(order)
        return list(self._prices[order])

    def send_bill(self, bill: float) -> None:
        time.sleep(SENDING)
        self._sent.append(bill)

    def after(self, serve: Serve) -> dict[str, list[Any]] | None:
        """The bills that were returned, what had been sent and fetched by then."""
        bills = serve(list(self.orders), self.fetch, self.send_bill)
        if bills is None:
            return None
        return {"bills": list(bills), "sent": list(self._sent), "fetched": sorted(self._fetched)}


def serve(orders: Sequence[int], fetch: Fetch, send_bill: Callable[[float], None]) -> list[float]:
    """The bill of each order, one after the other."""
    bills = []
    for order in orders:
        bill = sum(fetch(order))
        send_bill(bill)
        bills.append(bill)
    return bills


_SNAPSHOT = """\
def snapshot(network):
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}"""

_SOONER = """\
def serve_sooner(orders, fetch, send_bill):
    with ThreadPoolExecutor(4) as cellar, ThreadPoolExecutor(1) as desk:
        bills = []
        for prices in cellar.map(fetch, orders):
            bills.append(sum(prices))
            desk.submit(send_bill, bills[-1])
    return bills  # the with block has waited for both"""

EXERCISES = (
    _AHEAD,
    _THREADS,
    _TORN,
    Exercise("05_snapshot", _SNAPSHOT, _judge_snapshot),
    _PIPE,
    open_ended(
        "05_sooner",
        "serve_sooner",
        _SOONER,
        inputs=lambda rng: (_Stand(rng),),
        reference=serve,
        call=lambda served, stand: stand.after(served),
    ),
)
