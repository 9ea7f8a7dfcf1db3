"""Work in the background: in order, all of it, and no error is lost."""

from __future__ import annotations

import threading
from concurrent.futures import wait
from pathlib import Path

import pytest

from optbook.hotdog import background
from optbook.hotdog.background import Background, log_in_background
from optbook.hotdog.recipe import Recipe
from optbook.hotdog.training import train
from tests.test_hotdog_stages import paint


def test_work_is_done_in_order_by_one_other_thread() -> None:
    done: list[tuple[int, str]] = []
    beside = Background()
    for number in range(5):
        beside.do(lambda n: done.append((n, threading.current_thread().name)), number)
    beside.finish()
    assert [number for number, _ in done] == [0, 1, 2, 3, 4]
    assert {name for _, name in done} == {"hotdog_0"}
    beside.finish()


def test_nobody_waits_until_too_much_work_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "MOST_WAITING", 3)
    beside, gate, entered = Background(), threading.Event(), threading.Event()

    def pause() -> None:
        gate.wait()

    for _ in range(3):
        beside.do(pause)

    def fourth_piece() -> None:
        beside.do(entered.set)

    # The fourth piece waits for the first, and that for the gate.
    fourth = threading.Thread(target=fourth_piece)
    fourth.start()
    fourth.join(0.05)
    assert fourth.is_alive()
    gate.set()
    fourth.join()
    beside.finish()
    assert entered.is_set()


def fail() -> None:
    raise OSError("the disk is full")


def test_an_error_is_raised_by_the_next_call() -> None:
    beside = Background()
    beside.do(fail)
    with pytest.raises(OSError, match="the disk is full"):
        beside.finish()
    beside.finish()
    beside.do(fail)
    wait(beside._waiting)
    with pytest.raises(OSError, match="the disk is full"):
        beside.do(lambda: None)


def test_the_log_is_complete_when_training_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "LOG_EVERY", 2)
    recipe = Recipe.first().replace(
        input_size=16, width=2, batch_size=3, epochs=5, log=log_in_background, anomaly_detection=False
    )
    trained = train(recipe, paint(tmp_path), progress=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["step 2", "step 4"]
    assert lines[1].endswith(f"mean loss of 2 steps {sum(trained.losses[2:4]) / 2:.4f}")


def test_an_error_while_logging_ends_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        fail()

    monkeypatch.setattr(background, "LOG_EVERY", 1)
    monkeypatch.setattr(background, "_print_line", broken)
    recipe = Recipe.first().replace(input_size=16, width=2, epochs=1, log=log_in_background)
    with pytest.raises(OSError, match="the disk is full"):
        train(recipe, paint(tmp_path), progress=False)
