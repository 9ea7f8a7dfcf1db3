"""Counts what each operator does: FLOPs, bytes moved, the time at the machine's peaks, bytes kept."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from optbook.benchmark.flop_counter import FlopCounter
from optbook.benchmark.machine.peaks import Peaks

_WRITES_NOTHING = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "sym_size")


class Work(NamedTuple):
    """What an operator did, or (``storage`` is its address then) a storage that autograd kept."""

    flops: int = 0
    moved: int = 0
    arithmetic: float = 0.0
    memory: float = 0.0
    storage: int | None = None
    kept: int = 0


class Counts(FlopCounter):
    """Keeps the work of each operator in ``work``; how many there are serves as the time.

    Bytes moved are those of all operands and results, each read or written once: what has to be moved if
    nothing stays in a cache from one operator to the next. Views move nothing.

    Args:
        peaks: the machine's; without them there are no times at its peaks.
        keeps: whether to see what autograd keeps.
    """

    def __init__(self, peaks: Peaks | None, keeps: bool = True) -> None:
        super().__init__()
        self.work: list[Work] = []
        self.without_peak: set[str] = set()
        self.keeps = keeps
        self._peaks = peaks
        self._alive: dict[int, Any] = {}

    def now(self) -> float:
        """How many operators there were."""
        return float(len(self.work))

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """As in `FlopCounter`, and see what autograd keeps."""
        import torch

        self._strided, self._tensor = torch.strided, torch.Tensor
        with super().counting(), contextlib.ExitStack() as stack:
            if self.keeps:
                hooks = torch.autograd.graph.saved_tensors_hooks(self._keep, lambda tensor: tensor)
                stack.enter_context(hooks)
            yield

    def _run(self, func: Any, packet: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = super()._run(func, packet, args, kwargs)
        counted = dict(self.pending.flops)
        self.keep()
        flops = sum(counted.values())
        moved, device = self._moved(func, args, kwargs, out)
        dtype, device = next(iter(counted), ("", device))
        if flops or moved:
            times = self._at_peak(flops, moved, dtype, device.partition(":")[0])
            self.work.append(Work(flops, moved, *times))
        return out

    def _moved(self, func: Any, args: Any, kwargs: Mapping[str, Any], out: Any) -> tuple[int, str]:
        """Bytes, and the device that they lie on."""
        from torch.utils._pytree import tree_leaves

        name = getattr(func, "_opname", "")
        if getattr(func, "is_view", False) or name in _WRITES_NOTHING:
            return 0, ""
        total, device = 0, ""
        for side in ((args, kwargs), out):
            seen = set()
            for value in tree_leaves(side):
                if not isinstance(value, self._tensor) or value.layout is not self._strided:
                    continue
                device = device or str(value.device)
                storage = value.untyped_storage()
                key = (storage._cdata, value.storage_offset(), tuple(value.shape))
                if key not in seen:
                    seen.add(key)
                    total += min(value.numel() * value.element_size(), storage.nbytes())
        return total, device

    def _at_peak(self, flops: int, moved: int, dtype: str, device: str) -> tuple[float, float]:
        """Seconds at the peak of arithmetic, or at that of memory, whichever takes longer; the other is 0."""
        if self._peaks is None:
            return 0.0, 0.0
        peak, bandwidth = self._peaks.of(dtype, device), self._peaks.bandwidth.get(device)
        if (flops and peak is None) or bandwidth is None:
            self.without_peak.add(f"{dtype} on {device}" if flops else f"memory of {device}")
        arithmetic = flops / peak.rate if peak is not None else 0.0
        memory = moved / bandwidth.rate if bandwidth is not None else 0.0
        return (arithmetic, 0.0) if arithmetic >= memory else (0.0, memory)

    def _keep(self, tensor: Any) -> Any:
        """Autograd keeps a tensor: its storage counts once, as long as it lives."""
        from torch.multiprocessing.reductions import StorageWeakRef

        if tensor.layout is self._strided:
            storage = tensor.untyped_storage()
            address = storage.data_ptr()
            alive = self._alive.get(address)
            if alive is None or alive.expired():
                self._alive[address] = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
                self.work.append(Work(storage=address, kept=storage.nbytes()))
        return tensor


def held_by(modules: Any) -> set[int]:
    """The addresses of the storages of modules' parameters and buffers."""
    import torch

    found = set()
    for module in modules:
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.layout is torch.strided and not tensor.is_meta:
                found.add(tensor.untyped_storage().data_ptr())
    return found
