"""Finds the component that a name or an object stands for, and what to replace for it."""

from __future__ import annotations

import builtins
import difflib
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from optbook.errors import OptionError
from optbook.simplify.trampoline import Choice, can_choose, flavour_of
from optbook.simplify.trees import is_tensor

_IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE
# What Python, the notebook and the kernel need themselves, and their helpers.
_REFUSED = {
    *("_frozen_importlib", "_frozen_importlib_external", "_thread", "_weakref", "abc", "ast", "asyncio"),
    *("atexit", "builtins", "codecs", "collections", "contextlib", "enum", "functools", "gc", "importlib"),
    *(
        "inspect",
        "io",
        "linecache",
        "logging",
        "queue",
        "selectors",
        "signal",
        "sys",
        "threading",
        "tokenize",
    ),
    *("traceback", "types", "typing", "warnings", "weakref"),
    *("IPython", "ipykernel", "ipywidgets", "jupyter_client", "tornado", "traitlets", "zmq", "optbook"),
}
_ALL = Choice()


@dataclass(frozen=True, slots=True, eq=False)
class Component:
    """A callable of the system.

    Attributes:
        name: what it is called in tables.
        kind: what it is: "function", "method", "generator", "coroutine", "property", "module", "built-in", …
        target: the Python function whose code is replaced, or the object that is, wherever it is referred to.
        choice: which of the target's calls are meant.
        place: the class or object, and the attribute, to set where the target is a method written in C.
        notes: what replacing it reaches beyond what one might expect.
    """

    name: str
    kind: str
    target: Any
    choice: Choice = _ALL
    place: tuple[Any, str] | None = None
    notes: tuple[str, ...] = ()

    @property
    def by_code(self) -> bool:
        """Whether it is replaced at its code, which every holder sees."""
        return isinstance(self.target, FunctionType)

    def is_same(self, other: Component) -> bool:
        """Whether it means the same calls, whatever it is called."""
        return self.target is other.target and self.choice.chosen is other.choice.chosen

    def runs(self, workload: object) -> bool:
        """Whether calling ``workload`` is calling this component."""
        try:
            other = find(workload, {})
        except OptionError:
            return False
        return other.target is self.target and (
            self.choice.by == "all" or self.choice.chosen is other.choice.chosen
        )


def find(given: object, namespace: Mapping[str, Any] | None = None) -> Component:
    """The component that a name or an object stands for.

    A dotted name is looked up in ``namespace`` (where the call is made), then in ``__main__``, then as a path
    that can be imported. It may end in a function, ``object.method``, ``Class.method``, a property, a
    built-in, a class, a callable object, a module of torch (its forward) or something to loop over (its
    iteration). A decorated name means what the decorator made of it.

    Raises:
        OptionError: there is no such thing, several could be meant, it isn't called, or the notebook
            could not do without it.
    """
    if isinstance(given, Component):
        return given
    if isinstance(given, str):
        found = _named(given.strip(), namespace or {})
    else:
        found = _component(given, _name_of(given))
    return _allowed(found)


def _name_of(thing: Any) -> str:
    if isinstance(thing, property):
        thing = thing.fget
    name = getattr(thing, "__qualname__", None) or getattr(thing, "__name__", None)
    if not isinstance(name, str):
        return type(thing).__qualname__
    module = getattr(thing, "__module__", None)
    name = name.replace("<locals>.", "")
    return name if module in (None, "__main__") else f"{module}.{name}"


# Looking up a name


def _named(path: str, namespace: Mapping[str, Any]) -> Component:
    names = path.split(".")
    if not names[0].isidentifier() or not all(n.isidentifier() or n.isdigit() for n in names):
        raise OptionError(f"{path!r} is no name: give one such as augment, model.forward or torch.stack")
    missing: tuple[Any, str] | None = None
    for place in (namespace, vars(sys.modules["__main__"]), vars(builtins)):
        if names[0] not in place:
            continue
        found, missing = _followed(path, place[names[0]], names[1:])
        if found is not None:
            return found
    for cut in range(len(names), 0, -1):
        module = _imported(".".join(names[:cut]))
        if module is not None:
            found, missing = _followed(path, module, names[cut:])
            if found is not None:
                return found
            break
    raise OptionError(_unknown(path, namespace, missing))


def _imported(path: str) -> ModuleType | None:
    if path in sys.modules:
        return sys.modules[path]
    try:
        return importlib.import_module(path)
    except ImportError:
        return None


def _followed(path: str, start: Any, names: list[str]) -> tuple[Component | None, tuple[Any, str] | None]:
    """The component at the end of the attributes; or the object that lacks one, and its name."""
    value = start
    for position, name in enumerate(names):
        if position == len(names) - 1:
            member = _member(path, value, name)
            if member is not None:
                return member, None
        try:
            value = getattr(value, name)
        except AttributeError:
            return None, (value, name)
    return _component(value, path), None


def _unknown(path: str, namespace: Mapping[str, Any], missing: tuple[Any, str] | None) -> str:
    *before, last = path.split(".")
    if missing is not None:
        value, last = missing
        what = f"module {value.__name__}" if isinstance(value, ModuleType) else type(value).__name__
        near = difflib.get_close_matches(last, dir(value), 3)
        start = path[: path.rindex(last)]
        return f"{path}: {what} has no {last!r}{_did_you_mean(start + name for name in near)}"
    elsewhere = [] if before else _elsewhere(last)
    if len(elsewhere) > 1:
        return f"there is no {path!r} here, but several elsewhere: write {' or '.join(elsewhere[:4])}"
    known = {**vars(builtins), **vars(sys.modules["__main__"]), **namespace}
    first, *rest = path.split(".")
    close = difflib.get_close_matches(first, [name for name in known if not name.startswith("_")], 6)
    near = [".".join([name, *rest]) for name in close if _has(known[name], rest)][:3]
    if rest == ["backward"] and "torch" in sys.modules:
        near = ["torch.Tensor.backward"]
    hint = _did_you_mean(elsewhere or near)
    hint = hint or ": give a name that the cell sees, or a path such as torch.stack"
    return f"there is no {path!r} here{hint}"


def _has(value: Any, names: Iterable[str]) -> bool:
    for name in names:
        if not hasattr(value, name):
            return False
        value = getattr(value, name)
    return True


def _did_you_mean(names: Iterable[str]) -> str:
    names = list(names)
    return f": did you mean {' or '.join(names)}?" if names else ""


def _elsewhere(name: str) -> list[str]:
    """Functions and classes of that name in the modules that are loaded."""
    found = []
    for path, module in list(sys.modules.items()):
        value = getattr(module, "__dict__", {}).get(name)
        if isinstance(value, (FunctionType, type)) and value.__module__ == path != "__main__":
            found.append(f"{path}.{name}")
    return found


# What there is to replace


def _member(path: str, holder: Any, name: str) -> Component | None:
    """The component that an attribute is, where it matters whose it is; None to look at its value alone."""
    if isinstance(holder, ModuleType):
        return None
    try:
        static = inspect.getattr_static(holder, name)
    except AttributeError:
        return None
    own = name in getattr(holder, "__dict__", {})
    if not isinstance(holder, type):
        if own or static is inspect.getattr_static(type(holder), name, None) is None:
            return None
        chosen = _chosen(holder)
    else:
        chosen = _ALL if own else Choice("class", holder)
    function, kind = function_behind(static)
    if function is None:
        if not own and hasattr(type(static), "__get__") and callable(static) and not isinstance(static, type):
            return _c_method(path, holder, name, static)
        return None
    if kind in ("static method", "class method"):
        return _of_function(function, path, kind, inherited=not own and isinstance(holder, type))
    return _of_function(function, path, kind, chosen)


def _c_method(path: str, holder: Any, name: str, static: Any) -> Component:
    """A method written in C, for which an attribute of the class or object it is named by can stand in.

    Raises:
        OptionError: the class or object has no place for it.
    """
    if isinstance(holder, type):
        if holder.__flags__ & _IMMUTABLE:
            raise OptionError(
                f"{path} is written in C, and {holder.__name__} can't be changed: "
                "name a function that calls it"
            )
        return Component(path, "C method", static, place=(holder, name))
    if type(getattr(holder, "__dict__", None)) is not dict:
        raise OptionError(
            f"{path} is written in C, and a {type(holder).__name__} has no place for another: "
            "name a function that calls it"
        )
    return Component(path, "C method", getattr(holder, name), place=(holder, name))


def _chosen(holder: Any) -> Choice:
    """The calls for one object; of a tensor those for all, since each step makes new ones."""
    return _ALL if is_tensor(holder) else Choice("instance", holder)


def function_behind(static: Any) -> tuple[Any, str]:
    """The function that an entry of a class calls, and what the entry is."""
    if isinstance(static, FunctionType):
        return static, "method"
    if isinstance(static, (staticmethod, classmethod)):
        kind = "static method" if isinstance(static, staticmethod) else "class method"
        return static.__func__, kind
    if isinstance(static, property):
        return static.fget, "property"
    if isinstance(static, functools.cached_property):
        return static.func, "property"
    if isinstance(static, functools.partialmethod):
        return static.func, "partial method"
    return None, ""


def _component(value: Any, name: str) -> Component:
    if isinstance(value, (property, staticmethod, classmethod, functools.cached_property)):
        function, kind = function_behind(value)
        return _of_function(function, name, kind)
    if isinstance(value, FunctionType):
        return _of_function(value, name, "function")
    if isinstance(value, MethodType):
        function, bound = value.__func__, value.__self__
        if isinstance(bound, type):
            return _of_function(function, name, "class method")
        return _of_function(function, name, "method", _chosen(bound))
    if isinstance(value, ModuleType):
        raise OptionError(f"{name} is a module: name one of its functions, such as {name}.{_example(value)}")
    if isinstance(value, type):
        return Component(name, "class", value)
    for method, kind in (("forward", "module"), ("__call__", "callable object"), ("__iter__", "iterable")):
        if method == "forward" and not _is_module(value):
            continue
        own = getattr(value, "__dict__", {}).get(method)
        if method == "forward" and isinstance(own, FunctionType):
            return _of_function(own, name, kind)
        function = inspect.getattr_static(type(value), method, None)
        if isinstance(function, FunctionType):
            return _of_function(function, name, kind, Choice("instance", value))
    if callable(value):
        notes = ["calls from C code are not seen"]
        bound = getattr(value, "__self__", None)
        if bound is not None and not isinstance(bound, (ModuleType, type)):
            notes.append(
                f"only calls of this {value.__name__} are seen, not those of a {type(bound).__name__}'s"
            )
        kind = "built-in" if inspect.isbuiltin(value) else type(value).__name__
        return Component(name, kind, value, notes=tuple(notes))
    raise OptionError(f"{name} is of type {type(value).__name__}, which is never called: name what is called")


def _is_module(value: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def _example(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
    return names[0] if names else "function"


def _of_function(
    function: Any,
    name: str,
    kind: str,
    choice: Choice = _ALL,
    *,
    inherited: bool = False,
) -> Component:
    if isinstance(function, (MethodType, functools.partial)) or not isinstance(function, FunctionType):
        return replace(_component(function, name), name=name)
    notes = []
    code = function.__code__
    if choice.by != "all" and not can_choose(code):
        choice = _ALL
    if inherited:
        notes.append(f"{function.__qualname__} is replaced for all classes that share it")
    flavour = flavour_of(code)
    if kind == "function" and flavour != "function":
        kind = flavour
    if getattr(function, "__wrapped__", None) is not None:
        notes.append(
            f"what {name} names is a wrapper: it is replaced with all it does around {_inner(function)}"
        )
    return Component(name, kind, function, choice, None, tuple(notes))


def _inner(function: Callable[..., Any]) -> str:
    inner = inspect.unwrap(function)
    return str(getattr(inner, "__qualname__", type(inner).__name__)).replace("<locals>.", "")


def _allowed(component: Component) -> Component:
    """Refuse what the notebook and the kernel need themselves.

    Raises:
        OptionError: it is such a thing.
    """
    if component.place is not None:
        return component
    target = component.target
    root = _module_of(target).partition(".")[0]
    sample = _module_of(target).startswith("optbook.hotdog")
    code: CodeType | None = getattr(target, "__code__", None)
    frozen = code is not None and code.co_filename.startswith("<frozen")
    if not sample and (root in _REFUSED or frozen or any(target is v for v in vars(builtins).values())):
        raise OptionError(
            f"{component.name} can't be replaced, since Python and the notebook need it themselves: "
            "call it in a function of your own, and name that"
        )
    return component


def _module_of(target: Any) -> str:
    if isinstance(target, (FunctionType, type)) or inspect.isbuiltin(target):
        return str(target.__module__)
    return str(getattr(getattr(target, "__objclass__", None), "__module__", None))
