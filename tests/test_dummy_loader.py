"""A data loader replaced by made-up batches: their form and number, and how experiments tell."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

import optbook
from optbook.errors import OptionError
from optbook.simplify.loaders import dummy_loader


class Pair(NamedTuple):
    pictures: torch.Tensor
    names: list[str]


@dataclasses.dataclass
class Boxed:
    x: torch.Tensor


def samples(number: int = 10) -> list[tuple[torch.Tensor, int]]:
    return [(torch.full((3,), float(i)), i) for i in range(number)]


def loader(number: int = 10, **options: Any) -> Any:
    return DataLoader(samples(number), **options)  # type: ignore[arg-type]


class Drawn:
    """A loader of a length that says how many batches were drawn."""

    def __init__(self, batches: list[Any], **attributes: Any) -> None:
        self.batches = batches
        self.drawn = 0
        vars(self).update(attributes)

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        for batch in self.batches:
            self.drawn += 1
            yield batch


def test_batches_of_the_same_form_as_many_again_and_again() -> None:
    real = loader(batch_size=2)
    made = dummy_loader(real)
    for _ in range(2):
        batches = list(made)
        assert len(batches) == len(made) == len(real) == 5
        assert {(batch[0].shape, batch[0].dtype, batch[1].dtype) for batch in batches} == {
            ((2, 3), torch.float32, torch.int64)
        }


def test_one_batch_is_drawn_and_none_later() -> None:
    real = Drawn([torch.ones(2)] * 5)
    made = dummy_loader(real)
    list(made)
    list(made)
    assert real.drawn == 1
    dummy_loader(real, batches=3)
    assert real.drawn == 4


def test_several_batches_take_turns() -> None:
    made = dummy_loader(Drawn([torch.full((1,), float(i)) for i in range(5)]), batches=2)
    assert [float(batch) for batch in made] == [0, 1, 0, 1, 0]


def test_the_last_batch_is_as_much_smaller() -> None:
    made = dummy_loader(loader(10, batch_size=4))
    assert [len(batch[0]) for batch in made] == [4, 4, 2]
    assert [len(batch[1]) for batch in made] == [4, 4, 2]
    assert [len(batch[0]) for batch in dummy_loader(loader(10, batch_size=4, drop_last=True))] == [4, 4]
    assert [len(batch[0]) for batch in dummy_loader(loader(8, batch_size=4))] == [4, 4]


def test_every_container_is_cut() -> None:
    batch = {
        "pair": Pair(torch.ones(4, 2), ["a"] * 4),
        "array": np.ones((4, 1)),
        "pictures of other sizes": (1, 2, 3, 4),
        "scale": torch.tensor(2.0),
        "weights": torch.ones(7),
    }
    *_, last = dummy_loader(Drawn([batch, batch], batch_size=4, dataset=range(6)))
    assert isinstance(last["pair"], Pair)
    assert (len(last["pair"].pictures), last["pair"].names) == (2, ["a"] * 2)
    assert len(last["array"]) == len(last["pictures of other sizes"]) == 2
    assert (last["scale"].ndim, len(last["weights"])) == (0, 7)


def test_a_pair_of_two_samples_stays_a_pair() -> None:
    *_, last = dummy_loader(loader(3, batch_size=2))
    assert len(last) == 2
    assert [len(part) for part in last] == [1, 1]


def test_changes_of_containers_do_not_last_and_copies_are_given_where_asked() -> None:
    real = Drawn([{"x": torch.ones(2)}] * 3)
    for batch in dummy_loader(real):
        batch.pop("x").add_(1)
    assert [batch.pop("x").add_(1).tolist() for batch in dummy_loader(real, copy=True)] == [[2, 2]] * 3


def test_what_code_reads_of_a_loader_is_there() -> None:
    made = dummy_loader(loader(batch_size=2))
    assert (made.batch_size, len(made.dataset), len(made.sampler)) == (2, 10, 10)
    with pytest.raises(AttributeError):
        _ = made.no_such_thing
    copied = pickle.loads(pickle.dumps(dummy_loader([torch.ones(2)])))
    assert len(list(copied)) == 1


def test_without_a_length_the_number_is_given() -> None:
    class Stream(IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Iterator[torch.Tensor]:
            while True:
                yield torch.ones(2)

    for endless in (DataLoader(Stream(), batch_size=2), iter(Stream())):
        with pytest.raises(OptionError, match="has no length: say how many batches, such as number=100"):
            dummy_loader(endless)
        assert len(list(dummy_loader(endless, number=3))) == 3


def test_more_batches_than_there_are_can_be_asked_for() -> None:
    made = dummy_loader(loader(10, batch_size=4), number=7)
    assert [len(batch[0]) for batch in made] == [4] * 7


def test_worker_processes_are_asked_once() -> None:
    made = dummy_loader(loader(10, batch_size=2, num_workers=1))
    assert len(list(made)) == 5


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ([], {}, "no batches"),
        (3, {}, "int can't be looped over"),
        ([1], {"batches": 0}, "batches is 0"),
        ([1], {"number": True}, "number is True"),
    ],
)
def test_what_is_no_loader(given: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        dummy_loader(given, **options)


def test_experiments_say_so_while_it_gives_batches() -> None:
    real = loader(40, batch_size=2)
    made = optbook.dummy_loader(real)

    def work() -> None:
        for _ in optbook.track(made):
            pass

    def real_work() -> None:
        for _ in optbook.track(real):
            pass

    simplified = optbook.bench(work, budget=0.05, metrics={"loss": lambda: 1.0})
    assert simplified.stubs == "DataLoader"
    assert "DataLoader replaced by stubs" in str(simplified)
    assert any("computed with stubs, so not valid: loss" in line for line in simplified.warnings)
    assert optbook.bench(real_work, budget=0.05).stubs == ""
