"""What this machine can do: bfloat16 in hardware, a compiler."""

from __future__ import annotations

import platform
import shutil
import sys

import pytest
import torch

from optbook.hotdog.compiler import need_compiler
from optbook.hotdog.precision import autocast, fast_bfloat16


@pytest.mark.parametrize(
    ("machine", "can", "fast"),
    [
        ("x86_64", {"avx2": True, "avx512_f": True}, False),
        ("x86_64", {"avx512_bf16": True}, True),
        ("AMD64", {"amx_bf16": True}, True),
        ("arm64", {"bf16": True}, True),
        ("aarch64", {"bf16": False}, False),
        ("riscv64", {}, False),
    ],
)
def test_bfloat16_is_fast_where_the_processor_has_it(
    monkeypatch: pytest.MonkeyPatch, machine: str, can: dict[str, bool], fast: bool
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: can)
    assert fast_bfloat16() is fast


@pytest.mark.parametrize(("there", "native"), [(True, True), (True, False), (False, False)])
def test_bfloat16_on_a_gpu(monkeypatch: pytest.MonkeyPatch, there: bool, native: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: native)
    assert fast_bfloat16("cuda") is (there and native)


def test_this_machine_and_unknown_devices_have_an_answer() -> None:
    assert isinstance(fast_bfloat16(), bool)
    assert not fast_bfloat16("abacus")


def test_autocast_computes_in_the_type_asked_for() -> None:
    one = torch.ones(2, 2)
    with autocast(torch.bfloat16):
        assert (one @ one).dtype == torch.bfloat16
    with autocast(None):
        assert (one @ one).dtype == torch.float32


@pytest.mark.parametrize(
    ("system", "cxx", "tried"),
    [
        ("linux", None, "g++ or c++ or clang++"),
        ("win32", None, "cl"),
        ("linux", "ccc -v", "ccc"),
        ("linux", " ", "the empty name in CXX"),
    ],
)
def test_a_missing_compiler_is_named(
    monkeypatch: pytest.MonkeyPatch, system: str, cxx: str | None, tried: str
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    if cxx is None:
        monkeypatch.delenv("CXX", raising=False)
    else:
        monkeypatch.setenv("CXX", cxx)
    with pytest.raises(RuntimeError) as caught:
        need_compiler("this", "do that")
    assert str(caught.value) == f"this needs a C++ compiler, and there is no {tried} here: do that"
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    if cxx != " ":
        need_compiler("this", "do that")
