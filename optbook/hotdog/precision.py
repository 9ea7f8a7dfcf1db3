"""Which number types this machine computes with quickly."""

from __future__ import annotations

import platform
from contextlib import AbstractContextManager, nullcontext

import torch


def fast_bfloat16(device: str = "cpu") -> bool:
    """Whether this machine multiplies bfloat16 in hardware; without that, it is slower than float32.

    On a CPU that takes AVX-512 BF16, AMX or ARM's BF16 instructions; torch also runs bfloat16 without them,
    by way of float32.
    """
    if device == "cuda":
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    if device == "cpu":
        can = torch.cpu.get_capabilities()
        names = ("bf16",) if platform.machine() in ("arm64", "aarch64") else ("avx512_bf16", "amx_bf16")
        return any(can.get(name, False) for name in names)
    return False


def autocast(dtype: torch.dtype | None) -> AbstractContextManager[object]:
    """Within it, torch computes in `dtype` where that is safe; None changes nothing."""
    return nullcontext() if dtype is None else torch.autocast("cpu", dtype=dtype)
