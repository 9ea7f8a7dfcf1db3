"""Stubs in worker processes: carried into each that is started, and what they do there is told back.

Every start of a process through `multiprocessing` passes here while stubs are in place. The process is given
a `run` of ours, which has the stubs report before it does the process's own. A forked process inherits the
stubs; one started afresh gets them pickled. What they tell lies in a folder, two files for each stub and
process: its counts, in memory that both share, so that those of a worker that is killed are there too; and
pickled messages, one after the other, such as what was recorded.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import pickle
import secrets
import shutil
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing import util
from multiprocessing.process import BaseProcess
from os import write
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import psutil

from optbook.simplify.patching import Counter, Layer

_COUNTS = struct.Struct("=3Q")
_LENGTH = struct.Struct("=Q")
UNPICKLED = (pickle.PickleError, AttributeError, ImportError, TypeError, ValueError, RuntimeError, OSError)


@runtime_checkable
class Telling(Protocol):
    """A filling that learns from what its copies in other processes saw."""

    def tells(self, channel: Channel) -> None:
        """In the other process: from now on, tell what is worth knowing."""

    def learns(self, told: Any) -> None:
        """In the first process: what a copy told."""


class SharedCounter(Counter):
    """Counts into memory that another process reads."""

    def __init__(self, shared: memoryview, slot: int) -> None:
        super().__init__()
        following = itertools.count(1).__next__

        def step() -> None:
            shared[slot] = following()

        self._shared, self._slot = shared, slot
        self.step = step

    @property
    def here(self) -> int:
        """Steps so far in this process."""
        return int(self._shared[self._slot])


class Channel:
    """What a stub in this process tells the one that started it; nothing if there is no folder for it.

    Attributes:
        calls, misses, recorded: counters that the other process sees.
    """

    def __init__(self, folder: str, token: str) -> None:
        self._lock = threading.Lock()
        self._messages: int | None = None
        shared = memoryview(bytearray(_COUNTS.size)).cast("Q")
        if folder:
            path = Path(folder) / f"{token}.{os.getpid()}.{secrets.token_hex(4)}"
            with contextlib.suppress(OSError):  # the folder is gone, or the disk is full: nothing is told
                shared = _shared(path.with_suffix(path.suffix + ".counts"))
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
                self._messages = os.open(path.with_suffix(path.suffix + ".told"), flags, 0o600)
        self.calls, self.misses, self.recorded = (SharedCounter(shared, slot) for slot in range(3))

    def send(self, message: object) -> None:
        """Tell something that can be pickled; a text is a note about the stub."""
        if self._messages is None:
            return
        try:
            pickled = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        except UNPICKLED as error:
            pickled = pickle.dumps(f"what it returns in a worker can't be passed on ({error})")
        rest = memoryview(_LENGTH.pack(len(pickled)) + pickled)
        with self._lock:
            try:
                while rest and self._messages is not None:
                    rest = rest[write(self._messages, rest) :]
            except OSError:
                os.close(self._messages)
                self._messages = None


def _shared(path: Path) -> memoryview:
    with path.open("x+b", buffering=0) as file:
        file.write(bytes(_COUNTS.size))
        return memoryview(mmap.mmap(file.fileno(), _COUNTS.size)).cast("Q")


@dataclass(eq=False)
class Member:
    """A stub of this process, and what is known of it in others.

    Attributes:
        layer: what it is in this process.
        token: what it is called in other processes.
        calls: calls there, by the number of the process.
        notes: what is worth knowing.
        without: processes that ran before it was put in place.
        within: processes that ran when it was taken away.
    """

    layer: Layer
    token: str = ""
    calls: dict[int, int] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    without: tuple[BaseProcess, ...] = ()
    within: tuple[BaseProcess, ...] = ()

    @property
    def declared(self) -> tuple[str, ...]:
        """What is worth knowing, now."""
        found = [*self.notes]
        if numbers := _alive(self.without):
            found.append(f"not in {numbers}, which ran already: start anew to have it there")
        if numbers := _alive(self.within):
            found.append(f"still in {numbers}: start anew to have the real one there")
        return tuple(found)

    def tells(self, folder: str) -> None:
        """Tell what happens here from now on."""
        channel = Channel(folder, self.token)
        self.layer.counter = channel.calls
        if isinstance(self.layer.filling, Telling):
            self.layer.filling.tells(channel)
        if self.layer.real is not None:
            self.layer.real.refill()

    def counted(self, pid: int, new: tuple[int, ...]) -> None:
        """Process ``pid`` has made so many calls, misses and recorded calls more."""
        calls, misses, recorded = new
        self.calls[pid] = self.calls.get(pid, 0) + calls
        self.layer.counter.elsewhere += calls
        recording = getattr(self.layer.filling, "recording", None)
        if recording is not None:
            recording.misses.elsewhere += misses
            recording.recorded.elsewhere += recorded

    def told(self, message: object) -> None:
        """A message from another process."""
        if isinstance(message, str):
            self.notes.setdefault(message)
        elif isinstance(self.layer.filling, Telling):
            self.layer.filling.learns(message)


class Session:
    """The stubs of this process that others are to have, and the folder where these tell what they do."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.folder = ""
        self.lock = threading.RLock()
        self._owner = os.getpid()
        self._tokens = itertools.count()
        self._counts: dict[str, tuple[int, ...]] = {}
        self._read: dict[str, int] = {}
        self._start: Callable[[BaseProcess], None] | None = None
        self._remove: Callable[[], object] = _nothing

    def adopt(self, folder: str) -> None:
        """Belong to the session of the process that started this one."""
        self.folder, self._owner = folder, -1

    def join(self, member: Member) -> None:
        """Have the processes that are started from now on have this stub."""
        with self.lock:
            if not self.members and self._owner != -1 and self._owner != os.getpid():
                self.folder, self._owner = "", os.getpid()
            member.token = member.token or f"{os.getpid()}-{next(self._tokens)}"
            self.members[member.token] = member
            if self._start is None:
                self._start = BaseProcess.start
                BaseProcess.start = _start  # type: ignore[method-assign,assignment]

    def leave(self, member: Member) -> None:
        """No more; what other processes have told until now is kept."""
        with self.lock:
            self.collect()
            self.members.pop(member.token, None)
            if self.members:
                return
            if BaseProcess.start is _start and self._start is not None:
                BaseProcess.start = self._start  # type: ignore[method-assign,assignment]
                self._start = None
            if self._owner == os.getpid():
                self.folder = ""
                self._counts.clear()
                self._read.clear()
                self._remove()
                self._remove = _nothing

    def start(self, process: BaseProcess) -> None:
        """Start a process, with the stubs."""
        assert self._start is not None
        if not self.members:
            self._start(process)
            return
        with self.lock:
            self.collect()
            self._open()
            members = tuple(self.members.values())
        own = process.__dict__.get("run")
        from optbook.simplify.carrier import Carrier

        process.run = Carrier(process, own, self.folder, members)  # type: ignore[method-assign]
        try:
            self._start(process)
        finally:
            del process.__dict__["run"]
            if own is not None:
                process.run = own  # type: ignore[method-assign]

    def _open(self) -> None:
        """Have a folder."""
        if self._owner != os.getpid() or (self.folder and os.path.isdir(self.folder)):
            return
        self._remove()
        self._remove = _nothing
        try:
            self.folder = folder = tempfile.mkdtemp(prefix="optbook-stubs-")
        except OSError as error:
            self.folder = ""
            self._note_all(f"what it does in workers is not counted: there is no temporary folder ({error})")
            return
        self._remove = util.Finalize(None, shutil.rmtree, (folder, True), exitpriority=0)

    def _note_all(self, note: str) -> None:
        for member in self.members.values():
            member.notes.setdefault(note)

    def collect(self) -> None:
        """Read what the processes have told since."""
        with self.lock:
            if not self.folder or self._owner != os.getpid():
                return
            try:
                names = sorted(os.listdir(self.folder))
            except OSError:
                self._note_all("what it did in workers is not known: their temporary folder is gone")
                return
            for name in names:
                token, pid, _, kind = name.split(".")
                member = self.members.get(token)
                if member is None:
                    continue
                over = not psutil.pid_exists(int(pid))
                path = Path(self.folder) / name
                with contextlib.suppress(OSError):
                    (self._read_counts if kind == "counts" else self._read_told)(member, int(pid), path)
                    if over:
                        path.unlink()

    def _read_counts(self, member: Member, pid: int, path: Path) -> None:
        content = path.read_bytes()
        if len(content) < _COUNTS.size:
            return
        before = self._counts.get(path.name, (0, 0, 0))
        now = self._counts[path.name] = _COUNTS.unpack(content)
        member.counted(pid, tuple(b - a for a, b in zip(before, now, strict=True)))

    def _read_told(self, member: Member, pid: int, path: Path) -> None:
        with path.open("rb") as file:
            file.seek(self._read.get(path.name, 0))
            for pickled in _records(file):
                self._read[path.name] = file.tell()
                try:
                    message: object = pickle.loads(pickled)
                except UNPICKLED as error:
                    message = f"what it returned in process {pid} can't be read here ({error})"
                member.told(message)


def _records(file: Any) -> Iterator[bytes]:
    """Whole records; one that is only begun comes another time."""
    while len(head := file.read(_LENGTH.size)) == _LENGTH.size:
        (length,) = _LENGTH.unpack(head)
        pickled = file.read(length)
        if len(pickled) < length:
            return
        yield pickled


def _alive(processes: tuple[BaseProcess, ...]) -> str:
    """The processes that still run; "" for none."""
    numbers = [str(process.pid) for process in processes if process.is_alive()]
    return f"worker{'s' * (len(numbers) > 1)} {', '.join(numbers)}" if numbers else ""


def _nothing() -> None: ...


def _start(process: BaseProcess) -> None:
    """In place of `BaseProcess.start`."""
    SESSION.start(process)


# Processes are started for the whole process.
SESSION = Session()
