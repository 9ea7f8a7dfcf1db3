"""Times the calls into the network: those of Python's sockets and the collectives of torch.distributed.

Methods are replaced on their classes while a workload runs, so it doesn't matter under which name a function
was imported. Time is charged to the innermost open `span` of the thread or task that calls.
"""

from __future__ import annotations

import functools
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from optbook.benchmark.profiles.sampler import AWAITING_THREAD
from optbook.benchmark.recorder import span

OUTSIDE = "outside spans"
SENDING = ("send", "sendto", "sendmsg", "sendfile", "write")
RECEIVING = ("recv", "recv_into", "recvfrom", "recvfrom_into", "recvmsg", "recvmsg_into", "read")
REACHING = ("connect", "connect_ex", "accept", "do_handshake", "unwrap")
LOOKING_UP = ("getaddrinfo", "gethostbyname", "gethostbyname_ex", "gethostbyaddr", "getnameinfo")
COLLECTIVE = re.compile(
    r"(?:_|monitored_)?(all_?)?(reduce_scatter|reduce|gather|to_?all|broadcast|scatter|send|recv|barrier)"
)
_LOCAL = getattr(socket, "AF_UNIX", None)
_FAMILY: Any = vars(socket.SocketType)["family"]
_NUMBER = re.compile(r"[-_]\d+")
_ABSENT = object()

Size = Callable[[tuple[Any, ...], Mapping[str, Any], Any], int]


@dataclass
class Sum:
    """Calls, bytes and seconds; in ``waiting`` of the seconds the thread used no core."""

    calls: int = 0
    bytes: int = 0
    seconds: float = 0.0
    waiting: float = 0.0

    def add(self, calls: int, moved: int, seconds: float, waiting: float) -> None:
        """Add to all four."""
        self.calls += calls
        self.bytes += moved
        self.seconds += seconds
        self.waiting += waiting


@dataclass
class ThreadCalls:
    """What one thread did: sums by component and operation, and the seconds in each span but for inner ones.

    ``name`` is "" for the workload's own; others' have no numbers, so that workers of one kind add up.
    ``unblocked`` says whether a socket was used that never blocks.
    """

    name: str
    calls: dict[tuple[str, str], Sum] = field(default_factory=dict)
    spans: dict[str, float] = field(default_factory=dict)
    unblocked: bool = False
    inside: bool = False


class _Here(threading.local):
    def __init__(self, make: Callable[[], ThreadCalls]) -> None:
        self.thread = make()


@dataclass(eq=False)
class _Open:
    """An open span: when it began, and the seconds in the spans inside it."""

    span: object
    name: str
    started: float
    inner: float = 0.0


_open: ContextVar[tuple[_Open, ...]] = ContextVar("optbook_open_spans", default=())


class NetworkCalls:
    """Times calls between `start` and `stop`, while it is ``counting``.

    Args:
        now: seconds that pass only while it is counting.
        cpu: CPU seconds of the calling thread.
    """

    def __init__(self, now: Callable[[], float], cpu: Callable[[], float] = time.thread_time) -> None:
        self.threads: list[ThreadCalls] = []
        self.counting = False
        self._on = False
        self._now, self._cpu = now, cpu
        self._works: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self._back: list[tuple[Any, str, object, object]] = []

    def start(self) -> None:
        """Replace the methods; the thread that calls this is the workload's own."""
        self._own = threading.get_ident()
        self._here = _Here(self._new_thread)
        self._on = True
        _open.set(())
        self._replace(span, "__enter__", self._entering)
        self._replace(span, "__exit__", self._exiting)
        for owner, where in _sockets():
            own: Iterable[str] = vars(owner) if where == "ssl" else dir(owner)
            sizes: dict[str, Size] = dict.fromkeys((*SENDING, *RECEIVING), _moved)
            sizes |= dict.fromkeys(REACHING, _none) | {"sendall": _given}
            for name, size in sizes.items():
                if name in own:
                    self._replace(owner, name, self._of(f"{where}.{name}", size))
        for name in LOOKING_UP:
            self._replace(socket, name, self._of(f"socket.{name}", _none))
        distributed = sys.modules.get("torch.distributed")
        group, work = getattr(distributed, "ProcessGroup", None), getattr(distributed, "Work", None)
        if group is not None and work is not None:
            for method in filter(None, map(COLLECTIVE.match, dir(group))):
                prefix, name = "all_" if method[1] else "", method[2].replace("toall", "to_all")
                self._replace(
                    group, method.string, functools.partial(self._collective, f"dist.{prefix}{name}")
                )
            self._replace(work, "wait", self._waiting)

    def stop(self) -> None:
        """Put back what nobody has replaced meanwhile; from now on the rest passes calls on."""
        self._on = self.counting = False
        while self._back:
            owner, name, ours, before = self._back.pop()
            if vars(owner).get(name) is not ours:
                continue
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)

    def _new_thread(self) -> ThreadCalls:
        thread = threading.current_thread()
        mine = thread.ident == self._own or thread.name == AWAITING_THREAD
        calls = ThreadCalls("" if mine else _NUMBER.sub("", thread.name))
        self.threads.append(calls)
        return calls

    def _replace(self, owner: Any, name: str, make: Callable[[Any], object]) -> None:
        ours = make(getattr(owner, name))
        self._back.append((owner, name, ours, vars(owner).get(name, _ABSENT)))
        setattr(owner, name, ours)

    def _of(self, operation: str, size: Size) -> Callable[[Any], object]:
        return lambda original: self._timed(original, lambda arguments: operation, size)

    def _timed(
        self, original: Any, operation: Callable[[tuple[Any, ...]], str], size: Size, calls: int = 1
    ) -> Callable[..., Any]:
        @functools.wraps(original)
        def timed(*arguments: Any, **named: Any) -> Any:
            thread = self._here.thread
            if not self.counting or thread.inside or _is_local(arguments):
                return original(*arguments, **named)
            thread.inside = True
            moved = 0
            cpu, start = self._cpu(), self._now()
            try:
                result = original(*arguments, **named)
                moved = size(arguments, named, result)
                return result
            finally:
                seconds, busy = self._now() - start, self._cpu() - cpu
                thread.inside = False
                stack = _open.get()
                key = (stack[-1].name if stack else OUTSIDE, operation(arguments))
                total = thread.calls.get(key) or thread.calls.setdefault(key, Sum())
                total.add(calls, moved, seconds, max(0.0, seconds - busy))
                thread.unblocked |= _never_blocks(arguments)

        return timed

    def _collective(self, operation: str, original: Any) -> Callable[..., Any]:
        timed = self._timed(original, lambda arguments: operation, _tensors)

        @functools.wraps(original)
        def collective(*arguments: Any, **named: Any) -> Any:
            work = timed(*arguments, **named)
            if self._on and work is not None:
                self._works[work] = operation
            return work

        return collective

    def _waiting(self, original: Any) -> Callable[..., Any]:
        """The wait for a collective is charged to it, and to the span in which it is waited for."""
        return self._timed(original, lambda arguments: self._works.get(arguments[0], "dist.wait"), _none, 0)

    def _entering(self, original: Any) -> Callable[..., Any]:
        def enter(entered: span) -> Any:
            if self._on:
                _open.set((*_open.get(), _Open(entered, entered.name, self._now())))
            return original(entered)

        return enter

    def _exiting(self, original: Any) -> Callable[..., Any]:
        def leave(left: span, *exception: object) -> Any:
            result = original(left, *exception)
            stack = _open.get()
            at = max((i for i, entry in enumerate(stack) if entry.span is left), default=None)
            if at is not None:
                _open.set(stack[:at] + stack[at + 1 :])
                seconds = self._now() - stack[at].started
                if at:
                    stack[at - 1].inner += seconds
                spans = self._here.thread.spans
                spans[left.name] = spans.get(left.name, 0.0) + max(0.0, seconds - stack[at].inner)
            return result

        return leave


def _sockets() -> list[tuple[Any, str]]:
    ssl: ModuleType | None = sys.modules.get("ssl")
    return [(socket.socket, "socket"), *([(ssl.SSLSocket, "ssl")] if ssl is not None else [])]


def _is_local(arguments: tuple[Any, ...]) -> bool:
    """Whether it is a call on a socket between processes of one machine that is no network's."""
    given = arguments[0] if arguments else None
    return isinstance(given, socket.socket) and _FAMILY.__get__(given) == _LOCAL


def _never_blocks(arguments: tuple[Any, ...]) -> bool:
    given = arguments[0] if arguments else None
    return isinstance(given, socket.socket) and given.gettimeout() == 0


def _none(arguments: tuple[Any, ...], named: Mapping[str, Any], result: Any) -> int:
    return 0


def _given(arguments: tuple[Any, ...], named: Mapping[str, Any], result: Any) -> int:
    data = arguments[1] if len(arguments) > 1 else named.get("data", b"")
    return memoryview(data).nbytes


def _moved(arguments: tuple[Any, ...], named: Mapping[str, Any], result: Any) -> int:
    """Bytes sent or received: the result is their number or the bytes themselves, or begins with either."""
    while isinstance(result, tuple):
        result = result[0]
    if isinstance(result, (bytes, bytearray)):
        return len(result)
    return result if isinstance(result, int) else 0


def _tensors(arguments: tuple[Any, ...], named: Mapping[str, Any], result: Any) -> int:
    """The larger of the tensors given and those to be filled."""
    return max(map(_nbytes, (*arguments[1:], *named.values())), default=0)


def _nbytes(value: Any) -> int:
    if isinstance(value, (list, tuple)):
        return sum(map(_nbytes, value))
    torch = sys.modules["torch"]
    return value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 0
