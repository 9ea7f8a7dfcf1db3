"""Looks at the call stacks of the running threads at regular intervals.

A hook on every call (cProfile's, and that of the libraries which sample from such a hook) slows code that
makes many small calls, and so moves shares to it. In a trial on a mix of five kinds of work, cProfile's
shares were off by 16 to 18 points and its run took 2.5 times as long, pyinstrument's by 13 to 21 points and
2.6 times; looks that a timer's signal starts by 4 to 5 points, mostly chance, and 1.0 times. A
thread that looks from outside (7 to 19 points, on a busy machine) sees too much of calls into C, where it
gets Python's lock; alone it is used only where there are no such signals.

A signal alone is not enough: Python answers it at the next call or loop, so that arithmetic on arrays would
be seen as the function that is called next. So a thread waits for the same signal, and looks if it gets
Python's lock first: then the workload is in C and has let go of it. Neither takes a profiler's or debugger's
place, or counts calls.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, NamedTuple

from optbook.benchmark.profiles.awaiting import waiting_tasks

SIGNAL_SECONDS, THREAD_SECONDS = 1e-3, 2e-3
SWITCH_SECONDS = 1e-4
"""For how long a thread may keep Python's lock once the sampler asks for it. With the usual 5 ms the sampler
would mostly get it where the workload lets go of it, in calls into C, and see too much of these."""
BUSY_SHARE = 0.1
"""A thread that used less of a core than this between two looks was waiting."""
AWAITING_THREAD = "optbook-await"
Key = tuple[tuple[int, ...], int, bool]


class Answer(NamedTuple):
    """A look at the workload's thread, and how soon the thread answered the signal that started it.

    ``seconds`` are those since the last look; ``busy`` is the share of a core that the thread used since
    then, None if that is not known. ``late`` are the seconds from the signal to the answer; where the
    sampler's thread looked ``first``, those of CPU time (where that is known) after its look.
    """

    key: Key
    seconds: float
    busy: float | None
    late: float
    first: bool


@dataclass
class Stacks:
    """Seconds by stack, for one thread: the ids of its code objects from the outermost on, the last
    instruction's offset in the innermost, and whether the thread was off the cores."""

    seconds: dict[Key, float] = field(default_factory=dict)
    looks: int = 0
    answers: list[Answer] = field(default_factory=list)


@dataclass
class Samples:
    """What the sampler saw, by the name of a thread; the workload's own has the name ''."""

    threads: dict[str, Stacks] = field(default_factory=dict)
    codes: dict[int, CodeType] = field(default_factory=dict)
    namespaces: dict[int, dict[str, Any]] = field(default_factory=dict)
    by_signal: bool = False

    def note(
        self,
        thread: str,
        frame: FrameType,
        seconds: float,
        busy: float | None,
        root: CodeType | None,
    ) -> Key | None:
        """Add ``seconds`` to the stack that ends in ``frame`` and starts below ``root``, and return its key.

        ``busy`` is the share of a core that the thread used. None if it was not inside the workload. Where
        the tasks of an event loop wait, the seconds are divided among them, and no key is returned.
        """
        idle = waiting_tasks(frame)
        waits = idle is not None or (busy is not None and busy < BUSY_SHARE)
        chain = self._chain(frame if idle is None else idle[0], root)
        if chain is None and thread == "":
            return None  # between two runs
        stacks = self.threads.setdefault(thread, Stacks())
        stacks.looks += 1
        if idle is None:
            key = (chain or (), frame.f_lasti, waits)
            stacks.seconds[key] = stacks.seconds.get(key, 0.0) + seconds
            return key
        for frames in idle[1]:
            below = tuple(self._known(each) for each in frames)
            key = ((chain or ()) + below, frames[-1].f_lasti, waits)
            stacks.seconds[key] = stacks.seconds.get(key, 0.0) + seconds / len(idle[1])
        return None

    def _chain(self, frame: FrameType, root: CodeType | None) -> tuple[int, ...] | None:
        """From below ``root`` to ``frame``; None if that is not below it."""
        chain: list[int] = []
        inner: FrameType | None = frame
        while inner is not None and inner.f_code is not root:
            chain.append(self._known(inner))
            inner = inner.f_back
        return None if inner is None and root is not None else tuple(reversed(chain))

    def _known(self, frame: FrameType) -> int:
        code = frame.f_code
        if id(code) not in self.codes:
            self.codes[id(code)], self.namespaces[id(code)] = code, frame.f_globals
        return id(code)


class Sampler:
    """Samples while it is `running`, from `start` to `stop`.

    A signal of a timer makes this thread look, or the sampler's own if that is sooner, where this is the main
    one, and the signal has no other use; else only the sampler's own does.

    Args:
        root: the code whose callees are the workload, in the thread that calls `start`.
    """

    def __init__(self, root: CodeType | None) -> None:
        self.samples = Samples()
        self._root = root
        self._ended = threading.Event()
        self._running = self._looking = self._looked_first = False
        self._late: float | None = None
        self._unanswered: list[tuple[Key, float, float | None, float]] = []
        self._last = self._began = 0.0
        self._cpu: dict[int, float] = {}

    def start(self) -> None:
        """Begin; what runs already, but for this thread, is left out."""
        self._own = threading.get_ident()
        self._by_signal = self.samples.by_signal = _signal_is_free()
        if self._by_signal:
            self._ticks, self._told = os.pipe()
            os.set_blocking(self._ticks, False)
            os.set_blocking(self._told, False)
        else:
            self._switch = sys.getswitchinterval()
            sys.setswitchinterval(SWITCH_SECONDS)
        look = self._look_first if self._by_signal else self._loop
        self._thread = threading.Thread(target=look, name="optbook-sampler", daemon=True)
        self._thread.start()
        self._others = set(sys._current_frames()) - {self._own}
        if self._by_signal:
            self._woken = signal.set_wakeup_fd(self._told, warn_on_full_buffer=False)
            self._handler = signal.signal(signal.SIGALRM, self._on_signal)
            signal.siginterrupt(signal.SIGALRM, False)
            self._began = time.perf_counter()
            signal.setitimer(signal.ITIMER_REAL, SIGNAL_SECONDS, SIGNAL_SECONDS)

    def stop(self) -> None:
        """End, and leave everything as it was."""
        self._running = False
        if self._by_signal:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._handler)
            signal.set_wakeup_fd(self._woken)
        self._ended.set()
        if self._by_signal:
            with contextlib.suppress(BlockingIOError):  # full: the thread has enough to wake up for
                os.write(self._told, bytes(1))  # closing it would not do while a child process has it too
        self._thread.join()
        if self._by_signal:
            os.close(self._told)
            os.close(self._ticks)
        else:
            sys.setswitchinterval(self._switch)

    def running(self, on: bool) -> None:
        """Take samples from now on, or no longer."""
        self._last, self._cpu = time.perf_counter(), {}
        self._running = on

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._late = (time.perf_counter() - self._began) % SIGNAL_SECONDS
        unanswered, self._unanswered = self._unanswered, []
        for key, seconds, busy, looked in unanswered:
            self.samples.threads[""].answers.append(Answer(key, seconds, busy, self._now() - looked, True))
        first, self._looked_first = bool(self._signals()) or not self._looked_first, False
        if first and self._running and not self._looking and frame is not None:
            self._look({**sys._current_frames(), self._own: frame})
        self._late = None

    def _look_first(self) -> None:
        """Look at each signal that the workload's thread has not answered yet."""
        with selectors.DefaultSelector() as ticks:
            ticks.register(self._ticks, selectors.EVENT_READ)
            while not self._ended.is_set():  # asked each time: what tells of the end may be read below
                ticks.select()
                if self._ended.is_set():
                    return
                frames = sys._current_frames()
                if self._signals() and self._running and not self._looking:
                    self._looked_first = True
                    self._look(frames)

    def _signals(self) -> bytes:
        """Those that nobody looked at yet."""
        try:
            signals = os.read(self._ticks, 4096)
        except BlockingIOError:
            return b""
        others = signals.replace(bytes([signal.SIGALRM]), b"")
        if others and self._woken != -1:
            os.write(self._woken, others)
        return signals

    def _loop(self) -> None:
        while not self._ended.wait(THREAD_SECONDS):
            if self._running:
                self._look(sys._current_frames())

    def _look(self, frames: dict[int, FrameType]) -> None:
        self._looking = True
        late = self._late
        now = time.perf_counter()
        seconds, self._last = now - self._last, now
        names: dict[int | None, str] = {}
        if len(frames) > 1 + len(self._others):
            names = {thread.ident: thread.name for thread in threading.enumerate()}
        awaiting = AWAITING_THREAD in names.values()
        for ident, frame in frames.items():
            if ident in self._others or (awaiting and ident == self._own):
                continue
            name = names.get(ident, f"thread {ident}")
            mine = ident == self._own or name == AWAITING_THREAD
            root = self._root if ident == self._own else None
            while frame.f_code.co_filename == __file__ and frame.f_back is not None:
                frame = frame.f_back  # it has begun to answer this very signal
                late = (now - self._began) % SIGNAL_SECONDS if late is None else late
            busy = self._busy(ident, seconds)
            key = self.samples.note("" if mine else name, frame, seconds, busy, root)
            if key is None or ident != self._own or not self._by_signal:
                continue
            if late is None:
                self._unanswered.append((key, seconds, busy, self._now()))
            else:
                self.samples.threads[""].answers.append(Answer(key, seconds, busy, late, False))
        self._looking = False

    def _now(self) -> float:
        """CPU seconds of the workload's thread; seconds of the clock where these aren't known."""
        used = _cpu_seconds(self._own)
        return time.perf_counter() if used is None else used

    def _busy(self, ident: int, seconds: float) -> float | None:
        """The share of a core that the thread used since it was last looked at; None where it isn't known."""
        now = _cpu_seconds(ident)
        if now is None:
            return None
        before, self._cpu[ident] = self._cpu.get(ident), now
        return None if before is None or seconds <= 0 else (now - before) / seconds


def _signal_is_free() -> bool:
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        return False
    unused = signal.getsignal(signal.SIGALRM) in (signal.SIG_DFL, signal.SIG_IGN)
    return unused and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def _cpu_seconds(ident: int) -> float | None:
    clock: Callable[[int], int] | None = getattr(time, "pthread_getcpuclockid", None)
    if clock is None:
        return None
    try:
        return time.clock_gettime(clock(ident))
    except OSError:  # the thread has ended
        return None
