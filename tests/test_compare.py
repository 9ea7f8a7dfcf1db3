"""Verdicts on a clock that moves only when told to."""

from __future__ import annotations

import random
from collections.abc import Callable
from html.parser import HTMLParser

import pytest

import optbook
from optbook.benchmark.bench import bench
from optbook.errors import OptbookError, OptionError
from optbook.optimize.compare import MOST_PAIRS, Comparison, compare
from tests.fakes import FakeClock


def noisy(fake: FakeClock, seconds: float, seed: int, spread: float = 0.03) -> Callable[[], None]:
    rng = random.Random(seed)

    def workload() -> None:
        fake.spend(seconds * rng.lognormvariate(0, spread))

    return workload


@pytest.mark.parametrize(
    ("seconds", "verdict"), [(0.100, "no difference seen"), (0.095, "faster"), (0.106, "slower")]
)
def test_the_verdict_is_of_the_second_against_the_first(seconds: float, verdict: str) -> None:
    fake = FakeClock()
    c = compare(noisy(fake, 0.1, 1), noisy(fake, seconds, 2), ("old", "new"), seed=0, clock=fake.clock)
    assert c.verdict.startswith(verdict)
    assert c.low <= 0.1 / seconds <= c.high
    assert c.low <= c.ratio <= c.high
    assert verdict in str(c)
    assert "new" in str(c)


def test_drift_raises_no_alarm_although_the_second_would_seem_slower_run_after_the_first() -> None:
    alarms = 0
    for seed in range(60):
        fake = FakeClock()

        def drifting(fake: FakeClock = fake) -> None:
            fake.spend(0.1 * (1 + fake.time / 20))

        alarms += not compare(drifting, drifting, seed=seed, clock=fake.clock).verdict.startswith(
            "no difference"
        )
    assert alarms <= 5


def test_a_clear_difference_ends_the_comparison_early() -> None:
    fake = FakeClock()
    c = compare(noisy(fake, 0.01, 1), noisy(fake, 0.02, 2), clock=fake.clock)
    assert c.verdict == "slower"
    assert c.pairs < MOST_PAIRS / 2
    assert c.looks < 5


def test_equal_workloads_without_noise_end_early_too_and_say_what_would_have_been_seen() -> None:
    fake = FakeClock()
    c = compare(lambda: fake.spend(0.1), lambda: fake.spend(0.1), clock=fake.clock)
    assert c.verdict == "no difference seen (one of 0.50 % would have been)"
    assert c.ratio == 1.0
    assert c.looks < 5


def test_a_real_but_tiny_difference_gets_no_verdict() -> None:
    fake = FakeClock()
    c = compare(lambda: fake.spend(0.1), lambda: fake.spend(0.1002), clock=fake.clock)
    assert c.verdict.startswith("no difference seen")


def test_both_come_first_equally_often_in_random_order() -> None:
    fake = FakeClock()
    ran: list[str] = []

    def workload(name: str) -> Callable[[], None]:
        def run() -> None:
            ran.append(name)
            fake.spend(0.05)

        return run

    compare(workload("f"), workload("g"), seed=3, clock=fake.clock)
    pairs = list(zip(ran[6::2], ran[7::2], strict=True))
    assert {frozenset(pair) for pair in pairs} == {frozenset("fg")}
    assert 0.25 < sum(pair[0] == "f" for pair in pairs) / len(pairs) < 0.75


def test_short_workloads_are_repeated_inside_a_sample() -> None:
    fake = FakeClock()
    c = compare(noisy(fake, 1e-5, 1), noisy(fake, 2e-5, 2), clock=fake.clock)
    assert c.loops == pytest.approx(200, rel=0.2)
    assert c.seconds[0] == pytest.approx(1e-5, rel=0.1)


def test_setup_runs_before_every_run_untimed() -> None:
    fake = FakeClock()
    fresh: list[int] = []

    def setup() -> None:
        fake.spend(7)
        fresh.append(1)

    def use() -> None:
        fresh.pop()
        fake.spend(1e-4)

    c = compare(use, use, setup=setup, budget=0.01, clock=fake.clock)
    assert c.loops == 1
    assert c.seconds == pytest.approx((1e-4, 1e-4))
    assert not fresh


def test_of_tracked_workloads_the_steps_are_compared() -> None:
    fake = FakeClock()

    def epoch(seconds: float) -> Callable[[], None]:
        def run() -> None:
            fake.spend(100)  # building the loader is not a step
            for _ in optbook.track(range(10**9)):
                fake.spend(seconds)

        return run

    c = compare(epoch(0.2), epoch(0.1), steps=4, budget=500, clock=fake.clock)
    assert c.verdict == "faster"
    assert c.ratio == pytest.approx(2)
    assert c.seconds == pytest.approx((0.2, 0.1))


def test_too_long_a_workload_says_that_there_are_too_few_pairs() -> None:
    fake = FakeClock()
    c = compare(noisy(fake, 1800, 1), noisy(fake, 900, 2), clock=fake.clock)
    assert c.pairs == 1
    assert c.verdict == "no difference seen (1 pairs are too few to see any)"
    assert "give a larger --budget" in c.warnings[0]
    assert "too few pairs for an interval" in c._repr_html_()


def test_what_a_workload_raises_passes() -> None:
    def broken() -> None:
        raise RuntimeError("g")

    with pytest.raises(RuntimeError, match="g"):
        compare(lambda: None, broken, clock=FakeClock().clock)


@pytest.mark.parametrize("budget", [0, -1, float("nan"), "10"])
def test_bad_budgets_are_refused(budget: object) -> None:
    with pytest.raises(OptionError, match="budget is"):
        compare(lambda: None, lambda: None, budget=budget)  # type: ignore[arg-type]


def test_not_inside_a_measurement() -> None:
    with pytest.raises(OptbookError, match="don't compare inside"):
        bench(lambda: compare(lambda: None, lambda: None), runs=1)


class Tags(HTMLParser):
    tags: set[str]

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)


def test_hostile_labels_stay_text() -> None:
    c = Comparison(
        ("<script>a</script>", '"><img>'), "faster", 1.2, 1.1, 1.3, 0.01, 20, 1, 1, ((1.0,), (0.8,))
    )
    parser = Tags()
    parser.tags = set()
    parser.feed(c._repr_html_())
    assert parser.tags <= {
        "div",
        "b",
        "svg",
        "title",
        "line",
        "circle",
        "g",
        "text",
        "table",
        "tr",
        "th",
        "td",
    }
    assert "is faster than" in str(c)


def test_it_is_public() -> None:
    assert optbook.compare is compare


@pytest.mark.parametrize("seconds", [0.0001, 0.1])
def test_what_each_prints_appears_once(seconds: float, capsys: pytest.CaptureFixture[str]) -> None:
    fake = FakeClock()

    def printing() -> None:
        print("a line")
        fake.spend(seconds)

    compare(printing, noisy(fake, seconds, 1), clock=fake.clock)
    assert capsys.readouterr().out.count("a line") == 1
