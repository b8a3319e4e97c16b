"""An app that talks to a real PostgreSQL: one connection for all children is named, one for each child serves.

Skipped without PostgreSQL and psycopg; FASTQ_REQUIRE_POSTGRES=1 makes that a failure.
"""

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastq import Client
from tests.e2e.harness import Worker, Workers
from tests.e2e.view import View
from tests.ports import free_port
from tests.waiting import PATIENCE_S, wait_until

SHARED = """
import os

import psycopg
from fastq import ServeMux

db = psycopg.connect(os.environ["DSN"], autocommit=True)
mux = ServeMux()
"""

OWN = """
import os

import psycopg
from fastq import ServeMux

mux = ServeMux()

@mux.child_start
def connect():
    global db
    db = psycopg.connect(os.environ["DSN"], autocommit=True)
"""

HANDLER = """
@mux.handler("square")
def square(task):
    number = task.json()
    answer, backend = db.execute("select %s::int8 * %s, pg_backend_pid()", [number, number]).fetchone()
    assert answer == number * number, (number, answer)
    return os.getpid(), backend
"""


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

    def start(self) -> None:
        options = ["-D", str(self._data), "-p", str(self.port), "-h", "127.0.0.1", "-k", "", "-F"]
        log = self._data.parent / "log"
        with log.open("wb") as file:
            program = self._programs / "postgres"
            self._process = subprocess.Popen([program, *options], user=self._user, cwd="/", stdout=file, stderr=file)
        wait_until(lambda: "ready to accept connections" in log.read_text())

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


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    programs = _programs()
    with tempfile.TemporaryDirectory(prefix="fastq-postgres-") as directory:
        server = Postgres(programs, Path(directory))
        try:
            server.start()
            yield server
        finally:
            server.stop()


def start(workers: Workers, server: Postgres, text: str, *flags: str) -> Worker:
    (workers.directory / "shop.py").write_text(text + HANDLER)
    return workers.start("--concurrency", "2", *flags, app="shop:mux", env={"DSN": server.dsn})


def test_a_connection_that_children_would_share_is_named_with_the_remedy(workers: Workers, server: Postgres) -> None:
    worker = start(workers, server, SHARED).is_ready()
    worker.wait_for(f"its import leaves a connection to 127.0.0.1:{server.port} open")
    worker.wait_for("connect in @mux.child_start, or use --start-method spawn")
    assert worker.stop() == 0, worker.text


@pytest.mark.parametrize(("text", "flags"), [(OWN, ()), (SHARED, ("--start-method", "spawn"))], ids=["hook", "spawn"])
def test_children_with_connections_of_their_own_read_their_own_answers(
    workers: Workers, server: Postgres, client: Client, view: View, text: str, flags: tuple[str, ...]
) -> None:
    ids = [client.enqueue("square", number, retention=600).id for number in range(500)]
    worker = start(workers, server, text, "--burst", *flags)
    assert worker.ended() == 0, worker.text
    assert "its import leaves" not in worker.text
    assert (view.count("processed"), view.count("failed")) == (500, 0)
    pairs = {tuple(view.json_result(task_id)) for task_id in ids}
    children, backends = zip(*pairs, strict=True)
    assert len(set(children)) == len(set(backends)) == len(pairs)
