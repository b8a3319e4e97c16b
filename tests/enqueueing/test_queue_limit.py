"""A queue that may have only so many pending tasks: whoever enqueues into it is refused what is more."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis

from fastq import AsyncClient, Client, DuplicateTaskError, QueueFullError, Task, TaskIDConflictError
from fastq.broker.operations.enqueue import REGISTER_EVERY_S
from fastq.broker.transport.open import open_broker
from fastq.enqueueing.producer import Producer
from fastq.errors import BrokerAuthError
from fastq.inspector import Inspector
from fastq.wire import keys
from tests.faulty_proxy import Act, Fault, faulty_proxy
from tests.manual_clock import ManualClock
from tests.redis_servers import RedisServer

PENDING = keys.pending("default")
Call = Callable[..., Any]


@pytest.fixture(params=["Client", "AsyncClient"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def call(kind: str, url: str, method: str, *args: Any, **options: Any) -> Any:
    """Call a method of a new client."""
    if kind == "Client":
        with Client(url) as client:
            return getattr(client, method)(*args, **options)

    async def calling() -> Any:
        async with AsyncClient(url) as client:
            return await getattr(client, method)(*args, **options)

    return asyncio.run(calling())


def fill(db: Redis, count: int) -> None:
    db.lpush(PENDING, *(f"of-others-{n}" for n in range(count)))


@pytest.fixture
def limit(url: str) -> Iterator[Callable[[int | None], None]]:
    with Inspector(url) as inspector:
        yield lambda most: inspector.set_max_pending("default", most)


def names(db: Redis) -> list[str]:
    entries: Any = db.lrange(PENDING, 0, -1)
    return [entry.decode() for entry in reversed(entries) if not entry.startswith(b"of-others")]


def test_what_a_queue_has_no_room_for_is_refused(kind: str, url: str, db: Redis, limit: Call) -> None:
    limit(5)
    fill(db, 5)
    before = db.keys("*")
    with pytest.raises(QueueFullError) as raised:
        call(kind, url, "enqueue", "t")
    error = raised.value
    assert (error.queue, error.size, error.limit, error.is_queues) == ("default", 5, 5, True)
    assert (error.transient, error.maybe_applied) == (True, False)
    assert str(error) == "queue is full: it has 5 pending tasks, and its max_pending is 5 (queue='default')"
    assert set(db.keys("*")) - set(before) <= {keys.all_queues().encode()}
    assert db.llen(PENDING) == 5
    limit(None)
    call(kind, url, "enqueue", "t")
    assert db.llen(PENDING) == 6


def test_enqueue_many_tells_which_tasks_got_in(kind: str, url: str, db: Redis, limit: Call) -> None:
    limit(705)
    fill(db, 5)
    with pytest.raises(QueueFullError, match="has 705 pending tasks, and its max_pending is 705") as raised:
        call(kind, url, "enqueue_many", (Task("t", n) for n in range(2000)))
    results: Any = raised.value.results
    assert db.llen(PENDING) == 705
    assert (len(results), results.enqueued) == (1000, 700)
    assert [info.id for info in results[:700]] == names(db)
    assert {type(one) for one in results[700:]} == {QueueFullError}
    assert raised.value.__notes__[0].startswith("enqueue_many: 700 tasks were enqueued before this")


def test_a_task_that_is_refused_anyway_takes_no_room(kind: str, url: str, db: Redis, limit: Call) -> None:
    limit(3)
    call(kind, url, "enqueue", Task("t", 1, unique=60), task_id="a")
    tasks = [
        Task("t", 2, task_id="a"),
        Task("t", 1, unique=60),
        *(Task("t", n, task_id=name) for n, name in enumerate("bacdb", 5)),
    ]
    with pytest.raises(QueueFullError) as raised:
        call(kind, url, "enqueue_many", tasks)
    outcomes = [getattr(one, "id", type(one)) for one in raised.value.results or ()]
    full, conflict = QueueFullError, TaskIDConflictError
    assert outcomes == [conflict, DuplicateTaskError, "b", conflict, "c", full, conflict]
    assert names(db) == ["a", "b", "c"]


def test_other_queues_and_other_states_are_not_limited(kind: str, url: str, db: Redis, limit: Call) -> None:
    limit(1)
    fill(db, 1)
    tasks = [Task("t", queue="other"), Task("t", process_in=60), Task("t", group="g"), Task("t", queue="other")]
    assert call(kind, url, "enqueue_many", tasks).enqueued == 4


@pytest.mark.parametrize("act", [Act.CUT_BEFORE_REQUEST, Act.CUT_BEFORE_REPLY, Act.CUT_IN_REPLY])
@pytest.mark.parametrize("room", [1, 2, 3])
def test_a_lost_reply_costs_and_gives_nothing(
    kind: str, act: Act, room: int, db: Redis, limit: Call, shared_server: RedisServer
) -> None:
    """What got in before the reply was lost is told as enqueued, though the queue is full when it is looked for."""
    limit(room)
    with faulty_proxy(shared_server.socket_path) as proxy:
        call(kind, proxy.url, "ping")
        proxy.faults.append(Fault("EVALSHA", act, skip=1))  # the first tells that the script is not known, or works
        proxy.faults.append(Fault("EVAL", act))
        tasks = [Task("t", n, task_id=name) for n, name in enumerate("abc")]
        try:
            results: Any = call(kind, proxy.url, "enqueue_many", tasks)
        except QueueFullError as error:
            results = error.results
    assert [getattr(one, "id", "full") for one in results] == [*"abc"[:room], *["full"] * (3 - room)]
    assert names(db) == [*"abc"[:room]]


class Site:
    """A producer on a manual clock, whose scripts are seen."""

    def __init__(self, url: str) -> None:
        self.clock = ManualClock()
        self.broker = open_broker(url)
        self.producer = Producer(self.clock)

    def enqueue(self, db: Redis) -> list[str]:
        """Enqueue a task; return the scripts that were called."""
        db.config_resetstat()
        self.broker.drive(self.producer.enqueue(Task("t"), {}))
        stats: Any = db.info("commandstats")
        return sorted(name.removeprefix("cmdstat_") for name in stats if name in ("cmdstat_hget", "cmdstat_llen"))


def test_who_has_no_limit_pays_one_look_with_each_registration(url: str, db: Redis, limit: Call) -> None:
    site = Site(url)
    assert site.enqueue(db) == ["hget"]
    assert site.enqueue(db) == []
    limit(100)
    assert site.enqueue(db) == []
    site.clock.advance(REGISTER_EVERY_S)
    assert site.enqueue(db) == ["hget", "llen"]
    assert site.enqueue(db) == ["hget", "llen"]
    limit(None)
    assert site.enqueue(db) == ["hget"]
    assert site.enqueue(db) == []
    site.broker.close()


def test_only_a_limit_needs_the_right_to_llen(url: str, db: Redis, limit: Call) -> None:
    db.acl_setuser("producer", enabled=True, nopass=True, keys=["*"], channels=["*"], commands=["+@all", "-llen"])
    named = url.replace("unix://", "unix://producer:x@")
    try:
        call("Client", named, "enqueue", "t")
        limit(5)
        with pytest.raises(BrokerAuthError, match="extend its ACL rules"):
            call("Client", named, "enqueue", "t")
        assert db.llen(PENDING) == 1
    finally:
        db.acl_deluser("producer")


@pytest.mark.parametrize(
    ("queue", "most", "error", "text"),
    [
        ("default", 0, ValueError, "max_pending must be from 1 to 1000000000: 0"),
        ("default", True, TypeError, "max_pending must be an int, not bool: True"),
        ("default", "5", TypeError, "max_pending must be an int, not str: '5'"),
        (" ", 5, ValueError, "queue must"),
    ],
)
def test_a_limit_that_is_none_is_refused(
    queue: str, most: Any, error: type[Exception], text: str, url: str, db: Redis
) -> None:
    with Inspector(url) as inspector, pytest.raises(error, match=text):
        inspector.set_max_pending(queue, most)
    assert not db.keys("*")


def test_a_limit_goes_with_its_queue(url: str, db: Redis, limit: Call) -> None:
    limit(5)
    call("Client", url, "enqueue", "t")
    with Inspector(url) as inspector:
        info = inspector.get_queue_info("default")
        assert (info.pending, info.max_pending) == (1, 5)
        inspector.delete_queue("default", force=True)
    assert not db.exists(keys.quota("default"))
