"""``%stub``, ``%%stub``, ``%unstub`` and ``%%bench --stub`` in a real shell."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import optbook
from optbook.simplify import stubs
from tests.shells import shell_with_optbook

Run = Callable[[str], Any]
SYSTEM = """
def decode(i):
    return [i] * 3
def augment(x, scale=2):
    return [v * scale for v in x]
def work():
    return [augment(decode(i)) for i in range(5)]
"""


@pytest.fixture
def shell() -> Iterator[Any]:
    with shell_with_optbook() as shell:
        shell.run_cell(SYSTEM)
        yield shell
        stubs.remove_all()


@pytest.fixture
def run(shell: Any) -> Run:
    return lambda cell: shell.run_cell(cell, store_history=True)


def test_without_stubs_the_list_says_so(run: Run) -> None:
    assert str(run("%stub").result) == "no stubs: every component is the real one"
    assert "<table" not in run("%stub").result._repr_html_()


def test_a_stub_replays_and_is_listed_with_its_calls(run: Run) -> None:
    assert run("%stub decode").success
    run("work(); work()")
    [listed] = run("%stub").result.stubs
    assert (listed.name, listed.kind, listed.calls, listed.misses) == ("decode", "replay", 10, 0)
    assert "decode" in run("%stub").result._repr_html_()
    assert run("%unstub decode").success
    assert stubs.active() == ()


def test_a_body_sees_the_arguments_and_the_real_component(run: Run) -> None:
    assert run("%%stub augment\nreal(x, scale) + [scale]").success
    assert run("augment([1], scale=3)").result == [3, 3]
    assert run("%unstub --all").success
    assert run("augment([1])").result == [2]


@pytest.mark.parametrize(
    ("line", "call", "expected"),
    [
        ("%stub decode value --value [7]", "decode(1)", [7]),
        ("%stub decode skip", "decode(1)", None),
        ("%stub decode spin --seconds 0 --value 3", "decode(1)", 3),
        ("%stub decode sleep --seconds 0 --value 3", "decode(1)", 3),
        ("%stub decode dummy --like [1.5]", "type(decode(1))", list),
    ],
)
def test_kinds_and_their_options(run: Run, line: str, call: str, expected: object) -> None:
    assert run(line).success
    assert run(call).result == expected


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("%stub decod", "did you mean decode?"),
        ("%stub decode reply", "did you mean replay?"),
        ("%stub decode replay --seconds 1", "has no option 'seconds'"),
        ("%stub decode sleep --seconds -1", "give a number from 0 on"),
        ("%stub decode --nothing", "unknown option --nothing"),
        ("%stub print", "can't be replaced"),
        ("%%stub decode sleep\nx", "leave out the kind and options"),
        ("%unstub decode", "there is no stub of 'decode'"),
        ("%unstub", "takes the name of a component, or --all"),
        ("%unstub decode --all", "takes the name of a component, or --all"),
        ("%%bench x --stub nothing\nwork()", "there is no 'nothing' here"),
        ("%%bench x --stub decode:reply\nwork()", "did you mean replay?"),
    ],
)
def test_what_cannot_be_used_gives_one_line(
    run: Run, capsys: pytest.CaptureFixture[str], cell: str, message: str
) -> None:
    assert not run(cell).success
    err = capsys.readouterr().err.strip()
    assert message in err
    assert "\n" not in err
    assert stubs.active() == ()


def test_a_body_that_is_no_python_is_refused(run: Run) -> None:
    assert not run("%%stub decode\nreturn = 3").success
    assert stubs.active() == ()


def test_bench_marks_what_was_stubbed_and_takes_it_away(run: Run) -> None:
    experiment = run("%%bench faked --runs 7 --stub decode --metric size=len(work()[0])\nwork()").result
    assert experiment.stubs == "decode"
    assert optbook.log().iloc[-1].stubs == "decode"
    assert "not a figure of the real system" in str(experiment)
    assert any("not valid: size" in warning for warning in experiment.warnings)
    assert stubs.active() == ()


def test_an_active_stub_is_marked_in_every_measurement(run: Run) -> None:
    run("%stub decode value --value [1]")
    assert run("%%bench one --runs 2\nwork()").result.stubs == "decode"
    run("%unstub decode")
    assert run("%%bench two --runs 2\nwork()").result.stubs == ""


def test_a_stub_that_is_never_called_is_a_warning(run: Run) -> None:
    run("def lonely(): pass")
    experiment = run("%%bench x --runs 2 --stub lonely\nwork()").result
    assert any("never called" in warning for warning in experiment.warnings)


def test_a_stub_that_mostly_recorded_is_a_warning(run: Run) -> None:
    few = run("%%bench x --runs 1 --stub decode\nwork()").result
    assert any("4 of 5 calls of decode were real, to record" in warning for warning in few.warnings)
    many = run("%%bench x --runs 9 --stub decode\nwork()").result
    assert not any("to record" in warning for warning in many.warnings)


def test_a_bench_that_raises_takes_its_stubs_away(run: Run) -> None:
    assert not run("%%bench x --runs 2 --stub decode\nwork(); 1 / 0").success
    assert stubs.active() == ()


def test_unloading_takes_all_stubs_away(run: Run) -> None:
    run("%stub decode skip")
    assert run("%unload_ext optbook").success
    assert stubs.active() == ()
    assert run("decode(1)").result == [1, 1, 1]
