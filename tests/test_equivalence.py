"""Same results: outputs within tolerance, losses within seed noise, accuracy within its interval."""

from __future__ import annotations

import enum
import math
from collections import deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import optbook
from optbook.errors import OptionError
from optbook.optimize.compare import compare
from optbook.optimize.equivalence import ALPHA, TOLERANCES, same_accuracy, same_losses, same_outputs
from tests.fakes import FakeClock
from tests.shells import shell_with_optbook

pytestmark = pytest.mark.usefixtures("collected_heap")

FLOATS = ("float16", "bfloat16", "float32", "float64")


@dataclass
class Found:
    boxes: Any
    name: str = "hot dog"


class Plain:
    def __init__(self, value: Any) -> None:
        self.value = value


class Kind(enum.Enum):
    BUN = 1
    CARROT = 2


Point = namedtuple("Point", "x y")


def found() -> dict[str, Any]:
    return {
        "scores": [torch.tensor([0.5, 0.25]), np.array([[1, 2], [3, 4]], dtype=np.uint8)],
        "made": Found(torch.ones(3, dtype=torch.bfloat16)),
        "at": Point(1, 2.0),
        "plain": Plain({"kind": Kind.BUN, "none": None, "text": "mustard", "raw": b"ab"}),
        "sets": {1, 2},
        "later": deque([math.nan, math.inf, 10**40, 2j]),
    }


def test_nested_results_are_equal_value_by_value() -> None:
    seen = same_outputs(found(), found())
    assert seen.holds
    assert seen
    assert seen.values == 21
    assert str(seen).startswith("same results: 21 values, all equal")


CHANGES: list[tuple[Callable[[dict[str, Any]], object], str, str]] = [
    (lambda r: r["scores"][0].__setitem__(1, 0.26), "['scores'][0][1]", "0.25 in the first, 0.25999999 in"),
    (lambda r: r["scores"][1].__setitem__((1, 0), 9), "['scores'][1][1, 0]", "6 apart, 0 allowed"),
    (lambda r: r["made"].boxes.__setitem__(0, 1.1), "['made'].boxes[0]", "0.102 apart, 0.016 allowed"),
    (lambda r: setattr(r["made"], "name", "carrot"), "['made'].name", "'hot dog' in the first"),
    (lambda r: r["plain"].value.update(kind=Kind.CARROT), "['plain'].value['kind']", "CARROT"),
    (lambda r: r["plain"].value.update(none=0), "['plain'].value['none']", "None in the first, the number 0"),
    (lambda r: r["plain"].value.pop("text"), "['plain'].value", "'text' only in the first"),
    (lambda r: r["later"].append(1), "['later']", "4 items in the first, 5 in the second"),
    (lambda r: r["later"].__setitem__(0, 1.0), "['later'][0]", "nan in the first"),
    (lambda r: r["later"].__setitem__(1, 5.0), "['later'][1]", "inf in the first"),
    (lambda r: r["later"].__setitem__(2, 10**40 + 1), "['later'][2]", "1000"),
    (lambda r: r["sets"].add(3), "['sets']", "frozenset({1, 2})"),
    (lambda r: r.update(at=(1, 2.0)), "['at']", "a Point in the first, a tuple in the second"),
]


@pytest.mark.parametrize(("change", "where", "reason"), CHANGES)
def test_the_first_difference_is_named_and_measured(
    change: Callable[[dict[str, Any]], object], where: str, reason: str
) -> None:
    other = found()
    change(other)
    seen = same_outputs(found(), other)
    assert not seen
    assert seen.where == where
    assert reason in seen.reason
    assert str(seen).startswith("different results")


@pytest.mark.parametrize("name", FLOATS)
def test_tolerances_are_those_of_torch_testing(name: str) -> None:
    dtype = getattr(torch, name)
    rtol, atol = TOLERANCES[name]
    for value in (0.0, 1.0, 1000.0):
        for share in (0.5, 1.5):
            a = torch.tensor([value], dtype=torch.float64).to(dtype)
            b = (a.double() + share * (atol + rtol * value)).to(dtype)
            try:
                torch.testing.assert_close(b, a, equal_nan=True)
                close = True
            except AssertionError:
                close = False
            assert same_outputs(a, b).holds == close


def test_counts_of_values_that_differ_and_the_largest_difference() -> None:
    a, b = torch.zeros(4, 5), torch.zeros(4, 5)
    b[1, 2], b[3, 3] = 0.5, -2.0
    seen = same_outputs(a, b)
    assert seen.where == "[1, 2]"
    assert "0.5 apart, 1e-05 allowed" in seen.reason
    assert "2 of 20 values differ, by 2 at most" in seen.reason
    assert seen.largest == 2.0


def test_another_data_type_is_allowed_when_asked_for_with_the_coarser_tolerance() -> None:
    a = torch.linspace(0.1, 3, 50)
    refused = same_outputs(a, a.bfloat16())
    assert "float32 in the first, bfloat16 in the second (allowed with strict=False" in refused.reason
    seen = same_outputs(a, a.bfloat16(), strict=False)
    assert seen
    assert seen.tolerances == {"float32 and bfloat16": (1.6e-2, 1e-5)}
    assert not same_outputs(a, a.bfloat16() * 1.1, strict=False)
    assert same_outputs([a], (a.numpy(),), strict=False)
    assert not same_outputs([a], (a.numpy(),))
    assert same_outputs(torch.tensor(1.0), 1, strict=False)


def test_shapes_count_and_nan_equals_nan() -> None:
    assert "shape (2, 3) in the first, (3, 2)" in same_outputs(np.zeros((2, 3)), np.zeros((3, 2))).reason
    assert same_outputs(np.array([np.nan, np.inf]), np.array([np.nan, np.inf]))
    assert not same_outputs(np.array([np.inf]), np.array([-np.inf]))
    assert same_outputs(np.array(["NaT"], dtype="M8[s]"), np.array(["NaT"], dtype="M8[s]"))


def test_a_tolerance_can_be_given() -> None:
    assert same_outputs(1.0, 1.01, rtol=0.02)
    assert same_outputs(3, 4, atol=1)
    assert not same_outputs(1.0, 1.0 + 1e-9, rtol=0, atol=0)


def test_more_kinds_of_values() -> None:
    from PIL import Image

    model = torch.nn.Linear(2, 2)
    assert same_outputs(model, model)
    assert not same_outputs(model, torch.nn.Linear(2, 2))
    assert same_outputs(torch.eye(3).to_sparse(), torch.eye(3).to_sparse())
    assert same_outputs(Image.new("RGB", (3, 2)), Image.new("RGB", (3, 2)))
    assert same_outputs(Image.new("RGB", (3, 2)), Image.new("RGB", (3, 2), "red")).where == "[0, 0, 0]"
    rows = np.array([(1, 2.0)], dtype=[("n", "i4"), ("x", "f4")])
    assert same_outputs(rows, rows.copy())
    assert same_outputs(np.array([1, "a", None], dtype=object), np.array([1, "b", None], dtype=object)).where
    assert same_outputs(torch.ones(2, requires_grad=True) * 2, torch.ones(2, requires_grad=True) * 2)
    assert "position 30" in same_outputs("a" * 30 + "b", "a" * 30 + "c").reason
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]})
    assert same_outputs(frame, frame.copy())
    assert same_outputs(frame, frame.assign(a=[1.0, 3.0])).where == "['a'][1]"
    assert "'a' only in the first" in same_outputs(frame, frame.rename(columns={"a": "c"})).reason
    assert not same_outputs(frame["a"], frame["a"].set_axis([5, 6]))
    round_trip: list[Any] = [1]
    round_trip.append(round_trip)
    assert same_outputs(round_trip, round_trip)
    assert same_outputs([], []).notes == ("there are no values in them",)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (iter([1]), "used up by looking at it"),
        ([lambda: 1], r"the result's \[0\] is .* no values to compare"),
        (object(), "no values to compare"),
        (torch.empty(2, device="meta"), "without values"),
    ],
)
def test_what_has_no_values_is_refused(value: object, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        same_outputs(value, value)


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, "1e-3", True])
def test_bad_tolerances_are_refused(value: Any) -> None:
    with pytest.raises(OptionError, match="rtol is"):
        same_outputs(1, 1, rtol=value)


def trainings(shift: float = 0.0, rng: np.random.Generator | None = None) -> Callable[[int], list[float]]:
    """A training whose curves differ from seed to seed, as a whole and from step to step."""

    def train(seed: int) -> list[float]:
        own = np.random.default_rng(seed) if rng is None else rng
        steps = np.arange(40)
        return list(np.exp(-steps / 15) * own.lognormal(0, 0.1) + own.normal(0, 0.02, 40) + 0.3 + shift)

    return train


def test_curves_within_seed_noise_are_the_same_and_it_says_what_would_have_been_seen() -> None:
    rng = np.random.default_rng(1)
    seen = same_losses(trainings(rng=rng), trainings(rng=rng), labels=("old", "new"))
    assert seen.holds
    assert seen.low < 0 < seen.high
    assert 0 < seen.detectable < 0.2
    assert "within seed noise" in str(seen)
    assert "would have been seen" in str(seen)
    assert seen.curves[0].shape == (5, 40)


def test_a_curve_that_ends_elsewhere_is_different() -> None:
    seen = same_losses(trainings(), trainings(0.1))
    assert not seen
    assert seen.difference == pytest.approx(0.1)
    assert seen.low < 0.1 < seen.high
    assert seen.chance < ALPHA


def test_the_error_rate_of_the_loss_test_is_as_promised_and_it_finds_differences() -> None:
    rng = np.random.default_rng(7)
    rounds = 300
    alarms = sum(not same_losses(trainings(rng=rng), trainings(rng=rng)).holds for _ in range(rounds))
    assert alarms <= ALPHA * rounds + 3 * math.sqrt(rounds * ALPHA * (1 - ALPHA))
    assert alarms >= 2  # it is not without teeth: 5 of 252 ways count as different
    missed = sum(same_losses(trainings(rng=rng), trainings(0.05, rng)).holds for _ in range(60))
    assert missed <= 6


def test_curves_that_cross_are_different_though_they_end_alike() -> None:
    def slower(seed: int) -> list[float]:
        losses = trainings()(seed)
        return [*(loss + 0.5 for loss in losses[:10]), *losses[10:]]

    assert not same_losses(trainings(), slower, seeds=range(10, 15))


def test_equal_curves_are_the_same_and_an_unused_seed_is_said() -> None:
    seen = same_losses(lambda seed: [1.0, 0.5], lambda seed: (torch.tensor(x) for x in (1.0, 0.5)))
    assert seen.holds
    assert seen.chance == 1.0
    assert "the losses are the same for every seed" in seen.notes[0]


def test_a_loss_that_is_no_number_is_a_difference_of_the_second_and_an_error_of_the_first() -> None:
    def broken(seed: int) -> list[float]:
        losses = trainings()(seed)
        losses[3] = math.nan if seed == 2 else losses[3]
        return losses

    seen = same_losses(trainings(), broken)
    assert not seen
    assert "a loss of nan at step 4 with seed 2" in str(seen)
    with pytest.raises(OptionError, match="nothing to compare with"):
        same_losses(broken, trainings())


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        (3, "give 4 at least"),
        ([1, 1, 2, 3], "give different ones"),
        ("1234", "seeds is"),
        (2.5, "seeds is"),
        (10**9, "seeds is"),
        ((n for n in range(5)), "seeds is"),
    ],
)
def test_bad_seeds_are_refused(seeds: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        same_losses(trainings(), trainings(), seeds=seeds)


def test_bad_curves_are_refused() -> None:
    with pytest.raises(OptionError, match="return the losses of the steps"):
        same_losses(lambda seed: None, trainings())
    with pytest.raises(OptionError, match="have 2, 40 losses"):
        same_losses(lambda seed: [1.0, 2.0], trainings())
    with pytest.raises(OptionError, match="have 0 losses"):
        same_losses(lambda seed: [], lambda seed: [])
    with pytest.raises(ZeroDivisionError):
        same_losses(lambda seed: [1 / 0], trainings())


def test_counts_are_held_against_each_other_by_their_intervals() -> None:
    seen = same_accuracy((196, 200), (192, 200), labels=("old", "new"))
    assert seen.holds
    assert seen.intervals[0] == pytest.approx((0.9497, 0.9922), abs=1e-4)
    assert seen.chance is None
    worse = same_accuracy((196, 200), (170, 200))
    assert not worse
    assert "second is worse than first" in str(worse)
    assert "better" in str(same_accuracy((170, 200), (196, 200)))


def test_newcombes_interval_is_that_of_his_paper() -> None:
    seen = same_accuracy((48, 80), (56, 70))  # his example (a): 56/70 − 48/80, 0.0524 to 0.3339
    assert (seen.low, seen.high) == pytest.approx((0.0524, 0.3339), abs=1e-4)
    assert not seen


def test_the_same_examples_find_what_counts_alone_do_not() -> None:
    first = np.ones(200, dtype=bool)
    first[:10] = False
    second = first.copy()
    second[190:] = False
    seen = same_accuracy(first, torch.tensor(second))
    assert not seen
    assert seen.apart == (10, 0)
    assert seen.chance == pytest.approx(2 / 2**10)
    assert same_accuracy((190, 200), (180, 200)).holds
    assert same_accuracy(first, first).chance == 1.0


@pytest.mark.parametrize("paired", [True, False])
def test_the_error_rate_of_the_accuracy_tests(paired: bool) -> None:
    rng = np.random.default_rng(3)
    rounds, alarms = 400, 0
    for _ in range(rounds):
        a, b = rng.random((2, 150)) < 0.9
        seen = same_accuracy(a, b) if paired else same_accuracy((int(a.sum()), 150), (int(b.sum()), 150))
        alarms += not seen
    assert 2 <= alarms <= ALPHA * rounds + 3 * math.sqrt(rounds * ALPHA * (1 - ALPHA))


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ((5, 4), (1, 2), "no count of right answers"),
        ((0, 0), (1, 2), "no count of right answers"),
        ((1, 2), [True, False], "one is a count, the other is not"),
        ([True, False], [True], "2 and 1 examples"),
        ([0.5, 0.7], [1, 0], "no list of right and wrong"),
        ("yes", "no", "no list of right and wrong"),
        ([], [], "no list of right and wrong"),
        (0.97, 0.96, "no list of right and wrong"),
    ],
)
def test_bad_accuracies_are_refused(first: object, second: object, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        same_accuracy(first, second)


def test_pages_are_escaped() -> None:
    hostile = "<script>alert(1)</script>"
    pages = [
        same_outputs({hostile: hostile}, {hostile: "b"}, labels=(hostile, hostile)),
        same_losses(trainings(), trainings(0.2), labels=(hostile, hostile)),
        same_accuracy((1, 2), (2, 2), labels=(hostile, hostile)),
    ]
    for page in pages:
        html = page._repr_html_()
        assert "<script" not in html
        assert "var(--jp-" in html


def test_they_are_public() -> None:
    assert optbook.same_outputs is same_outputs
    assert optbook.same_losses is same_losses
    assert optbook.same_accuracy is same_accuracy


# In a comparison


def test_results_are_checked_before_anything_is_timed_from_the_same_random_state() -> None:
    fake = FakeClock()
    model = torch.nn.Linear(3, 3)
    before = model.weight.detach().clone()
    runs: list[str] = []

    def train(name: str, seconds: float) -> Callable[[], object]:
        def run() -> object:
            runs.append(name)
            fake.spend(seconds)
            with torch.no_grad():
                model.weight += torch.randn(3, 3)
            return model(torch.ones(3))

        return run

    seen = compare(
        train("f", 0.2), train("g", 0.1), ("f", "g"), same=True, metrics={"runs": lambda: 1}, clock=fake.clock
    )
    assert runs[:2] == ["f", "g"]
    assert seen.same is not None
    assert seen.same
    assert seen.verdict == "faster"
    assert "not checked" not in str(seen)
    assert "same results: 3 values, all equal" in str(seen)
    assert not torch.equal(before, model.weight)  # the timed runs are the user's own


def test_a_comparison_without_a_check_says_so_and_one_that_differs_too() -> None:
    fake = FakeClock()

    def run(value: float, seconds: float) -> Callable[[], float]:
        def workload() -> float:
            fake.spend(seconds)
            return value

        return workload

    plain = compare(run(1, 0.2), run(2, 0.1), ("f", "g"), clock=fake.clock)
    assert plain.same is None
    assert str(plain).splitlines()[0].endswith("(results not checked)")
    differ = compare(run(1.0, 0.2), run(2.0, 0.1), ("f", "g"), same=True, clock=fake.clock)
    assert differ.verdict == "faster"
    assert str(differ).splitlines()[0].endswith("but the results differ")
    assert "1 in the first, 2 in the second" in differ._repr_html_()
    near = compare(run(1.0, 0.2), run(1.001, 0.1), same=True, rtol=0.01, clock=fake.clock)
    assert near.same


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"same": "outputs"}, "same is 'outputs': give a function"),
        ({"same": True}, "a workload returns None"),
        ({"same": lambda: None}, "the result to be compared is None"),
        ({"same": lambda: missing}, "NameError"),  # type: ignore[name-defined]  # noqa: F821
        ({"same": True, "rtol": -1}, "rtol is -1"),
        ({"metrics": {"m": lambda: "x"}}, "'m' is 'x'"),
        ({"same": True, "isolate": True}, "can't be checked with isolate"),
    ],
)
def test_bad_checks_are_refused(more: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        compare(lambda: None, lambda: None, clock=FakeClock().clock, **more)


BODIES = "import time; out = [x * 1.0, 2.0]\n---\nout = [x, {second}]"


def test_the_magic_compares_an_expression_after_each_body() -> None:
    with shell_with_optbook() as shell:
        shell.run_cell("x = 3.0")
        shell.run_cell(
            f"%%compare old new --same out --metric total=sum(out) -q -o c\n{BODIES.format(second=2.0)}"
        )
        c = shell.user_ns["c"]
        assert c.same
        assert c.metrics == {"total": (5.0, 5.0)}
        shell.run_cell(f"%%compare --same out --metric total=sum(out) -q -o c\n{BODIES.format(second=2.5)}")
        c = shell.user_ns["c"]
        assert not c.same
        assert c.same.where == "[1]"
        assert "5.000, then 5.500: +0.500" in str(c)
        shell.run_cell(f"%%compare --same out --rtol 0.5 -q -o c\n{BODIES.format(second=2.5)}")
        assert shell.user_ns["c"].same
        shell.run_cell("%%compare --same out --loose -q -o c\nout = 2\n---\nout = 2.0")
        assert shell.user_ns["c"].same
        shell.run_cell("%%compare -q -o c\n1\n---\n2")
        assert "results not checked" in str(shell.user_ns["c"])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%%compare --same 5\n1\n---\n2", "--same got '5', which never changes"),
        ("%%compare --same (\n1\n---\n2", "give a number or an expression"),
        ("%%compare --same nothing\n1\n---\n2", "NameError"),
        ("%%compare --rtol 0.1\n1\n---\n2", "belong to --same"),
        ("%%compare --same out --isolate\n1\n---\n2", "leave it out"),
        ("%%compare --metric out\n1\n---\n2", "write name=expression"),
        ("%compare a b --same out", "belong to %%compare"),
    ],
)
def test_bad_options_of_the_magic_give_one_line(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with shell_with_optbook() as shell:
        result = shell.run_cell(line)
    assert message in str(result.error_before_exec or result.error_in_exec)


def test_a_body_that_raises_in_the_check_fails_the_cell_and_names_are_put_back() -> None:
    with shell_with_optbook() as shell:
        shell.run_cell("x = 1")
        result = shell.run_cell("%%compare --same x\nx = 2\n---\nx = 1 / 0")
        assert isinstance(result.error_in_exec, ZeroDivisionError)
        assert shell.user_ns["x"] == 1
