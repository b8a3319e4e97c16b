"""Each task ends as under Celery: in the same state, after as many runs."""

import ast
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contrib.celery import ends
from tests.e2e.harness import ROOT, Workers, workers_on
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def workers(url: str, tmp_path: Path) -> Iterator[Workers]:
    with workers_on(url, tmp_path) as workers:
        yield workers


def test_each_task_ends_as_under_celery(workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "runs"
    log.touch()
    monkeypatch.setenv("ENDS_LOG", str(log))
    monkeypatch.setattr(ends.app, "_url", workers.url)
    vars(ends.app).pop("client", None)
    flags = ("--concurrency", "8", "--delayed-task-check-interval", "0.05")
    worker = workers.start(*flags, app="tests.contrib.celery.ends:app", env={"ENDS_LOG": str(log)}).is_ready()
    results = ends.send()
    wait_until(lambda: ends.have_ended(results))
    assert ends.ends_of(results) == ends.ENDS, worker.text
    assert (results["add"].get(1), results["late"].get(1)) == (5, "as far as it came")
    ends.app.client.close()
    assert worker.stop() == 0, worker.text


@pytest.mark.skipif(importlib.util.find_spec("celery") is None, reason="Celery is not installed: its ends are recorded")
def test_the_ends_that_are_recorded_are_those_of_celery(url: str, tmp_path: Path) -> None:
    url = url.replace("unix://", "redis+socket://")
    env = {**os.environ, "ENDS_LOG": str(tmp_path / "runs"), "ENDS_IMPL": "celery", "ENDS_URL": url}
    command = [sys.executable, "-c", "from tests.contrib.celery.ends import main; main()"]
    said = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert ast.literal_eval(said.stdout) == ends.ENDS
