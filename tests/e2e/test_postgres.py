"""An app that talks to a real PostgreSQL: one connection for all children is named, one for each child serves."""

from collections.abc import Iterator

import pytest

from fastq import Client
from tests.e2e.harness import Worker, Workers
from tests.e2e.view import View
from tests.postgres import Postgres, postgres

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

OWN_BY_THREAD = """
import os
import threading
import time

import psycopg
from fastq import ServeMux

mux = ServeMux()
local = threading.local()

@mux.around
def with_connection(task):
    if not hasattr(local, "db"):
        local.db = psycopg.connect(os.environ["DSN"], autocommit=True)
    return local.db.transaction()

@mux.handler("square")
def square(task):
    number = task.json()
    answer, backend, _ = local.db.execute(
        "select %s::int8 * %s, pg_backend_pid(), pg_sleep(0.01)", [number, number]
    ).fetchone()
    assert answer == number * number, (number, answer)
    return threading.get_native_id(), backend
"""

HANDLER = """
@mux.handler("square")
def square(task):
    number = task.json()
    answer, backend = db.execute("select %s::int8 * %s, pg_backend_pid()", [number, number]).fetchone()
    assert answer == number * number, (number, answer)
    return os.getpid(), backend
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


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


def test_threads_keep_connections_of_their_own_and_close_them_at_the_end(
    workers: Workers, server: Postgres, client: Client, view: View
) -> None:
    ids = [client.enqueue("square", number, retention=600).id for number in range(300)]
    (workers.directory / "shop.py").write_text(OWN_BY_THREAD)
    flags = ("--burst", "--concurrency", "1", "--threads", "5")
    worker = workers.start(*flags, app="shop:mux", env={"DSN": server.dsn})
    assert worker.ended() == 0, worker.text
    assert (view.count("processed"), view.count("failed")) == (300, 0)
    pairs = {tuple(view.json_result(task_id)) for task_id in ids}
    threads, backends = zip(*pairs, strict=True)
    assert 1 < len(set(threads)) == len(set(backends)) == len(pairs) <= 5
    # One whose client has gone without a word would be in the log.
    assert "unexpected EOF on client connection" not in server.log
