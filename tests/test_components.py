"""Names find components; unknown ones get a line that helps."""

from __future__ import annotations

import functools
import json
import math
import sys
import types
from typing import Any

import numpy as np
import pytest
import torch

from optbook.errors import OptionError
from optbook.simplify.components import find
from optbook.simplify.stubs import refuse_workload


def augment(x: float) -> float:
    return x


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = torch.nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> Any:
        return self.encoder(x)

    @property
    def width(self) -> int:
        return 2


class Loader:
    def __iter__(self) -> Any:
        yield 1


model = Model()


@pytest.mark.parametrize(
    ("name", "kind", "target"),
    [
        ("augment", "function", augment),
        ("Model.forward", "method", Model.forward),
        ("model.forward", "method", Model.forward),
        ("model", "module", Model.forward),
        ("model.encoder", "module", torch.nn.Linear.forward),
        ("model.encoder.forward", "method", torch.nn.Linear.forward),
        ("Model.width", "property", vars(Model)["width"].fget),
        ("model.width", "property", vars(Model)["width"].fget),
        ("Model", "class", Model),
        ("Loader.__iter__", "method", Loader.__iter__),
        ("json.dumps", "function", json.dumps),
        ("math.sqrt", "built-in", math.sqrt),
        ("torch.nn.functional.conv2d", "built-in", torch.conv2d),
        ("numpy.add", "ufunc", np.add),
        ("tests.zoo.function", "function", None),
    ],
)
def test_names(name: str, kind: str, target: object) -> None:
    component = find(name, globals())
    assert component.name == name
    assert component.kind == kind
    assert target is None or component.target is target


def test_an_object_stands_for_its_calls() -> None:
    assert find(model).choice.chosen is model
    assert find(Loader()).kind == "iterable"
    assert find(model.forward).choice.chosen is model
    assert find(Model.forward).choice.by == "all"
    assert find(augment).name.endswith("augment")
    assert find(find(augment)).target is augment


def test_where_the_call_is_made_comes_before_main(monkeypatch: pytest.MonkeyPatch) -> None:
    import __main__

    def here() -> None: ...

    def there() -> None: ...

    monkeypatch.setattr(__main__, "component", there, raising=False)
    assert find("component", {"component": here}).target is here
    assert find("component", {}).target is there


def test_a_decorated_name_means_the_wrapper_and_says_so() -> None:
    @functools.wraps(augment)
    def wrapper(x: float) -> float:
        return augment(x)

    component = find("f", {"f": wrapper})
    assert component.target is wrapper
    assert any("wrapper" in note for note in component.notes)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("augmnt", "did you mean augment"),
        ("model.forwrd", "did you mean model.forward"),
        ("Model.wdth", "did you mean Model.width"),
        ("math.sqr", "did you mean math.sqrt"),
        ("scene_that_is_nowhere", "give a name that the cell sees"),
        ("refuse_workload", "did you mean optbook.simplify.stubs.refuse_workload"),
        ("a b", "is no name"),
        ("", "is no name"),
        ("math", "is a module: name one of its functions"),
        ("number", "never called"),
        ("print", "need it themselves"),
        ("len", "need it themselves"),
        ("dict.get", "need it themselves"),
        ("numbers.append", "has no place for another"),
        ("threading.Lock", "need it themselves"),
        ("importlib.import_module", "need it themselves"),
        ("IPython.get_ipython", "need it themselves"),
        ("optbook.bench", "need it themselves"),
    ],
)
def test_bad_names(name: str, message: str) -> None:
    names = {"augment": augment, "model": model, "Model": Model, "number": 3, "numbers": [1]}
    with pytest.raises(OptionError, match=message) as caught:
        find(name, names)
    assert "\n" not in str(caught.value)


def test_a_name_that_several_modules_have_is_ambiguous(monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("first_of_two", "second_of_two"):
        module = types.ModuleType(path)
        exec("def only_in_two(): pass", vars(module))
        monkeypatch.setitem(sys.modules, path, module)
    with pytest.raises(OptionError, match=r"write first_of_two\.only_in_two or second_of_two\.only_in_two"):
        find("only_in_two", {})


def test_the_sample_system_may_be_taken_apart() -> None:
    assert find("optbook.hotdog.augment.flip").kind == "function"


def test_the_workload_itself_is_refused() -> None:
    component = find(augment)
    refuse_workload(component, print)
    with pytest.raises(OptionError, match="is the workload itself"):
        refuse_workload(component, augment)
    other = Model()
    refuse_workload(find(model), other)
    with pytest.raises(OptionError, match="is the workload itself"):
        refuse_workload(find(model), model)
