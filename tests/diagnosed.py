"""Small programs whose bottleneck is known, for tests of the diagnosis."""

from __future__ import annotations

import asyncio
import functools
import json
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from optbook import track

ITEM = 0.008
SIDE = 600
LARGE = 4_000_000

matrix = np.ones((SIDE, SIDE))
array, target = np.ones(LARGE), np.empty(LARGE)
small, tiny_tensor = np.ones(4), torch.ones(4)
tensor_matrix, tensor = torch.ones(SIDE, SIDE), torch.ones(LARGE)
text = json.dumps(list(range(200_000)))
layer = torch.nn.Conv2d(32, 32, 3, padding=1)
pictures = torch.randn(8, 32, 48, 48)


def spin(seconds: float) -> int:
    """Python code for so long."""
    turns, end = 0, time.thread_time() + seconds
    while time.thread_time() < end:
        turns += 1
    return turns


# --- waiting for data


def loader_that_sleeps() -> None:
    def items() -> Iterator[int]:
        for i in range(25):
            time.sleep(ITEM)
            yield i

    for _ in track(items()):
        sum(range(1000))


def loader_that_works() -> None:
    def items() -> Iterator[int]:
        for _ in range(25):
            yield spin(ITEM)

    for _ in track(items()):
        sum(range(1000))


def loader_in_a_thread() -> None:
    filled: queue.Queue[int] = queue.Queue()

    def fill() -> None:
        for i in range(25):
            time.sleep(ITEM)
            filled.put(i)

    thread = threading.Thread(target=fill)
    thread.start()
    for _ in track(filled.get() for _ in range(25)):
        sum(range(1000))
    thread.join()


def loader_in_a_process() -> None:
    """A child process that makes items in Python."""
    code = """
import time
for i in range(25):
    end = time.time() + 0.008
    while time.time() < end:
        pass
    print(i, flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        for _ in track(iter(child.stdout.readline, b"")):
            sum(range(1000))


# --- idle


def asleep() -> None:
    time.sleep(0.05)


def waits_for_an_event() -> None:
    threading.Event().wait(0.05)


def waits_for_a_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire(timeout=0.05)


async def awaits() -> None:
    await asyncio.sleep(0.05)


def waits_for_a_sleeping_child() -> None:
    subprocess.run(["sleep", "0.1"], check=True)


# --- Python overhead


def loop() -> None:
    total = 0
    for i in range(500_000):
        total += i * i


def words() -> None:
    count: dict[str, int] = {}
    for i in range(100_000):
        word = f"word {i % 100}"
        count[word] = count.get(word, 0) + len(word)


def fibonacci() -> None:
    def fib(n: int) -> int:
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    fib(21)


def element_by_element() -> None:
    total = 0.0
    for i in range(200_000):
        total += array[i]


def tiny_arrays() -> None:
    value = small
    for _ in range(50_000):
        value = np.sqrt(value)


def tiny_tensors() -> None:
    value = tiny_tensor
    for _ in range(20_000):
        value = value * tiny_tensor + tiny_tensor


# --- arithmetic


def matmul() -> None:
    for _ in range(5):
        np.matmul(matrix, matrix)


def matmul_operator() -> None:
    for _ in range(5):
        matrix @ matrix


def torch_mm() -> None:
    for _ in range(10):
        torch.mm(tensor_matrix, tensor_matrix)


def training_a_convolution() -> None:
    for _ in range(4):
        layer(pictures).sum().backward()


def linear_system() -> None:
    for _ in range(3):
        np.linalg.solve(matrix + np.eye(SIDE), matrix)


# --- memory bandwidth


def copying() -> None:
    for _ in range(15):
        np.copyto(target, array)


def adding() -> None:
    for _ in range(15):
        np.add(array, target, out=target)


def adding_by_operator() -> None:
    for _ in range(10):
        array + array


def cloning_tensors() -> None:
    for _ in range(15):
        tensor.clone()


# --- network


def a_slow_peer() -> None:
    here, there = socket.socketpair()

    def send() -> None:
        for _ in range(10):
            time.sleep(ITEM)
            there.sendall(b"x")

    thread = threading.Thread(target=send)
    thread.start()
    for _ in range(10):
        here.recv(1)
    thread.join()
    here.close()
    there.close()


def a_slow_server() -> None:
    def serve(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            while connection.recv(1):
                time.sleep(ITEM)
                connection.sendall(b"y")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        with socket.create_connection(listening.getsockname()) as connection:
            for _ in range(10):
                connection.sendall(b"x")
                connection.recv(1)
        thread.join()


# --- not clear


def half_python_half_sleep() -> None:
    for _ in range(5):
        spin(ITEM)
        time.sleep(ITEM)


def half_arithmetic_half_copies() -> None:
    for _ in range(2):
        end = time.thread_time() + 2 * ITEM
        while time.thread_time() < end:
            np.matmul(matrix, matrix)
        end = time.thread_time() + 2 * ITEM
        while time.thread_time() < end:
            np.copyto(target, array)


def half_loader_half_step() -> None:
    def items() -> Iterator[int]:
        for i in range(20):
            time.sleep(ITEM)
            yield i

    for _ in track(items()):
        spin(ITEM)


def next_to_nothing() -> None:
    pass


def unnamed_calls_into_c() -> None:
    for _ in range(10):
        json.loads(text)


def waits_for_a_busy_child() -> None:
    code = "import time\ne=time.process_time()+0.3\nwhile time.process_time()<e: pass"
    subprocess.run([sys.executable, "-c", code], check=True)


@dataclass(frozen=True)
class Program:
    """A program, the kind of its bottleneck, and by what it is told: bench, or the profile of calls."""

    run: Callable[[], object]
    kind: str
    profiled: bool = False

    @property
    def name(self) -> str:
        return getattr(self.run, "__name__", "")


_profiled = functools.partial(Program, profiled=True)

PROGRAMS = (
    *(
        Program(run, "waiting for data")
        for run in (loader_that_sleeps, loader_that_works, loader_in_a_thread, loader_in_a_process)
    ),
    *(
        Program(run, "idle")
        for run in (asleep, waits_for_an_event, waits_for_a_lock, awaits, waits_for_a_sleeping_child)
    ),
    *(
        _profiled(run, "Python overhead")
        for run in (loop, words, fibonacci, element_by_element, tiny_arrays, tiny_tensors)
    ),
    *(
        _profiled(run, "arithmetic")
        for run in (matmul, matmul_operator, torch_mm, training_a_convolution, linear_system)
    ),
    *(_profiled(run, "memory bandwidth") for run in (copying, adding, adding_by_operator, cloning_tensors)),
    *(_profiled(run, "network") for run in (a_slow_peer, a_slow_server)),
    *(
        _profiled(run, "not clear")
        for run in (half_python_half_sleep, half_arithmetic_half_copies, unnamed_calls_into_c)
    ),
    *(
        Program(run, "not clear")
        for run in (half_loader_half_step, next_to_nothing, waits_for_a_busy_child, loop, matmul)
    ),
)
