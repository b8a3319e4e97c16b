"""What someone tries who means harm: odd requests, other sites, other people's queues; over real HTTP."""

import asyncio
import base64
import http.client
import json
import logging
import re
import socket
import time
from contextlib import ExitStack, closing, suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from redis import Redis
from starlette.requests import Request

from fastq import Client
from fastq.inspector import tasks as inspector_tasks
from fastq.web import FastqWeb, Role, User, serve, site, work
from fastq.web.access import ACTIONS
from fastq.web.addresses import address_of, networks_of
from fastq.web.asgi import ROUTES
from fastq.web.auth import FAILURES, BasicAuth, TooManyFailuresError, _Counter, _Failures, new_user_line
from fastq.web.view import View, _child
from fastq.web.work import Work
from fastq.wire.codec import decode_task_message
from fastq.wire.messages import ChildInfo, SchedulerEntry, TaskMessage
from tests.inspector.harness import Seeded
from tests.waiting import PATIENCE_S, wait_until
from tests.web.serving import Served, serving
from tests.web.test_asgi import by_header, filled_path

NAMES = ("%00", "%ff~FF", "%ED%A0%80", "..%2f%2e%2e", "%0d%0aSet-Cookie:x=1", "x" * 3_000, "{*[")
BODIES = (b'{"task_ids":' + b"[" * 100_000, b'{"task_ids": ["\\ud800"]}', b"only=%ED%A0%80", b"q=%22&sure=yes")


def test_odd_requests_get_a_reply_that_is_protected(url: str, db: Redis, caplog: pytest.LogCaptureFixture) -> None:
    with Client(url) as client:
        client.enqueue("t", queue="q")
    db.sadd("asynq:queues", b"bad\xff\xfe")  # as asynq of Go takes it
    paths: list[tuple[str, str, bytes | None]] = [
        (route.method, route.pattern.format_map(dict.fromkeys(NAMED, name) | {"state": "pending"}), None)
        for route in ROUTES
        for name in NAMES
        if not route.pattern.startswith(("/doctor", "/events", "/search"))
    ]
    paths += [
        (route.method, route.pattern.format_map(dict.fromkeys(NAMED, "q") | {"state": "pending"}), body)
        for route in ROUTES
        for body in BODIES
        if route.method == "POST"
    ]
    queries = (
        "page=%00&size=-1",
        f"page={'9' * 5_000}",
        "group=%ff",
        "q=payload.:%00",
        "q=%22",
        "duration=-1",
        "id=%ff",
    )
    paths += [("GET", f"{path}?{query}", None) for path in ("/", *PAGES) for query in queries]
    with serving(FastqWeb(url, auth=None)) as served:
        for method, path, body in paths:
            answer = served.ask(method, path, body)
            assert answer.headers["content-security-policy"], (method, path, answer.text)
            assert "set-cookie" not in answer.headers
        assert [queue["queue"] for queue in served.get("/api/queues").json["queues"]] == ["q"]
        assert served.get("/").status == 200
    assert "Traceback" not in caplog.text


NAMED = ("queue", "id", "group", "entry", "server", "job", "version", "name")
PAGES = (
    "/queues/q/pending",
    "/queues/q/aggregating",
    "/find",
    "/search",
    "/api/queues/q/pending_tasks",
    "/api/metrics",
)


def test_a_defect_is_answered_without_its_traceback(
    url: str, db: Redis, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(view: View) -> list[str]:
        raise RuntimeError("secret")

    monkeypatch.setattr(View, "queues", broken)
    with serving(FastqWeb(url, auth=None)) as served:
        for path in ("/", "/api/queues"):
            answer = served.get(path)
            assert (answer.status, "secret" in answer.text) == (500, False)
            assert answer.headers["content-security-policy"]
    assert "RuntimeError: secret" in caplog.text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ("cross-site cors empty", 403),
        ("cross-site no-cors image", 403),
        ("same-site cors empty", 403),
        ("cross-site navigate iframe", 403),
        ("cross-site navigate document", 200),
        ("same-origin cors empty", 200),
        ("none navigate document", 200),
    ],
)
def test_pages_of_other_sites_load_nothing(url: str, db: Redis, headers: str, status: int) -> None:
    from_site, mode, dest = headers.split()
    given = {"Sec-Fetch-Site": from_site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}
    with serving(FastqWeb(url, auth=None)) as served:
        for path in ("/", "/api/queues", "/search?q=x"):
            assert served.get(path, **given).status == status, path
        if status == 403:
            assert served.get("/events?of=/", **given).status == status


BROWSER = {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64)"}
NAVIGATES = {**BROWSER, "Upgrade-Insecure-Requests": "1"}


@pytest.mark.parametrize(
    ("headers", "status", "may_begin"),
    [
        ({}, 200, True),  # curl
        ({"Referer": "http://127.0.0.1:{port}/"}, 200, True),
        ({**BROWSER, "Referer": "http://127.0.0.1:{port}/search"}, 200, True),
        ({**NAVIGATES, "Referer": "http://127.0.0.1:{port}/"}, 200, True),
        (BROWSER, 403, False),
        ({**BROWSER, "Referer": "http://evil.example/"}, 403, False),
        ({"Referer": "http://evil.example/"}, 403, False),
        ({**BROWSER, "Accept": "text/html"}, 403, False),
        (NAVIGATES, 200, False),
        ({**NAVIGATES, "Referer": "http://127.0.0.1:{port}.evil.example/"}, 200, False),
        ({"Origin": "http://evil.example"}, 403, False),
        ({"Origin": "null"}, 403, False),
        ({"Origin": "http://127.0.0.1:{port}"}, 200, True),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200, False),
    ],
)
def test_over_plain_http_no_other_site_begins_anything(
    url: str, db: Redis, headers: dict[str, str], status: int, may_begin: bool
) -> None:
    app = FastqWeb(url, auth=None)
    with serving(app) as served:
        given = {name: value.format(port=served.port) for name, value in headers.items()}
        for path in ("/search?q=x", "/doctor", "/find?id=x", "/api/v1/search?q=y", "/queues/q/pending"):
            answer = served.get(path, **given)
            may_be_shown = path.startswith("/queues") and status == 200
            is_asked = "Nothing has begun yet" in answer.text
            assert is_asked == (status == 200 and not may_begin and not may_be_shown), path
            assert (answer.status == 403) == (status == 403), path
        assert bool(app.site.board._lookups) == may_begin


def test_two_headers_of_a_kind_are_believed_neither(url: str, db: Redis) -> None:
    with serving(FastqWeb(url, auth=None)) as served:
        for name, *values in (
            ("Sec-Fetch-Site", "same-origin", "cross-site"),
            ("Origin", served.url, "http://evil.example"),
        ):
            for method, path in (("GET", "/search?q=x"), ("POST", "/api/queues/q:pause")):
                lines = "".join(f"{name}: {value}\r\n" for value in values)
                with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_S) as connection:
                    connection.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode())
                    assert connection.recv(12) == b"HTTP/1.1 403", (name, method)


@pytest.mark.parametrize("action", ACTIONS)
def test_a_forbidden_action_is_refused_by_each_of_its_routes(url: str, db: Redis, action: str) -> None:
    with serving(FastqWeb(url, forbidden=[action], auth=None)) as served:
        of_it = [route for route in ROUTES if route.action == action]
        assert of_it
        for route in of_it:
            assert served.ask(route.method, filled_path(route.pattern)).status == 403, route.pattern


def mail_or_all(request: Request) -> User:
    return User("ann", Role.ADMIN, tuple(request.headers.get("x-queues", "mail*").split(",")))


def test_who_sees_some_queues_cancels_nothing_in_others(url: str, db: Redis) -> None:
    Seeded(db, "bank").activate("x", until_s=4_000_000_000)
    Seeded(db, "mail").activate("y", until_s=4_000_000_000)
    canceled = db.pubsub()  # type: ignore[no-untyped-call]  # redis has no types for it
    with serving(FastqWeb(url, auth=mail_or_all)) as served, canceled:
        canceled.subscribe("asynq:cancel")
        canceled.get_message(timeout=PATIENCE_S)
        # Go's servers are told the id alone.
        assert served.ask("POST", "/api/queues/mail/active_tasks/x:cancel").status == 500
        told = served.ask("POST", "/api/queues/mail/active_tasks:batch_cancel", b'{"task_ids": ["x", "y"]}').json
        assert told == {"canceled_ids": ["y"], "error_ids": ["x"]}
        message = canceled.get_message(timeout=PATIENCE_S)
        assert message is not None
        assert message["data"] == b"y"


def test_nobody_cancels_a_task_of_another_queue_by_an_id_of_their_own(url: str, db: Redis) -> None:
    Seeded(db, "bank").activate("x", until_s=4_000_000_000)
    Seeded(db, "mail").add("scheduled", {"x": 4_000_000_000})
    canceled = db.pubsub()  # type: ignore[no-untyped-call]  # redis has no types for it
    with serving(FastqWeb(url, auth=mail_or_all)) as served, canceled:
        canceled.subscribe("asynq:cancel", "asynq:cancel:as")
        for _ in range(2):
            canceled.get_message(timeout=PATIENCE_S)
        assert served.ask("POST", "/api/queues/mail/active_tasks/x:cancel").status == 500
        told = served.ask("POST", "/api/queues/mail/active_tasks:batch_cancel", b'{"task_ids": ["x"]}').json
        assert told == {"canceled_ids": [], "error_ids": ["x"]}
        db.delete("asynq:{mail}:scheduled")
        Seeded(db, "mail").activate("x", until_s=4_000_000_000)
        send_form(served, "/queues/mail/active/cancel", "id=x")
        Seeded(db, "bank").db.hset("asynq:{bank}:t:x", "state", "pending")
        send_form(served, "/queues/mail/active/cancel", "id=x")
        channels = [canceled.get_message(timeout=PATIENCE_S)["channel"] for _ in range(3)]
        # Go's servers are told the id alone, and only once none of another queue runs under it.
        assert channels == [b"asynq:cancel:as", b"asynq:cancel:as", b"asynq:cancel"]


def send_form(served: Served, path: str, body: str) -> None:
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    assert served.ask("POST", path, body.encode(), **kind).status == 303


def test_who_sees_some_queues_sees_no_work_on_all(url: str, db: Redis) -> None:
    app = FastqWeb(url, auth=mail_or_all)
    app.site.board.jobs["1"] = Work("Repair what the doctor found", id="1")
    with serving(app) as served:
        assert "Repair" in served.get("/jobs/1", X_Queues="*").text
        assert served.get("/jobs/1").status == served.ask("POST", "/jobs/1/stop").status == 404
        assert "Repair" not in served.get("/jobs").text


def test_the_queue_of_a_periodic_task_is_the_last_that_it_names(url: str, db: Redis) -> None:
    app = FastqWeb(url, queues=["mail*"], auth=None)
    view = View(app.site.inspector, (("mail*",),), app.site.redaction, app.site.turns)
    now = datetime.now(UTC)
    for options, is_seen in (
        (('Queue("mail")',), True),
        (('Queue("mail")', 'Queue("bank")'), False),
        (('Queue("bank")', "MaxRetry(3)", 'Queue("mails")'), True),
        (('Queue("bad\\x00")',), False),
        ((), False),
    ):
        entry = SchedulerEntry("e", "@every 1h", "t", b"", options, now, now)
        assert view.sees(entry.queue) is is_seen, options


def test_who_sees_some_queues_is_told_nothing_of_the_others_tasks(url: str, db: Redis) -> None:
    now = datetime.now(UTC)
    children = tuple(ChildInfo(pid, state, now) for pid, state in ((1, "busy"), (2, "idle"), (3, "starting")))
    mine = ChildInfo(4, "busy", now, task_ids=("x",))
    assert [_child(each, {"x"}, True).state for each in (*children, mine)] == ["unknown", "unknown", "starting", "busy"]
    assert [_child(each, {"x"}, False).state for each in children] == ["busy", "idle", "starting"]
    with serving(FastqWeb(url, auth=mail_or_all)) as served:
        for path in ("/redis", "/api/redis_info", "/api/v1/redis"):
            assert (served.get(path).status, served.get(path, X_Queues="*").status) == (403, 200), path
        assert 'href="/redis"' not in served.get("/").text
        assert 'href="/redis"' in served.get("/", X_Queues="*").text


def test_a_form_has_few_fields_and_only_known_ones_come_back(url: str, db: Redis) -> None:
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    with Client(url) as client:
        client.enqueue("t", queue="q")
    with serving(FastqWeb(url, auth=None)) as served:
        asked = served.ask("POST", "/queues/q/pending/archive", b"all=1&nonsense=1", **kind)
        assert (asked.status, 'name="all"' in asked.text, "nonsense" in asked.text) == (200, True, False)
        many = served.ask("POST", "/queues/q/pending/archive", b"all=1" + b"&a=b" * 2_000, **kind)
        assert (many.status, "2,001 fields" in many.text) == (400, True)


def test_a_login_that_is_canceled_as_its_turn_comes_passes_the_turn_on() -> None:
    async def test() -> None:
        counter = _Counter(_Failures())

        async def login(client: str) -> None:
            async with counter.turn(client):
                pass

        async with counter.turn("first"):
            second = asyncio.create_task(login("second"))
            await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait([second])
        third = asyncio.create_task(login("third"))
        await asyncio.sleep(0)
        assert (second.cancelled(), third.done()) == (True, True)

    asyncio.run(test())


def test_logins_are_tried_one_by_one_and_addresses_without_failures_first() -> None:
    async def test() -> None:
        failures, done = _Failures(), list[str]()
        for client in ("bad", "worse", "worse"):
            failures.note(client, time.monotonic())
        counter, first_ends = _Counter(failures), asyncio.Event()

        async def login(client: str) -> str:
            try:
                async with counter.turn(client):
                    if client == "first":
                        await first_ends.wait()
                    done.append(client)
            except TooManyFailuresError:
                return "refused"
            return "tried"

        names = ["first", "worse", "bad", *(f"bad{n}" for n in range(8)), "good"]
        for name in names[3:11]:
            failures.note(name, time.monotonic())
        tried = [asyncio.create_task(login(name)) for name in names]
        await asyncio.sleep(0)
        canceled = tried.pop(5)
        canceled.cancel()
        await asyncio.wait([canceled])
        first_ends.set()
        outcomes = await asyncio.gather(*tried)
        assert outcomes == ["tried", "refused", *(["tried"] * 9)]
        assert done[:2] == ["first", "good"]
        for _ in range(10):
            failures.note("bad", time.monotonic())
        assert await login("bad") == "refused"
        assert await login("good") == "tried"

    asyncio.run(test())


def test_failed_logins_lockouts_and_refusals_are_in_the_audit(
    url: str, db: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    app = FastqWeb(url, auth=BasicAuth([new_user_line(User("ann", Role.VIEWER), "right")]))
    with serving(app) as served:
        assert served.get("/").status == 401  # as every browser asks first
        for _ in range(FAILURES):
            assert served.get("/", Authorization=basic("bob\n\x1b", "wrong")).status == 401
        assert served.get("/", Authorization=basic("ann", "right")).status == 429
    with serving(FastqWeb(url, auth=by_header)) as served:
        served.ask("POST", "/queues/q/pause", X_Role="viewer")
        served.ask("POST", "/queues/q/pause", X_Role="admin", Origin="http://evil.example")
    lines = [record.getMessage() for record in caplog.records if record.name == "fastq.web.audit"]
    told = [json.loads(line) for line in lines]
    assert [line["action"] for line in told] == [*["login.failed"] * FAILURES, "login.locked", "refused", "refused"]
    assert (told[0]["user"], told[0]["client"], told[0]["path"]) == ("bob\n\x1b", "127.0.0.1", "/")
    assert told[-3]["user"] == "ann"
    assert (told[-2]["user"], told[-2]["role"], told[-2]["outcome"]) == (
        "ann", "viewer", "ann may not do this: queue.pause",
    )  # fmt: skip
    assert "another site" in told[-1]["outcome"]
    assert all(line.isprintable() for line in lines)


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def test_an_app_without_a_word_about_its_logins_does_not_start(url: str) -> None:
    with pytest.raises(TypeError, match="auth must be given; auth=None lets everyone"):
        FastqWeb(url)


def test_who_keeps_the_server_waiting_is_not_waited_for(url: str, db: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "HEAD_S", 0.2)
    monkeypatch.setattr(site, "BODY_S", 0.05)
    head = b"POST /queues/q/pending/run HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n"
    with serving(FastqWeb(url, auth=None), http=serve.Protocol) as served:
        for sent in (b"", b"GET / HTTP/1.1\r\nHost: local", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGET /"):
            with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_S) as connection:
                connection.sendall(sent)
                with connection.makefile("rb") as replies:
                    received = replies.read()
                assert received.count(b"HTTP/1.1 200 OK") == sent.count(b"\r\n\r\n")
        with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_S) as connection:
            connection.sendall(head + b"all=1")
            assert connection.recv(65_536).startswith(b"HTTP/1.1 408 ")


def test_large_payloads_are_listed_by_their_beginnings_and_downloaded_in_parts(
    url: str, db: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[int]()
    decode = decode_task_message

    def noting(data: bytes) -> TaskMessage:
        read.append(len(data))
        return decode(data)

    payload = b'{"a": "' + b"x" * 3_000_000 + b'"}'
    with Client(url) as client:
        for task_id in "abc":
            client.enqueue("t", payload, queue="q", task_id=task_id)
    monkeypatch.setattr(inspector_tasks, "decode_task_message", noting)
    with serving(FastqWeb(url, auth=None)) as served:
        assert "xxx\u2026</code>" in served.get("/queues/q/pending").text
        assert max(read) < 5_000
        assert re.search(r"\b2\.9 M", served.get("/queues/q/tasks/a").text)
        assert max(read) < 2_100_000
        assert served.get("/queues/q/tasks/a/payload").body == payload
        assert max(read) < 2_100_000
        [first, *_] = served.get("/api/queues/q/pending_tasks").json["tasks"]
        assert payload.decode().startswith(first["payload"])
        assert len(first["payload"]) == 256_000
        tasks = served.get("/api/v1/queues/q/pending").json
        assert (tasks["total"], [task["payload"] for task in tasks["tasks"]]) == (3, [payload.decode()] * 3)
    with serving(FastqWeb(url, redact=["password"], auth=None)) as served:
        assert "[hidden]" in served.get("/queues/q/pending").text
        assert served.get("/queues/q/tasks/a/payload").body == b"[hidden]"


def test_a_payload_that_no_reply_holds_is_left_to_its_file(url: str, db: Redis) -> None:
    payload = b"x" * 8_000_001
    with Client(url) as client:
        client.enqueue("t", payload, queue="q", task_id="a")
    with serving(FastqWeb(url, auth=None)) as served:
        for path in ("/api/v1/queues/q/pending", "/api/v1/queues/q/tasks/a"):
            answer = served.get(path)
            assert (answer.status, "8,000,001 bytes" in answer.json["error"]) == (413, True)
        assert served.get("/queues/q/tasks/a/payload").body == payload
        form = served.get("/enqueue?of=q&id=a").text
        assert "x" * 1_000 not in form
        send_form(served, "/enqueue", "of=q&id=a&type=t&queue=q&task_id=b")
        assert served.get("/queues/q/tasks/b/payload").body == payload


def test_an_unread_reply_is_cut_off(
    url: str, db: Redis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(serve, "UNREAD_S", 0.2)
    with Client(url) as client:
        client.enqueue("t", b"x" * 12_000_000, queue="q", task_id="a")
    with serving(FastqWeb(url, auth=None), http=serve.Protocol) as served:
        silent = socket.socket()
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        with silent:
            silent.settimeout(PATIENCE_S)
            silent.connect(("127.0.0.1", served.port))
            silent.sendall(b"GET /queues/q/tasks/a/payload HTTP/1.1\r\nHost: localhost\r\n\r\n")
            wait_until(lambda: "a reply to 127.0.0.1 is cut off" in caplog.text)
            assert len(rest_of(silent)) < 12_000_000
        assert len(served.get("/queues/q/tasks/a/payload").body) == 12_000_000


def test_who_reads_slowly_keeps_nobody_else_from_large_lists_and_downloads(
    url: str, db: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "MOST_STREAMS", 4)
    monkeypatch.setattr(serve, "UNREAD_S", 1e6)
    with Client(url) as client:
        for n in range(4):
            client.enqueue("t", b"x" * 6_000_000, queue="q", task_id=f"t{n}")
    path = "/api/v1/queues/q/pending"
    with serving(FastqWeb(url, auth=None), http=serve.Protocol) as served, ExitStack() as stack:
        silent = [stack.enter_context(socket.socket()) for _ in range(4)]
        for each in silent:
            each.settimeout(PATIENCE_S)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            each.bind(("127.0.0.2", 0))
            each.connect(("127.0.0.1", served.port))
            each.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert each.recv(12) == b"HTTP/1.1 200"
        assert len(served.get(path).body) > 24_000_000
        with socket.create_connection(("127.0.0.1", served.port), PATIENCE_S, ("127.0.0.2", 0)) as another:
            another.sendall(b"GET /queues/q/tasks/t0/payload HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert another.recv(12) == b"HTTP/1.1 429"
            for each in silent:
                each.close()
            wait_until(lambda: _status(served.port, "127.0.0.2") == 200)


def _status(port: int, source: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S, source_address=(source, 0))
    with closing(connection):
        connection.request("GET", "/queues/q/tasks/t0/payload")
        return connection.getresponse().status


@pytest.mark.parametrize("is_crowded", [False, True])
def test_the_end_of_a_reply_that_is_unread_holds_no_connection(
    url: str, db: Redis, monkeypatch: pytest.MonkeyPatch, is_crowded: bool
) -> None:
    made: list[serve.Protocol] = []

    class Narrow(serve.Protocol):
        """What the system keeps of a reply is little, and the rest is too little for uvicorn to wait."""

        def connection_made(self, transport: Any) -> None:
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
            made.append(self)
            super().connection_made(transport)

    monkeypatch.setattr(serve, "UNREAD_S", 1e6 if is_crowded else 0.2)
    monkeypatch.setattr(serve, "HEAD_S", 1e6 if is_crowded else 0.2)
    monkeypatch.setattr(serve, "MOST_OF_AN_ADDRESS", 1)
    with Client(url) as client:
        client.enqueue("t", b"x" * 50_000, queue="q", task_id="a")
    with serving(FastqWeb(url, auth=None), http=Narrow) as served, socket.socket() as silent:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        silent.connect(("127.0.0.1", served.port))
        silent.sendall(b"GET /queues/q/tasks/a/payload HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: bool(made) and made[0].transport.get_write_buffer_size() > 0)
        assert made[0].transport.get_write_buffer_size() < 64_000
        if is_crowded:
            assert served.get("/api/queues").status == 200
        wait_until(lambda: made[0].transport.get_write_buffer_size() == 0)


def rest_of(connection: socket.socket) -> bytes:
    """Read all that comes until the other side closes a connection."""
    parts = []
    with suppress(ConnectionResetError):
        while part := connection.recv(1_000_000):
            parts.append(part)
    return b"".join(parts)


def test_one_address_has_few_connections_that_are_not_let_in(
    url: str, db: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("HEAD_S", 1e6), ("MOST_OF_AN_ADDRESS", 5), ("MOST_CONNECTIONS", 9)):
        monkeypatch.setattr(serve, name, value)
    with serving(FastqWeb(url, auth=None), http=serve.Protocol) as served, ExitStack() as stack:

        def half_a_head(source: str) -> socket.socket:
            connection = socket.create_connection(("127.0.0.1", served.port), PATIENCE_S, (source, 0))
            stack.enter_context(connection).sendall(b"GET / HTTP/1.1\r\nHost: local")
            return connection

        of_one = [half_a_head("127.0.0.2") for _ in range(8)]
        for closed in of_one[:3]:
            assert rest_of(closed) == b""  # the oldest
        assert served.get("/api/queues").status == 200
        of_others = [half_a_head(f"127.0.0.{n}") for n in range(3, 9)]
        assert served.get("/api/queues").status == 200
        for closed in of_one[3:5]:
            assert rest_of(closed) == b""
        of_others[-1].sendall(b"host\r\n\r\n")
        assert of_others[-1].recv(12) == b"HTTP/1.1 200"
        of_one[-1].sendall(b"host\r\n\r\n")
        assert of_one[-1].recv(12) == b"HTTP/1.1 200"


def test_a_client_is_its_address_or_its_ipv6_network() -> None:
    assert address_of("10.0.0.1") == address_of("::ffff:10.0.0.1") == "10.0.0.1"
    assert address_of("2001:db8:1:2::3") == address_of("2001:db8:1:2:ffff::1") == "2001:db8:1:2::/64"
    assert address_of("2001:db8:1:3::3") != address_of("2001:db8:1:2::3")
    for everybody in ("0.0.0.0/0", "::/0"):
        with pytest.raises(ValueError, match="is every address"):
            networks_of([everybody])


def test_the_address_of_redis_is_shown_without_its_password(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with serving(FastqWeb("redis://:s3cr3t@127.0.0.1:1/0", auth=None)) as served:
        for path in ("/redis", "/api/redis_info"):
            answer = served.get(path)
            assert answer.status >= 500
            assert "127.0.0.1:1" in answer.text
            assert "s3cr3t" not in answer.text
    assert "s3cr3t" not in caplog.text


def test_a_long_error_is_cut_in_a_list_and_whole_on_its_page(url: str, db: Redis) -> None:
    text = "E" * 1_000_000 + "end"
    Seeded(db, "q").add("archived", {"x": 4_000_000_000}, error_msg=text, type="t", payload=b"x")
    with serving(FastqWeb(url, auth=None)) as served:
        listed = served.get("/queues/q/archived").text
        assert "EEEEE..." in listed
        assert len(listed) < 20_000
        assert text in served.get("/queues/q/tasks/x").text


def test_a_server_that_only_shows_has_no_button(url: str, db: Redis) -> None:
    with Client(url) as client:
        client.enqueue("t", queue="q", task_id="x")
        client.enqueue("t", queue="q", task_id="y", group="q")
    pages = ["/queues/q/tasks/x", *PAGES[:-2], "/", "/servers", "/jobs", "/search?q=t"]
    with serving(FastqWeb(url, auth=None)) as served:
        assert sum('method="post"' in served.get(path).text for path in pages) >= 5
    for app, headers in (
        (FastqWeb(url, read_only=True, auth=None), {}),
        (FastqWeb(url, auth=by_header), {"X-Role": "viewer"}),
    ):
        with serving(app) as served:
            for path in pages:
                forms = re.findall('<form method="post".*?</form>', served.get(path, **headers).text, re.DOTALL)
                assert not any("<button" in form for form in forms)
