# mypy: disable-error-code="no-untyped-call"
"""Counts the FLOPs of the torch operators that run, and times each operator, counted or not."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from optbook.benchmark.clock import device_synchronizer
from optbook.benchmark.flop_formulas import formulas


@dataclass
class Work:
    """All calls of one operator: their number, seconds and FLOPs, and the bytes of operands and results."""

    calls: int = 0
    seconds: float = 0.0
    flops: int = 0
    bytes: int = 0


@dataclass
class Tally:
    """FLOPs by dtype and device, and seconds inside operators by their name."""

    flops: Counter[tuple[str, str]] = field(default_factory=Counter)
    counted_seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    other_seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    work: dict[str, Work] = field(default_factory=lambda: defaultdict(Work))

    def add(self, other: Tally) -> None:
        """Add what another one holds."""
        self.flops.update(other.flops)
        for name, seconds in other.counted_seconds.items():
            self.counted_seconds[name] += seconds
        for name, seconds in other.other_seconds.items():
            self.other_seconds[name] += seconds
        for name, more in other.work.items():
            for field_ in ("calls", "seconds", "flops", "bytes"):
                setattr(self.work[name], field_, getattr(self.work[name], field_) + getattr(more, field_))

    @property
    def total(self) -> int:
        """All FLOPs."""
        return self.flops.total()

    @property
    def operators(self) -> int:
        """How many different operators ran."""
        return len({*self.counted_seconds, *self.other_seconds})

    @property
    def coverage(self) -> float | None:
        """The share of operator time that was spent in operators whose FLOPs were counted."""
        counted, other = sum(self.counted_seconds.values()), sum(self.other_seconds.values())
        return counted / (counted + other) if counted + other > 0 else None


class FlopCounter:
    """Counts while `counting` is entered. What was counted last is pending until it is kept or dropped."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self.kept = Tally()
        self.pending = Tally()
        self._now = now
        self._synchronize: Callable[[], None] | None = None

    def keep(self) -> int:
        """Move what is pending to what is kept, and return its FLOPs."""
        self.kept.add(self.pending)
        total = self.pending.total
        self.pending = Tally()
        return total

    def drop(self) -> None:
        """Forget what is pending."""
        self.pending = Tally()

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the operators of this thread, and of the backward passes that it starts."""
        from torch.utils._python_dispatch import TorchDispatchMode

        counter = self
        self._synchronize = device_synchronizer()

        class Mode(TorchDispatchMode):
            supports_higher_order_operators = True

            def __init__(self) -> None:
                super().__init__()
                self.whole: set[Any] = set()

            def __torch_dispatch__(
                self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
            ) -> Any:
                kwargs = kwargs or {}
                packet = getattr(func, "_overloadpacket", func)
                if func not in self.whole:
                    if not formulas().known(packet) and hasattr(func, "decompose"):
                        with self:
                            result = func.decompose(*args, **kwargs)
                        if result is not NotImplemented:
                            return result
                    self.whole.add(func)
                return counter._run(func, packet, args, kwargs)

        with Mode():
            yield

    def _run(self, func: Any, packet: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        now, synchronize = self._now, self._synchronize
        if synchronize is not None:
            synchronize()
        start = now()
        out = func(*args, **kwargs)
        if synchronize is not None:
            synchronize()
        taken = now() - start
        name, pending = str(packet).removeprefix("aten."), self.pending
        counted = formulas().count(packet, args, kwargs, out) if formulas().known(packet) else None
        work = pending.work[name]
        work.calls, work.seconds = work.calls + 1, work.seconds + taken
        work.flops, work.bytes = work.flops + (counted or 0), work.bytes + _bytes((args, out))
        if counted is None:
            pending.other_seconds[name] += taken
            return out
        pending.counted_seconds[name] += taken
        pending.flops[_kind(args)] += counted
        return out


def _kind(args: tuple[Any, ...]) -> tuple[str, str]:
    """Dtype and device of an operator's first tensor."""
    tensor = next(arg for arg in args if hasattr(arg, "dtype"))
    return str(tensor.dtype).removeprefix("torch."), str(tensor.device)


def _bytes(values: Any) -> int:
    """The bytes of all tensors in nested tuples and lists; of a view, those that it shows."""
    if isinstance(values, (tuple, list)):
        return sum(map(_bytes, values))
    if not hasattr(values, "element_size"):
        return 0
    return int(values.numel() * values.element_size())
