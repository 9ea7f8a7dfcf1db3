"""From looks at the workload's stack to shares of kinds of work, as evidence for a diagnosis.

Whether the time goes into Python's interpreter or into long calls into C shows in how soon a signal is
answered: the interpreter answers within some microseconds, a call into C only at its end, unless it lets go
of Python's lock: then the sampler's thread looks before it. What a long call does shows in its name.
"""

from __future__ import annotations

import dis
import functools
from pathlib import Path
from types import CodeType

from optbook.benchmark.profiles.places import WAITS, is_yours, of_call
from optbook.benchmark.profiles.sampler import BUSY_SHARE, Key, Samples

PROMPT_SECONDS, PROMPT_TIMES = 20e-6, 2
"""An answer is prompt if it comes this soon after the soonest ones, or within this many times as long: where
signals take long to arrive, as on a virtual machine, how long they take varies as much."""
SOONEST = 0.05
"""The share of answers that tells how soon a signal can be answered on this machine."""
SHORT_SECONDS, LONG_SECONDS = 40e-6, 150e-6
"""Where the sampler's thread was first, the workload's had let go of Python's lock, if only for a moment: the
call is short, long or neither by how long the workload's thread is busy with it after the look."""
HAS_CORE = 0.7
"""A thread that used less of a core than this since the last look may be late for want of one."""

ARITHMETIC = frozenset(
    {
        *("matmul", "mm", "bmm", "addmm", "baddbmm", "einsum", "tensordot", "linear", "bilinear", "@"),
        *("conv1d", "conv2d", "conv3d", "conv_transpose2d", "scaled_dot_product_attention", "lstm", "gru"),
        *("svd", "eig", "eigh", "eigvalsh", "inv", "pinv", "solve", "lstsq", "qr", "det", "slogdet"),
        *("cholesky", "lu", "lu_factor", "expm", "matrix_power"),
        *("Conv1d", "Conv2d", "Conv3d", "ConvTranspose2d", "Linear", "Bilinear", "LSTM", "GRU"),
    }
)
"""Calls, operators and torch's modules that do many operations on each byte of large operands: products of
matrices, convolutions, factorisations."""
MOVING = frozenset(
    {
        *(
            "copy",
            "copy_",
            "clone",
            "copyto",
            "astype",
            "contiguous",
            "concatenate",
            "concat",
            "cat",
            "stack",
        ),
        *(
            "vstack",
            "hstack",
            "zeros_like",
            "ones",
            "zeros",
            "full",
            "fill",
            "fill_",
            "zero_",
            "tile",
            "repeat",
        ),
        *("add", "subtract", "sub", "multiply", "mul", "add_", "sub_", "mul_", "negative", "abs", "roll"),
        *("flip", "take", "relu", "batch_norm", "+", "-", "*", "+=", "-=", "*="),
        *("BatchNorm1d", "BatchNorm2d", "LayerNorm", "ReLU", "Dropout"),
    }
)
"""Calls and operators that do at most a few operations on each element of large arrays."""
COPIES = frozenset({"cuda", "to", "cpu", "pin_memory", "xpu", "mps"})
"""Calls that copy between host and device, where one is used."""
SOCKETS = frozenset(
    {
        *("recv", "recv_into", "recvfrom", "recvmsg", "send", "sendall", "sendto", "sendmsg", "sendfile"),
        *("accept", "connect", "getaddrinfo", "do_handshake"),
    }
)
SOCKET_CALLS = frozenset({("ssl.py", "read"), ("ssl.py", "write")})
BACKWARD = "_engine_run_backward"
COLLECTIVES = "distributed_c10d.py"


def of_samples(samples: Samples, device: bool = False) -> dict[str, float]:
    """Shares of the time of the workload's thread, by the names of `optbook.benchmark.evidence.Evidence`.

    Args:
        samples: what the sampler saw.
        device: whether an accelerator is in use.

    Returns:
        The shares, and ``looks``; empty without looks. Looks before which the thread had no core are left
        out. torch's backward passes count as their forward passes do. Where signals can't be used, the
        shares of Python and of long calls are missing.
    """
    seen = samples.threads.get("")
    if seen is None or not seen.looks:
        return {}
    rest = dict(seen.seconds)
    python = native = unknown = 0.0
    kinds: dict[str, float] = {}

    def add(key: Key, seconds: float) -> None:
        kind = _kind(samples, key, device)
        if kind:
            kinds[kind] = kinds.get(kind, 0.0) + seconds

    soonest = _soonest([answer.late for answer in seen.answers if not answer.first])
    prompt = max(soonest + PROMPT_SECONDS, PROMPT_TIMES * soonest)
    for key, seconds, busy, late, first in seen.answers:
        rest[key] -= seconds
        kind = _kind(samples, key, device)
        if kind in ("waiting", "socket"):
            add(key, seconds)
        elif late <= (SHORT_SECONDS if first else prompt):
            python += seconds
        elif first and late > LONG_SECONDS:
            native += seconds
            add(key, seconds)
        elif first:
            unknown += seconds if kind or busy is None or busy >= BUSY_SHARE else 0.0
        elif busy is not None and busy < HAS_CORE:
            unknown += seconds
        else:
            native += seconds
            add(key, seconds)
    for key, seconds in rest.items():
        kind = _kind(samples, key, device)
        add(key, max(0.0, seconds))
        if kind not in ("waiting", "socket") and (kind or not key[2]):
            native += max(0.0, seconds)
    total = sum(seen.seconds.values()) - unknown
    if total <= 0:
        return {}
    forward = native - kinds.get("backward", 0.0)
    scale = native / forward if forward > 0 else 1.0
    sums = {"socket": kinds.get("socket", 0.0)}
    sums |= {kind: scale * kinds.get(kind, 0.0) for kind in ("arithmetic", "memory")}
    if samples.by_signal:
        sums |= {"python": python, "native": native}
    if device:
        sums["copy"] = kinds.get("copy", 0.0)
    shares = {f"{kind}_share": min(1.0, seconds / total) for kind, seconds in sums.items()}
    return {"looks": seen.looks * total / (total + unknown), **shares}


def _soonest(late: list[float]) -> float:
    return sorted(late)[int(SOONEST * len(late))] if late else 0.0


def _kind(samples: Samples, key: Key, device: bool) -> str:
    """What the innermost call of a stack does, by its name: a kind of work, or '' if that isn't known."""
    chain, offset, _ = key
    return _named(tuple(samples.codes[each] for each in chain[-8:]), offset, device)


@functools.lru_cache(maxsize=4096)
def _named(codes: tuple[CodeType, ...], offset: int, device: bool) -> str:
    if not codes:
        return ""
    inner = codes[-1]
    if any(Path(code.co_filename).name == COLLECTIVES for code in codes):
        return "socket"
    call = of_call(inner, offset, {}, "your code")
    operator = _operator(inner, offset)
    names = [call.name.removesuffix("()").rpartition(".")[2] if call is not None else operator]
    if names[0] in SOCKETS or (Path(inner.co_filename).name, names[0]) in SOCKET_CALLS:
        return "socket"
    if names[0] in WAITS:
        return "waiting"
    for code in reversed(codes):  # the functions of a library around the call tell as well
        if is_yours(code.co_filename):
            break
        names += [code.co_name, code.co_qualname.partition(".")[0]]
    for name in names:
        if device and name in COPIES:
            return "copy"
        if name in ARITHMETIC:
            return "arithmetic"
        if name in MOVING:
            return "memory"
    return "backward" if BACKWARD in names else ""


def _operator(code: CodeType, offset: int) -> str:
    """``@`` where the instruction at ``offset`` multiplies matrices."""
    found = (each for each in dis.get_instructions(code) if each.offset == offset)
    instruction = next(found, None)
    return instruction.argrepr if instruction is not None and instruction.opname == "BINARY_OP" else ""
