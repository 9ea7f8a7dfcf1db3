"""A real PostgreSQL server for tests, in a folder of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

PASSWORD = "s3cret-Pa55"
QUICK = ("fsync=off", "listen_addresses=127.0.0.1")


class Server:
    """A server that can be stopped and started again; ``url`` is that of an empty database."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = _free_port()
        self.is_down = True
        self.url = f"postgresql+psycopg://optbook:{PASSWORD}@127.0.0.1:{self.port}/postgres"
        password = folder / "password"
        password.write_text(PASSWORD)
        _hand_over(folder)
        how = ("--auth=scram-sha-256", f"--pwfile={password}", "--username=optbook", "--no-sync")
        _run("initdb", "-D", str(folder / "data"), *how, "--encoding=UTF8", "--locale=C")

    def start(self) -> None:
        """Begin to listen."""
        options = " ".join(f"-c {option}" for option in (*QUICK, f"unix_socket_directories={self.folder}"))
        log = str(self.folder / "log")
        _run("pg_ctl", "-D", self._data, "-w", "-l", log, "-o", f"-p {self.port} {options}", "start")
        self.is_down = False

    def stop(self) -> None:
        """Hang up, at once."""
        _run("pg_ctl", "-D", self._data, "-w", "-m", "immediate", "stop")
        self.is_down = True

    @property
    def _data(self) -> str:
        return str(self.folder / "data")


@contextmanager
def server() -> Iterator[Server]:
    """A server that runs meanwhile."""
    folder = Path(tempfile.mkdtemp(prefix="optbook-pg-"))
    found = Server(folder)
    found.start()
    try:
        yield found
    finally:
        if not found.is_down:
            found.stop()
        shutil.rmtree(folder)


def _run(*command: str) -> None:
    done = subprocess.run(
        _as_user(*command), capture_output=True, text=True, check=False, cwd="/", user=_user()
    )
    assert done.returncode == 0, (command, done.stdout[-500:], done.stderr[-500:])


def _as_user(name: str, *arguments: str) -> Sequence[str]:
    """The program, where Debian keeps it or on the path. A machine without one fails the tests."""
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = str(places[-1]) if places else shutil.which(name)
    assert found, f"tests of a shared log need PostgreSQL's {name}: apt-get install postgresql"
    return [found, *arguments]


def _user() -> str | None:
    """The server refuses to run as root."""
    return "postgres" if os.geteuid() == 0 else None


def _hand_over(folder: Path) -> None:
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
        for path in folder.iterdir():
            shutil.chown(path, "postgres")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
