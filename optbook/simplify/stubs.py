"""Replaces components of a running system, and tells what the replacements did."""

from __future__ import annotations

import difflib
import inspect
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from types import FrameType
from typing import Any

from optbook.benchmark import replaced
from optbook.errors import OptionError
from optbook.simplify import compiled, kinds
from optbook.simplify.components import Component, find
from optbook.simplify.patching import Layer, Patch, Replacement
from optbook.simplify.processes import SESSION, Member
from optbook.simplify.recording import Recording
from optbook.simplify.running import running

KINDS: Mapping[str, type[kinds.Kind]] = {
    kind.name: kind
    for kind in (
        kinds.Replay,
        kinds.Sleep,
        kinds.Spin,
        kinds.Dummy,
        kinds.Value,
        kinds.Skip,
        kinds.Body,
    )
}


@dataclass(eq=False)
class Registry:
    """The functions that stubs of this process are on; which stubs these are, `replaced` knows."""

    patches: dict[int, Patch] = field(default_factory=dict)
    keeping: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)


# The one piece of module state here: code that is replaced is replaced for the whole process.
_REGISTRY = Registry()


class Stub:
    """A component's replacement: a context manager that installs it, and a handle to what it does.

    Attributes:
        component: what is replaced.
        kind: by what.
        member: what is known of it in other processes.
    """

    def __init__(self, component: Component, kind: kinds.Kind) -> None:
        self.component = component
        self.kind = kind
        self._filling, self._recording = kind.filling(is_backward(component))
        self._layer = Layer(component, self._filling)
        self.member = Member(self._layer)
        self._patch: Patch | None = None
        self._declared: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The component's name."""
        return self.component.name

    @property
    def active(self) -> bool:
        """Whether it is installed."""
        return self._patch is not None

    @property
    def calls(self) -> int:
        """Calls so far, here and in processes that were started since; a generator counts when it starts."""
        SESSION.collect()
        return self._layer.counter.value

    @property
    def calls_by_process(self) -> dict[int, int]:
        """The same for each process, by its number; this one is the first."""
        SESSION.collect()
        return {os.getpid(): self._layer.counter.here, **self.member.calls}

    @property
    def misses(self) -> int:
        """Calls of the real component because nothing that was recorded matched."""
        SESSION.collect()
        return 0 if self._recording is None else self._recording.misses.value

    @property
    def recorded(self) -> int:
        """Calls of the real component whose outcomes were recorded."""
        SESSION.collect()
        return 0 if self._recording is None else self._recording.recorded.value

    @property
    def bytes(self) -> int:
        """Bytes that recorded outputs take."""
        SESSION.collect()
        return 0 if self._recording is None else self._recording.bytes

    @property
    def recording(self) -> Recording | None:
        """What is recorded; None for kinds that record nothing."""
        return self._recording

    @property
    def declared(self) -> tuple[str, ...]:
        """What it can't see or do, and what else is good to know."""
        SESSION.collect()
        own = self.component.notes + (compiled.notes() if self.active else self._declared)
        if isinstance(self._patch, Replacement):
            own += self._patch.declared
        if self._patch is not None and not self._patch.intact:
            own += ("its code was changed since: it is not stubbed any more",)
        elif self._patch is not None and self.component.by_code and _reloaded(self.component):
            own += ("its module was reloaded: what it defines now is not stubbed",)
        recording = () if self._recording is None else tuple(self._recording.notes)
        return own + self.member.declared + recording

    def settle(self) -> None:
        """Record no more: what was recorded is given out from now on, and all else is a miss."""
        SESSION.collect()
        if self._recording is not None:
            self._recording.close()

    def install(self) -> Stub:
        """Put it in place, on top of other stubs of the same component.

        Raises:
            OptionError: it is in place already, or can't be.
        """
        if self.active:
            raise OptionError(f"{self.name} is replaced by this stub already: make another one")
        try:
            with _REGISTRY.lock, _uninterrupted():
                patch = _patch_for(self.component)
                try:
                    patch.add(self._layer)
                finally:
                    _forget_unused(patch)
                self._patch = patch
                replaced.add(self)
                SESSION.join(self.member)
        except BaseException:  # an interrupt that had to wait, too
            self.remove()
            raise
        self.member.without = running()
        return self

    def remove(self) -> None:
        """Take it away; other stubs stay. Does nothing if it is not in place."""
        with _REGISTRY.lock, _uninterrupted():
            patch, self._patch = self._patch, None
            if patch is None:
                return
            self._declared = compiled.notes()
            patch.remove(self._layer)
            replaced.discard(self)
            _forget_unused(patch)
            SESSION.leave(self.member)
        self.member.within = tuple(each for each in running() if each not in self.member.without)

    def __enter__(self) -> Stub:
        return self.install()

    def __exit__(self, *exception: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<{self.kind.name} stub of {self.name}: {self.calls} calls>"


def stub(
    target: object,
    kind: str | Callable[..., Any] | kinds.Kind = "replay",
    *,
    namespace: dict[str, Any] | None = None,
    **options: Any,
) -> Stub:
    """A stub that replaces a component while a ``with`` block runs.

    Args:
        target: the component or its name, looked up where the call is made, then in ``__main__``, then as a
            dotted path: a function, ``object.method``, ``Class.method``, property, built-in, class, callable
            object, module of torch, or something to loop over.
        kind: "replay", "sleep", "spin", "dummy", "value", "skip" or "body"; or a function to call instead.
        namespace: where a name is looked up first, and where those in the source of a body live, in place of
            where the call is made.
        options: of the kind: see `optbook.simplify.kinds`.

    Returns:
        The stub, not yet in place: enter it as a context manager, or call its ``install()``.

    Raises:
        OptionError: the component, the kind or an option can't be used.
    """
    names = _namespace(namespace)
    return Stub(find(target, names), _kind(kind, options, names))


def install(
    target: object,
    kind: str | Callable[..., Any] | kinds.Kind = "replay",
    *,
    namespace: dict[str, Any] | None = None,
    **options: Any,
) -> Stub:
    """Replace a component until it is removed; see `stub`."""
    names = _namespace(namespace)
    return Stub(find(target, names), _kind(kind, options, names)).install()


def active() -> tuple[Stub, ...]:
    """The stubs that are in place, the oldest first."""
    return tuple(found for found in replaced.now() if isinstance(found, Stub))


def remove(name: str) -> Stub:
    """Take away the newest stub of that name, and return it.

    Raises:
        OptionError: there is none.
    """
    for found in reversed(active()):
        if found.name == name:
            found.remove()
            return found
    names = list(dict.fromkeys(found.name for found in active()))
    near = difflib.get_close_matches(name, names, 1)
    hint = (
        f"did you mean {near[0]}?"
        if near
        else f"active are {', '.join(names)}"
        if names
        else "none is active"
    )
    raise OptionError(f"there is no stub of {name!r}: {hint}")


def remove_all() -> tuple[Stub, ...]:
    """Take all stubs away, the newest first, and return them."""
    removed = tuple(reversed(active()))
    for found in removed:
        found.remove()
    return removed


@contextmanager
def known() -> Iterator[None]:
    """While this runs, who holds a function is remembered, so that another stub on it costs little.

    Copies of a function that are made meanwhile are not seen.
    """
    with _REGISTRY.lock:
        _REGISTRY.keeping += 1
    try:
        yield
    finally:
        with _REGISTRY.lock:
            _REGISTRY.keeping -= 1
            for patch in list(_REGISTRY.patches.values()):
                _forget_unused(patch)


def refuse_workload(component: Component, workload: object) -> None:
    """Refuse a stub of what is measured.

    Raises:
        OptionError: the component is the workload itself.
    """
    if component.runs(workload):
        raise OptionError(f"{component.name} is the workload itself: name something that it calls")


def _kind(
    kind: str | Callable[..., Any] | kinds.Kind, options: Mapping[str, Any], names: dict[str, Any]
) -> kinds.Kind:
    if isinstance(kind, kinds.Kind):
        if options:
            raise OptionError(
                f"{', '.join(options)} can't be given beside a {type(kind).__name__}: put them into it"
            )
        return kind
    if not isinstance(kind, str):
        if not callable(kind):
            raise OptionError(f"kind is {kind!r}: give one of {', '.join(KINDS)}, or a function")
        return kinds.Body(kind, **_checked(kinds.Body, options))
    if kind not in KINDS:
        near = difflib.get_close_matches(kind, KINDS, 1)
        hint = f"did you mean {near[0]}?" if near else f"give one of {', '.join(KINDS)}, or a function"
        raise OptionError(f"there is no kind of stub {kind!r}: {hint}")
    made = KINDS[kind]
    if made is kinds.Body and "body" not in options:
        raise OptionError("a stub of kind 'body' needs body=…: give a function, or the source of one")
    checked = _checked(made, options)
    return made(**checked, namespace=names) if made is kinds.Body else made(**checked)


def _checked(made: type[kinds.Kind], options: Mapping[str, Any]) -> dict[str, Any]:
    known = [option.name for option in fields(made) if option.name != "namespace"]  # type: ignore[arg-type]
    for option in options:
        if option not in known:
            near = difflib.get_close_matches(option, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(known) or 'none'}"
            raise OptionError(f"a stub of kind {made.name!r} has no option {option!r}: {hint}")
    return dict(options)


def _namespace(given: dict[str, Any] | None) -> dict[str, Any]:
    """The names that the caller of our caller sees."""
    if given is not None:
        return given
    frame: FrameType | None = sys._getframe(2)
    assert frame is not None
    return {**frame.f_globals, **frame.f_locals}


def is_backward(component: Component) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and component.target in (torch.Tensor.backward, torch.autograd.backward)


def _patch_for(component: Component) -> Patch:
    patch = _REGISTRY.patches.get(id(component.target))
    if patch is None or not (patch.layers or patch.intact):
        patch = Patch(component.target) if component.by_code else Replacement(component)
        for held in patch.holds:
            _REGISTRY.patches[id(held)] = patch
    return patch


def _forget_unused(patch: Patch) -> None:
    kept = _REGISTRY.keeping and type(patch) is Patch and patch.intact
    if not patch.layers and not kept:
        for key in [key for key, known in _REGISTRY.patches.items() if known is patch]:
            del _REGISTRY.patches[key]


def stands_for(thing: object, target: object) -> bool:
    """Whether the thing is held in place of the target."""
    patch = _REGISTRY.patches.get(id(thing))
    return patch is not None and patch is _REGISTRY.patches.get(id(target))


def inherited() -> None:
    """In a forked process: locks are free, whichever thread held them."""
    _REGISTRY.lock = threading.RLock()
    for patch in list(_REGISTRY.patches.values()):
        patch.inherited()


def _reloaded(component: Component) -> bool:
    """Whether the module that a function is from has another one of its name now."""
    target = component.target
    module = sys.modules.get(getattr(target, "__module__", None) or "")
    value: Any = module
    for name in str(getattr(target, "__qualname__", "")).split("."):
        try:
            value = inspect.getattr_static(value, name)
        except AttributeError:
            return False
    now = getattr(value, "__code__", None)
    return now is not None and value is not target and now.co_filename == target.__code__.co_filename


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Have a keyboard interrupt wait until this is done, in the thread that gets it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    late: list[tuple[int, FrameType | None]] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: late.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if late and callable(before):
            before(*late[0])
