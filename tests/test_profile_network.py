"""The network profile on real transfers, with restored methods, and with a stand-in for tshark."""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import ssl
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from optbook import span
from optbook.benchmark.meters.network import Traffic
from optbook.benchmark.profiles import capture, network, passes
from optbook.benchmark.profiles.capture import Conversation, find_tshark, summed
from optbook.benchmark.profiles.network import NetworkProfile, network_profile, network_ready
from optbook.benchmark.profiles.network_calls import OUTSIDE, NetworkCalls
from optbook.benchmark.profiles.request import Request
from optbook.benchmark.recorder import track
from optbook.benchmark.runner import Workload
from optbook.errors import OptbookError
from optbook.experiments.record import Experiment
from tests.fakes import FakeClock

SIZE = 2_000_000
DELAY = 0.05
REPLACED = ("send", "sendall", "recv", "recv_into", "connect", "accept", "sendfile")
# The output of tshark 4.0.17 for a request over HTTP and a datagram over IPv6, both over loopback.
RECORDED = """\
1796130548.337663647\t76\tsll:ethertype:ip:tcp\t127.0.0.1\t127.0.0.1\t\t\t44684\t46095\t\t
1796130548.337676091\t76\tsll:ethertype:ip:tcp\t127.0.0.1\t127.0.0.1\t\t\t46095\t44684\t\t
1796130548.337708652\t68\tsll:ethertype:ip:tcp\t127.0.0.1\t127.0.0.1\t\t\t44684\t46095\t\t
1796130548.337752324\t187\tsll:ethertype:ip:tcp:http\t127.0.0.1\t127.0.0.1\t\t\t44684\t46095\t\t
1796130548.338301083\t5068\tsll:ethertype:ip:tcp:http:data\t127.0.0.1\t127.0.0.1\t\t\t46095\t44684\t\t
1796130548.343007389\t364\tsll:ethertype:ipv6:udp:data\t\t\t::1\t::1\t\t\t42978\t35009
"""
SECONDS = 1796130548.338301083 - 1796130548.337663647
HTTP = Conversation("127.0.0.1:44684", "127.0.0.1:46095", "HTTP", 5, 5475, SECONDS)
DATAGRAM = Conversation("[::1]:35009", "[::1]:42978", "UDP", 1, 364, 0.0)


def profiled(work: Callable[[], object], runs: int = 1, **options: object) -> NetworkProfile:
    bare = Experiment(label="<b>fetch</b>", seconds=1.0, runs=runs, executions=runs)
    return network_profile(Request(Workload(work), work, bare, options=options))


def call(p: NetworkProfile, component: str, operation: str, thread: str = "") -> network.NetworkCall:
    found = {(c.component, c.operation, c.thread): c for c in p.calls}
    return found[component, operation, thread]


@contextmanager
def server(delay: float = 0.0) -> Iterator[tuple[str, int]]:
    """Sends SIZE bytes to whoever connects, after a while."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                connection, _ = listening.accept()
                with connection:
                    if connection.recv(100) == b"end":
                        return
                    time.sleep(delay)
                    connection.sendall(bytes(SIZE))

        thread = threading.Thread(target=serve, name="server")
        thread.start()
        try:
            yield listening.getsockname()
        finally:
            with socket.create_connection(listening.getsockname()) as last:
                last.sendall(b"end")
            thread.join()


def fetch(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as connection:
        connection.sendall(b"please")
        while connection.recv(1 << 16):
            pass


def compute(seconds: float = DELAY) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def methods() -> dict[str, object]:
    return {name: vars(socket.socket).get(name) for name in REPLACED} | {
        "enter": span.__enter__,
        "exit": span.__exit__,
        "look up": socket.getaddrinfo,
    }


def test_network_time_stands_apart_from_work_by_span() -> None:
    before = methods()
    with server(DELAY) as address:

        def work() -> None:
            with span("step"):
                with span("fetch"):
                    fetch(address)
                with span("train"):
                    compute()
            fetch(address)

        p = profiled(work)
    assert methods() == before
    received = call(p, "fetch", "socket.recv")
    assert (received.bytes, call(p, OUTSIDE, "socket.recv").bytes) == (SIZE, SIZE)
    assert call(p, "fetch", "socket.sendall").bytes == len(b"please")
    assert call(p, OUTSIDE, "socket.sendall", "server").bytes == 2 * SIZE
    assert received.waiting > 0.8 * DELAY
    parts = {part.name: part for part in p.components}
    assert parts["train"].network == 0
    assert parts["train"].work >= DELAY
    assert parts["fetch"].work < 0.3 * parts["fetch"].network
    assert parts["step"].seconds < 0.3 * DELAY, "without the spans inside"
    assert sum(part.seconds for part in p.components) == pytest.approx(p.seconds)
    assert max(t.bytes_sent for t in p.interfaces.values()) > 2 * SIZE
    assert "network" in str(p).splitlines()[0]


def test_text_page_and_tables() -> None:
    with server() as address:

        def work() -> None:
            with span("<i>fetch</i>"):
                fetch(address)

        p = profiled(work, runs=2)
    assert "&lt;i&gt;fetch" in p._repr_html_()
    assert "<i>" not in p._repr_html_()
    assert "<b>fetch</b>" not in p._repr_html_()
    for text in ("socket.recv", "3.81 MiB", "child processes", "whole machine's", "4 times in all"):
        assert text in str(p)
    frame = p.to_frame()
    assert frame[frame.operation == "socket.recv"].groupby("component")["bytes"].sum().max() == 2 * SIZE
    interfaces = p.to_frame("interfaces").set_index("interface")
    assert (interfaces.bytes_sent / p.seconds).equals(interfaces.bytes_sent_per_s)
    assert len(p.to_frame("components")) == len(p.components)
    assert p.to_frame("conversations").empty
    assert p.overhead == p.run.seconds


def test_without_any_traffic_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "counters", lambda: {"lo": Traffic()})
    p = profiled(compute)
    assert str(p).splitlines()[0] == "<b>fetch</b>: no network traffic"
    assert "<table" not in p._repr_html_()
    assert p.to_frame().empty


def test_traffic_of_others_and_a_vanished_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([{"lo": Traffic(), "tun0": Traffic(9, 9, 9, 9)}, {"lo": Traffic(500, 500, 5, 5)}])
    monkeypatch.setattr(network, "counters", lambda: next(readings))
    p = profiled(compute)
    assert str(p).splitlines()[0].endswith("no network calls in this process")
    assert p.interfaces == {"lo": Traffic(500, 500, 5, 5)}
    assert "interface tun0 vanished meanwhile" in str(p)


def test_of_a_tracked_loop_only_the_steps_count() -> None:
    with server() as address:

        def work() -> None:
            fetch(address)
            with span("loop"):
                for _ in track(range(5)):
                    fetch(address)

        bare = Experiment(label="loop", seconds=10.0, steps=4, warmup=1, executions=1)
        p = network_profile(Request(Workload(work), work, bare))
    assert p.run.steps == passes.FEWEST_STEPS
    assert call(p, "loop", "socket.recv").bytes == p.run.steps * SIZE
    assert OUTSIDE not in {c.component for c in p.calls if not c.thread}
    assert {part.name: part.seconds for part in p.components}["loop"] == pytest.approx(p.seconds)


def test_all_is_put_back_after_an_error_which_counts_no_bytes() -> None:
    before = methods()
    kept = socket.socket()

    def work() -> None:
        with pytest.raises(OSError, match=r"not connected|[Pp]ipe"):
            kept.sendall(b"x" * 1000)
        raise KeyError("mine")

    with kept, pytest.raises(KeyError, match="mine"):
        profiled(work)
    assert methods() == before


def test_what_others_replace_meanwhile_is_left_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> None:
        ours: Any = socket.socket.recv
        monkeypatch.setattr(socket.socket, "recv", lambda *arguments: ours(*arguments)[::-1], raising=False)

    profiled(work)
    a, b = socket.socketpair(socket.AF_UNIX)
    with a, b:
        a.sendall(b"abc")
        assert b.recv(9) == b"cba"
    assert "send" not in vars(socket.socket)


def test_nested_calls_count_once_and_local_sockets_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    class Twice(socket.socket):
        def recv_all(self) -> bytes:
            return b"".join(iter(lambda: self.recv(1 << 16), b""))

    with server() as address:

        def work() -> None:
            a, b = socket.socketpair(socket.AF_UNIX)
            with a, b:
                a.sendall(b"local")
                b.recv(9)
            with Twice() as connection:
                connection.connect(address)
                with connection.makefile("rwb") as file:
                    file.write(b"please")
                    file.flush()
                    assert len(file.read(1000)) == 1000
                assert len(connection.recv_all()) > 0

        p = profiled(work)
    mine = [c for c in p.calls if not c.thread]
    assert {c.operation for c in mine} == {
        "socket.connect", "socket.send", "socket.recv_into", "socket.recv"
    }  # fmt: skip
    assert sum(c.bytes for c in mine) == SIZE + len(b"please")


def test_tls_counts_what_it_carries_once() -> None:
    def context(side: int) -> ssl.SSLContext:
        found = ssl.SSLContext(side)
        found.check_hostname, found.verify_mode = False, ssl.CERT_NONE
        found.maximum_version = ssl.TLSVersion.TLSv1_2
        found.set_ciphers("AECDH-AES256-SHA:@SECLEVEL=0")  # needs no certificate
        return found

    def serve() -> None:
        connection, _ = listening.accept()
        with context(ssl.PROTOCOL_TLS_SERVER).wrap_socket(connection, server_side=True) as tls:
            tls.recv(10)
            tls.sendall(bytes(10_000))

    def work() -> None:
        threads = [threading.Thread(target=serve) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in threads:
            plain = socket.create_connection(listening.getsockname())
            with context(ssl.PROTOCOL_TLS_CLIENT).wrap_socket(plain) as tls:
                tls.sendall(b"please")
                while tls.recv(1 << 16):
                    pass
        for thread in threads:
            thread.join()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        p = profiled(work)
    assert (call(p, OUTSIDE, "ssl.recv").bytes, call(p, OUTSIDE, "ssl.sendall").bytes) == (20_000, 12)
    assert call(p, OUTSIDE, "ssl.do_handshake").calls == 2
    assert call(p, OUTSIDE, "ssl.sendall", "Thread (serve)").calls == 2
    assert {c.operation for c in p.calls if c.operation.startswith("socket.")} == {
        "socket.accept", "socket.connect", "socket.getaddrinfo"
    }  # fmt: skip


def test_asyncio_is_counted_and_its_waits_are_declared_missing() -> None:
    async def fetched() -> int:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"please")
        found = await reader.read(-1)
        writer.close()
        await writer.wait_closed()
        return len(found)

    with server() as address:
        p = profiled(lambda: asyncio.run(fetched()))
    assert sum(c.bytes for c in p.calls if c.operation == "socket.recv" and not c.thread) == SIZE
    assert network.UNBLOCKED in p.notes
    assert network.UNBLOCKED not in profiled(compute).notes


def test_spans_of_tasks_and_threads_are_their_own() -> None:
    clock = FakeClock()
    calls = NetworkCalls(lambda: clock.time, cpu=lambda: 0.0)
    calls.start()
    calls.counting = True
    barrier = threading.Barrier(2, timeout=10)

    def in_thread() -> None:
        with span("theirs"):
            barrier.wait()
            socket.getaddrinfo("127.0.0.1", 80)
            barrier.wait()

    async def in_task(name: str) -> None:
        with span(name):
            await asyncio.sleep(0)
            socket.getaddrinfo("127.0.0.1", 80)
            await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(in_task("one"), in_task("two"))

    try:
        thread = threading.Thread(target=in_thread, name="other")
        thread.start()
        with span("mine"):
            barrier.wait()
            socket.getaddrinfo("127.0.0.1", 80)
            clock.spend(3)
            barrier.wait()
        thread.join()
        asyncio.run(both())
    finally:
        calls.stop()
    seen = {
        (thread.name, *key): total.calls for thread in calls.threads for key, total in thread.calls.items()
    }
    assert seen == {
        ("", "mine", "socket.getaddrinfo"): 1,
        ("", "one", "socket.getaddrinfo"): 1,
        ("", "two", "socket.getaddrinfo"): 1,
        ("other", "theirs", "socket.getaddrinfo"): 1,
    }
    mine = next(thread for thread in calls.threads if not thread.name)
    assert mine.spans == {"mine": 3.0, "one": 0.0, "two": 0.0}


def peer(rendezvous: str) -> None:
    """The second of two processes; it comes late to every collective."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=rendezvous, rank=1, world_size=2)
    numbers = torch.ones(1000)
    dist.barrier()
    for _ in range(2):
        time.sleep(DELAY)
        dist.all_reduce(numbers)
    time.sleep(DELAY)
    dist.recv(numbers, 0)
    dist.all_gather([torch.empty(1000), torch.empty(1000)], numbers)
    time.sleep(DELAY)
    dist.barrier()
    dist.destroy_process_group()


def test_collectives_of_two_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    import torch.distributed as dist

    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    rendezvous = (tmp_path / "rendezvous").as_uri()
    child = multiprocessing.get_context("spawn").Process(target=peer, args=(rendezvous,))
    child.start()
    dist.init_process_group("gloo", init_method=rendezvous, rank=0, world_size=2)
    before = {name: vars(dist.ProcessGroup)[name] for name in ("allreduce", "barrier")}
    wait = vars(dist.Work)["wait"]
    numbers = torch.ones(1000)

    def work() -> None:
        with span("meet"):
            dist.barrier()
        with span("sync"):
            dist.all_reduce(numbers)
        handle = dist.all_reduce(numbers, async_op=True)
        with span("join"):
            handle.wait()
        with span("train"):
            compute()
        dist.send(numbers, 1)
        dist.all_gather([torch.empty(1000), torch.empty(1000)], numbers)
        dist.barrier()

    try:
        p = profiled(work)
        child.join(60)
    finally:
        dist.destroy_process_group()
        child.kill()
    assert child.exitcode == 0
    assert {name: vars(dist.ProcessGroup)[name] for name in before} == before
    assert vars(dist.Work)["wait"] is wait
    synced, started = call(p, "sync", "dist.all_reduce"), call(p, OUTSIDE, "dist.all_reduce")
    joined = call(p, "join", "dist.all_reduce")
    assert (synced.calls, synced.bytes) == (1, 4000)
    assert (started.calls, started.bytes, joined.calls, joined.bytes) == (1, 4000, 0, 0)
    assert synced.waiting > 0.5 * DELAY
    assert started.seconds < 0.5 * joined.seconds
    assert call(p, OUTSIDE, "dist.send").bytes == 4000
    assert call(p, OUTSIDE, "dist.all_gather").bytes == 8000
    assert call(p, OUTSIDE, "dist.barrier").waiting > 0.5 * DELAY
    parts = {part.name: part for part in p.components}
    assert (parts["train"].network, parts["sync"].work < 0.3 * parts["sync"].network) == (0, True)
    assert network.IN_C in p.notes


@pytest.fixture
def tshark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Answers as tshark does; the packets are those recorded, moved to the time in ``now``."""
    (tmp_path / "recorded").write_text(RECORDED)
    return stand_in(
        tmp_path,
        monkeypatch,
        f"""
folder = pathlib.Path({str(tmp_path)!r})
if "-w" in sys.argv:
    pathlib.Path(sys.argv[sys.argv.index("-w") + 1]).write_text("header")
    signal.pause()
if "-r" in sys.argv:
    now = float((folder / "now").read_text())
    for i, line in enumerate((folder / "recorded").read_text().splitlines()):
        when, rest = line.split("\\t", 1)
        print(now + float(when) - 1796130548.337663647 + 100 * (i == 5), rest, sep="\\t")
""",
    )


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> Path:
    path = folder / "bin" / "tshark"
    path.parent.mkdir()
    path.write_text(f"#!{sys.executable}\nimport pathlib, signal, sys\n{body}")
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", str(path.parent))
    return path


def test_conversations_are_added_up() -> None:
    assert summed(RECORDED.splitlines(), [(0, 1796130549)]) == (HTTP, DATAGRAM)
    assert summed(RECORDED.splitlines(), [(0, 1796130548.3377), (1796130548.343, 1796130549)])[1].packets == 2
    assert summed(RECORDED.splitlines(), []) == ()


def test_a_capture_shows_the_conversations_of_the_runs(tshark: Path, tmp_path: Path) -> None:
    def work() -> None:
        (tmp_path / "now").write_text(repr(time.time()))
        time.sleep(0.01)

    p = profiled(work, capture=True)
    assert p.conversations is not None
    (found,) = p.conversations  # the datagram came later
    assert replace(found, seconds=SECONDS) == HTTP
    assert found.seconds == pytest.approx(SECONDS, rel=1e-2)
    assert "127.0.0.1:44684 – 127.0.0.1:46095  HTTP" in str(p)
    assert p.to_frame("conversations").packets.tolist() == [5]
    assert network.SHORT not in p.notes
    assert not list(Path(tmp_path).glob("optbook-capture-*"))


def test_a_capture_is_ended_when_the_workload_raises(tshark: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int | None] = []
    end = capture.Capture._end

    def noted(self: capture.Capture) -> None:
        end(self)
        ended.append(self._process.poll())

    monkeypatch.setattr(capture.Capture, "_end", noted)
    with pytest.raises(ZeroDivisionError):
        profiled(lambda: 1 / 0, capture=True)
    assert ended != [None]
    assert len(ended) == 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "print('Running as user \"root\".', file=sys.stderr)\n"
            "sys.exit('tshark: You do not have permission to capture on device \"any\".\\n(socket: …)')",
            r"may not capture here: give its dumpcap the right .*, or profile without the capture; "
            r'it says: You do not have permission to capture on device "any"\.$',
        ),
        ("sys.exit(3)", "it says: exit status 3$"),
        ("if '-w' in sys.argv: sys.exit(1)", "tshark did not begin to capture: see `tshark -D`"),
        (
            "if '-w' in sys.argv:\n"
            "    pathlib.Path(sys.argv[sys.argv.index('-w') + 1]).write_text('x')\n"
            "    signal.pause()\n"
            "if '-r' in sys.argv: sys.exit('tshark: cut short')",
            "tshark could not read its capture: .*it says: tshark: cut short$",
        ),
    ],
)
def test_a_tshark_that_does_not_work_gives_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, message: str
) -> None:
    stand_in(tmp_path, monkeypatch, body)
    before = methods()
    with pytest.raises(OptbookError, match=message) as raised:
        profiled(lambda: None, capture=True)
    assert "\n" not in str(raised.value)
    assert methods() == before


def test_a_missing_tshark_is_said_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    ran: list[int] = []
    request = Request(
        Workload(lambda: ran.append(1)), ran.append, Experiment(label=""), options={"capture": True}
    )
    with pytest.raises(OptbookError, match="needs tshark, which is not on PATH: install it"):
        network_ready(request)
    with pytest.raises(OptbookError, match="needs tshark"):
        network_profile(request)
    assert ran == []
    network_ready(Request(Workload(compute), compute, Experiment(label="")))


def test_a_tshark_that_can_not_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, "").write_text("#!/nowhere/python\n")
    with pytest.raises(OptbookError, match=r"tshark does not run .*: install it anew, or profile without"):
        find_tshark()
