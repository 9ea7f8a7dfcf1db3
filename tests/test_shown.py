"""What a result shows in a notebook is its own text, also where it inherits it."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pytest

import optbook


def shown_classes() -> Iterator[type]:
    """All classes of the package that have a text form of their own."""
    for module in pkgutil.walk_packages(optbook.__path__, "optbook."):
        if module.name.endswith("__main__"):
            continue
        for _, found in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if found.__module__ == module.name and hasattr(found, "_repr_pretty_"):
                yield found


CLASSES = sorted(set(shown_classes()), key=lambda each: each.__qualname__)


def test_there_are_some() -> None:
    assert {"Comparison", "SameOutputs", "Ceiling"} <= {each.__qualname__ for each in CLASSES}


@pytest.mark.parametrize("shown", CLASSES, ids=lambda each: each.__qualname__)
def test_no_generated_repr_hides_the_text_form(shown: type) -> None:
    """IPython takes, of the class and its bases in order, the first `_repr_pretty_` or `__repr__`."""
    for base in shown.__mro__:
        if "_repr_pretty_" in vars(base):
            return
        assert "__repr__" not in vars(base), f"{base.__qualname__} needs @dataclass(repr=False)"
