"""A kernel that is restarted while a stub is in place: nothing of it remains."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

SECONDS = 60
LOOK = "import optbook.simplify.stubs as s; print(colorsys.rgb_to_hsv(1, 1, 1), len(s.active()))"


@pytest.fixture
def kernel(log_path: Path) -> Iterator[tuple[KernelManager, BlockingKernelClient]]:
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(env={**os.environ, "JUPYTER_PREFER_ENV_PATH": "1"})
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=SECONDS)
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def printed(client: BlockingKernelClient, code: str) -> str:
    """What a cell prints."""
    lines: list[str] = []

    def see(message: dict[str, dict[str, str]]) -> None:
        lines.append(message["content"].get("text", ""))

    reply = client.execute_interactive(code, output_hook=see, timeout=SECONDS)
    assert reply["content"]["status"] == "ok", reply["content"]
    return "".join(lines).strip()


def test_a_restarted_kernel_has_no_stub(kernel: tuple[KernelManager, BlockingKernelClient]) -> None:
    manager, client = kernel
    printed(client, "%load_ext optbook\nimport colorsys\n%stub colorsys.rgb_to_hsv value --value 3")
    assert printed(client, LOOK) == "3 1"
    manager.restart_kernel()
    client.wait_for_ready(timeout=SECONDS)
    assert printed(client, f"%load_ext optbook\nimport colorsys\n{LOOK}") == "(0.0, 0.0, 1) 0"
