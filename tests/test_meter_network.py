"""The counters of the network interfaces."""

from __future__ import annotations

import socket
import threading
from types import SimpleNamespace

import psutil
import pytest

from optbook.benchmark.meters.network import Traffic, between, counters


def test_a_transfer_over_loopback_is_counted_in_both_directions() -> None:
    size = 3_000_000
    loopback = next(
        name
        for name, addresses in psutil.net_if_addrs().items()
        if any(address.address == "127.0.0.1" for address in addresses)
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        before = counters()
        sender = threading.Thread(target=lambda: _send(server.getsockname(), size))
        sender.start()
        connection, _ = server.accept()
        with connection:
            while connection.recv(1 << 16):
                pass
        sender.join()
    traffic, vanished = between(before, counters())
    assert size <= traffic[loopback].bytes_sent
    assert size <= traffic[loopback].bytes_received
    assert traffic[loopback].packets_sent > 10
    assert vanished == ()


def _send(address: tuple[str, int], size: int) -> None:
    with socket.create_connection(address) as client:
        client.sendall(bytes(size))


def test_interfaces_that_appear_vanish_or_come_up_anew() -> None:
    before = {"a": Traffic(10, 20, 1, 2), "b": Traffic(500, 500, 5, 5), "gone": Traffic(7, 7, 7, 7)}
    after = {"a": Traffic(15, 50, 2, 4), "b": Traffic(30, 600, 3, 9), "new": Traffic(8, 0, 1, 0)}
    assert between(before, after) == (
        {"a": Traffic(5, 30, 1, 2), "b": Traffic(30, 600, 3, 9), "new": Traffic(8, 0, 1, 0)},
        ("gone",),
    )


def test_sums() -> None:
    both = Traffic(1, 2, 3, 4) + Traffic(10, 20, 30, 40)
    assert both == Traffic(11, 22, 33, 44)
    assert both.bytes == 33


def test_a_system_without_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(pernic: bool) -> dict[str, SimpleNamespace]:
        raise PermissionError("/proc/net/dev")

    monkeypatch.setattr(psutil, "net_io_counters", refused)
    assert counters() == {}
