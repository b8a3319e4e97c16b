"""``fastq queue drain``: waits for a queue's work to be done, says what remains, and can pause what is empty."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from redis import Redis

from fastq import Client, Task
from fastq.wire import keys
from tests.cli.commands import Fastq, read_terminal
from tests.cli.test_task_bulk import environment
from tests.e2e.harness import workers_on
from tests.inspector.harness import Seeded
from tests.waiting import PATIENCE_S

NOBODY = "fastq: note: no running server serves default"


@contextmanager
def meanwhile(act: Callable[[], object]) -> Iterator[None]:
    thread = Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def test_a_queue_without_work_is_empty_at_once(filled: Fastq, db: Redis) -> None:
    assert filled.done("queue", "drain", "low").startswith("low is empty and paused: 0 runs in ")
    Seeded(db, "done").add("archived", {"a": 1})
    Seeded(db, "done").add("completed", {"c": 4e9})
    Seeded(db, "done").add("scheduled", {"s": 4e9})
    assert filled.done("queue", "drain", "done").startswith("done is empty: 0 runs in ")
    found = filled.json("queue", "drain", "done")
    assert (found["empty"], found["paused"]) == (True, False)
    assert found["remaining"] == {"active": 0, "aggregating": 0, "pending": 0, "retry": 0}


def test_when_the_time_is_up_what_remains_is_said(filled: Fastq) -> None:
    result = filled.run("queue", "drain", "default", "--timeout", "0")
    assert (result.exit_code, result.stdout) == (1, "")
    note, line = result.stderr.splitlines()
    assert note == NOBODY
    assert "time is up: default has 3 pending, 2 active, 2 aggregating, 1 retry left: 0 runs in " in line
    result = filled.run("queue", "drain", "default", "--timeout", "0.01", "-s", "scheduled", "-s", "retry", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["remaining"] == {"scheduled": 2, "retry": 1}


def test_the_rest_between_long_looks_ends_with_the_time(filled: Fastq, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastq.inspector.drain.LOOK_SHARE", 1e-6)  # hours, if the time did not end it
    result = filled.run("queue", "drain", "default", "--timeout", "0.01", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["waited_s"] < 60


def test_tasks_that_are_being_made_into_one_are_waited_for(filled: Fastq, db: Any) -> None:
    queue = Seeded(db, "sets")
    db.zadd(keys.aggregation_sets("sets"), {keys.aggregation_set("sets", "g", "it"): 4e9})
    assert "1 aggregating left" in filled.run("queue", "drain", "sets", "--timeout", "0").stderr
    db.delete(queue.key("aggregation_sets"))
    assert "is empty" in filled.done("queue", "drain", "sets")


def test_a_queue_is_waited_for_until_its_work_is_done(fastq: Fastq, tmp_path: Path) -> None:
    with Client(fastq.url) as client:
        client.enqueue_many(Task("ok") for _ in range(50))
    with workers_on(fastq.url, tmp_path) as workers:
        worker = workers.start("--concurrency", "1")
        result = fastq.run("queue", "drain", "default", "--timeout", str(PATIENCE_S), "--pause-after", "--json")
        assert result.exit_code == 0, result.output + worker.text
    found = json.loads(result.stdout)
    assert (found["empty"], found["paused"], found["failed"]) == (True, True, 0)
    assert found["processed"] <= 50
    assert fastq.json("queue", "inspect", "default")[0]["paused"]


def test_what_is_taken_before_the_pause_is_waited_for(filled: Fastq, db: Any) -> None:
    queue = Seeded(db, "late")
    queue.activate("a")

    def end() -> None:
        queue.pend("p")
        db.lrem(queue.key("active"), 0, "a")

    with meanwhile(end):
        said = filled.run("queue", "drain", "late", "-s", "active", "--pause-after", "--timeout", str(PATIENCE_S))
    assert said.exit_code == 0, said.output
    assert "late is empty and paused" in said.stdout
    assert db.llen(queue.key("pending")) == 1


def test_a_paused_queue_with_pending_tasks_is_an_error(filled: Fastq) -> None:
    filled.done("queue", "pause", "critical")
    line = filled.run("queue", "drain", "critical").stderr.splitlines()[-1]
    assert line == (
        "fastq: queue is paused, with 1 pending in it (queue='critical'); "
        "fastq queue resume critical lets servers take them"
    )


def test_wrong_words_are_misuse(filled: Fastq) -> None:
    assert "--timeout: 'soon'" in filled.failure("queue", "drain", "default", "--timeout", "soon", code=2)
    assert "'archived' is not one of" in filled.failure("queue", "drain", "default", "-s", "archived", code=2)
    assert "did you mean 'default'?" in filled.failure("queue", "drain", "defalt")


def test_on_a_terminal_it_shows_how_far_it_is_and_can_be_interrupted(filled: Fastq, tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    program = [sys.executable, "-m", "fastq", "queue", "drain", "default", "--json"]
    env = environment(filled.url, tmp_path)
    with subprocess.Popen(program, env=env, stderr=follower, stdout=subprocess.PIPE, text=True) as process:
        os.close(follower)
        read = b""
        while b"left, 0 runs" not in read:
            read += os.read(leader, 4096)
        process.send_signal(signal.SIGINT)
        said = read_terminal(leader)
        out, _ = process.communicate()
        assert process.returncode == 130
    os.close(leader)
    assert b"default: 3 pending, 2 active, 2 aggregating, 1 retry left, 0 runs" in read
    assert "interrupted: default has 3 pending" in said
    assert not json.loads(out)["empty"]


@pytest.mark.parametrize("words", ["", "--pause-after"])
def test_groups_are_counted_too(filled: Fastq, db: Any, words: str) -> None:
    queue = Seeded(db, "grouped")
    queue.group("g", {"a": 1.0})
    with meanwhile(lambda: db.delete(queue.key("g:g"), queue.key("groups"))):
        said = filled.run("queue", "drain", "grouped", "--timeout", str(PATIENCE_S), *words.split())
    assert said.exit_code == 0
