"""What is run to find the machine's peaks: arithmetic per dtype, and moving memory.

FLOPs of a kernel: two for every multiply-add, as in `optbook.benchmark.flop_formulas`. Bytes moved: all that
is read and all that is written, as STREAM counts them (https://www.cs.virginia.edu/stream/ref.html).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

DTYPES = ("float32", "float64", "bfloat16", "float16")
KERNEL_SECONDS = 0.12
FEWEST_CALLS, MOST_CALLS = 3, 50
LONGEST_CALL_SECONDS = 0.5
DTYPE_SECONDS = 1.5
COPY_BYTES = 128 * 2**20
PROBE_SIZE = 256


@dataclass(frozen=True)
class Kernel:
    """One thing to run: ``build()`` makes its data and returns what does ``work`` FLOPs (or bytes)."""

    name: str
    work: float
    build: Callable[[], Callable[[], object]]


def arithmetic(dtype: str, device: str) -> list[Kernel]:
    """Kernels that reach for the most FLOP/s of one dtype; the first is small and shows what to expect.

    Args:
        dtype: a name of `DTYPES`.
        device: a torch device type, such as "cpu" or "cuda".
    """
    import torch

    kind = getattr(torch, dtype)

    def of(*shape: int) -> Any:
        return torch.rand(shape, device=device).to(kind)

    def matmul(m: int, k: int, n: int) -> Kernel:
        def build() -> Callable[[], object]:
            a, b = of(m, k), of(k, n)
            out = a @ b
            return lambda: torch.mm(a, b, out=out)

        return Kernel(f"matmul {m}×{k}×{n}", 2.0 * m * k * n, build)

    def batched(b: int, n: int) -> Kernel:
        def build() -> Callable[[], object]:
            x, y = of(b, n, n), of(b, n, n)
            out = torch.bmm(x, y)
            return lambda: torch.bmm(x, y, out=out)

        return Kernel(f"{b} matmuls {n}×{n}×{n}", 2.0 * b * n**3, build)

    def convolution(n: int, channels: int, side: int, channels_last: bool) -> Kernel:
        def build() -> Callable[[], object]:
            layout = torch.channels_last if channels_last else torch.contiguous_format
            x = of(n, channels, side, side).to(memory_format=layout)
            w = of(channels, channels, 3, 3).to(memory_format=layout)
            return lambda: torch.nn.functional.conv2d(x, w, padding=1)

        order = "channels last" if channels_last else "contiguous"
        work = 2.0 * n * channels**2 * side**2 * 9
        return Kernel(f"conv2d 3×3, {channels} channels, {order}", work, build)

    grow = 1 if device == "cpu" else 4
    kernels = [
        matmul(PROBE_SIZE, PROBE_SIZE, PROBE_SIZE),
        matmul(1024 * grow, 1024 * grow, 1024 * grow),
        matmul(2048 * grow, 512 * grow, 512 * grow),
        batched(16 * grow**2, 256),
    ]
    if dtype != "float64":
        kernels += [convolution(8 * grow, 64 * grow, 64, last) for last in (False, True)] + [
            convolution(8 * grow, 128 * grow, 28, True)
        ]
    return kernels


def arithmetic_without_torch(dtype: str) -> list[Kernel]:
    """The same with NumPy, for a machine without torch; only float32 and float64."""
    import numpy as np

    def matmul(n: int) -> Kernel:
        def build() -> Callable[[], object]:
            a = np.random.default_rng(0).random((n, n)).astype(dtype)
            out = a @ a
            return lambda: np.matmul(a, a, out=out)

        return Kernel(f"numpy matmul {n}×{n}×{n}", 2.0 * n**3, build)

    return [matmul(PROBE_SIZE), matmul(1024), matmul(1536)] if dtype in ("float32", "float64") else []


def moving(device: str) -> list[Kernel]:
    """Kernels that reach for the most bytes per second of a device's memory."""
    import torch

    count = COPY_BYTES // 4

    def copy() -> Callable[[], object]:
        a, b = torch.ones(count, device=device), torch.empty(count, device=device)
        return lambda: b.copy_(a)

    def triad() -> Callable[[], object]:
        a, b, c = (torch.ones(count, device=device) for _ in range(3))
        return lambda: torch.add(b, c, alpha=3.0, out=a)

    return [Kernel("copy", 2.0 * COPY_BYTES, copy), Kernel("triad", 3.0 * COPY_BYTES, triad)]


def moving_without_torch() -> list[Kernel]:
    """The same with NumPy, which copies in one thread."""
    import numpy as np

    def copy() -> Callable[[], object]:
        a, b = np.ones(COPY_BYTES // 8), np.empty(COPY_BYTES // 8)
        return lambda: np.copyto(b, a)

    return [Kernel("numpy copy, one thread", 2.0 * COPY_BYTES, copy)]


@dataclass(frozen=True)
class Measured:
    """A kernel's best rate, per second, and the CPU seconds of this process per second while it ran."""

    name: str
    rate: float
    cores: float


def measured(kernels: list[Kernel], synchronize: Callable[[], None]) -> Iterator[Measured]:
    """Run each kernel a few times; one that can't run here, or would take too long, is left out.

    Args:
        kernels: what to run, the smallest first: it shows how long the others would take.
        synchronize: waits for the device.
    """
    best, begun = 0.0, time.perf_counter()
    for kernel in kernels:
        if best and (
            kernel.work / best > LONGEST_CALL_SECONDS or time.perf_counter() - begun > DTYPE_SECONDS
        ):
            continue
        try:
            found = _best_of_calls(kernel, synchronize)
        except (RuntimeError, TypeError, MemoryError):  # a dtype without this kernel, or too little memory
            continue
        best = max(best, found.rate)
        yield found


def _best_of_calls(kernel: Kernel, synchronize: Callable[[], None]) -> Measured:
    """The best of a few calls, after one that warms up."""
    run, now = kernel.build(), time.perf_counter
    run()
    synchronize()
    shortest, begun, cpu = float("inf"), now(), time.process_time()
    for i in range(MOST_CALLS):
        spent = now() - begun
        if spent > LONGEST_CALL_SECONDS or (i >= FEWEST_CALLS and spent > KERNEL_SECONDS):
            break
        start = now()
        run()
        synchronize()
        shortest = min(shortest, now() - start)
    wall = max(now() - begun, 1e-9)
    return Measured(kernel.name, kernel.work / max(shortest, 1e-9), (time.process_time() - cpu) / wall)
