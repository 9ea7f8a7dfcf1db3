"""`dummy_loader`: a whole data loader replaced by batches of the right form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from optbook.benchmark import replaced
from optbook.errors import OptionError
from optbook.simplify import trees
from optbook.simplify.dummy import dummy


class DummyLoader:
    """Gives batches made up after those of a loader, as many, at no cost; what else it has is the loader's.

    Each batch comes in containers of its own; the tensors and arrays in it are the same each time. While it
    gives batches, experiments say that the loader is replaced.

    Attributes:
        batches: the made-up batches, given out in turn.
        last: the last batch of a loop, where it is a smaller one.
    """

    def __init__(self, batches: list[Any], number: int, last: Any, loader: Any, copy: bool) -> None:
        self.batches = batches
        self.last = last
        self._number = number
        self._loader = loader
        self._copy = copy

    def __len__(self) -> int:
        return self._number

    def __iter__(self) -> Iterator[Any]:
        name = type(self._loader).__name__
        for index in range(self._number):
            replaced.mark(name)
            is_last = index == self._number - 1 and self.last is not None
            batch = self.last if is_last else self.batches[index % len(self.batches)]
            yield trees.copied(batch) if self._copy else trees.mapped(batch, lambda leaf: leaf)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_loader" not in vars(self):
            raise AttributeError(f"a dummy loader has no attribute {name!r}")
        return getattr(self._loader, name)


def dummy_loader(
    loader: Iterable[Any], batches: int = 1, number: int | None = None, *, copy: bool = False
) -> DummyLoader:
    """A loader that gives batches like those of ``loader`` without any work, again and again.

    A batch is drawn from ``loader`` now, and none later. Where ``loader`` has a ``batch_size`` and a length
    that it does not divide, the last batch is as much smaller as the real one.

    Args:
        loader: a data loader or anything else that gives batches when looped over.
        batches: how many different batches to make up, from as many real ones.
        number: how many batches a loop gets; as many as ``loader`` has if None.
        copy: give copies of tensors and arrays, where those who get them change them.

    Raises:
        OptionError: the loader gives nothing, is no loader or has no length while ``number`` is None; or a
            number is out of range.
    """
    _checked("batches", batches)
    if number is not None:
        _checked("number", number)
    try:
        iterator = iter(loader)
    except TypeError:
        raise OptionError(
            f"{type(loader).__name__} can't be looped over: give a loader, such as DataLoader(…)"
        ) from None
    given = _length(loader)
    if number is None and given is None:
        raise OptionError(
            f"a {type(loader).__name__} has no length: say how many batches, such as number=100"
        )
    made = [dummy(batch) for _, batch in zip(range(batches), iterator, strict=False)]
    if not made:
        raise OptionError("the loader gives no batches: there is nothing to make up others after")
    number = given if number is None else number
    assert number is not None
    last = _last(loader, made[0]) if number == given else None
    return DummyLoader(made, number, last, loader, copy)


def _checked(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise OptionError(f"{name} is {value!r}: give a whole number from 1 on")


def _length(thing: object) -> int | None:
    try:
        return len(thing)  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):
        return None


def _last(loader: Any, batch: Any) -> Any:
    """The last batch where it is smaller than the others; else None."""
    size = getattr(loader, "batch_size", None)
    if not isinstance(size, int) or isinstance(size, bool) or size < 1 or getattr(loader, "drop_last", False):
        return None
    total = _length(getattr(loader, "sampler", None))
    total = _length(getattr(loader, "dataset", None)) if total is None else total
    rest = 0 if total is None else total % size
    return _cut(batch, size, rest) if rest else None


def _cut(batch: Any, size: int, rest: int) -> Any:
    """The first ``rest`` of the ``size`` samples: of tensors and arrays so long, and of lists without any."""

    def long(value: Any) -> bool:
        return (trees.is_tensor(value) or trees.is_array(value)) and value.ndim > 0 and len(value) == size

    def cut(value: Any) -> Any:
        if isinstance(value, dict):
            same = type(value)() if type(value) is dict else trees.mapped(value, lambda leaf: leaf)
            same.update({key: cut(item) for key, item in value.items()})
            return same
        if isinstance(value, (list, tuple)):
            if len(value) == size and not any(long(leaf) for leaf in trees.leaves(value)):
                return value[:rest]
            items = [cut(item) for item in value]
            return tuple.__new__(type(value), items) if isinstance(value, tuple) else items
        return value[:rest] if long(value) else value

    return cut(batch)
