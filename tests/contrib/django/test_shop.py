"""The shop on a real PostgreSQL, in whole processes, with a query at the import of its tasks."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command

from tests.contrib.django.shop import tasks
from tests.e2e.harness import Worker, Workers, workers_on
from tests.postgres import Postgres, postgres
from tests.waiting import wait_until

MANAGE = (sys.executable, "-m", "tests.contrib.django.shop.manage")
SETTINGS = "tests.contrib.django.shop.settings"
ORDERS = 100
KILLED = 5


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as running:
        env = {**os.environ, "SHOP_PG": str(running.port), "DJANGO_SETTINGS_MODULE": SETTINGS}
        subprocess.run([*MANAGE, "migrate", "--run-syncdb", "-v0"], env=env, check=True)
        yield running


@pytest.fixture
def workers(url: str, tmp_path: Path, tasks_are: Callable[..., None]) -> Iterator[Workers]:
    with workers_on(url, tmp_path) as workers:
        yield workers


def start(workers: Workers, server: Postgres, *flags: str) -> Worker:
    """Make new orders, and start a worker."""
    with psycopg.connect(server.dsn, autocommit=True) as db:
        db.execute("truncate shop_order")
        db.execute(f"insert into shop_order select id, 'item ' || id, 0 from generate_series(1, {ORDERS}) id")
    flags = ("--retry-delay", "tests.contrib.django.shop.tasks:soon", "--delayed-task-check-interval", "0.05", *flags)
    env = {"SHOP_PG": str(server.port), "SHOP_REDIS": workers.url, "FASTQ_REDIS_URL": ""}
    return workers.start("fastq", "worker", f"--settings={SETTINGS}", *flags, app="", env=env, program=MANAGE)


def enqueue(ids: Sequence[int]) -> list[Any]:
    return [(tasks.aconfirm if pk % 10 == 0 else tasks.confirm).using(queue_name="mail").enqueue(pk) for pk in ids]


def are_done(worker: Worker, results: list[Any]) -> bool:
    assert worker.process.poll() is None, worker.text
    for result in results:
        if not result.is_finished:
            result.refresh()
        if not result.is_finished:
            return False  # no need to ask for the others
    return True


def paths_of_errors(results: list[Any]) -> set[str]:
    """Return the classes of errors; they are known in full once a traceback is written."""
    for result in results:
        result.refresh()
    return {error.exception_class_path for result in results for error in result.errors}


def check(server: Postgres, results: list[Any]) -> None:
    """See that each task has confirmed its order, over a connection that no other child has."""
    values = [result.return_value for result in results]
    assert [each["order"] if isinstance(each, dict) else each for each in values] == list(range(1, ORDERS + 1))
    with psycopg.connect(server.dsn) as db:
        assert db.execute("select count(*) from shop_order where confirmed = 0").fetchone() == (0,)
    pairs = {(each["child"], each["backend"]) for each in values if isinstance(each, dict)}
    assert len({backend for _, backend in pairs}) == len(pairs)


def test_children_have_connections_of_their_own_and_survive_a_restart_of_the_database(
    workers: Workers, server: Postgres
) -> None:
    worker = start(workers, server, "--concurrency", "2")
    results = enqueue(range(1, ORDERS // 2 + 1))
    wait_until(lambda: are_done(worker, results))
    assert {result.attempts for result in results} == {1}
    server.stop()
    results += enqueue(range(ORDERS // 2 + 1, ORDERS + 1))
    worker.wait_for("OperationalError")
    server.start(20)
    wait_until(lambda: are_done(worker, results))
    check(server, results)
    retried = [result for result in results if result.attempts > 1]
    assert all(each.started_at < each.last_attempted_at <= each.finished_at for each in retried)
    wait_until(lambda: "django.db.utils.OperationalError" in paths_of_errors(retried))
    assert worker.stop() == 0, worker.text
    assert "its import leaves" not in worker.text


def test_threads_have_connections_of_their_own_and_replace_those_that_broke(workers: Workers, server: Postgres) -> None:
    worker = start(workers, server, "--concurrency", "1", "--threads", "4")
    results = enqueue(range(1, ORDERS // 2 + 1))
    wait_until(lambda: are_done(worker, results))
    with psycopg.connect(server.dsn) as db:
        ended = db.execute(
            "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database() "
            "and pid <> pg_backend_pid() and backend_type = 'client backend'"
        ).fetchone()
    assert ended is not None
    assert 2 <= ended[0] <= 5  # of the threads, and of the coroutines
    results += enqueue(range(ORDERS // 2 + 1, ORDERS + 1))
    wait_until(lambda: are_done(worker, results))
    check(server, results)
    assert worker.stop() == 0, worker.text


def test_a_task_of_once_that_is_killed_after_its_commit_has_had_its_effects(workers: Workers, server: Postgres) -> None:
    worker = start(workers, server, "--concurrency", "2")
    results: list[Any] = [tasks.charge.enqueue(pk) for pk in range(1, KILLED + 1)]
    wait_until(lambda: are_done(worker, results))
    assert {result.attempts for result in results} == {2}
    with psycopg.connect(server.dsn) as db:
        kept = db.execute("select key, result from fastq_committedtask").fetchall()
        charged = db.execute("select id, confirmed from shop_order where confirmed > 0 order by id").fetchall()
    assert charged == [(pk, 1) for pk in range(1, KILLED + 1)]
    path = "tests.contrib.django.shop.tasks.charge_once"
    assert dict(kept) == {f"{result.id} {path}": result.return_value for result in results}
    assert worker.stop() == 0, worker.text


@pytest.mark.usefixtures("tasks_are")
def test_other_commands_have_the_redis_of_the_project(url: str) -> None:
    tasks.confirm.enqueue(1)
    env = {"SHOP_REDIS": url, "PATH": "", "DJANGO_SETTINGS_MODULE": SETTINGS}
    shown = subprocess.run([*MANAGE, "fastq", "queue", "ls"], env=env, capture_output=True, text=True, timeout=90)
    assert "default" in shown.stdout, shown.stderr
    with pytest.raises(CommandError, match="name a command, for example: fastq worker"):
        call_command("fastq")
