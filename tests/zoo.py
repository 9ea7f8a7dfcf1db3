"""Ways to hold a function: each is replaced and restored by a stub, or declared; none is missed silently.

A way makes a component, a call that reaches it by that way, and what the call returns when the stub, which
always returns ``STUB``, is reached.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import contextlib
import functools
import math
import queue
import threading
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

from optbook.simplify.stubs import Stub, stub

REAL, STUB = 1.0, 2.0


@dataclass(frozen=True)
class Held:
    """A component and a call of it; ``stubbed`` is what the call returns while it is replaced."""

    target: object
    call: Callable[[], object]
    declared: str = ""
    replacement: object = STUB
    namespace: dict[str, Any] = field(default_factory=dict)

    def stub(self) -> Stub:
        return stub(self.target, "value", value=self.replacement, namespace=self.namespace)


WAYS: dict[str, Callable[[], Held]] = {}


def way(make: Callable[[], Held]) -> Callable[[], Held]:
    WAYS[make.__name__.removeprefix("held_").replace("_", " ")] = make
    return make


def function() -> Callable[..., float]:
    """A new function."""

    def component(*args: object, flag: bool = False) -> float:
        return REAL

    return component


C = math.cbrt


def call_c(held: Callable[[float], float]) -> float:
    return held(1.0)


class Methods:
    __slots__ = ("__dict__", "held")

    def method(self) -> float:
        return REAL

    @property
    def prop(self) -> float:
        return REAL

    @functools.cached_property
    def cached(self) -> float:
        return REAL

    @staticmethod
    def static() -> float:
        return REAL

    @classmethod
    def of_class(cls) -> float:
        return REAL

    def __call__(self) -> float:
        return REAL

    def __iter__(self) -> Any:
        return iter([REAL])

    def __getitem__(self, index: int) -> float:
        return REAL

    def with_argument(self, argument: int) -> float:
        return REAL

    partial = functools.partialmethod(with_argument, 3)


def methods() -> Any:
    """A class of its own: stubs of one test are not seen in another."""
    own: dict[str, Any] = {}
    for name, value in vars(Methods).items():
        if name not in ("__dict__", "held", "__weakref__", "__slots__", "__doc__"):
            own[name] = _copied(value)
    made = types.new_class(
        "Methods", (), {}, lambda body: body.update(own | {"__slots__": ("__dict__", "held")})
    )
    if isinstance(made.__dict__["cached"], functools.cached_property):
        made.__dict__["cached"].__set_name__(made, "cached")
    return made


def _copied(value: Any) -> Any:
    if isinstance(value, types.FunctionType):
        return types.FunctionType(value.__code__.replace(), value.__globals__, value.__name__)
    if isinstance(value, (staticmethod, classmethod)):
        return type(value)(_copied(value.__func__))
    if isinstance(value, property):
        return property(_copied(value.fget))
    if isinstance(value, functools.cached_property):
        return functools.cached_property(_copied(value.func))
    if isinstance(value, functools.partialmethod):
        return functools.partialmethod(_copied(value.func), *value.args)
    return value


def timed(inner: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(inner)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return inner(*args, **kwargs)

    return wrapper


# Python functions


@way
def held_by_its_name() -> Held:
    f = function()
    return Held("f", f, namespace={"f": f})


@way
def held_by_an_alias() -> Held:
    f = function()
    module = types.ModuleType("aliases")
    module.g = f  # type: ignore[attr-defined]
    return Held(f, lambda: module.g())


@way
def held_by_a_star_import() -> Held:
    f = function()
    here = types.ModuleType("here")
    here.f = f  # type: ignore[attr-defined]
    there: dict[str, Any] = {}
    there.update({name: value for name, value in vars(here).items() if not name.startswith("_")})
    return Held("f", lambda: there["f"](), namespace=vars(here))


@way
def held_by_a_partial() -> Held:
    f = function()
    return Held(f, functools.partial(f, flag=True))


@way
def held_by_a_partial_of_a_partial() -> Held:
    f = function()
    return Held(f, functools.partial(functools.partial(f, 1), 2))


@way
def held_by_a_decorated_name() -> Held:
    return Held(wrapper := timed(function()), wrapper)


@way
def held_inside_a_decorator() -> Held:
    f = function()
    return Held(f, timed(f))


@way
def held_in_a_dictionary() -> Held:
    f = function()
    table = {"f": f}
    return Held(f, lambda: table["f"]())


@way
def held_in_a_list() -> Held:
    f = function()
    steps = [f]
    return Held(f, lambda: steps[0]())


@way
def held_in_a_tuple() -> Held:
    f = function()
    steps = (f,)
    return Held(f, lambda: steps[0]())


@way
def held_by_a_default() -> Held:
    f = function()

    def caller(held: Callable[[], float] = f) -> float:
        return held()

    return Held(f, caller)


@way
def held_by_a_keyword_default() -> Held:
    f = function()

    def caller(*, held: Callable[[], float] = f) -> float:
        return held()

    return Held(f, caller)


@way
def held_by_a_closure() -> Held:
    f = function()
    return Held(f, lambda: f())


@way
def held_with_free_variables() -> Held:
    number = REAL

    def inner() -> float:
        return number

    return Held(inner, inner)


@way
def held_as_a_lambda() -> Held:
    f = lambda: REAL  # noqa: E731
    return Held(f, lambda: f())  # type: ignore[no-untyped-call]


@way
def held_as_a_method_of_a_class() -> Held:
    kind = methods()
    return Held("Kind.method", lambda: kind().method(), namespace={"Kind": kind})


@way
def held_as_a_method_of_an_object() -> Held:
    thing, other = (kind := methods())(), kind()

    def call() -> float:
        assert other.method() == REAL
        return float(thing.method())

    return Held("thing.method", call, namespace={"thing": thing})


@way
def held_as_a_bound_method() -> Held:
    thing = methods()()
    held = thing.method
    return Held("thing.method", lambda: held(), namespace={"thing": thing})


@way
def held_as_a_static_method() -> Held:
    kind = methods()
    return Held("Kind.static", lambda: kind().static(), namespace={"Kind": kind})


@way
def held_as_a_class_method() -> Held:
    kind = methods()
    return Held("Kind.of_class", lambda: kind.of_class(), namespace={"Kind": kind})


@way
def held_as_a_property() -> Held:
    kind = methods()
    return Held("Kind.prop", lambda: kind().prop, namespace={"Kind": kind})


@way
def held_as_a_property_of_an_object() -> Held:
    thing = methods()()
    return Held("thing.prop", lambda: thing.prop, namespace={"thing": thing})


@way
def held_as_a_cached_property() -> Held:
    kind = methods()
    return Held("Kind.cached", lambda: kind().cached, namespace={"Kind": kind})


@way
def held_as_a_partial_method() -> Held:
    kind = methods()
    return Held("Kind.partial", lambda: kind().partial(), namespace={"Kind": kind})


@way
def held_in_a_slot() -> Held:
    thing, f = methods()(), function()
    thing.held = f
    return Held(f, lambda: thing.held())


@way
def held_as_an_attribute_of_an_object() -> Held:
    thing, f = methods()(), function()
    thing.attribute = f
    return Held("thing.attribute", lambda: thing.attribute(), namespace={"thing": thing})


@way
def held_by_a_subclass() -> Held:
    kind = methods()
    child = type("Child", (kind,), {})
    return Held("Kind.method", lambda: child().method(), namespace={"Kind": kind})


@way
def held_as_inherited() -> Held:
    kind = methods()
    child = type("Child", (kind,), {})

    def call() -> float:
        assert kind().method() == REAL
        return float(child().method())

    return Held("Child.method", call, namespace={"Child": child})


@way
def held_by_super() -> Held:
    kind: Any = methods()

    class Child(kind):  # type: ignore[misc]
        def method(self) -> float:
            return float(super().method())

    return Held("Kind.method", lambda: Child().method(), namespace={"Kind": kind})


@way
def held_with_super_inside() -> Held:
    class Child(methods()):  # type: ignore[misc]  # mypy can't know the base
        def method(self) -> float:
            return float(super().method())

    return Held("Child.method", lambda: Child().method(), namespace={"Child": Child})


@way
def held_by_a_metaclass() -> Held:
    class Meta(type):
        def make(cls) -> float:
            return REAL

    class Kind(metaclass=Meta):
        pass

    return Held("Meta.make", lambda: Kind.make(), namespace={"Meta": Meta})


@way
def held_as_a_callable_object() -> Held:
    thing, other = (kind := methods())(), kind()

    def call() -> float:
        assert other() == REAL
        return float(thing())

    return Held("thing", call, namespace={"thing": thing})


@way
def held_as_an_iterable() -> Held:
    class Loader:
        def __iter__(self) -> Any:
            yield REAL

    loader = Loader()
    return Held("loader", lambda: next(iter(loader)), replacement=[STUB], namespace={"loader": loader})


@way
def held_as_an_index() -> Held:
    thing = methods()()
    return Held("thing.__getitem__", lambda: thing[0], namespace={"thing": thing})


@way
def held_behind_a_cache() -> Held:
    f = function()
    cached = functools.lru_cache(f)
    numbers = iter(range(100))
    return Held(f, lambda: cached(next(numbers)))


@way
def held_as_a_cache() -> Held:
    module = types.ModuleType("caches")
    module.f = functools.lru_cache(function())  # type: ignore[attr-defined]
    return Held("f", lambda: module.f(), namespace=vars(module))


@way
def held_as_a_single_dispatch() -> Held:
    f = functools.singledispatch(lambda value: REAL)
    return Held("f", lambda: f(1), namespace={"f": f})


@way
def held_as_a_dispatched_implementation() -> Held:
    f = functools.singledispatch(lambda value: 0.0)
    implementation = f.register(int, lambda value: REAL)
    return Held(implementation, lambda: f(1))


@way
def held_as_a_generator() -> Held:
    def generator(number: int) -> Any:
        yield REAL * number

    return Held(generator, lambda: next(generator(1)), replacement=[STUB])


@way
def held_as_a_coroutine() -> Held:
    async def coroutine(number: int) -> float:
        return REAL * number

    return Held(coroutine, lambda: asyncio.run(coroutine(1)))


@way
def held_as_an_async_generator() -> Held:
    async def generator() -> Any:
        yield REAL

    async def first() -> float:
        return float(await anext(generator()))

    return Held(generator, lambda: asyncio.run(first()), replacement=[STUB])


@way
def held_as_a_context_manager() -> Held:
    @contextlib.contextmanager
    def manager() -> Any:
        yield REAL

    def call() -> float:
        with manager() as value:
            return float(value)

    return Held(manager, call, replacement=contextlib.nullcontext(STUB))


@way
def held_by_a_running_thread() -> Held:
    f = function()
    asked: queue.Queue[int | None] = queue.Queue()
    told: queue.Queue[float] = queue.Queue()

    def loop() -> None:
        while asked.get() is not None:
            told.put(f())

    threading.Thread(target=loop, daemon=True).start()

    def call() -> float:
        asked.put(1)
        return told.get()

    return Held(f, call)


@way
def held_by_a_pool_of_threads() -> Held:
    f = function()
    pool = concurrent.futures.ThreadPoolExecutor(1)
    return Held(f, lambda: pool.submit(f).result())


@way
def held_by_an_iterator() -> Held:
    f = function()
    calls = map(f, range(100))
    return Held(f, lambda: next(calls))


@way
def held_by_a_generator_that_runs() -> Held:
    f = function()

    def loop(held: Callable[[], float]) -> Any:
        while True:
            yield held()

    running = loop(f)
    next(running)
    return Held(f, lambda: next(running))


@way
def held_by_a_weak_reference() -> Held:
    f = function()
    weak = weakref.ref(f)
    return Held(f, lambda: weak()())  # type: ignore[misc]


@way
def held_by_a_callback_of_c() -> Held:
    f = function()
    return Held(f, lambda: functools.reduce(f, [1.0, 2.0]))


@way
def held_as_a_copy() -> Held:
    f = function()
    assert isinstance(f, types.FunctionType)
    copy = types.FunctionType(f.__code__, f.__globals__, "copy", f.__defaults__, f.__closure__)
    copy.__kwdefaults__ = f.__kwdefaults__
    return Held(f, copy)


# torch


class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 1


@way
def held_as_a_module() -> Held:
    net, other = Net(), Net()

    def call() -> object:
        assert float(other(torch.ones(()))) == REAL
        return float(net(torch.ones(())))

    return Held("net", call, namespace={"net": net})


@way
def held_as_a_module_of_a_module() -> Held:
    net = torch.nn.Sequential(Net())
    part = net[0]
    return Held(
        "net.part", lambda: float(net(torch.ones(()))), namespace={"net": types.SimpleNamespace(part=part)}
    )


@way
def held_as_the_forward_of_a_class() -> Held:
    net = Net()
    return Held(Net.forward, lambda: float(net(torch.ones(()))))


@way
def held_by_compiled_code() -> Held:
    f = function()
    compiled = torch.compile(lambda x: x * f(), backend="eager")
    assert float(compiled(torch.ones(()))) == REAL
    return Held(f, lambda: float(compiled(torch.ones(()))))


@way
def held_by_compiled_code_as_a_module() -> Held:
    net = torch.nn.Sequential(inner := Net())
    compiled = torch.compile(net, backend="eager")
    assert float(compiled(torch.ones(()))) == REAL
    stubbed = torch.tensor(STUB)
    return Held(inner, lambda: float(compiled(torch.ones(()))), replacement=stubbed)


@way
def held_by_compiled_code_as_a_method() -> Held:
    class Thing:
        def method(self, x: torch.Tensor) -> torch.Tensor:
            return x * 1

    thing = Thing()
    compiled = torch.compile(lambda x: thing.method(x), backend="eager")
    assert float(compiled(torch.ones(()))) == REAL
    return Held(Thing.method, lambda: float(compiled(torch.ones(()))), replacement=torch.tensor(STUB))


@way
def held_as_a_c_function_of_torch() -> Held:
    return Held("torch.relu", lambda: float(torch.relu(torch.ones(()))), namespace={"torch": torch})


@way
def held_as_a_ufunc() -> Held:
    return Held("np.cbrt", lambda: float(np.cbrt(1.0)), namespace={"np": np})


@way
def held_by_scripted_code() -> Held:
    scripted = torch.jit.script(scripted_part)
    return Held(scripted_part, lambda: float(scripted(torch.ones(()))), declared="torch.jit")


def scripted_part(x: torch.Tensor) -> torch.Tensor:
    return x * 1


# Built-ins


@way
def held_as_a_built_in_of_a_module() -> Held:
    return Held("math.cbrt", lambda: math.cbrt(1.0))


@way
def held_as_an_imported_built_in() -> Held:
    other = types.ModuleType("other")
    other.cbrt = C  # type: ignore[attr-defined]
    return Held("math.cbrt", lambda: other.cbrt(1.0))


def _c(call: Callable[[], object], declared: str = "") -> Held:
    return Held("math.cbrt", call, declared)


@way
def held_as_a_built_in_in_a_dictionary() -> Held:
    table = {"c": C}
    return _c(lambda: table["c"](1.0))


@way
def held_as_a_built_in_in_a_list() -> Held:
    steps = [C]
    return _c(lambda: steps[0](1.0))


@way
def held_as_a_built_in_in_a_deque() -> Held:
    steps = collections.deque([C])
    return _c(lambda: steps[0](1.0))


@way
def held_as_a_built_in_in_a_set() -> Held:
    steps = {C}
    return _c(lambda: next(iter(steps))(1.0))


@way
def held_as_a_built_in_in_a_tuple() -> Held:
    thing = types.SimpleNamespace(steps=(C, 1))
    return _c(lambda: thing.steps[0](1.0))


@way
def held_as_a_built_in_in_nested_tuples() -> Held:
    thing = types.SimpleNamespace(steps=((1, (C, "c")),))
    return _c(lambda: thing.steps[0][1][0](1.0))


@way
def held_as_a_built_in_in_a_frozen_set() -> Held:
    thing = types.SimpleNamespace(steps=frozenset((C,)))
    return _c(lambda: next(iter(thing.steps))(1.0))


class Pair(NamedTuple):
    function: Any
    name: str


@way
def held_as_a_built_in_in_a_named_tuple() -> Held:
    thing = types.SimpleNamespace(pair=Pair(C, "c"))
    return _c(lambda: thing.pair.function(1.0))


@way
def held_as_a_built_in_default() -> Held:
    def caller(held: Any = C) -> object:
        return held(1.0)

    return _c(caller)


@way
def held_as_a_built_in_keyword_default() -> Held:
    def caller(*, held: Any = C) -> object:
        return held(1.0)

    return _c(caller)


@way
def held_as_a_built_in_in_a_closure() -> Held:
    held = C
    return _c(lambda: held(1.0))


@way
def held_as_a_built_in_in_a_partial() -> Held:
    return _c(functools.partial(C, 1.0))


@way
def held_as_a_built_in_argument_of_a_partial() -> Held:
    return _c(functools.partial(call_c, C))


@way
def held_as_a_built_in_of_a_class() -> Held:
    kind = type("Kind", (), {"c": C})
    return _c(lambda: kind().c(1.0))


@way
def held_as_a_built_in_static_method() -> Held:
    kind = type("Kind", (), {"c": staticmethod(C)})
    return _c(lambda: kind().c(1.0))


@way
def held_as_a_built_in_property() -> Held:
    class Number(float):
        root = property(C)

    return _c(lambda: Number(1.0).root)


@way
def held_as_a_built_in_in_a_slot() -> Held:
    thing = methods()()
    thing.held = C
    return _c(lambda: thing.held(1.0))


@way
def held_as_a_built_in_attribute() -> Held:
    thing = methods()()
    thing.attribute = C
    return _c(lambda: thing.attribute(1.0))


@way
def held_as_a_built_in_bound_to_an_object() -> Held:
    thing = types.SimpleNamespace(held=types.MethodType(C, 1.0))
    return _c(lambda: thing.held())


@way
def held_as_a_built_in_factory() -> Held:
    table: Any = collections.defaultdict(C)  # type: ignore[arg-type]
    del table
    return _c(lambda: math.cbrt(1.0))


@way
def held_as_a_built_in_behind_a_cache() -> Held:
    cached = functools.lru_cache(C)
    numbers = iter([1.0, 1, True])
    next(numbers)
    keep = types.SimpleNamespace(cached=cached)
    return _c(lambda: keep.cached.__wrapped__(1.0), "")


@way
def held_as_a_built_in_by_an_iterator() -> Held:
    calls = map(C, [1.0] * 100)
    return _c(lambda: next(calls), "map")


@way
def held_as_a_built_in_by_a_running_generator() -> Held:
    def loop(held: Any) -> Any:
        while True:
            yield held(1.0)

    running = loop(C)
    next(running)
    return _c(lambda: next(running), "loop()")


@way
def held_as_a_built_in_by_a_weak_reference() -> Held:
    weak = weakref.ref(C)
    return _c(lambda: weak()(1.0), "weak")  # type: ignore[misc]


@way
def held_as_a_class() -> Held:
    module = types.ModuleType("classes")
    module.Kind = kind = methods()  # type: ignore[attr-defined]

    def call() -> float:
        assert isinstance(module.Kind, type)
        assert isinstance(made, module.Kind)
        return STUB if module.Kind() == STUB else REAL

    made = kind()
    del kind
    return Held("Kind", call, namespace=vars(module))


@way
def held_as_a_partial() -> Held:
    module = types.ModuleType("partials")
    module.f = functools.partial(function(), 1)  # type: ignore[attr-defined]
    return Held("f", lambda: module.f(), namespace=vars(module))


@way
def held_as_a_method_in_c() -> Held:
    class Numbers(list[float]):
        pass

    return Held("Numbers.pop", lambda: Numbers([REAL]).pop(), namespace={"Numbers": Numbers})


@way
def held_as_a_method_in_c_of_an_object() -> Held:
    class Numbers(list[float]):
        pass

    numbers = Numbers([REAL] * 100)
    return Held("numbers.pop", lambda: numbers.pop(), namespace={"numbers": numbers})
