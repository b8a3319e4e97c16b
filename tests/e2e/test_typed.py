"""Typed tasks in whole workers: payloads, names, results, the lifespan of each child."""

from fastq import Client
from tests.e2e.harness import Workers
from tests.e2e.typed_app import resize, who, who_async
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


def test_a_worker_whose_tasks_lack_their_env_does_not_start(workers: Workers) -> None:
    worker = workers.start(app="tests.e2e.typed_app:broken")
    assert worker.ended() == 2
    assert "task 't' takes a Context with env" in worker.text
    assert "but no @app.lifespan makes one" in worker.text
