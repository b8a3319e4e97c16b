"""Payloads that nobody sees, and queues that only some see: in every reply of every route."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from urllib.parse import quote

import pytest
from redis import Redis
from starlette.requests import Request

from fastq import Client
from fastq.web import FastqWeb, Role, User
from fastq.web.access import ACTIONS
from fastq.web.asgi import ROUTES
from fastq.web.redaction import HIDDEN, Redaction
from fastq.wire import keys
from fastq.wire.messages import SchedulerEntry, ServerInfoMessage, WorkerInfo
from fastq.wire.records import encode_server_info, encode_worker_info
from tests.cli.dash.scene import FAR_S, publish_entries
from tests.inspector.harness import Seeded
from tests.web.serving import Answer, serving
from tests.web.test_asgi import filled_path

SECRET = "s3cr3t"
PAYLOAD = f'{{"user": {{"Password": ["{SECRET}"], "id": 9007199254740993}}, "pass\\u0077ord": "{SECRET}", "n": 1.10}}'


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (
            PAYLOAD,
            '{"user": {"Password":"[redacted]", "id": 9007199254740993}, "pass\\u0077ord":"[redacted]", "n": 1.10}',
        ),
        (
            '{"a": "password: x", "password" : {"b": [1, {"c": 2}]}, "d":[]}',
            '{"a": "password: x", "password" :"[redacted]", "d":[]}',
        ),
        (
            '[{"password": null}, {"password": 1, "password": 2}]',
            '[{"password":"[redacted]"}, {"password":"[redacted]", "password":"[redacted]"}]',
        ),
        ('"password"', '"password"'),
        ("password=x", HIDDEN.decode()),
        ('{"password": "x"', HIDDEN.decode()),
        ("", ""),
        ("[" * 100_000, HIDDEN.decode()),
    ],
)
def test_members_are_redacted_and_all_else_stays_as_it_was_written(data: str, shown: str) -> None:
    redaction = Redaction.of(hides=False, keys=["PASSWORD"])
    assert redaction.data(data.encode()).decode() == shown
    assert redaction.data(b"\xff" + data.encode()) == HIDDEN
    assert redaction.data(b'"%b"' % (b"x" * 1_000_000)) == HIDDEN
    assert Redaction.of(hides=True, keys=[]).data(data.encode()) == (HIDDEN if data else b"")
    with pytest.raises(ValueError, match="redact: '' is not the name of a member"):
        Redaction.of(hides=False, keys=[""])
    with pytest.raises(TypeError, match="redact must be a sequence of str, not 'password'"):
        FastqWeb("redis://localhost", redact="password", auth=None)


@pytest.fixture
def filled(url: str, db: Redis) -> None:
    """Put the secret everywhere where a payload or a result is kept, and a queue that holds none."""
    data = PAYLOAD.encode()
    with Client(url) as client:
        client.enqueue("t", data, queue="bank", task_id="x", headers={"Password": SECRET})
        client.enqueue("t", data, queue="bank", task_id="grouped", group="g")
        client.enqueue("t", {"n": 1}, queue="mail", task_id="y")
    seeded = Seeded(db, "bank")
    seeded.activate("running", until_s=FAR_S, payload=data)
    seeded.add("archived", {"failed": 1}, payload=data, error_msg="KeyError: 'x'")
    seeded.add("completed", {"done": FAR_S}, payload=b'{"n": 1}', retention=3600, completed_at=int(time.time()))
    db.hset(keys.task("bank", "done"), "result", data)
    now = datetime.now(UTC)
    publish_entries(db, SchedulerEntry("entry", "@every 1h", "t", data, ('Queue("bank")',), now, now))
    info = ServerInfoMessage("h", 1, "s", 8, {"bank": 1, "mail": 1}, False, "active", now, 1)
    worker = WorkerInfo("h", 1, "s", "running", "t", data, "bank", now, now)
    for key, index in (
        (keys.server_info("h", 1, "s"), keys.all_servers()),
        (keys.workers("h", 1, "s"), keys.all_workers()),
    ):
        db.zadd(index, {key: FAR_S})
    db.set(keys.server_info("h", 1, "s"), encode_server_info(info))
    db.hset(keys.workers("h", 1, "s"), "running", encode_worker_info(worker))


def paths() -> Iterator[str]:
    """Yield what can be read: every route, with the names of what is there."""
    names = {"queue": "bank", "id": "x", "group": "g", "entry": "entry", "version": "0", "name": "app.css", "job": "0"}
    for state in ("active", "pending", "completed", "archived", "aggregating"):
        for route in ROUTES:
            if route.action is None and route.pattern != "/events":
                yield route.pattern.format_map({**names, "state": state})
    yield f"/search?q={SECRET}"
    yield "/search?q=payload.n:1.10"
    yield f"/find?id={SECRET}"
    yield "/queues/bank/tasks/done/result"
    yield "/api/queues/bank/tasks/done"
    yield "/queues/bank/aggregating?group=g"


@pytest.mark.parametrize("options", [{"redact": ["password"]}, {"hide_payloads": True, "redact": ["password"]}])
def test_no_reply_has_what_nobody_is_to_see(url: str, filled: None, options: dict[str, object]) -> None:
    with serving(FastqWeb(url, auth=None)) as served:
        seen = {path for path in dict.fromkeys(paths()) if SECRET in told(served.get(path))}
        assert len(seen) >= 10, seen
    with serving(FastqWeb(url, auth=None, **options)) as served:  # type: ignore[arg-type]  # options of FastqWeb
        for path in dict.fromkeys(paths()):
            assert SECRET not in told(served.get(path)), path
        assert "No task matches" in served.get(f"/search?q=payload:{SECRET}").text
        assert served.get("/queues/bank/tasks/x").status == 200


def told(answer: Answer) -> str:
    """Return a reply without what was asked for, which it repeats."""
    return (
        answer.text.replace(f"q={SECRET}", "")
        .replace(f"payload:{SECRET}", "")
        .replace(f'value="{SECRET}"', "")
        .replace(f"Search: {SECRET}", "")
        .replace("&#39;bank&#39;", "")
        .replace("queue='bank'", "")
    )


def mail_only(request: Request) -> User:
    return User("ann", Role.ADMIN, ("mail*",))


def test_queues_of_others_are_nowhere(url: str, filled: None, db: Redis) -> None:
    with serving(FastqWeb(url, auth=None)) as served:
        everyone = [path for path in dict.fromkeys(paths()) if "bank" in told(served.get(path))]
        assert len(everyone) >= 15
    for app in (FastqWeb(url, auth=mail_only), FastqWeb(url, queues=["mail*"], auth=None)):
        with serving(app) as served:
            for path in everyone:
                text = told(served.get(path))
                assert SECRET not in text, path
                assert "bank" not in text, path
            assert "mail" in served.get("/").text
            assert served.get("/queues/mail/pending").status == 200
            assert served.get("/queues/bank/pending").status == served.get("/queues/none/pending").status == 404
            assert served.get("/doctor").status == 403
            assert served.get(f"/events?of={quote('/queues/bank/pending')}").status == 404
            before = sorted(map(str, db.keys()))
            for route in ROUTES:
                if route.action is not None:
                    path = filled_path(route.pattern).replace("no-such-queue", "bank")
                    assert served.ask(route.method, path, b"sure=yes&all=1&force=yes&id=x").status in (403, 404, 409), (
                        path
                    )
            assert sorted(map(str, db.keys())) == before


def test_rights_name_queues() -> None:
    assert User.of("ann", "operator@mail*,sms") == User("ann", Role.OPERATOR, ("mail*", "sms"))
    for rights in ("viewer", "admin@a", "operator@mail*,sms"):
        assert User.of("x", rights).rights == rights
    for rights, said in (("viewer@", "write ROLE, or ROLE@QUEUE"), ("viewer@a:b", "for a colon"), ("root@a", "'root'")):
        with pytest.raises(ValueError, match=said):
            User.of("x", rights)
    assert set(ACTIONS.values()) <= set(Role)
