"""What becomes of a task, by what its handler does: one worker as a process, children and all, and a real Redis."""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fastq import Client, Task
from tests.e2e.apps import HOOKS
from tests.e2e.harness import Worker, Workers, workers_on
from tests.e2e.view import View
from tests.redis_servers import redis_server
from tests.waiting import wait_until

HOUR_S = 3600


@dataclass(frozen=True)
class Scene:
    """One worker for all tests of this file, on a Redis that is theirs; each test has a queue of its own tasks."""

    client: Client
    view: View
    worker: Worker

    def run(self, type: str, payload: Any = None, **options: Any) -> str:
        """Enqueue a task and return its id."""
        return self.client.enqueue(Task(type, payload if payload is not None else b"", **options)).id


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    directory: Path = tmp_path_factory.mktemp("outcomes")
    with redis_server() as server, workers_on(server.url, directory) as workers:
        worker = workers.start("--concurrency", "2", "--delayed-task-check-interval", "0.05", *HOOKS)
        with Client(server.url) as client, server.client() as db:
            worker.is_ready()
            yield Scene(client, View(db), worker)
            assert worker.stop() == 0, worker.text


@pytest.fixture
def scene(house: Scene) -> Scene:
    house.view.events()
    return house


# What handlers return ---------------------------------------------------------------------------------------------


def test_a_task_that_is_done_leaves_nothing_but_a_count(scene: Scene) -> None:
    before = scene.view.count("processed")
    scene.view.until("", scene.run("ok"))
    assert (scene.view.count("processed"), scene.view.size("active"), scene.view.size("lease")) == (before + 1, 0, 0)


@pytest.mark.parametrize("type", ["echo", "async-echo"])
@pytest.mark.parametrize("value", [{"a": [1, None, "ü"]}, [], 0, False, "text"])
def test_what_a_handler_returns_is_kept_as_json_for_the_retention(scene: Scene, type: str, value: Any) -> None:
    began_s = int(time.time())
    task_id = scene.run(type, value, retention=HOUR_S)
    message = scene.view.until("completed", task_id)
    assert message is not None
    assert scene.view.json_result(task_id) == value
    assert began_s <= message.completed_at <= time.time()
    expires = scene.view.db.zscore("asynq:{default}:completed", task_id)
    assert expires == message.completed_at + HOUR_S


def test_bytes_are_kept_as_they_are(scene: Scene) -> None:
    data = bytes(range(256)) * 4096  # 1 MB, more than a ring's record
    task_id = scene.run("bytes", data, retention=HOUR_S)
    scene.view.until("completed", task_id)
    assert scene.view.result(task_id) == data[::-1]


def test_a_task_without_a_result_is_completed_without_one(scene: Scene) -> None:
    task_id = scene.run("ok", retention=HOUR_S)
    scene.view.until("completed", task_id)
    assert scene.view.result(task_id) is None


def test_a_result_without_retention_goes_with_the_task(scene: Scene) -> None:
    task_id = scene.run("echo", {"a": 1})
    scene.view.until("", task_id)
    assert scene.view.fields(task_id) == {}


def test_the_last_written_result_can_be_read_while_the_task_runs_and_after(scene: Scene) -> None:
    task_id = scene.run("write", ["first", {"second": 2}], retention=HOUR_S)
    scene.view.expect("written", task_id)
    scene.view.until("active", task_id)
    _until_result(scene, task_id, {"second": 2})
    scene.view.open(task_id)
    scene.view.until("completed", task_id)
    assert scene.view.json_result(task_id) == {"second": 2}


def _until_result(scene: Scene, task_id: str, value: Any) -> None:
    wait_until(lambda: scene.view.json_result(task_id) == value)


def test_a_finished_task_is_done_whatever_it_returned(scene: Scene) -> None:
    kept, dropped = scene.run("set", retention=HOUR_S), scene.run("set")
    scene.view.until("completed", kept)
    assert scene.view.json_result(kept) == {"fastq:unencodable": "set", "why": "is of type set", "repr": "{1}"}
    scene.view.until("", dropped)


def test_a_handler_sees_its_task(scene: Scene) -> None:
    task_id = scene.run("facts:deep", b"p", headers={"trace": "é"}, max_retry=7, timeout=90, retention=HOUR_S)
    scene.view.until("completed", task_id)
    assert scene.view.json_result(task_id) == {
        "id": task_id,
        "queue": "default",
        "type": "facts:deep",
        "headers": {"trace": "é"},
        "retried": 0,
        "max_retry": 7,
        "is_current": True,
        "allowed_s": 90,
    }


# Errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type", ["fail", "async-fail"])
def test_an_error_is_stored_with_its_place_and_the_task_waits_in_retry(scene: Scene, type: str) -> None:
    failed, processed = scene.view.count("failed"), scene.view.count("processed")
    began_s = int(time.time())
    task_id = scene.run(type, "no ☂")
    message = scene.view.until("retry", task_id)
    assert message is not None
    text, _, place = message.error_msg.rpartition(" (")
    assert text == "ValueError: no ☂"
    file, _, line = place.rstrip(")").rpartition(":")
    source = Path(file).read_text().splitlines()
    assert "raise ValueError(task.json())" in source[int(line) - 1]
    assert (message.retried, began_s <= message.last_failed_at <= time.time()) == (1, True)
    due = scene.view.db.zscore("asynq:{default}:retry", task_id)
    assert due == pytest.approx(message.last_failed_at + HOUR_S, abs=1)
    assert (scene.view.count("failed"), scene.view.count("processed")) == (failed + 1, processed + 1)


def test_retries_end_with_success(scene: Scene) -> None:
    task_id = scene.run("fail-times", headers={"times": "2", "delay": "0"}, retention=HOUR_S)
    message = scene.view.until("completed", task_id)
    assert message is not None
    assert (message.retried, message.error_msg.partition(" (")[0]) == (2, "ValueError: attempt 1")
    assert scene.view.json_result(task_id) == "at last"


@pytest.mark.parametrize("max_retry", [0, 2])
def test_the_last_attempt_ends_in_the_archive(scene: Scene, max_retry: int) -> None:
    task_id = scene.run("fail", "no", max_retry=max_retry, headers={"delay": "0"})
    message = scene.view.until("archived", task_id)
    assert message is not None
    assert (message.retried, message.error_msg.partition(" (")[0]) == (max_retry, "ValueError: no")
    assert task_id in scene.view.ids("archived")


@pytest.mark.parametrize(("type", "error"), [("skip", "SkipRetry: no use"), ("skip-from", "ValueError: bad data")])
def test_skip_retry_archives_at_once(scene: Scene, type: str, error: str) -> None:
    message = scene.view.until("archived", scene.run(type, max_retry=5))
    assert message is not None
    assert (message.retried, message.error_msg.partition(" (")[0]) == (0, error)


def test_revoke_deletes_the_task(scene: Scene) -> None:
    task_id = scene.run("revoke", retention=HOUR_S, unique=HOUR_S)
    scene.view.until("", task_id)
    for where in ("active", "retry", "archived", "completed", "lease"):
        assert task_id not in scene.view.ids(where)
    assert scene.view.db.keys("asynq:{default}:unique:*") == []


def test_an_unknown_type_is_retried_with_handler_not_found(scene: Scene) -> None:
    message = scene.view.until("retry", scene.run("no-such-type"))
    assert message is not None
    assert message.error_msg == "HandlerNotFoundError: handler not found for task 'no-such-type'"
    assert message.retried == 1


def test_leaving_python_fails_the_task_alone(scene: Scene) -> None:
    task_id = scene.run("exit")
    message = scene.view.until("retry", task_id)
    assert message is not None
    assert message.error_msg.startswith("SystemExit: 3")


def test_an_undecodable_message_goes_to_the_archive_in_a_readable_one(scene: Scene) -> None:
    db = scene.view.db
    db.hset("asynq:{default}:t:broken", mapping={"msg": b"\xff\xff", "state": "pending", "pending_since": 1})
    db.lpush("asynq:{default}:pending", "broken")
    message = scene.view.until("archived", "broken")
    assert message is not None
    assert (message.type, message.payload, message.id) == ("fastq:undecodable", b"\xff\xff", "broken")
    assert message.error_msg.startswith("InvalidMessageError: ")


# Hooks ------------------------------------------------------------------------------------------------------------


def test_hooks_run_in_the_child_that_ran_the_task(scene: Scene) -> None:
    task_id = scene.run("fail", "no")
    scene.view.until("retry", task_id)
    told = [event for event in scene.view.events() if event.task_id == task_id]
    assert [event.what for event in told] == ["error_handler-ValueError", "retry_delay-0-ValueError"]
    assert scene.worker.pid not in {event.pid for event in told}
    assert len({event.pid for event in told}) == 1
    assert os.getpgid(told[0].pid) != os.getpgid(scene.worker.pid)


def test_what_is_no_failure_uses_no_attempt(scene: Scene) -> None:
    failed = scene.view.count("failed")
    message = scene.view.until("retry", scene.run("not-counted"))
    assert message is not None
    assert (message.retried, message.error_msg.partition(" (")[0]) == (0, "NotCountedError: later")
    assert scene.view.count("failed") == failed


def test_an_error_handler_that_raises_harms_nobody(scene: Scene) -> None:
    task_id = scene.run("fail", "no", headers={"handler": "raises"})
    message = scene.view.until("retry", task_id)
    assert message is not None
    assert message.error_msg.startswith("ValueError: no")
    scene.worker.wait_for("RuntimeError: the error handler has one of its own")


def test_a_hook_is_not_asked_about_what_is_not_retried(scene: Scene) -> None:
    task_id = scene.run("skip")
    scene.view.until("archived", task_id)
    assert [event.what for event in scene.view.events()] == ["error_handler-SkipRetry"]


# A worker of its own ------------------------------------------------------------------------------------------------


def test_middleware_is_around_handlers_and_unknown_types(workers: Workers, client: Client, view: View) -> None:
    known = client.enqueue("list", retention=HOUR_S).id
    unknown = client.enqueue("nothing", retention=HOUR_S).id
    worker = workers.start("--burst", "--concurrency", "1", app="tests.e2e.apps:layered")
    assert worker.ended() == 0, worker.text
    assert view.json_result(known) == ["outer", "inner", "handler"]
    assert view.json_result(unknown) == ["outer", "HandlerNotFoundError"]


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_a_hundred_tasks_of_all_sorts_are_all_accounted_for(
    workers: Workers, client: Client, view: View, start_method: str
) -> None:
    types = ["ok", "async-echo", "echo", "fail", "async-fail", "skip", "revoke", "no-such-type"]
    tasks = [Task(types[n % 8], n, retention=HOUR_S, max_retry=n // 8 % 2) for n in range(104)]
    infos = client.enqueue_many(tasks)
    worker = workers.start("--burst", "--concurrency", "2", "--start-method", start_method)
    assert worker.ended() == 0, worker.text
    states = {"ok": "completed", "async-echo": "completed", "echo": "completed", "skip": "archived", "revoke": ""}
    for n, (task, info) in enumerate(zip(tasks, infos, strict=True)):
        assert not isinstance(info, Exception)
        assert view.state(info.id) == states.get(task.type, "retry" if n // 8 % 2 else "archived"), task.type
    assert view.count("processed") == 104
    assert view.count("failed") == 104 // 8 * 4
    assert "39 tasks done" in worker.text


def test_a_log_of_json_lines_stays_so_whatever_happens(workers: Workers, client: Client) -> None:
    for type, headers in [("ok", {}), ("fail", {}), ("fail", {"handler": "raises"}), ("crash", {}), ("nix", {})]:
        client.enqueue(Task(type, "secret-of-the-payload", headers=headers))
    worker = workers.start("--burst", "--concurrency", "1", "--log-format", "json", "--log-level", "debug", *HOOKS)
    assert worker.ended() == 0, worker.text
    lines = [json.loads(line) for line in worker.lines]
    assert {"time", "level", "logger", "pid", "message"} <= set.intersection(*map(set, lines))
    assert any("the error handler has one of its own" in line.get("traceback", "") for line in lines)


def test_payloads_are_never_in_the_log(workers: Workers, client: Client) -> None:
    for type in ["ok", "skip", "crash", "nix", "echo", "revoke", "set"]:
        client.enqueue(Task(type, "secret-of-the-payload", headers={"handler": "raises"}, max_retry=0))
    worker = workers.start("--burst", "--concurrency", "1", "--log-level", "debug", *HOOKS)
    assert worker.ended() == 0, worker.text
    assert "worker process" in worker.text or "crashed" in worker.text
    assert "secret-of-the-payload" not in worker.text
