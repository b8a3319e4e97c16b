"""A private PostgreSQL for tests and benchmarks; without one, or without psycopg, they are skipped.

FASTQ_REQUIRE_POSTGRES=1 makes that a failure.
"""

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.waiting import PATIENCE_S, wait_until


class Postgres:
    """A private server in a directory of its own, on a port of the loopback interface."""

    def __init__(self, programs: Path, directory: Path) -> None:
        self._programs = programs
        self._data = directory / "data"
        self._user: str | None = None
        if os.getuid() == 0:  # it refuses to run as root
            self._user = "nobody"
            os.chown(directory, pwd.getpwnam(self._user).pw_uid, -1)
        self.port = free_port()
        self._log = directory / "log"
        self._process: subprocess.Popen[bytes] | None = None
        subprocess.run(
            [programs / "initdb", "--no-sync", "--auth=trust", "--username=app", "-D", self._data],
            user=self._user,
            cwd="/",
            stdout=subprocess.DEVNULL,
            check=True,
        )

    @property
    def dsn(self) -> str:
        return f"host=127.0.0.1 port={self.port} user=app dbname=postgres"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, connections: int, durability: Sequence[str] = ("-F",)) -> None:
        options = ["-D", str(self._data), "-p", str(self.port), "-h", "127.0.0.1", "-k", ""]
        options += ["-c", f"max_connections={connections}", *durability]
        with self._log.open("wb") as file:
            program = self._programs / "postgres"
            self._process = subprocess.Popen([program, *options], user=self._user, cwd="/", stdout=file, stderr=file)
        wait_until(lambda: "ready to accept connections" in self.log)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)  # it waits for no connection
            self._process.wait(PATIENCE_S)


def _programs() -> Path:
    """Return where PostgreSQL's programs are; Debian has them outside of the path."""
    found = [Path(path) for path in (shutil.which("postgres"),) if path]
    found += Path("/usr/lib/postgresql").glob("*/bin/postgres")
    lacks = "" if found else "PostgreSQL is not installed"
    if importlib.util.find_spec("psycopg") is None:
        lacks = "psycopg is not installed"
    if lacks:
        (pytest.fail if os.environ.get("FASTQ_REQUIRE_POSTGRES") == "1" else pytest.skip)(lacks)
    return found[0].parent


@contextmanager
def postgres(connections: int = 20, durability: Sequence[str] = ("-F",)) -> Iterator[Postgres]:
    """Run a server that takes so many connections; as it comes, a crash of the machine may lose what it wrote."""
    programs = _programs()
    with tempfile.TemporaryDirectory(prefix="fastq-postgres-") as directory:
        server = Postgres(programs, Path(directory))
        try:
            server.start(connections, durability)
            yield server
        finally:
            server.stop()
