"""fastq web's REST API answers as the real asynqmon does, on the same Redis: statuses, fields and values.

The endpoints that read are asked on one scene. For those that act, two queues with the same tasks get the same
requests, one through each program.
"""

import http.server
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
import redis

from fastq import Client, Inspector, TaskState
from fastq.web import FastqWeb
from fastq.web.compat import ROUTES as API
from tests.interop.build import build
from tests.interop.monitor import LIMIT_S, Asynqmon
from tests.interop.samples import QUEUES
from tests.interop.scene import BUSY, TICKING, Scene
from tests.waiting import wait_until
from tests.web.serving import serving

pytestmark = pytest.mark.interop

STATES = {state: f"{state.value}_tasks" for state in TaskState if state is not TaskState.AGGREGATING}
INFO, METRICS = "/api/redis_info", "/api/metrics"

Answer = tuple[int, Any]
Ask = Callable[..., Answer]


def path_of(*names: str) -> str:
    return "/api/" + "/".join(quote(name, safe=":") for name in names)


def asking(address: str) -> Ask:
    def ask(method: str, path: str, body: Any = None) -> Answer:
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(f"{address}{path}", data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, None  # its words are each program's own

    return ask


TIMES = {"timestamp", "start_time", "deadline", "next_process_at", "last_failed_at", "completed_at", "enqueued_at"}
TIMES |= {"next_enqueue_at", "prev_enqueue_at"}
COUNTED_FROM_NOW = {"latency_msec", "display_latency", "ttl_seconds", "timestamp", "memory_usage_bytes"}


def plain(value: Any, name: str = "") -> Any:
    """Put times into UTC, lists without an order of their own into one, and leave only whether there is a value that
    each program counts from its own now."""
    if isinstance(value, dict):
        return {key: plain(each, key) for key, each in value.items()}
    if isinstance(value, list):
        items = [plain(each) for each in value]
        return sorted(items, key=str) if name in ("servers", "active_workers", "entries", "groups", "queues") else items
    if name in TIMES and value not in ("", "-"):
        value = datetime.fromisoformat(value).astimezone(UTC).replace(microsecond=0)
    return bool(value) if name in COUNTED_FROM_NOW and value != "0s" else value


@pytest.fixture(scope="session")
def asynqmon_binary() -> Path:
    return build("asynqmon")


@pytest.fixture(scope="module")
def both(asynqmon_binary: Path, scene: Scene) -> Iterator[tuple[Ask, Ask]]:
    """Return both programs on the scene."""
    with (
        Asynqmon(asynqmon_binary, Path(scene.redis.socket_path)) as monitor,
        serving(FastqWeb(scene.redis.url, auth=None)) as served,
    ):
        yield asking(f"http://{monitor.address}"), asking(served.url)


@pytest.fixture
def acting(asynqmon_binary: Path, redis_socket: Path, redis_url: str) -> Iterator[tuple[Ask, Ask]]:
    """Return both programs on the emptied Redis."""
    with (
        Asynqmon(asynqmon_binary, redis_socket) as monitor,
        serving(FastqWeb(redis_url, auth=None)) as served,
    ):
        yield asking(f"http://{monitor.address}"), asking(served.url)


def paths(entry: str) -> Iterator[str]:
    yield from (path_of("queues"), path_of("servers"), path_of("scheduler_entries"))
    yield f"{path_of('queue_stats')}"
    for queue in (*QUEUES, BUSY, TICKING, "idle", "no-such-queue"):
        yield path_of("queues", queue)
        yield path_of("queues", queue, "groups")
        yield from (f"{path_of('queues', queue, tasks)}?size=50" for tasks in STATES.values())
    for query in ("?size=3", "?size=3&page=2", "?page=99", "?size=x&page=y"):
        yield path_of("queues", QUEUES[0], "pending_tasks") + query
        yield path_of("queues", QUEUES[0], "scheduled_tasks") + query
    yield path_of("queues", "idle", "groups", "g", "aggregating_tasks")
    yield path_of("queues", "idle", "groups", "no-such-group", "aggregating_tasks")
    for task_id in ("completed", "binary-result", "late", "retried", "dead", "skipped", "active", "later", "no-such"):
        yield path_of("queues", BUSY, "tasks", task_id)
    yield path_of("queues", "no-such-queue", "tasks", "x")
    yield f"{path_of('scheduler_entries', entry, 'enqueue_events')}?size=5"


def test_what_reads_answers_alike(both: tuple[Ask, Ask], scene: Scene) -> None:
    theirs, ours = both
    for path in paths(scene.entries[1]):

        def is_alike(path: str = path) -> bool:
            (status, told), (our_status, our_told) = theirs("GET", path), ours("GET", path)
            return (status, plain(told)) == (our_status, plain(our_told))

        try:
            wait_until(is_alike, 10)  # the scheduler goes on, so that one look may fall between two ticks
        except AssertionError:
            assert (path, *map(plain, ours("GET", path))) == (path, *map(plain, theirs("GET", path)))
    assert ours("GET", path_of("queues"))[0] == 200


def test_redis_is_described_alike(both: tuple[Ask, Ask], scene: Scene) -> None:
    (status, told), (our_status, our_told) = (ask("GET", INFO) for ask in both)
    assert (status, told.keys()) == (our_status, our_told.keys())
    lasting = ("redis_version", "run_id", "process_id", "tcp_port", "maxmemory_policy", "role", "os")
    assert {name: told["info"][name] for name in lasting} == {name: our_told["info"][name] for name in lasting}
    assert told["info"].keys() <= our_told["info"].keys()
    for name in ("address", "cluster", "raw_cluster_nodes", "queue_locations"):
        assert told[name] == our_told[name]


MONITORED, SHOWN = "of-asynqmon", "of-fastq"
WHERE = {state: (tasks,) for state, tasks in STATES.items()} | {
    TaskState.AGGREGATING: ("groups", "g", "aggregating_tasks")
}
VERBS = {
    TaskState.ACTIVE: ("cancel",),
    TaskState.PENDING: ("archive", "delete"),
    TaskState.SCHEDULED: ("run", "archive", "delete"),
    TaskState.RETRY: ("run", "archive", "delete"),
    TaskState.ARCHIVED: ("run", "delete"),
    TaskState.COMPLETED: ("delete",),
    TaskState.AGGREGATING: ("run", "archive", "delete"),
}


def fill(client: Client, db: redis.Redis, queue: str, state: TaskState) -> None:
    """Put five tasks into a queue, in one state; those that only servers bring there, by hand."""
    by_state: dict[TaskState, Any] = {TaskState.SCHEDULED: {"process_in": 3600}, TaskState.AGGREGATING: {"group": "g"}}
    options = by_state.get(state, {})
    for n in range(5):
        client.enqueue("t", f"{n}", queue=queue, task_id=f"{queue}-{n}", retention=3600, **options)
    if state not in (TaskState.PENDING, TaskState.SCHEDULED, TaskState.AGGREGATING):
        prefix = f"asynq:{{{queue}}}"
        for n in range(5):
            db.lrem(f"{prefix}:pending", 1, f"{queue}-{n}")
            db.hset(f"{prefix}:t:{queue}-{n}", "state", state.value)
            if state is TaskState.ACTIVE:
                db.lpush(f"{prefix}:active", f"{queue}-{n}")
                db.zadd(f"{prefix}:lease", {f"{queue}-{n}": 4e9})
            else:
                db.zadd(f"{prefix}:{state.value}", {f"{queue}-{n}": 4e9 + n})


def states_of(inspector: Inspector, queue: str) -> dict[str, int]:
    info = inspector.get_queue_info(queue)
    return {state.value: getattr(info, state.value) for state in TaskState} | {"paused": info.paused}


def requests_of(queue: str, state: TaskState) -> Iterator[tuple[str, str, Any]]:
    """Yield the requests for one task, for some, and for all that are left; good ones and bad ones."""
    base = path_of("queues", queue, *WHERE[state])
    for n, verb in enumerate(VERBS[state]):
        method = "DELETE" if verb == "delete" else "POST"
        suffix = "" if verb == "delete" else f":{verb}"
        yield method, f"{base}/{queue}-{n}{suffix}", None
        yield method, f"{base}/no-such-task{suffix}", None
        yield "POST", f"{base}:batch_{verb}", {"task_ids": [f"{queue}-{3 + n % 2}", "no-such-task"]}
        yield "POST", f"{base}:batch_{verb}", {"task_ids": []}
        yield "POST", f"{base}:batch_{verb}", {"ids": ["x"]}
        yield "POST", f"{base}:batch_{verb}", b"{"
        yield "PUT", f"{base}:batch_{verb}", {"task_ids": []}
        yield method, f"{base}:{verb}_all", None
        nowhere = base.replace(queue, "no-such-queue")
        yield method, f"{nowhere}:{verb}_all", None
        yield method, f"{nowhere}/x{suffix}", None


@pytest.mark.parametrize("state", VERBS)
def test_what_acts_on_tasks_answers_and_does_the_same(
    acting: tuple[Ask, Ask], redis_url: str, db: redis.Redis, state: TaskState
) -> None:
    theirs, ours = acting
    with Client(redis_url) as client, Inspector(redis_url) as inspector:
        for queue in (MONITORED, SHOWN):
            fill(client, db, queue, state)
        assert states_of(inspector, SHOWN)[state.value] == 5
        for their_request, our_request in zip(requests_of(MONITORED, state), requests_of(SHOWN, state), strict=True):
            (status, told), (our_status, our_told) = theirs(*their_request), ours(*our_request)
            told = json.loads(json.dumps(told).replace(MONITORED, SHOWN))
            assert (our_request, our_status, our_told) == (our_request, status, told)
            assert states_of(inspector, MONITORED) == states_of(inspector, SHOWN), our_request


def requests_of_queue(queue: str) -> Iterator[tuple[str, str]]:
    base = path_of("queues", queue)
    yield from [("POST", f"{base}:pause"), ("POST", f"{base}:pause"), ("DELETE", base), ("POST", f"{base}:resume")]
    yield from [("POST", f"{base}:resume"), ("DELETE", f"{base}/pending_tasks:delete_all"), ("DELETE", base)]
    yield from [("DELETE", base), ("GET", base)]


def test_what_acts_on_queues_answers_and_does_the_same(
    acting: tuple[Ask, Ask], redis_url: str, db: redis.Redis
) -> None:
    theirs, ours = acting
    with Client(redis_url) as client:
        for queue in (MONITORED, SHOWN):
            fill(client, db, queue, TaskState.PENDING)
    for their_request, our_request in zip(requests_of_queue(MONITORED), requests_of_queue(SHOWN), strict=True):
        told, our_told = theirs(*their_request), ours(*our_request)
        assert (our_request, plain(our_told[0])) == (our_request, plain(told[0]))
    with Inspector(redis_url) as inspector:
        assert inspector.queues() == []


class _Prometheus(http.server.BaseHTTPRequestHandler):
    """A Prometheus that answers with the question."""

    def do_GET(self) -> None:
        body = json.dumps({"status": "success", "data": parse_qs(urlsplit(self.path).query)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_metrics_are_asked_of_prometheus_alike(asynqmon_binary: Path, redis_socket: Path, redis_url: str) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Prometheus) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            with (
                Asynqmon(asynqmon_binary, redis_socket, "--prometheus", address) as monitor,
                serving(FastqWeb(redis_url, prometheus=address, auth=None)) as served,
            ):
                theirs, ours = asking(f"http://{monitor.address}"), asking(served.url)
                for duration in (60, 9 * 86_400):
                    path = f"{METRICS}?duration={duration}&endtime=1700000000&queues=a,b"
                    assert ours("GET", path) == theirs("GET", path)
                assert ours("GET", f"{METRICS}?duration=x") == theirs("GET", f"{METRICS}?duration=x")
                whole = f"{METRICS}?endtime=1700000000"
                assert ours("GET", whole) == theirs("GET", whole)
        finally:
            server.shutdown()
            thread.join()
    with serving(FastqWeb(redis_url, auth=None)) as served:
        assert served.get(METRICS).status == 500  # as asynqmon without a Prometheus


def test_every_path_of_the_api_is_asked_of_both() -> None:
    asked = [("GET", path) for path in (INFO, METRICS, *paths("entry"))]
    asked += requests_of_queue(SHOWN)
    asked += [request[:2] for state in VERBS for request in requests_of(SHOWN, state)]
    assert len(API) == 65
    for route in API:
        its_paths = (path.partition("?")[0] for method, path in asked if method == route.method)
        assert any(map(route.regex.fullmatch, its_paths)), (route.method, route.pattern)
