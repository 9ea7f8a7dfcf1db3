"""Reads a trace in Chrome's format, event by event, so that its size does not matter."""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TextIO

from optbook.errors import OptbookError

CHUNK = 2**20
_BEGIN = re.compile(r'"traceEvents"\s*:\s*\[')
Kind = Literal["whole", "operator", "runtime", "annotation", "kernel", "copy", "memset"]
KINDS: dict[str, Kind] = {
    "Trace": "whole",
    "cpu_op": "operator",
    "user_annotation": "annotation",
    "kernel": "kernel",
    "gpu_memcpy": "copy",
    "gpu_memset": "memset",
}
"""Kineto's categories that are read: the time traced, threads, devices. Those of a device's runtime and
driver end in their name."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that took time.

    ``start`` and ``seconds`` are in seconds, ``lane`` is the thread it ran in or the device's index. What
    was not over when the trace ended has no true end: operators are left out, annotations kept.
    ``link`` ties what a device did to the operator that asked for it; ``size`` are the bytes of a copy.
    """

    kind: Kind
    name: str
    start: float
    seconds: float
    lane: int
    link: int | None = None
    size: int | None = None

    @property
    def end(self) -> float:
        """When it was over."""
        return self.start + self.seconds


def read(path: Path) -> Iterator[Event]:
    """The events of a ``.json`` or ``.json.gz`` file that a profile is made of, in the file's order.

    Raises:
        OptbookError: the file holds no trace, or only part of one.
    """
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8", errors="replace") as file:
            for entry in _entries(file):
                event = _event(entry)
                if event is not None:
                    yield event
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise OptbookError(f"{path} is no trace that can be read: {type(error).__name__}: {error}") from error


def _entries(file: TextIO) -> Iterator[Any]:
    """The entries of the list "traceEvents", of which one chunk at a time is in memory."""
    text = ""
    while (begin := _BEGIN.search(text)) is None:
        more = file.read(CHUNK)
        if not more:
            raise ValueError("it has no list of traceEvents")
        text = text[-40:] + more
    decoder = json.JSONDecoder(strict=False)
    at = begin.end()
    while True:
        while at < len(text) and text[at] in " \r\n\t,":
            at += 1
        if text[at : at + 1] == "]":
            return
        try:
            entry, at = decoder.raw_decode(text, at)
        except ValueError:
            more = file.read(CHUNK)
            if not more:
                raise ValueError("it ends in the middle") from None
            text, at = text[at:] + more, 0
        else:
            yield entry


def _event(entry: Any) -> Event | None:
    if not isinstance(entry, dict):
        raise TypeError(f"an event is {entry!r:.40}")
    category = str(entry.get("cat", ""))
    kind = KINDS.get(category)
    if kind is None and category.endswith(("_runtime", "_driver")):
        kind = "runtime"
    if kind is None or entry.get("ph") != "X":
        return None
    details = entry.get("args", {})
    if kind == "operator" and details.get("finished") is False:
        return None
    on_device = kind in ("kernel", "copy", "memset")
    lane = 0 if kind == "whole" else int(details.get("device", entry["pid"]) if on_device else entry["tid"])
    link, size = details.get("External id"), details.get("bytes")
    return Event(
        kind,
        sys.intern(str(entry["name"])),
        float(entry["ts"]) / 1e6,
        float(entry.get("dur", 0.0)) / 1e6,
        lane,
        None if link is None else int(link),
        None if size is None else int(size),
    )
