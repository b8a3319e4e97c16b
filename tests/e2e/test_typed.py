"""Typed tasks in whole workers: payloads, names, results, the lifespan of each child."""

import signal
from socket import gethostname

from redis import Redis

from fastq import Client, FailedAttempt, Inspector
from tests.e2e.harness import Workers
from tests.e2e.typed_app import resize, retries, snoozes, who, who_async
from tests.e2e.view import View
from tests.waiting import wait_until

APP = "tests.e2e.typed_app:app"
KEPT = {"retention": 3600}


def test_typed_tasks_run_in_children_with_what_their_lifespan_made(
    workers: Workers, client: Client, view: View
) -> None:
    worker = workers.start("--concurrency", "2", "--queues", "default,media", app=APP).is_ready()
    sized = client.enqueue(resize.task(7, width=8), retention=3600).id
    renamed = client.enqueue("images.scale", {"id": 9, "new": True}, queue="media", retention=3600).id
    asked = [client.enqueue(task.task()).id for task in (who, who_async) for _ in range(20)]
    wrong = client.enqueue("media.resize", {"id": "x"}, queue="media").id
    longer = client.enqueue("media.resize_all", {"id": 7}, queue="media", max_retry=0).id
    raw = client.enqueue("raw:x").id
    view.until("completed", sized, "media")
    assert view.fields(sized, "media")[b"result"] == b'{"width":8,"height":7}'
    view.until("completed", renamed, "media")
    for task_id in asked:
        view.until("completed", task_id)
        assert view.fields(task_id)[b"result"] == b"true"
    view.until("archived", wrong, "media")
    message = view.message(wrong, "media")
    assert (message.error_msg, message.retried) == ("PayloadError: Expected int, got str - at $.id", 0)
    view.until("archived", longer, "media")
    assert (
        view.message(longer, "media").error_msg == "HandlerNotFoundError: handler not found for task 'media.resize_all'"
    )
    view.until("", raw)
    assert worker.stop() == 0, worker.text


def test_handlers_enqueue_where_their_worker_works(workers: Workers, client: Client, view: View, url: str) -> None:
    elsewhere = {"FASTQ_REDIS_URL": "redis://127.0.0.1:1/0"}
    worker = workers.start("--redis", url, app=APP, env=elsewhere).is_ready()
    client.enqueue(who_async.task(next=3))
    wait_until(lambda: view.count("processed") == 3)
    assert worker.stop() == 0, worker.text


def test_a_snoozed_task_is_charged_nothing_and_runs_again(
    workers: Workers, client: Client, view: View, db: Redis
) -> None:
    worker = workers.start("--delayed-task-check-interval", "0.05", "--log-level", "debug", app=APP).is_ready()
    task_id = client.enqueue(snoozes.task("e2e:open")).id
    for _ in range(2):
        view.expect("snoozes", task_id)
    message = view.message(task_id)
    assert (message.retried, message.error_msg.startswith("snoozed (not failed) (")) == (0, True)
    assert (view.count("processed"), view.count("failed")) == (0, 0)
    db.set("e2e:open", 1)
    view.until("completed", task_id)
    assert view.result(task_id) == b'"ran at 0 retried"'
    worker.wait_for("DEBUG: pool: task " + task_id)
    assert f"WARNING: pool: task {task_id}" not in worker.text
    assert worker.stop() == 0, worker.text


def attempts_of(url: str, task_id: str) -> list[FailedAttempt]:
    """Return the failed attempts of a task, once the traceback of the last one is written."""
    found: list[FailedAttempt] = []

    def are_complete() -> bool:
        with Inspector(url) as inspector:
            found[:] = inspector.get_failed_attempts("default", task_id)
        return found[-1].traceback is not None

    wait_until(are_complete)
    return found


def test_a_task_is_tried_again_by_its_own_rule(workers: Workers, client: Client, view: View, url: str) -> None:
    worker = workers.start("--delayed-task-check-interval", "0.05", app=APP).is_ready()
    never, later, now = (client.enqueue(retries.task(how)).id for how in ("never", "later", "now"))
    view.until("archived", never)
    assert view.message(never).retried == 0
    message = view.until("retry", later)
    assert message is not None
    assert message.retried == 1
    score = view.db.zscore("asynq:{default}:retry", later)
    assert score == message.last_failed_at + 3600
    view.until("archived", now)
    assert view.message(now).retried == 1
    first, last = attempts_of(url, now)
    assert (first.attempt, last.attempt, first.server) == (1, 2, f"{gethostname()}:{worker.pid}")
    assert first.started_at is not None
    assert first.started_at <= first.ended_at <= last.ended_at
    assert (first.error_class, first.fingerprint) == ("Retry", last.fingerprint)
    assert first.traceback is not None
    assert "in retries" in first.traceback
    assert worker.stop() == 0, worker.text


def test_a_worker_says_which_tasks_do_not_come_to_it(workers: Workers) -> None:
    worker = workers.start("--log-format", "json", app=APP)
    worker.wait_for("typed_app:app also has tasks in queues that this worker does not serve: media (media.resize); ")
    assert worker.stop() == 0, worker.text
    elsewhere = workers.directory / "elsewhere.py"
    elsewhere.write_text(
        "from fastq import App\napp = App('unix:///nowhere/redis.sock')\napp.task('t')(lambda: None)\n"
    )
    worker = workers.start(app="elsewhere:app", env={"FASTQ_REDIS_URL": ""})
    assert worker.ended() == 2, worker.text
    assert "fastq-worker: elsewhere:app enqueues into unix:///nowhere/redis.sock, but this worker " in worker.text


def test_a_reload_tells_of_queues_that_the_new_code_has(workers: Workers) -> None:
    jobs = workers.directory / "jobs.py"
    code = "from fastq import App\napp = App()\n@app.task('a')\ndef a(): ...\n"
    jobs.write_text(code)
    worker = workers.start("--concurrency", "1", app="jobs:app").is_ready()
    jobs.write_text(f"{code}@app.task('in_low', queue='low')\ndef b(): ...\n")
    worker.signal(signal.SIGHUP)
    worker.wait_for("jobs:app also has tasks in queues that this worker does not serve: low (in_low); ")
    assert worker.text.count("this worker does not serve") == 1
    assert worker.stop() == 0, worker.text


def test_a_worker_whose_tasks_lack_their_env_does_not_start(workers: Workers) -> None:
    worker = workers.start(app="tests.e2e.typed_app:broken")
    assert worker.ended() == 2
    assert "task 't' takes a Context with env" in worker.text
    assert "but no @app.lifespan makes one" in worker.text
