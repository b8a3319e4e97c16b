"""The search over all queues and states, and jobs on what it found; over real HTTP, on a real Redis."""

import dataclasses
import json
import logging
import re
from typing import Any

import pytest
from redis import Redis
from starlette.requests import Request

from fastq import Client, Inspector, Task, TaskState
from fastq.info import TaskInfo
from fastq.web import FastqWeb, Role, User
from fastq.web.query import Query, pattern_of
from tests.inspector.harness import Seeded
from tests.waiting import PATIENCE_S, wait_until
from tests.web.serving import Served, serving
from tests.web.test_pages import send, text_of


def task(inspector: Inspector, **fields: object) -> TaskInfo:
    [info] = inspector.list_tasks("q", TaskState.PENDING)
    return dataclasses.replace(info, **fields)  # type: ignore[arg-type]  # fields of a task


@pytest.mark.parametrize(
    ("query", "is_found"),
    [
        ("email", True),
        ("EMAIL ann", False),
        ("ann", True),
        ("type:email:*", True),
        ("type:email", False),
        ("type:*:send", True),
        ("type:e*l:*nd", True),
        ("type:e*l:*n", False),
        ("id:x", True),
        ("id:X", False),
        ("error:timeouterror", True),
        ('error:"no answer in"', True),
        ("error:TimeoutError:*in*s", True),
        ("error:s*TimeoutError", False),
        ("payload:ann", True),
        ("payload.user.name:ann", True),
        ("payload.user.name:an*", True),
        ("payload.user.id:9007199254740993", True),
        ("payload.user.id:9007199254740992", False),
        ("payload.user.tags:b", True),
        ("payload.user.ok:true", True),
        ("payload.user:ann", False),
        ("type:email:* error:Timeout payload.user.name:ann", True),
        ("type:email:* error:KeyError", False),
        ("email:send", True),
    ],
)
def test_words_find_tasks(url: str, query: str, is_found: bool) -> None:
    payload = {"user": {"name": "Ann", "id": 9007199254740993, "tags": ["a", "b"], "ok": True}}
    with Client(url) as client, Inspector(url) as inspector:
        client.enqueue("email:send", payload, queue="q", task_id="x")
        info = task(inspector, last_err="TimeoutError: no answer in 10 s")
    assert Query.of(query).wants(info) is is_found


def test_a_search_that_makes_no_sense_is_named() -> None:
    for text, said in (
        ("state:done", "state:done: 'done' is not a state; states are active, pending"),
        ("since:yesterday", "since:yesterday: write a time such as 2026-11-22T17:00, or 2h"),
        ("x" * 1_001, "at most 1000 characters"),
        ("payload.a:* " * 21, "a search has at most 20 words, not 21"),
    ):
        with pytest.raises(ValueError, match=re.escape(said)):
            Query.of(text)
    assert Query.of("queue:mail,sms* x").reaches("sms-2")
    assert not Query.of("queue:mail,sms* x").reaches("images")
    assert Query.of("since:2h").states == (TaskState.RETRY, TaskState.ARCHIVED, TaskState.COMPLETED)
    assert pattern_of("TimeoutError: no answer in 10.5 s\nmore") == "TimeoutError: no answer in * s"


def test_a_payload_is_parsed_once_however_many_words_ask_for_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Client(url) as client, Inspector(url) as inspector:
        client.enqueue("t", {"a": [1, "X"], "b": "x"}, queue="q")
        info = task(inspector)
    parsed = list[bytes]()
    loads = json.loads

    def counting(data: bytes, **more: Any) -> Any:
        parsed.append(data)
        return loads(data, **more)

    monkeypatch.setattr(json, "loads", counting)
    assert Query.of("payload.a:* payload.a:x payload.b:x payload.c:y").wants(info) is False
    assert Query.of("payload.a:* payload.a:x payload.b:x " * 6).wants(info)
    assert len(parsed) == 2


def test_the_end_of_a_very_large_payload_is_not_looked_at(url: str) -> None:
    with Client(url) as client, Inspector(url) as inspector:
        client.enqueue("t", queue="q")
        info = task(inspector)
    large = json.dumps({"a": "begin" + "x" * 300_000 + "end"}).encode()
    for payload, query, is_found in (
        (large, "payload:end", True),  # text is
        (large, "payload.a:begin*", False),
        (large[:1_000] + b'"}', "payload.a:begin*", True),
        (large * 4, "payload:begin", True),
        (b"x" * 1_000_000 + b"end", "payload:end", False),
    ):
        assert Query.of(query).wants(dataclasses.replace(info, payload=payload)) is is_found, query


def test_a_search_says_how_many_payloads_were_too_large_for_it(url: str, db: Redis) -> None:
    with Client(url) as client:
        client.enqueue("t", {"a": "x" * 300_000}, queue="q")
    with serving(FastqWeb(url, auth=None)) as served:
        said = found(served, "/search?q=payload.a:x*")
        assert re.search(r"No task matches|0 tasks found", said)
        assert "1 payload of more than 256 kB: their values were not looked at." in said
        assert "payload of more" not in found(served, "/search?q=payload:x")


def test_what_is_found_keeps_little_of_a_long_type(url: str, db: Redis) -> None:
    Seeded(db, "q").add("archived", {"x": 4_000_000_000}, type="t" * 1_000_000, payload=b"x")
    with serving(FastqWeb(url, auth=None)) as served:
        said = found(served, "/search?q=id:x")
        assert "1 task found" in said
        assert len(said) < 30_000


def test_each_user_has_searches_of_their_own(url: str, crowd: None) -> None:
    app = FastqWeb(url, auth=named)
    with serving(app) as served:
        for name in ("ann", "bob", "ann"):
            assert served.get("/search?q=nowhere", X_Name=name).status == 200
        assert sorted(work.by for work in app.site.board._lookups.values()) == ["ann", "bob"]


def named(request: Request) -> User:
    return User(request.headers["x-name"], Role.VIEWER)


@pytest.fixture
def crowd(url: str, db: Redis) -> None:
    """Fill three queues, with failures in two of them."""
    with Client(url) as client:
        for queue in ("mail", "images", "low"):
            client.enqueue_many([_task(f"{queue}:{n % 2}", {"n": n}) for n in range(450)], queue=queue)
            for n in range(3):
                error = f"TimeoutError: no answer in {n} s" if queue != "low" else "KeyError: 'a'"
                Seeded(db, queue).add("archived", {f"f{n}": 1}, type="email:send", error_msg=error)
        client.enqueue("email:send", queue="mail", group="g", task_id="grouped")


def _task(type: str, payload: object) -> Task:
    return Task(type, payload)


def found(served: Served, path: str) -> str:
    """Return the text of a search that has ended."""
    text = text_of(served.get(path))

    def has_ended() -> bool:
        nonlocal text
        if "so far" in text:
            text = text_of(served.get(path))
        return "so far" not in text

    wait_until(has_ended)
    return text


def test_a_few_failures_are_found_in_all_queues_and_counted(url: str, crowd: None) -> None:
    with serving(FastqWeb(url, auth=None)) as served:
        text = found(served, "/search?q=error:TimeoutError")
        assert "6 tasks found; 1,360 of 1,360 looked at." in text
        assert "By error 6 TimeoutError: no answer in * s" in text
        assert "By type 6 email:send" in text
        page = served.get("/search?q=error:TimeoutError").text
        narrowed = re.findall(r'href="([^"]*type%3Aemail[^"]*)"', page)
        assert "6 tasks found" in found(served, narrowed[0])
        assert "9 tasks found; 9 of 9 looked at" in found(served, "/search?q=state:archived")
        assert "1 task found" in found(served, "/search?q=id:grouped")
        assert "3 tasks found" in found(served, "/search?q=error:KeyError+queue:l*")
        assert "No task matches" in found(served, "/search?q=no+such+text")
        assert "'done' is not a state" in text_of(served.get("/search?q=state:done"))
        listed = served.get("/search?q=type:mail:1").text
        assert listed.count("<tr data-key=") == 200
        assert "The first 200 are listed; all are counted." in text_of(served.get("/search?q=type:mail:1"))


def test_a_word_that_is_none_of_the_search_is_named(url: str, crowd: None) -> None:
    with serving(FastqWeb(url, auth=None)) as served:
        text = found(served, "/search?q=foo:bar+state:archived+https://example.com/")
        assert "foo: is no word of the search, and was looked for as text. Words are id, type," in text
        assert "no word of the search" not in found(served, "/search?q=type:email:*+no+such")


def test_failed_tasks_lead_to_their_like(url: str, crowd: None) -> None:
    with serving(FastqWeb(url, auth=None)) as served:
        for page, seen in (
            ("/queues/mail/archived", "3 tasks found; 3 of 3 looked at"),
            ("/queues/mail/tasks/f1", "3 tasks found; 3 of 3 looked at"),
        ):
            (link,) = re.findall(r'href="(/search\?q=[^"]*)"', served.get(page).text)
            assert seen in found(served, link)
        assert "/search?q=" not in served.get("/queues/mail/pending").text


def test_what_was_found_is_deleted_by_a_job_after_a_question(
    url: str, db: Redis, crowd: None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastq.web.orders.QUICK_S", PATIENCE_S)
    caplog.set_level(logging.INFO, "fastq.web.audit")
    with serving(FastqWeb(url, auth=None)) as served, Inspector(url) as inspector:
        assert send(served, "/search/delete", q="error:TimeoutError").status == 409  # nobody has searched yet
        found(served, "/search?q=error:TimeoutError")
        question = text_of(send(served, "/search/delete", q="error:TimeoutError"))
        assert "Delete the tasks that match, 6 when they were counted, for good?" in question
        assert "They match error:TimeoutError in 2 queues." in question
        assert inspector.get_queue_info("mail").archived == 3
        done = send(served, "/search/delete", q="error:TimeoutError", sure="yes")
        assert done.status == 303
        assert "6 tasks deleted." in text_of(served.get(done.headers["location"]))
        assert {name: inspector.get_queue_info(name).archived for name in ("mail", "images", "low")} == {
            "mail": 0,
            "images": 0,
            "low": 3,
        }
        found(served, "/search?q=type:mail:*+state:pending")
        send(served, "/search/archive", q="type:mail:* state:pending", sure="yes")
        wait_until(lambda: inspector.get_queue_info("mail").archived == 450)
    [first, *_] = [json.loads(record.getMessage()) for record in caplog.records if record.name == "fastq.web.audit"][1:]
    assert (first["action"], first["count"], first["outcome"]) == ("task.delete", 6, "done")
    assert (first["query"], first["queues"]) == ("error:TimeoutError", ["images", "mail"])


def test_a_search_ends_when_nobody_looks(url: str, crowd: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastq.web.work.UNSEEN_S", -1.0)
    with serving(FastqWeb(url, auth=None)) as served:
        assert "looked at, then stopped" in text_of(served.get("/search?q=x"))


def test_a_long_job_is_shown_and_stopped_between_two_tasks(
    url: str, db: Redis, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue is so long that the job does not end before it is stopped: Redis is made to wait for that."""
    monkeypatch.setattr("fastq.web.orders.QUICK_S", 0.0)
    caplog.set_level(logging.INFO, "fastq.web.audit")
    with Client(url) as client, Inspector(url) as inspector:
        client.enqueue_many([_task("t", n) for n in range(1_500)], queue="q")
        with serving(FastqWeb(url, auth=None)) as served:
            asked = send(served, "/queues/q/pending/delete", all="1")
            assert "Type 1,500" in text_of(asked)
            wrong = send(served, "/queues/q/pending/delete", all="1", sure="yes", asked="1500", count="15")
            assert "That was another number." in text_of(wrong)
            db.client_pause(100_000, all=False)  # what writes has to wait, and scripts
            begun = send(served, "/queues/q/pending/delete", all="1", sure="yes", asked="1500", count="1,500")
            assert begun.headers["location"] == "/jobs/1"
            assert "0 of 1,500 done running" in text_of(served.get("/jobs/1"))
            assert "Delete all 1,500 pending tasks of q" in text_of(served.get("/jobs"))
            send(served, "/jobs/1/stop")
            db.client_unpause()
            wait_until(lambda: "stopped" in text_of(served.get("/jobs/1")))
            assert "Stopped by a user between two tasks" in text_of(served.get("/jobs/1"))
            assert send(served, "/jobs/1/stop").status == 409
            assert send(served, "/jobs/2/stop").status == 404
        left = inspector.get_queue_info("q").pending
    assert left in (1_300, 1_500)  # a piece may have been under way
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "fastq.web.audit"]
    begun_line, end = [line for line in lines if line["action"] == "task.delete"]
    assert (begun_line["job"], begun_line["outcome"]) == ("1", "begun")
    assert (end["job"], end["outcome"], end["count"]) == ("1", "stopped by a user", 1_500 - left)
