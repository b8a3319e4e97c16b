"""Pages and APIs cost Redis little, however many groups a queue has."""

import asyncio
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pytest
from redis import Redis

from fastq import AsyncInspector, Client, Task, WorkerInfo
from fastq.common.states import TaskState
from fastq.info import TaskHead
from fastq.web import FastqWeb
from fastq.web.redaction import Redaction
from fastq.web.view import ALL_QUEUES, View
from fastq.web.work import Turns
from fastq.wire import keys
from tests.cli.dash.scene import publish_server
from tests.inspector.harness import Seeded
from tests.web.serving import serving
from tests.web.test_pages import text_of

GROUPS = 3_000
NOW = datetime.now(UTC)
PATHS = (
    "/",
    "/queues/q/aggregating",
    "/queues/q/aggregating?group=g7",
    "/api/v1/queues",
    "/api/v1/queues/q",
    "/api/v1/queues/q/groups",
    "/api/queues",
    "/api/queues/q/groups",
    "/api/queues/q/groups/g7/aggregating_tasks",
)


@pytest.fixture
def many_groups(url: str, db: Redis) -> None:
    """Put two tasks into a group, and an id into each of very many others."""
    with Client(url) as client:
        for n in range(2):
            client.enqueue("t", queue="q", task_id=f"x{n}", group="g7")
    pipe = db.pipeline(transaction=False)
    for n in range(GROUPS):
        if n != 7:
            pipe.zadd(keys.group("q", f"g{n}"), {"no task": 1})
    pipe.sadd(keys.groups("q"), *(f"g{n}" for n in range(GROUPS)))
    pipe.execute()


def test_the_children_of_a_server_show_no_tasks_of_other_queues(db: Redis, url: str) -> None:
    tasks = [
        WorkerInfo("h", 1, "s", name, "t", b"", queue, NOW, None)
        for name, queue in (("own", "low"), ("theirs", "images"))
    ]
    publish_server(db, "s", "h", tasks)
    with serving(FastqWeb(url, queues=["low"], auth=None)) as served:
        (server,) = served.get("/api/v1/servers").json["servers"]
        assert [child["task_ids"] for child in server["children"]] == [["own"], [], []]
        assert "theirs" not in served.get("/servers").text


def test_tasks_of_one_call_are_told_as_such(db: Redis, url: str) -> None:
    began = (*[NOW] * 3, NOW + timedelta(microseconds=1))
    names = ("a", "b", "c", "alone")
    Seeded(db, "low").activate(*names)
    tasks = [WorkerInfo("h", 1, "s", name, "t", b"", "low", at, None) for name, at in zip(names, began, strict=True)]
    publish_server(db, "s", "h", tasks)
    with serving(FastqWeb(url, auth=None)) as served:
        assert text_of(served.get("/queues/low/active")).count("in a call of 3") == 3
        assert "Call with 2 other tasks" in text_of(served.get("/queues/low/tasks/a"))
        assert "in a call" not in text_of(served.get("/queues/low/tasks/alone"))
        assert "other task" not in text_of(served.get("/queues/low/tasks/alone"))


def test_of_large_payloads_that_go_servers_work_on_a_beginning_is_shown(db: Redis, url: str) -> None:
    payload = b'{"password": "x", "a": "' + b"y" * 300_000 + b'"}'
    publish_server(db, "s", "h", [WorkerInfo("h", 1, "s", "a", "t", payload, "low", NOW, None)])
    for redact, shown in (([], payload[:4_000].decode()), (["password"], "[hidden]")):
        with serving(FastqWeb(url, auth=None, redact=redact)) as served:
            (server,) = served.get("/api/v1/servers").json["servers"]
            assert [worker["task_payload"] for worker in server["active_workers"]] == [shown]


def test_groups_are_estimated_and_listed_a_page_at_a_time(db: Redis, url: str, many_groups: None) -> None:
    with serving(FastqWeb(url, auth=None)) as served:
        for path in PATHS:
            before = looked_at(db)
            answer = served.get(path)
            assert answer.status == 200, answer.text
            # asynqmon's API lists a thousand; some hundreds are the sample, and what SSCAN gives beyond its COUNT.
            assert looked_at(db) - before < (2_000 if "groups" in path else 800), path
        info = served.get("/api/v1/queues/q").json["queue"]
        assert GROUPS <= info["aggregating"] < GROUPS * 1.1
        assert info["groups"] == GROUPS

        page = served.get("/queues/q/aggregating").text
        assert "≈" in page
        (after,) = re.findall(r'href="(\?cursor=\d+)"', page)
        following = served.get(f"/queues/q/aggregating{after}").text
        assert set(names(following)).isdisjoint(names(page))
        shown = served.get("/queues/q/aggregating?group=g7").text  # by its name, on whatever page it would be
        assert "1\u20132 of 2" in shown
        assert 'value="g7"' in shown
        assert served.get("/queues/q/aggregating?group=none").status == 200
        for cursor in ("x", "-1", "1" * 30):
            assert served.get(f"/queues/q/aggregating?cursor={cursor}").status == 409
            assert served.get(f"/api/v1/queues/q/groups?cursor={cursor}").status == 400

        sizes: dict[str, int] = {}
        told = served.get("/api/v1/queues/q/groups?size=1000").json
        while True:
            sizes |= {each["group"]: each["size"] for each in told["groups"]}
            if told["cursor"] is None:
                break
            told = served.get(f"/api/v1/queues/q/groups?size=1000&cursor={told['cursor']}").json
        assert sizes == {f"g{n}": 2 if n == 7 else 1 for n in range(GROUPS)}

        for group in ("g7", "g8", "none"):  # asynqmon's page looks for its size in the list
            told = json.loads(served.get(f"/api/queues/q/groups/{quote(group)}/aggregating_tasks").text)
            assert [each["size"] for each in told["groups"] if each["group"] == group] == [sizes.get(group, 0)]
            assert len(told["groups"]) < 2_000


def names(page: str) -> list[str]:
    """Return the groups that a page lists."""
    return re.findall(r"<bdi>(g\d+)</bdi> <b>", page)


def looked_at(db: Redis) -> int:
    """Return of how many groups and other sets the size was read."""
    return int(db.info("commandstats").get("cmdstat_zcard", {"calls": 0})["calls"])


@pytest.mark.parametrize("large", ["type", "headers", "payload"])
def test_a_page_is_read_in_pieces_by_whatever_makes_its_tasks_large(db: Redis, url: str, large: str) -> None:
    text = "x" * 700_000
    task = {
        "type": Task(text),
        "headers": Task("t", headers={"a": text}),
        "payload": Task("t", text.encode()),
    }[large]
    with Client(url) as client:
        for _ in range(6):
            client.enqueue(task, queue="q")

    async def read() -> list[Sequence[TaskHead]]:
        async with AsyncInspector(url) as inspector:
            view = View(inspector, (ALL_QUEUES,), Redaction(), Turns(), "user")
            pieces = await view.pieces("q", TaskState.PENDING, 8_000_000, cuts=False, page=1, page_size=1_000)
            return [piece async for piece in pieces]

    pieces = asyncio.run(read())
    assert [len(piece) for piece in pieces] == [1] * 6
    for [head] in pieces:
        assert (head.type, head.headers, head.payload) == (task.type, task.headers, task.payload)
