"""What surrounds the arithmetic: starting a process, and sending bytes to another one by TCP."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time

STARTS = 3
SENDINGS = 3
SENT_BYTES = 64 * 2**20
CHUNK_BYTES = 2**20
TIMEOUT_SECONDS = 5.0


def process_start() -> float | None:
    """Seconds to start a Python interpreter and end it again, the best of a few; None where none can."""
    best = None
    for _ in range(STARTS):
        start = time.perf_counter()
        try:
            subprocess.run([sys.executable, "-c", ""], check=True, capture_output=True, timeout=60)
        except (OSError, subprocess.SubprocessError):
            return best
        taken = time.perf_counter() - start
        best = taken if best is None else min(best, taken)
    return best


def loopback() -> float | None:
    """Bytes per second by TCP to this machine itself, the best of a few; None without a connection."""
    best = None
    for _ in range(SENDINGS):
        try:
            taken = _send(SENT_BYTES)
        except OSError:
            return best
        rate = SENT_BYTES / taken
        best = rate if best is None else max(best, rate)
    return best


def _send(count: int) -> float:
    """Seconds to send ``count`` bytes from one thread of this process to another; copying holds no GIL.

    Raises:
        OSError: no connection, or it ended early.
    """
    chunk = bytes(CHUNK_BYTES)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(TIMEOUT_SECONDS)
        with socket.create_connection(server.getsockname(), TIMEOUT_SECONDS) as sender:
            receiver, _ = server.accept()
            with receiver:
                receiver.settimeout(TIMEOUT_SECONDS)

                def feed() -> None:
                    for _ in range(count // CHUNK_BYTES):
                        sender.sendall(chunk)

                thread = threading.Thread(target=feed, daemon=True)
                buffer = memoryview(bytearray(CHUNK_BYTES))
                start, left = time.perf_counter(), count
                thread.start()
                while left:
                    received = receiver.recv_into(buffer)
                    if not received:
                        raise OSError("the connection ended early")
                    left -= received
                taken = time.perf_counter() - start
            thread.join(TIMEOUT_SECONDS)
    return taken
