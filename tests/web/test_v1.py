"""``/api/v1``: each route answers as its schema says (``serving`` checks every reply), and does what it says."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from redis import Redis

from fastq import Client, Inspector
from fastq.web import FastqWeb, orders
from fastq.web.v1 import ROOT, V1
from tests.cli.dash.scene import FAR_S, fill_scene
from tests.inspector.harness import Seeded
from tests.inspector.test_lanes import lane
from tests.waiting import PATIENCE_S, wait_until
from tests.web.serving import SCHEMA, Served, serving

DOCS = Path(__file__).parents[2] / "docs"


def asked(served: Served, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    answer = served.ask(method, f"{ROOT}{path}", data, Content_Type="application/json")
    return answer.status, answer.json


def test_the_description_is_up_to_date_and_names_all_routes(url: str, db: Redis) -> None:
    done = subprocess.run([sys.executable, DOCS / "make_web_schema.py", "--check"], capture_output=True, text=True)
    assert done.stdout == "", "run make docs"
    with serving(FastqWeb(url, root_path="/a", auth=None)) as served:
        told = asked(served, "GET", "/openapi.json")[1]
        text = served.get(ROOT).text
    described = {(method.upper(), path) for path, methods in told["paths"].items() for method in methods}
    assert described == {(route.method, route.pattern) for route in V1 if route.pattern != ROOT}
    assert told["servers"] == [{"url": "/a"}]
    for _, path in described:
        assert path in text
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_what_there_is_can_be_read(url: str, db: Redis) -> None:
    fill_scene(db, url)
    with Client(url) as client:
        client.enqueue("t", b"\xff\x00", queue="q", task_id="x")
        client.enqueue("t", queue="q", task_id="y", group="g")
    Seeded(db, "q").add("archived", {"failed": 1}, error_msg="KeyError: 7")
    with serving(FastqWeb(url, auth=None)) as served:
        entry = asked(served, "GET", "/schedulers")[1]["entries"][0]["id"]
        names = {"queue": "q", "id": "x", "state": "archived", "entry": entry, "job": "1"}
        for route in V1:
            if route.action is None and route.pattern not in (ROOT, f"{ROOT}/search", f"{ROOT}/jobs/{{job}}"):
                assert served.get(route.pattern.format_map(names)).status == 200, route.pattern
        told = asked(served, "GET", "/queues/q")[1]
        assert (told["queue"]["pending"], len(told["days"])) == (1, 14)
        assert asked(served, "GET", "/queues/q/tasks/x")[1]["task"]["payload_encoding"] == "base64"
        assert asked(served, "GET", "/queues/q/aggregating?group=g")[1]["tasks"][0]["group"] == "g"
        assert asked(served, "GET", "/queues/images/pending?size=3&page=2")[1]["total"] > 3
        assert asked(served, "GET", "/queues/q/runs?since=8h&by_type=1")[0] == 200
        wait_until(lambda: asked(served, "GET", "/search?q=KeyError")[1]["state"] == "done")
        found = asked(served, "GET", "/search?q=KeyError%20queue:q")[1]
        assert (found["found"], found["errors"]) == (1, {"KeyError: *": 1})
        for path, status in (
            ("/queues/none", 404),
            ("/queues/none/pending", 404),
            ("/queues/q/tasks/none", 404),
            ("/queues/q/lost", 404),
            ("/queues/q/aggregating", 400),
            ("/queues/q/runs?since=x", 400),
            ("/search", 400),
            ("/search?q=state:x", 400),
            ("/jobs/7", 404),
            ("/nothing", 404),
        ):
            assert asked(served, "GET", path)[0] == status, path
            assert "error" in asked(served, "GET", path)[1], path


def test_tasks_and_queues_are_acted_on(url: str, db: Redis) -> None:
    with Client(url) as client:
        for n in range(5):
            client.enqueue("t", queue="q", task_id=f"x{n}", process_in=3_600)
    Seeded(db, "q").activate("running", until_s=FAR_S)
    with serving(FastqWeb(url, auth=None)) as served, Inspector(url) as inspector:
        status, told = asked(served, "POST", "/queues/q/scheduled/run", {"ids": ["x0", "none"]})
        assert (status, told["count"], [each["id"] for each in told["failed"]]) == (200, 1, ["none"])
        assert asked(served, "POST", "/queues/q/scheduled/archive", {"ids": ["x0", "x1"]})[1]["count"] == 1
        assert asked(served, "POST", "/queues/q/archived/delete", {"ids": ["x1"]})[1] == {"count": 1, "failed": []}
        assert asked(served, "POST", "/queues/q/active/cancel", {"ids": ["running"]})[1]["count"] == 1
        told = asked(served, "POST", "/queues/q/scheduled/delete-all")[1]
        assert (told["state"], told["done"]) == ("done", 3)
        assert [info.id for info in inspector.list_pending_tasks("q")] == ["x0"]
        assert asked(served, "POST", "/queues/q/pause")[1]["queue"]["paused"] is True
        assert asked(served, "POST", "/queues/q/pause")[0] == 409
        assert asked(served, "POST", "/queues/q/resume")[1]["queue"]["paused"] is False
        assert asked(served, "POST", "/queues/none/pause")[0] == 404
        for path, body, refused in (
            ("/queues/q/pending/run", {"ids": ["x0"]}, 400),
            ("/queues/q/pending/delete", {"ids": []}, 400),
            ("/queues/q/pending/delete", {"ids": ["x0"], "all": True}, 400),
            ("/queues/q/pending/delete", ["x0"], 400),
            ("/queues/q/active/delete-all", None, 400),
            ("/jobs/1/stop", None, 404),
        ):
            assert asked(served, "POST", path, body)[0] == refused, (path, body)
        plain = served.ask("POST", f"{ROOT}/queues/q/pending/delete", b'{"ids": ["x0"]}', Content_Type="text/plain")
        assert plain.status == 415
        assert asked(served, "DELETE", "/queues/q")[0] == 409
        assert inspector.get_queue_info("q").pending == 1
        db.delete("asynq:{q}:active", "asynq:{q}:lease")
        assert asked(served, "DELETE", "/queues/q?force=1")[1]["state"] == "done"
        assert inspector.queues() == []


def test_lanes_are_read_limited_and_paused(url: str, db: Redis) -> None:
    lane(Seeded(db, "default"), "acme")
    with serving(FastqWeb(url, auth=None)) as served:
        assert asked(served, "GET", "/queues/default/lanes")[1] == {"lanes": [], "cursor": None}
        status, told = asked(served, "POST", "/queues/default/lanes/limit?lane=*", {"limit": "2, 5/s"})
        assert (status, told["limit"], told["has_own_limit"]) == (200, "2, 5/s", True)
        assert asked(served, "POST", "/queues/default/lanes/pause?lane=acme")[1]["state"] == "paused"
        assert asked(served, "POST", "/queues/default/lanes/pause?lane=acme")[0] == 409
        told = asked(served, "GET", "/queues/default/lanes")[1]["lanes"]
        assert [each["lane"] for each in told] == ["*", "acme"]
        assert asked(served, "GET", "/queues/default/lanes?lane=acme")[1]["lanes"] == told[1:]
        assert asked(served, "POST", "/queues/default/lanes/resume?lane=acme")[1]["state"] == "ready"
        assert asked(served, "POST", "/queues/default/lanes/limit?lane=", {"limit": "9"})[1]["lane"] == ""
        assert asked(served, "POST", "/queues/default/lanes/limit?lane=", {"limit": None})[1]["limit"] is None
        for path, body, said in (
            ("limit?lane=acme", {"limit": "two"}, "'two' in 'two' is no part of a limit"),
            ("limit?lane=acme", {"limit": 2}, 'the body must be {"limit": "2, 5/s"}'),
            ("limit?lane=a*", {"limit": "2"}, "'a*' is neither a lane"),
            ("pause?lane=", None, "no lane is named; a queue as a whole has a pause of its own"),
            ("pause", None, "lane=NAME says which"),
        ):
            status, told = asked(served, "POST", f"/queues/default/lanes/{path}", body)
            assert status == 400
            assert said in told["error"]
        assert asked(served, "GET", "/queues/default/lanes?cursor=x")[0] == 400


def test_a_job_is_followed_and_stopped(url: str, db: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "QUICK_S", 0.0)
    Seeded(db, "q").add("archived", {f"x{n}": FAR_S for n in range(3_000)})
    with serving(FastqWeb(url, auth=None)) as served:
        status, told = asked(served, "POST", "/queues/q/archived/delete-all")
        assert (status, told["state"]) == (202, "running")
        assert asked(served, "GET", "/jobs")[1]["jobs"][0]["id"] == told["id"]
        monkeypatch.setattr(orders, "QUICK_S", PATIENCE_S)
        assert asked(served, "POST", f"/jobs/{told['id']}/stop")[0] in (200, 409)  # it may have ended meanwhile
        wait_until(lambda: asked(served, "GET", f"/jobs/{told['id']}")[1]["state"] != "running")
