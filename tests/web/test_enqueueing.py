"""The form that enqueues a task, and what else changes one task."""

from html import unescape
from typing import Any

from redis import Redis

from fastq import Client, Inspector, SchedulerEntry, TaskState
from fastq.web import FastqWeb
from tests.cli.dash.scene import publish_entries
from tests.inspector.harness import Seeded
from tests.waiting import wait_until
from tests.web.serving import serving
from tests.web.test_pages import send, text_of


def test_a_task_is_enqueued_with_its_options_and_copied(url: str) -> None:
    with serving(FastqWeb(url, auth=None)) as served, Inspector(url) as inspector:
        given: dict[str, Any] = {
            "type": "mail:welcome",
            "queue": "q",
            "payload": '{"id": 9007199254740993,\r\n"x": 1.10}',
        }
        sent = send(served, "/enqueue", **given, task_id="a/1", timeout="90", process_in="1h", headers="k=v=w\r\nx=")
        assert (sent.status, sent.headers["location"]) == (303, "/queues/q/tasks/a~2F1?did=enqueue&done=1")
        assert "1 task enqueued." in text_of(served.get(sent.headers["location"]))
        info = inspector.get_task_info("q", "a/1")
        assert info.payload == b'{"id": 9007199254740993,\n"x": 1.10}'
        assert (info.state, info.timeout.total_seconds(), info.headers) == (
            TaskState.SCHEDULED,
            90,
            {"k": "v=w", "x": ""},
        )
        again = send(served, "/enqueue", **given, task_id="a/1")
        assert (again.status, "Nothing was enqueued" in text_of(again)) == (400, True)
        assert "9007199254740993,\n" in unescape(again.text)  # what was typed is kept
        for field, value in (("timeout", "soon"), ("max_retry", "many"), ("headers", "k"), ("type", " ")):
            bad = send(served, "/enqueue", **{**given, field: value})
            assert bad.status == 400, field
        assert inspector.get_queue_info("q").size == 1
        copy = served.get("/enqueue?of=q&id=a%2F1").text
        assert '\n{"id": 9007199254740993,\n"x": 1.10}</textarea>' in unescape(copy)
        assert 'name="timeout" value="90s"' in copy
        edited = send(served, "/queues/q/tasks/a~2F1/edit", payload="\n2")
        assert "The payload is changed." in text_of(served.get(edited.headers["location"]))
        assert inspector.get_task_info("q", "a/1").payload == b"\n2"
        inspector.run_task("q", "a/1")
        assert send(served, "/queues/q/tasks/a~2F1/edit", payload="3").status == 409
        assert served.get("/enqueue?of=q&id=none").status == 404


def test_payloads_that_no_form_gives_back_are_taken_as_they_are(url: str) -> None:
    data = bytes(range(256))
    with Client(url) as client, Inspector(url) as inspector:
        client.enqueue("t", data, queue="q", task_id="x")
        client.enqueue("t", {"password": "secret"}, queue="q", task_id="y")
        with serving(FastqWeb(url, redact=["password"], auth=None)) as served:
            form = served.get("/enqueue?of=q&id=x").text
            assert 'name="payload"' not in form
            assert "secret" not in served.get("/enqueue?of=q&id=y").text
            send(served, "/enqueue", of="q", id="x", type="t", queue="q", task_id="copy")
            assert inspector.get_task_info("q", "copy").payload == data


def test_a_periodic_task_is_run_now(url: str, db: Redis) -> None:
    options = ('Queue("low")', "MaxRetry(3)", "Timeout(1m30s)", "ProcessIn(5m0s)", "Deadline(Mon Jan  2 2006)")
    publish_entries(db, SchedulerEntry("e1", "@every 30s", "ping", b'{"a":1}', options, None, None))
    with serving(FastqWeb(url, auth=None)) as served, Inspector(url) as inspector:
        assert 'href="/enqueue?entry=e1"' in served.get("/schedulers/e1").text
        form = served.get("/enqueue?entry=e1").text
        for part in ('name="queue" value="low"', 'name="max_retry" value="3"', 'name="timeout" value="1m30s"'):
            assert part in form
        assert "Deadline(Mon Jan 2 2006) is left out." in " ".join(form.split())
        assert 'name="process_in" value=""' in form
        send(served, "/enqueue", entry="e1", type="ping", queue="low", max_retry="3", task_id="x", payload='{"a":1}')
        info = inspector.get_task_info("low", "x")
        assert (info.payload, info.max_retry, info.state) == (b'{"a":1}', 3, TaskState.PENDING)
        assert served.get("/enqueue?entry=none").status == 404


def test_a_task_is_moved_and_canceled_as_chosen(url: str, db: Redis) -> None:
    with Client(url) as client, Inspector(url) as inspector, serving(FastqWeb(url, auth=None)) as served:
        client.enqueue("t", 1, queue="q", task_id="x")
        client.enqueue("t", 1, queue="q", task_id="stays")
        moved = send(served, "/queues/q/tasks/x/move", to="other")
        assert moved.status == 303
        wait_until(lambda: "other" in inspector.queues() and inspector.get_queue_info("other").pending == 1)
        assert inspector.get_queue_info("q").pending == 1
        assert send(served, "/queues/other/tasks/x/move", to="").status == 400
        Seeded(db, "q").activate("runs", until_s=4_000_000_000)
        assert "Cancel, and then:" in text_of(served.get("/queues/q/tasks/runs"))
        with db.pubsub(ignore_subscribe_messages=True) as listener:  # type: ignore[no-untyped-call]  # redis-py
            listener.psubscribe("asynq:cancel*")
            wait_until(lambda: db.pubsub_numpat() == 1)
            told = send(served, "/queues/q/tasks/runs/cancel", outcome="archive")
            assert told.headers["location"] == "/queues/q/tasks/runs?did=cancel&done=1"
            wait_until(lambda: b"archive" in ((listener.get_message() or {}).get("data") or b""))
            asked = send(served, "/queues/q/tasks/runs/cancel", outcome="delete")
            assert (asked.status, "and delete it?" in text_of(asked)) == (200, True)
            send(served, "/queues/q/tasks/runs/cancel", outcome="delete", sure="yes")
            wait_until(lambda: b"delete" in ((listener.get_message() or {}).get("data") or b""))
        assert send(served, "/queues/q/tasks/runs/cancel", outcome="shred").status == 400
        assert send(served, "/queues/q/tasks/stays/cancel", outcome="retry").status == 409


def test_who_sees_some_queues_enqueues_into_no_other(url: str) -> None:
    with Client(url) as client, Inspector(url) as inspector:
        client.enqueue("t", queue="mine", task_id="x")
        client.enqueue("t", queue="theirs", task_id="y")
        with serving(FastqWeb(url, queues=["mine"], forbidden=["task.delete"], auth=None)) as served:
            assert send(served, "/enqueue", type="t", queue="theirs").status == 403
            assert send(served, "/enqueue", type="t", of="theirs", id="y", queue="mine").status == 409
            assert send(served, "/queues/mine/tasks/x/move", to="theirs").status == 403
            assert send(served, "/queues/mine/tasks/x/cancel", outcome="delete").status == 403
        assert inspector.get_queue_info("theirs").size == inspector.get_queue_info("mine").size == 1
        with serving(FastqWeb(url, read_only=True, auth=None)) as served:
            assert served.get("/enqueue").status == 404
            assert "/enqueue" not in served.get("/queues/mine/pending").text
