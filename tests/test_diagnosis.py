"""The diagnosis: its table of rules with made-up evidence, and real programs whose bottleneck is known."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator
from typing import Any, get_args

import pytest
import torch

import optbook
from optbook.benchmark import flops
from optbook.benchmark.diagnosis import ANY, MOST, RULES, Kind, Rule, diagnose
from optbook.benchmark.evidence import Evidence, Usage, Used, of_measurement, stored
from optbook.benchmark.flop_counter import Tally, Work
from optbook.benchmark.machine import peaks
from optbook.benchmark.profiles.looks import of_samples
from optbook.benchmark.profiles.module_tree import Figures, Module
from optbook.benchmark.profiles.modules import ModulesProfile
from optbook.benchmark.profiles.network import Component, NetworkProfile
from optbook.benchmark.profiles.page import sentence
from optbook.benchmark.profiles.passes import Pass
from optbook.benchmark.profiles.sampler import Answer, Key, Samples, Stacks
from optbook.experiments.record import Experiment
from optbook.experiments.render import as_html, as_text
from tests.diagnosed import PROGRAMS, Program


@pytest.fixture
def free_signal() -> Iterator[None]:
    """SIGALRM as it is outside of tests, which have a time limit by it."""
    handler, timer = signal.signal(signal.SIGALRM, signal.SIG_DFL), signal.setitimer(signal.ITIMER_REAL, 0)
    yield
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, *timer)


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def just_enough(rule: Rule) -> Evidence:
    """Each figure at the bound of its rule that asks most; what is unbounded above, at the lower one."""
    values = {name: low if low > 0 else high for name, (low, high) in rule.needs.items()}
    return Evidence(**values)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.kind)
def test_each_rule_holds_at_its_bounds_and_not_beyond(rule: Rule) -> None:
    enough = just_enough(rule)
    assert diagnose(enough).kind == rule.kind
    for name, (low, high) in rule.needs.items():
        assert not rule.applies(stored({n: v for n, v in enough.known().items() if n != name}))
        if low > 0:
            assert not rule.applies(enough.with_(**{name: math.nextafter(low, 0)}))
        if high < ANY:
            assert not rule.applies(enough.with_(**{name: math.nextafter(high, ANY)}))
    for name, (low, _) in rule.unless.items():
        assert not rule.applies(enough.with_(**{name: low}))
        assert rule.applies(enough.with_(**{name: math.nextafter(low, 0)}))


def test_there_is_a_rule_for_every_kind_with_its_source_and_chapter() -> None:
    assert {rule.kind for rule in RULES} | {"not clear"} == set(get_args(Kind))
    for rule in RULES:
        assert rule.source
        assert rule.chapter.startswith("chapter")
        assert rule.chapter in diagnose(just_enough(rule)).note


@pytest.mark.parametrize(
    ("evidence", "part"),
    [
        (Evidence(), "too short"),
        (Evidence(wait_share=0.45, idle_share=0.3), "45 % waiting for data"),
        (Evidence(looks=99, python_share=0.7, idle_share=0.5), "70 % Python overhead, 50 % off the cores"),
        (Evidence(idle_share=0.0, crowded_share=0.5), "for 50 % of the time other work had the cores"),
        (Evidence(idle_share=0.02), "98 % busy in one thread"),
        (Evidence(idle_share=0.9, other_cores=0.5, child_cores=0.0), "%%profile calls looks inside"),
        (Evidence(idle_share=0.9, other_cores=0.0, child_cores=0.0, network_rate=2e6), "90 % off the cores"),
        (
            Evidence(looks=200, python_share=0.5, native_share=0.5, arithmetic_share=0.45),
            "50 % Python overhead",
        ),
        (Evidence(looks=200, python_share=0.0, native_share=1.0), "--flops"),
        (Evidence(looks=10, python_share=1.0), "100 % Python overhead"),
        (Evidence(looks=200, python_share=0.9, gpu_resident=0.95), "95 % a kernel on the GPU"),
    ],
)
def test_what_is_not_clear_says_between_what_and_what_to_type_next(evidence: Evidence, part: str) -> None:
    found = diagnose(evidence)
    assert found.kind == "not clear"
    assert part in found.note


def test_a_loader_is_told_apart_by_who_works_for_it() -> None:
    waits = Evidence(wait_share=0.67)
    assert diagnose(waits).sentence == (
        "waiting for data: 67 % of each step goes by before the batch is there (chapter 05)"
    )
    assert "the loop makes it itself, nothing is fetched ahead" in diagnose(waits.with_(idle_share=0.05)).note
    busy = diagnose(waits.with_(idle_share=0.6, child_cores=1.5)).note
    assert "worker processes make it, with 1.5 cores busy" in busy


def test_waiting_for_data_comes_before_what_the_loader_spends_its_time_with() -> None:
    evidence = Evidence(wait_share=0.8, idle_share=0.0, python_share=0.9, looks=500)
    found = diagnose(evidence)
    assert found.kind == "waiting for data"
    assert "90 % of all time in Python's interpreter" in found.note


def test_evidence_of_a_measurement() -> None:
    used = Used(thread=0.3, process=0.5, system=0.1, ready=0.2, read=1000)
    found = of_measurement(used, 1.0, 1.5, 5.0, {"wait_share": 0.4})
    assert found.idle_share == pytest.approx(1 - 0.3 / 0.8)
    assert found.crowded_share == pytest.approx(0.2)
    assert found.other_cores == pytest.approx(0.2)
    assert found.child_cores == pytest.approx(1.0)
    assert (found.wait_share, found.network_rate, found.disk_rate) == (0.4, 5.0, 1000)
    assert of_measurement(used, 0.01, 1.5, None, {}) == Evidence()


def test_stored_evidence_of_another_version_is_read_as_far_as_it_is_known() -> None:
    assert stored({"wait_share": 0.5, "phase_of_the_moon": 1.0}) == Evidence(wait_share=0.5)


def test_usage_counts_this_threads_work_and_closes_its_file() -> None:
    usage = Usage()
    before = usage.read()
    sum(range(1_000_000))
    used = Used().plus(usage.read(), before)
    assert 0 < used.thread <= used.process * 1.01
    usage.close()
    assert usage.read().ready == 0.0


def test_operators_are_arithmetic_or_bandwidth_by_the_side_of_the_ridge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peak = peaks.Peak(rate=100e9, kernel="k", kernels=1, cores=1.0)
    slow = peaks.Peak(rate=10e9, kernel="k", kernels=1, cores=1.0)
    machine = peaks.Peaks(
        {"cpu": {"float32": peak}}, {"cpu": slow}, None, None, "m", 1, "", "2026-12-01", seconds=1.0
    )
    monkeypatch.setattr(peaks, "known", lambda: machine)
    monkeypatch.setattr(peaks, "peaks", lambda refresh=False: machine)
    tally = Tally()
    tally.flops["float32", "cpu"] = 1000
    tally.work["mm"] = Work(calls=10, seconds=0.7, flops=1000, bytes=100)  # just on the ridge
    tally.work["relu"] = Work(calls=10, seconds=0.2, flops=999, bytes=100)
    tally.work["add"] = Work(calls=10_000, seconds=0.1, bytes=100)  # too short to tell
    fields = flops.fields(flops.Pass((500, 500), tally, ()), rate=2.0)
    assert fields["evidence"] == pytest.approx({"arithmetic_share": 0.7, "memory_share": 0.2})
    monkeypatch.setattr(peaks, "known", lambda: None)
    assert flops.fields(flops.Pass((500, 500), tally, ()), rate=2.0)["evidence"] == {}


def seen(*looks: tuple[bool, float, float | None], seconds: float = 1e-3) -> Samples:
    """What the sampler would have seen: answers as (sampler first, late, busy) in this function."""
    code = seen.__code__
    key: Key = ((id(code),), 0, False)
    answers = [Answer(key, seconds, busy, late, first) for first, late, busy in looks]
    stacks = Stacks({key: seconds * len(looks)}, len(looks), answers)
    return Samples({"": stacks}, {id(code): code}, {id(code): {}}, by_signal=True)


def test_prompt_answers_are_pythons_and_late_ones_are_calls_into_c() -> None:
    found = of_samples(seen(*[(False, 15e-6, 1.0)] * 6, *[(False, 400e-6, 1.0)] * 4))
    assert found["python_share"] == pytest.approx(0.6)
    assert found["native_share"] == pytest.approx(0.4)
    assert found["looks"] == pytest.approx(10)


def test_where_signals_take_long_to_arrive_answers_are_prompt_for_longer() -> None:
    slow = [(False, late, 1.0) for late in (35e-6, 41e-6, 48e-6, 54e-6, 66e-6)]
    assert of_samples(seen(*slow))["python_share"] == pytest.approx(1.0)
    assert of_samples(seen(*slow, *[(False, 75e-6, 1.0)] * 5))["native_share"] == pytest.approx(0.5)


def test_lateness_for_want_of_a_core_says_nothing() -> None:
    found = of_samples(seen(*[(False, 15e-6, 1.0)] * 5, *[(False, 700e-6, 0.2)] * 5))
    assert found["python_share"] == pytest.approx(1.0)
    assert found["looks"] == pytest.approx(5)


def test_where_the_sampler_was_first_the_length_of_the_call_decides() -> None:
    short, between, long = (True, 10e-6, 1.0), (True, 100e-6, 1.0), (True, 3e-3, 1.0)
    found = of_samples(seen(*[short] * 2, *[between] * 4, *[long] * 2))
    assert found["python_share"] == pytest.approx(0.5)
    assert found["native_share"] == pytest.approx(0.5)
    assert of_samples(Samples()) == {}


def test_the_sentence_stands_on_top_and_is_escaped() -> None:
    e = Experiment(label="x", diagnosis="<b>idle</b>", diagnosis_note="<i>99 %</i>\nof the time")
    assert "&lt;b&gt;idle&lt;/b&gt;: &lt;i&gt;99 %&lt;/i&gt; of the time" in as_html(e)
    assert as_text(e).splitlines()[1] == "  <b>idle</b>: <i>99 %</i> of the time"


def test_without_a_valid_measurement_there_is_no_diagnosis(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        optbook.bench(fails, "fails")
    seconds = iter([0.1] * 5)

    def uses_up() -> None:
        for each in seconds:
            time.sleep(each)

    void = optbook.bench(uses_up, "used up", runs=3)
    log = optbook.log()
    assert list(log[log.label == "fails"].diagnosis) == [""]
    assert (void.status, void.diagnosis, void.evidence) == ("void", "", {})


def told(program: Program) -> str:
    if not program.profiled:
        experiment = optbook.bench(program.run, budget=0.3)
        assert experiment.diagnosis in as_html(experiment)
        return f"{experiment.diagnosis}: {experiment.diagnosis_note}"
    program.run()  # what happens once only is over
    profile: Any = optbook.profile(program.run, "calls", budget=0.4)
    found = sentence(profile)
    assert found in str(profile)
    return found


@pytest.mark.alone
@pytest.mark.usefixtures("free_signal", "one_thread")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: f"{program.kind}: {program.name}")
def test_programs_of_a_known_kind(program: Program) -> None:
    assert told(program).startswith(f"{program.kind}: ")


@pytest.mark.alone
def test_the_log_has_the_kind() -> None:
    experiment = optbook.bench(PROGRAMS[0].run, "told")
    assert optbook.log().diagnosis.iloc[-1] == experiment.diagnosis == "waiting for data"
    assert experiment.evidence["wait_share"] >= MOST


def test_the_network_profile_knows_the_share_of_timed_calls() -> None:
    parts = (Component("a", 1.0, 0.9, 0.5), Component("b", 1.0, 0.7, 0.0))
    profile = NetworkProfile(Experiment(label="x"), once(), 2.0, {}, (), parts, None, 2)
    assert profile.evidence == {"network_share": pytest.approx(0.8)}
    assert diagnose(stored(profile.evidence)).kind == "network"
    assert NetworkProfile(Experiment(label="x"), once(), 2.0, {}, (), (), None, 2).evidence == {}


@pytest.mark.parametrize(
    ("own", "kind"),
    [
        (Figures(calls=1, forward=1.0, arithmetic=0.5), "arithmetic"),
        (Figures(calls=1, forward=1.0, memory=0.5), "memory bandwidth"),
        (Figures(calls=1, forward=1.0, memory=0.05), "not clear"),
        (Figures(calls=1, forward=1.0), "not clear"),
    ],
)
def test_the_module_profile_knows_which_roof_is_near(own: Figures, kind: str) -> None:
    model = Module("m", "Linear", own, 0, 0)
    profile = ModulesProfile(Experiment(label="x"), once(), once(), (model,), {"loss": 0.25}, 3)
    assert diagnose(stored(profile.evidence)).kind == kind


def once() -> Pass:
    return Pass(1.0, 1.0, 1.0, 1, 0)
