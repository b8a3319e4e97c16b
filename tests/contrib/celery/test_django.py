"""A Celery project in Django, without Django's tasks: its workers set it up, and keep its connections fresh."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fastq.contrib.celery import Celery
from tests.e2e.harness import ROOT, Worker, Workers, workers_on
from tests.postgres import Postgres, postgres
from tests.waiting import wait_until

django = pytest.importorskip("django")

pytestmark = pytest.mark.slow

SETTINGS = "tests.contrib.django.shop.plain_settings"
CHILDREN = 2


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as running:
        env = {**os.environ, "SHOP_PG": str(running.port), "DJANGO_SETTINGS_MODULE": SETTINGS}
        subprocess.run(
            [sys.executable, "-m", "django", "migrate", "--run-syncdb", "-v0"], cwd=ROOT, env=env, check=True
        )
        yield running


@pytest.fixture
def workers(url: str, tmp_path: Path) -> Iterator[Workers]:
    with workers_on(url, tmp_path) as workers:
        yield workers


def confirmed(app: Celery, worker: Worker, ids: Sequence[int]) -> list[Any]:
    """Have orders confirmed, and return the results once all of them are there."""
    results = [app.send_task("confirm", [order]) for order in ids]

    def are_ready() -> bool:
        assert worker.process.poll() is None, worker.text
        return all(result.ready() for result in results)

    wait_until(are_ready)
    return results


def test_its_workers_set_up_django_and_survive_a_restart_of_the_database(workers: Workers, server: Postgres) -> None:
    env = {"SHOP_PG": str(server.port), "DJANGO_SETTINGS_MODULE": SETTINGS}
    worker = workers.start("--concurrency", str(CHILDREN), app="tests.contrib.django.shop.shim:app", env=env)
    app = Celery("producer", workers.url)
    results = confirmed(app, worker, range(20))
    assert Counter(result.state for result in results) == {"SUCCESS": 20}, worker.text
    seen = {tuple(result.get()) for result in results}
    assert {version for version, _, _ in seen} == {django.__version__}
    assert len(seen) == len({backend for _, _, backend in seen}), "two children share a connection"
    server.stop()
    server.start(20)
    failed = [result for result in confirmed(app, worker, range(20)) if result.failed()]
    assert len(failed) <= CHILDREN, worker.text  # those that found the connection broken
    assert Counter(result.state for result in confirmed(app, worker, range(20))) == {"SUCCESS": 20}, worker.text
    assert worker.stop() == 0, worker.text
    assert "its import leaves" not in worker.text
    app.client.close()
