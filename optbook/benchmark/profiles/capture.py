"""A capture of packets by tshark, added up to conversations."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from optbook.errors import OptbookError
from optbook.experiments.render import one_line

FIELDS = [
    *("frame.time_epoch", "frame.len", "frame.protocols"),
    *("ip.src", "ip.dst", "ipv6.src", "ipv6.dst"),
    *("tcp.srcport", "tcp.dstport", "udp.srcport", "udp.dstport"),
]
DEVICE = ("-i", "any") if sys.platform == "linux" else ()
"""All interfaces; elsewhere there is no such device, and tshark takes its default interface."""
HEADERS = "128"
LIMITS = ("-a", "filesize:1000000", "-a", "duration:7200")
"""One GB of headers, two hours: so that no capture outlives a killed kernel for long."""
SETTLE_SECONDS = 0.5
PATIENCE_SECONDS = 20.0
WITHOUT = "or profile without the capture"


@dataclass(frozen=True)
class Conversation:
    """Packets between two ends, ``address:port``. ``bytes`` are those of whole frames, both ways.

    ``protocol`` is the innermost that tshark knows, ``seconds`` lie between the first and last packet.
    """

    one: str
    other: str
    protocol: str
    packets: int
    bytes: int
    seconds: float


def find_tshark() -> str:
    """The path of tshark, which may capture here.

    Raises:
        OptbookError: it is missing, or has no rights.
    """
    path = shutil.which("tshark")
    if path is None:
        raise OptbookError(f"a capture needs tshark, which is not on PATH: install it (Wireshark), {WITHOUT}")
    try:
        tried = subprocess.run(
            [path, *DEVICE, "-L"], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OptbookError(f"tshark does not run ({error}): install it anew, {WITHOUT}") from error
    if tried.returncode:
        said = [line for line in tried.stderr.splitlines() if line.startswith("tshark: ")]
        why = one_line(said[0].removeprefix("tshark: ")) if said else f"exit status {tried.returncode}"
        right = "give its dumpcap the right (CAP_NET_RAW)"
        raise OptbookError(f"tshark may not capture here: {right}, {WITHOUT}; it says: {why}")
    return path


class Capture:
    """Captures the heads of packets inside a ``with`` block.

    Raises:
        OptbookError: tshark does not begin.
    """

    def __init__(self, tshark: str) -> None:
        self.ended_early = False
        self._tshark = tshark

    def __enter__(self) -> Capture:
        self._folder = tempfile.mkdtemp(prefix="optbook-capture-")
        self._file = Path(self._folder) / "capture.pcapng"
        self._process = subprocess.Popen(
            [self._tshark, *DEVICE, "-n", "-q", "-s", HEADERS, *LIMITS, "-w", str(self._file)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        until = time.monotonic() + PATIENCE_SECONDS
        while not (self._file.exists() and self._file.stat().st_size):
            if self._process.poll() is not None or time.monotonic() > until:
                self._end()
                shutil.rmtree(self._folder, ignore_errors=True)
                raise OptbookError(f"tshark did not begin to capture: see `tshark -D`, {WITHOUT}")
            time.sleep(0.02)
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        self.ended_early = self._process.poll() is not None
        if kind is None and not self.ended_early:
            time.sleep(SETTLE_SECONDS)  # packets reach the file with a delay
        self._end()
        if kind is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def conversations(self, windows: Sequence[tuple[float, float]]) -> tuple[Conversation, ...]:
        """The conversations of what was captured in the windows, in seconds since 1970; the file is deleted.

        Raises:
            OptbookError: tshark can't read its file.
        """
        fields = [option for name in FIELDS for option in ("-e", name)]
        read = subprocess.run(
            [self._tshark, "-n", "-r", str(self._file), "-T", "fields", "-E", "occurrence=f", *fields],
            capture_output=True,
            text=True,
            check=False,
        )
        shutil.rmtree(self._folder, ignore_errors=True)
        if read.returncode and not read.stdout:
            why = one_line((read.stderr.splitlines() or ["no reason given"])[-1])
            raise OptbookError(f"tshark could not read its capture: repeat it, {WITHOUT}; it says: {why}")
        return summed(read.stdout.splitlines(), windows)


@dataclass
class _Sum:
    first: float
    last: float
    protocols: str
    packets: int = 0
    bytes: int = 0


def summed(lines: Iterable[str], windows: Sequence[tuple[float, float]]) -> tuple[Conversation, ...]:
    """Add up packets, one a line with `FIELDS`, to conversations, the one with most bytes first."""
    found: dict[tuple[str, str, str], _Sum] = {}
    for line in lines:
        values = dict(zip(FIELDS, line.split("\t"), strict=False))
        when = float(values["frame.time_epoch"])
        if not any(start <= when <= end for start, end in windows):
            continue
        source, destination = _end(values, "src"), _end(values, "dst")
        protocols = values["frame.protocols"].removesuffix(":data")
        kind = "tcp" if values.get("tcp.srcport") else "udp" if values.get("udp.srcport") else protocols
        one, other = sorted((source, destination))
        total = found.setdefault((one, other, kind), _Sum(when, when, protocols))
        total.last = when
        total.protocols = max(total.protocols, protocols, key=lambda chain: chain.count(":"))
        total.packets += 1
        total.bytes += int(values["frame.len"])
    conversations = (
        Conversation(one, other, s.protocols.rpartition(":")[2].upper(), s.packets, s.bytes, s.last - s.first)
        for (one, other, _), s in found.items()
    )
    return tuple(sorted(conversations, key=lambda c: -c.bytes))


def _end(values: dict[str, str], side: str) -> str:
    address = values.get(f"ip.{side}") or values.get(f"ipv6.{side}") or ""
    port = values.get(f"tcp.{side}port") or values.get(f"udp.{side}port")
    return f"{f'[{address}]' if ':' in address else address}:{port}" if port else address
