"""Who is let in, who may do what, and what every reply says; over real HTTP, on a real Redis."""

import base64
import json
import logging
import re

import pytest
from redis import Redis
from starlette.requests import Request

from fastq import Client
from fastq.web import FastqWeb, Role, TokenAuth, User, auth
from fastq.web.access import ACTIONS
from fastq.web.asgi import ROUTES
from fastq.web.auth import BasicAuth, ProxyAuth, auth_of, new_token, new_user_line
from fastq.web.guard import SAFE
from fastq.web.site import name_in_path
from tests.redis_servers import redis_server
from tests.web.serving import Served, serving

ROLES = {role.name.lower(): role for role in Role}


def by_header(request: Request) -> User | None:
    """Let in whoever names a role."""
    role = ROLES.get(request.headers.get("x-role", ""))
    return User("ann", role) if role else None


def filled_path(pattern: str) -> str:
    names = {"queue": "no-such-queue", "id": "x", "group": "g", "entry": "e", "state": "pending"}
    names |= {"version": "0", "name": "app.css", "server": "s", "job": "0"}
    return pattern.format_map(names)


def keys_of(db: Redis) -> list[str]:
    return sorted(map(str, db.keys()))


def test_every_route_that_writes_has_an_action_and_each_role_its_routes(url: str, db: Redis) -> None:
    with serving(FastqWeb(url, auth=by_header)) as served:
        for route in ROUTES:
            assert (route.action is None) == (route.method in SAFE), route.pattern
            path = filled_path(route.pattern)
            assert served.ask(route.method, path).status == 401
            for name, role in ROLES.items():
                is_allowed = route.action is None or role >= ACTIONS[route.action]
                status = served.ask(route.method, path, x_role=name).status
                assert (status != 403) == is_allowed, (route.method, path, name, status)


def test_read_only_and_forbidden_actions_are_refused(url: str, db: Redis) -> None:
    with Client(url) as client:
        client.enqueue("t", task_id="x")
    with serving(FastqWeb(url, read_only=True, auth=None)) as served:
        before = keys_of(db)
        for route in ROUTES:
            if route.action is not None:
                assert served.ask(route.method, filled_path(route.pattern)).status == 405
        assert keys_of(db) == before
    with serving(FastqWeb(url, forbidden=["task.delete"], auth=None)) as served:
        assert served.ask("DELETE", "/api/queues/default/pending_tasks/x").status == 403
        assert served.ask("POST", "/api/queues/default/pending_tasks/x:archive").status == 204
    with pytest.raises(ValueError, match=r"'task\.destroy' is not an action; actions are queue\.pause"):
        FastqWeb(url, forbidden=["task.destroy"], auth=None)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 204),
        ({"Sec-Fetch-Site": "same-origin"}, 204),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "https://behind-a-proxy.example"}, 204),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 403),
        ({"Origin": "http://127.0.0.1:{port}"}, 204),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:{port}.evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "localhost:{port}"}, 204),
        ({"Host": "[::1]"}, 204),
        ({"Host": "tasks.example.com"}, 204),
        ({"Host": "a.b.example.org:80"}, 204),
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example#localhost"}, 403),
        ({"Host": "example.org"}, 403),
        ({"Host": "evilexample.org"}, 403),
        ({"Host": ""}, 403),
        ({"Host": "[::1"}, 403),
        ({"Host": "LOCALHOST:{port}"}, 204),
        ({"Host": "localhost."}, 403),
        ({"Host": "localhost:80, evil.example"}, 403),
        ({"Host": "[::1].evil.example"}, 403),
        ({"Host": "127.1"}, 403),
        ({"Host": "evil.example", "X-Forwarded-Host": "localhost"}, 403),
        ({"Host": "evil.example", "Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"}, 403),
    ],
)
def test_other_sites_change_nothing(guarded: tuple[Served, Redis], headers: dict[str, str], status: int) -> None:
    served, db = guarded
    db.delete("asynq:{q}:paused")
    given = {name: value.format(port=served.port) for name, value in headers.items()}
    answer = served.ask("POST", "/api/queues/q:pause", **given)
    assert answer.status == status, answer.text
    assert bool(db.exists("asynq:{q}:paused")) == (status == 204)
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.fixture
def guarded(url: str, db: Redis) -> object:
    with serving(FastqWeb(url, allowed_hosts=["tasks.example.com", "*.example.org"], auth=None)) as served:
        yield served, db


def test_every_reply_has_the_headers_that_protect_it(url: str, db: Redis) -> None:
    with serving(FastqWeb(url, auth=None)) as served:
        for path in ("/", "/api/queues", "/nowhere", "/api/queues/none"):
            headers = served.get(path).headers
            assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; ")
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "same-origin"
            assert headers["cache-control"] == "no-store"
            assert "set-cookie" not in headers


def test_passwords_let_in_and_too_many_wrong_ones_do_not(url: str, db: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "FAILURES", 2)  # each takes its time

    def basic(text: str) -> dict[str, str]:
        return {"Authorization": f"Basic {base64.b64encode(text.encode()).decode()}"}

    lines = [
        new_user_line(User("ann", Role.ADMIN), "sécret:with colon"),
        "# a comment",
        "",
        new_user_line(User("bo", Role.VIEWER), "x"),
    ]
    with serving(FastqWeb(url, auth=BasicAuth(lines))) as served:
        refused = served.get("/api/queues")
        assert refused.status == 401
        assert refused.headers["www-authenticate"].startswith('Basic realm="fastq"')
        assert served.get("/api/queues", **basic("ann:sécret:with colon")).status == 200
        assert served.get("/api/queues", Authorization="Basic !!!").status == 401
        assert served.ask("POST", "/api/queues/q:pause", **basic("bo:x")).status == 403
        statuses = [served.get("/api/queues", **basic(f"ann:{n}")).status for n in range(4)]
        assert statuses == [401] * 2 + [429] * 2
        # A right password that was used before goes on working, so that nobody can lock others out from one address.
        assert served.get("/api/queues", **basic("ann:sécret:with colon")).status == 200


def test_tokens_and_trusted_proxies_let_in(url: str, db: Redis) -> None:
    token, line = new_token(User("ci", Role.OPERATOR))
    assert token not in line
    with serving(FastqWeb(url, auth=TokenAuth([line]))) as served:
        assert served.get("/api/queues").status == 401
        assert served.get("/api/queues", Authorization="Bearer wrong").status == 401
        assert served.get("/api/queues", Authorization=f"Bearer {token}").status == 200
    for trusted, status in (("127.0.0.0/8", 200), ("10.0.0.0/8", 401)):
        with serving(FastqWeb(url, auth=ProxyAuth("X-Forwarded-User", Role.VIEWER, [trusted]))) as served:
            assert served.get("/api/queues", X_Forwarded_User="ann").status == status
            assert served.get("/api/queues").status == 401
            of_the_client = {"x-forwarded-user": "root"}
            assert served.get("/api/queues", X_Forwarded_User="ann", **of_the_client).status == 401


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("basic", "write basic:FILE, tokens:FILE, header:NAME:ROLE or call:MODULE:ATTR"),
        ("magic:x", "'magic' is none of basic, tokens, header, call"),
        ("basic:/no/such/file", "/no/such/file: No such file or directory"),
        ("header:X-User", "needs --trusted-proxy"),
        ("header:X-User:root", "'root' is not a role; roles are viewer, operator, admin"),
        ("call:no_such_module:auth", "No module named 'no_such_module'"),
    ],
)
def test_a_bad_auth_is_named(spec: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        auth_of(spec)


def test_each_change_is_one_line_of_the_audit(url: str, db: Redis, caplog: pytest.LogCaptureFixture) -> None:
    with Client(url) as client:
        for n in range(3):
            client.enqueue("t", task_id=f"a\n{n}")
    caplog.set_level(logging.INFO, "fastq.web.audit")
    admin = {"x_role": "admin"}
    with serving(FastqWeb(url, auth=by_header)) as served:
        served.get("/api/queues", **admin)
        served.ask("POST", "/api/queues/default:pause", **admin)
        served.ask("POST", "/api/queues/default:pause", **admin)
        served.ask("DELETE", "/api/queues/default/pending_tasks/a%0A0", **admin)
        body = json.dumps({"task_ids": ["a\n1", "none"]}).encode()
        served.ask("POST", "/api/queues/default/pending_tasks:batch_archive", body, **admin)
        served.ask("DELETE", "/api/queues/default/pending_tasks:delete_all", **admin)
        served.ask("POST", "/api/queues/default:resume", x_role="viewer")
    lines = [record.getMessage() for record in caplog.records if record.name == "fastq.web.audit"]
    assert not any("\n" in line for line in lines)
    common = {"user": "ann", "role": "admin", "client": "127.0.0.1", "queue": "default"}
    assert [json.loads(line) for line in lines] == [
        {"action": "queue.pause", **common, "outcome": "done"},
        {"action": "queue.pause", **common, "outcome": "failed: queue is already paused (queue='default')"},
        {"action": "task.delete", **common, "id": "a\n0", "outcome": "done"},
        {"action": "task.archive", **common, "tasks": ["a\n1"], "failed": ["none"], "outcome": "done"},
        {"action": "task.delete", **common, "count": 1, "outcome": "done"},
        {
            "action": "refused",
            "user": "ann",
            "role": "viewer",
            "client": "127.0.0.1",
            "method": "POST",
            "path": "/api/queues/default:resume",
            "outcome": "ann may not do this: queue.resume",
        },
    ]


NAMES = ["default", "a/b", "..", ".", "a b", "50%", "x?y#z", "é", "~2F", "a:b", "q:pause"]


def test_names_of_any_kind_are_reached_below_any_root(url: str, db: Redis) -> None:
    with Client(url) as client:
        for name in NAMES:
            client.enqueue("t", queue=name, task_id=name)
    with serving(FastqWeb(url, root_path="/a/b", auth=None)) as served:
        for name in NAMES:
            segment = name_in_path(name)
            assert not set(segment) & set("/%?# ")
            assert segment not in (".", "..")
            for root in ("", "/a/b"):
                told = served.get(f"{root}/api/queues/{segment}/tasks/{segment}").json
                assert (told["queue"], told["id"]) == (name, name)
        assert served.get("/api/queues/a%2Fb").json["current"]["queue"] == "a/b"
    with pytest.raises(ValueError, match="root_path must be like /monitoring/tasks, not 'x'"):
        FastqWeb(url, root_path="x", auth=None)


def test_several_redis_are_shown_side_by_side(url: str, db: Redis, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fastq.web.audit")
    with redis_server() as other:
        for at, queue in ((url, "here"), (other.url, "there")):
            with Client(at) as client:
                client.enqueue("t", queue=queue)
        app = FastqWeb(url, root_path="/tasks", also={"staging": other.url}, auth=None)
        with serving(app) as served:
            first, second = served.get("/tasks/").text, served.get("/tasks/@staging/").text
            for text in (first, second):
                assert '<a href="/tasks/"' in text
                assert '<a href="/tasks/@staging/"' in text
            assert 'href="/tasks/queues/here"' in first
            assert 'href="/tasks/@staging/queues/there"' in second
            assert "/queues/there" not in first
            assert served.get("/tasks/@staging/queues/there/pending").status == 200
            assert served.get("/tasks/%40staging/queues/there/pending").status == 200
            assert served.get("/tasks/@staging/queues/here/pending").status == 404
            assert served.get("/tasks/@none/").status == 404
            for api in ("api", "api/v1"):
                told = json.loads(served.get(f"/tasks/@staging/{api}/queues").text)["queues"]
                assert [each["queue"] for each in told] == ["there"]
            assert served.ask("POST", "/tasks/@staging/queues/there/pause").status == 303
            with other.client() as elsewhere:
                assert elsewhere.exists("asynq:{there}:paused")
            assert json.loads(caplog.messages[-1])["redis"] == "staging"
    with serving(FastqWeb(url, auth=None)) as served:
        assert 'aria-label="Redis"' not in served.get("/").text
