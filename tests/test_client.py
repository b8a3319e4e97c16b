"""Client: what it puts into Redis and says of it, what it refuses; with threads, forks and clients that are given."""

import asyncio
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import md5
from typing import Any
from uuid import UUID

import pytest
import redis
from redis import Redis

from fastq import AsyncClient, Client, DuplicateTaskError, Task, TaskIDConflictError, TaskInfo, TaskState
from fastq.task import MAX_MESSAGE_BYTES
from fastq.wire.codec import decode_task_message
from tests.bad_input import BAD_OPTIONS
from tests.faulty_proxy import Act, Fault, faulty_proxy
from tests.keyspace import Moment, Place, snapshot
from tests.redis_servers import RedisServer, redis_server
from tests.waiting import PATIENCE_S, wait_until

PENDING = "asynq:{default}:pending"
DEFAULT_TASK = "asynq:{default}:t:"


def stored_message(db: Redis, task_id: str, queue: str = "default") -> Any:
    data: Any = db.hget(f"asynq:{{{queue}}}:t:{task_id}", "msg")
    return decode_task_message(data)


def nothing_is_written(db: Redis) -> bool:
    return db.keys("*") == []


def test_a_task_is_described_as_it_was_enqueued(db: Redis, url: str) -> None:
    before = datetime.now(UTC)
    with Client(url) as client:
        info = client.enqueue(
            "email:send",
            {"id": 1},
            queue="low",
            max_retry=3,
            timeout=20,
            deadline=datetime(2030, 1, 1, tzinfo=UTC),
            retention=timedelta(minutes=2),
            headers={"a": "1"},
        )
    assert info.next_process_at is not None
    assert before - timedelta(seconds=1) < info.next_process_at <= datetime.now(UTC)
    assert UUID(info.id).version == 4
    assert info == TaskInfo(
        id=info.id,
        queue="low",
        type="email:send",
        payload=b'{"id":1}',
        headers={"a": "1"},
        state=TaskState.PENDING,
        max_retry=3,
        retried=0,
        last_err="",
        last_failed_at=None,
        timeout=timedelta(seconds=20),
        deadline=datetime(2030, 1, 1, tzinfo=UTC),
        group="",
        next_process_at=info.next_process_at,
        is_orphaned=False,
        retention=timedelta(seconds=120),
        completed_at=None,
        result=None,
    )
    with pytest.raises(AttributeError, match="id"):
        info.id = "b"  # type: ignore[misc]  # frozen


def test_a_scheduled_task_says_when(db: Redis, url: str) -> None:
    at = datetime(2030, 1, 1, 12, 30, 15, 250_000, tzinfo=UTC)
    with Client(url) as client:
        info = client.enqueue("t", process_at=at)
    assert (info.state, info.next_process_at) == (TaskState.SCHEDULED, at)
    assert db.zscore("asynq:{default}:scheduled", info.id) == int(at.timestamp())


def test_a_grouped_task_has_no_time_yet(db: Redis, url: str) -> None:
    with Client(url) as client:
        info = client.enqueue("t", group="g1")
    assert (info.state, info.group, info.next_process_at) == (TaskState.AGGREGATING, "g1", None)


def test_a_task_and_a_type_with_payload_are_the_same(db: Redis, url: str) -> None:
    with Client(url) as client:
        client.enqueue(Task("t", b"x", headers={"a": "1"}, max_retry=2), task_id="a")
        client.enqueue("t", b"x", headers={"a": "1"}, max_retry=2, task_id="b")
    one, other = stored_message(db, "a"), stored_message(db, "b")
    assert one.replace(id="") == other.replace(id="")


def test_options_of_the_call_win_over_those_of_the_task(db: Redis, url: str) -> None:
    task = Task("t", b"", headers={"a": "task", "b": "task"}, queue="low", max_retry=1, process_in=60)
    with Client(url) as client:
        info = client.enqueue(
            task, queue="high", headers={"b": "call"}, process_at=datetime(2000, 1, 1, tzinfo=UTC), max_retry=None
        )
    assert (info.queue, info.max_retry, info.state) == ("high", 1, TaskState.PENDING)
    assert dict(info.headers) == {"a": "task", "b": "call"}
    assert dict(stored_message(db, info.id, "high").headers) == {"a": "task", "b": "call"}


def test_a_task_can_be_enqueued_again_and_is_not_changed(db: Redis, url: str) -> None:
    task = Task("t", b"x", headers={"a": "1"})
    with Client(url) as client:
        infos = [client.enqueue(task, headers={"b": f"{n}"}) for n in range(2)]
    assert infos[0].id != infos[1].id
    assert dict(task.headers) == {"a": "1"}


@pytest.mark.parametrize("payload", [b"", {"a": 1}, "text", 0, False])
def test_a_task_has_its_payload_already(payload: Any, db: Redis, url: str) -> None:
    with Client(url) as client, pytest.raises(TypeError, match=r"^a Task already has a payload; payload="):
        client.enqueue(Task("t", b"x"), payload)
    assert nothing_is_written(db)


@pytest.mark.parametrize("task", [None, 7, b"t", ["t"], {"type": "t"}])
def test_what_is_neither_task_nor_type_is_refused(task: Any, db: Redis, url: str) -> None:
    with Client(url) as client, pytest.raises(TypeError, match=r"^task type must be a str, not "):
        client.enqueue(task)
    assert nothing_is_written(db)


def test_a_bad_option_writes_nothing(db: Redis, url: str) -> None:
    with Client(url) as client:
        for name, value, kind, message in BAD_OPTIONS:
            with pytest.raises(kind, match=f"^{message}$"):
                client.enqueue("t", b"x", **{name: value})
            assert nothing_is_written(db), (name, value)


def test_an_unknown_option_writes_nothing(db: Redis, url: str) -> None:
    with Client(url) as client, pytest.raises(TypeError, match=r"^unknown option 'que'; did you mean 'queue'\?$"):
        client.enqueue("t", b"x", que="low")  # type: ignore[call-arg]  # refused by mypy, too
    assert nothing_is_written(db)


def test_a_unique_key_without_a_time_writes_nothing(db: Redis, url: str) -> None:
    with Client(url) as client, pytest.raises(ValueError, match=r"^unique_key='k' needs unique="):
        client.enqueue("t", unique_key="k")
    assert nothing_is_written(db)


def test_a_payload_that_cannot_be_encoded_writes_nothing(db: Redis, url: str) -> None:
    with Client(url) as client, pytest.raises(TypeError, match=r"^payload of type object cannot be encoded as JSON"):
        client.enqueue("t", object())
    assert nothing_is_written(db)


def test_a_payload_above_the_limit_of_redis_writes_nothing(db: Redis, url: str) -> None:
    with Client(url) as client, pytest.raises(ValueError, match=r"^payload of 629145600 bytes is over Redis' limit"):
        client.enqueue("t", bytes(600 * 1024 * 1024))
    assert nothing_is_written(db)


def test_a_message_above_the_limit_of_redis_writes_nothing(db: Redis, url: str) -> None:
    """The payload alone would just do."""
    task = Task("t", bytes(MAX_MESSAGE_BYTES))
    text = r"^task a has a message of 53687\d{4} bytes; the limit of Redis is 536870912$"
    with Client(url) as client, pytest.raises(ValueError, match=text):
        client.enqueue(task, task_id="a")
    assert nothing_is_written(db)


@pytest.mark.parametrize(
    ("options", "lock_ends_in", "ttl"),
    [
        ({"unique": 60}, "t:9dd4e461268c8034f5c8564e155c67a6", 60),
        ({"unique": 60.999}, "t:9dd4e461268c8034f5c8564e155c67a6", 60),
        ({"unique": 60, "process_in": 1800}, "t:9dd4e461268c8034f5c8564e155c67a6", 1860),
        ({"unique": 60, "unique_key": "order-42"}, f"t:{md5(b'order-42').hexdigest()}", 60),
        ({"unique": 60, "group": "g"}, "t:9dd4e461268c8034f5c8564e155c67a6", 60),
    ],
)
def test_a_lock_is_named_and_ends_as_in_asynq(
    options: dict[str, Any], lock_ends_in: str, ttl: int, db: Redis, url: str
) -> None:
    lock = f"asynq:{{default}}:unique:{lock_ends_in}"
    start_s = time.time()
    with Client(url) as client:
        client.enqueue("t", b"x", task_id="a", **options)
    end_s = time.time()
    assert db.get(lock) == b"a"
    ends = snapshot(db)[Place(lock, "ttl")]
    assert isinstance(ends, Moment)
    assert start_s - 0.1 <= ends.unix_s - ttl <= end_s + 0.1
    assert db.hget(f"{DEFAULT_TASK}a", "unique_key") == lock.encode()
    assert stored_message(db, "a").unique_key == lock


def test_a_lock_is_for_a_type_and_payload_in_a_queue(db: Redis, url: str) -> None:
    with Client(url) as client:
        client.enqueue("t", b"x", unique=60)
        client.enqueue("t", b"y", unique=60)
        client.enqueue("u", b"x", unique=60)
        client.enqueue("t", b"x", unique=60, queue="low")
        client.enqueue("t", b"x")
        with pytest.raises(DuplicateTaskError) as caught:
            client.enqueue("t", b"x", unique=60, task_id="again", headers={"other": "headers"}, process_in=60)
    assert (caught.value.queue, caught.value.task_id) == ("default", "again")
    assert str(caught.value) == (
        "task already exists: another task holds the unique lock (queue='default', task_id='again')"
    )
    assert db.exists(f"{DEFAULT_TASK}again") == 0


def test_an_id_is_taken_whatever_the_state(db: Redis, url: str) -> None:
    with Client(url) as client:
        for state in TaskState:
            db.hset(f"{DEFAULT_TASK}{state}", mapping={"state": state.value})
            with pytest.raises(TaskIDConflictError) as caught:
                client.enqueue("t", task_id=state.value)
            assert (caught.value.queue, caught.value.task_id) == ("default", state)
        assert client.enqueue("t", task_id="active", queue="other").id == "active"


def test_both_taken_is_an_id_conflict_and_takes_no_lock(db: Redis, url: str) -> None:
    with Client(url) as client:
        client.enqueue("t", b"x", task_id="a", unique=60)
        with pytest.raises(TaskIDConflictError):
            client.enqueue("t", b"x", task_id="a", unique=60)
        with pytest.raises(TaskIDConflictError):
            client.enqueue("t", b"new", task_id="a", unique=60)
    assert len(db.keys("asynq:{default}:unique:*")) == 1


def test_ping_and_close(db: Redis, url: str) -> None:
    client = Client(url)
    client.ping()
    client.close()
    client.close()


def test_close_leaves_no_connection(db: Redis, url: str) -> None:
    others = connections_named_fastq(db)
    with Client(url) as client:
        client.enqueue("t")
        assert len(connections_named_fastq(db) - others) == 1
    wait_until(lambda: connections_named_fastq(db) <= others)


def connections_named_fastq(db: Redis) -> set[str]:
    """Return the ids of those that there are; what other tests left may go at any time."""
    found: Any = db.client_list()
    return {each["id"] for each in found if each["name"] == "fastq"}


def test_the_context_manager_closes_after_an_error_too(db: Redis, url: str) -> None:
    others = connections_named_fastq(db)
    with suppress(ZeroDivisionError), Client(url) as client:
        client.enqueue("t")
        raise ZeroDivisionError
    wait_until(lambda: connections_named_fastq(db) <= others)


def test_a_given_client_is_never_closed(db: Redis, shared_server: RedisServer) -> None:
    with shared_server.client() as given:
        connection_id = given.client_id()
        with Client(given) as client:
            client.enqueue("t")
        client.close()
        assert given.client_id() == connection_id, "on the same connection"
        client.enqueue("t")
    assert db.llen(PENDING) == 2


@pytest.mark.parametrize(
    "settings",
    [
        {"decode_responses": True},
        {"protocol": 3},
        {"protocol": 2},
        {"decode_responses": True, "protocol": 3},
        {"single_connection_client": True},
        {"encoding": "UTF8", "encoding_errors": "replace"},
    ],
)
def test_a_given_client_may_be_set_as_it_likes(settings: dict[str, Any], db: Redis, shared_server: RedisServer) -> None:
    with redis.Redis(unix_socket_path=shared_server.socket_path, **settings) as given:
        client = Client(given)
        assert client.enqueue("t", b"\xff\x00", task_id="ü", queue="日本").queue == "日本"
        with pytest.raises(TaskIDConflictError):
            client.enqueue("t", task_id="ü", queue="日本")
        client.enqueue("t", unique=60)
        with pytest.raises(DuplicateTaskError):
            client.enqueue("t", unique=60)
        assert client.enqueue_many([Task("t", task_id="a"), Task("t", task_id="a")]).enqueued == 1
        client.ping()
    assert stored_message(db, "ü", "日本").payload == b"\xff\x00"


def test_a_given_client_with_a_pool_that_waits(db: Redis, shared_server: RedisServer) -> None:
    make_pool: Any = redis.BlockingConnectionPool
    pool = make_pool(1, PATIENCE_S, connection_class=redis.UnixDomainSocketConnection, path=shared_server.socket_path)
    with redis.Redis(connection_pool=pool) as given:
        enqueue_from_threads(Client(given), threads=4, each=25)
        pool.disconnect()
    assert db.llen(PENDING) == 100


def test_a_given_client_that_would_write_other_names_is_refused() -> None:
    with (
        redis.Redis(encoding="latin-1") as given,
        pytest.raises(
            ValueError,
            match=r"^redis must be a client with encoding='utf-8', as names are on the wire, not 'latin-1'$",
        ),
    ):
        Client(given)


@pytest.mark.parametrize("given", [42, b"redis://", object(), ["redis://"]])
def test_what_is_no_redis_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match=r"^redis must be a URL, redis.Redis or redis.RedisCluster, not "):
        Client(given)


def test_without_an_argument_the_environment_names_the_redis(
    db: Redis, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTQ_REDIS_URL", url)
    with Client() as client:
        client.enqueue("t")
    assert db.llen(PENDING) == 1


def enqueue_from_threads(client: Client, threads: int, each: int) -> list[str]:
    ids: list[str] = []
    begin = threading.Barrier(threads)

    def run() -> None:
        begin.wait()
        ids.extend(client.enqueue("t", b"x").id for _ in range(each))

    running = [threading.Thread(target=run) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return ids


def test_threads_share_a_client(db: Redis, url: str) -> None:
    with Client(url) as client:
        ids = enqueue_from_threads(client, threads=8, each=200)
    assert len(set(ids)) == 1600
    stored: list[Any] = db.lrange(PENDING, 0, -1)
    assert sorted(task_id.decode() for task_id in stored) == sorted(ids)


def test_more_threads_may_ask_at_once_than_redis_py_has_connections(db: Redis, url: str) -> None:
    with Client(url) as client:
        assert len(enqueue_from_threads(client, threads=150, each=3)) == 450


def test_threads_may_enqueue_many_on_one_client(db: Redis, url: str) -> None:
    with Client(url) as client:
        results: list[Any] = []

        def run(name: str) -> None:
            results.append(client.enqueue_many(Task("t", task_id=f"{name}-{n}") for n in range(1200)))

        running = [threading.Thread(target=run, args=(name,)) for name in "abcd"]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    assert [result.enqueued for result in results] == [1200] * 4
    assert db.llen(PENDING) == 4800


FORKS = """
import os, sys, time
import redis
from fastq import Client, Task

def connections():
    until = time.monotonic() + 60
    with redis.Redis.from_url(sys.argv[1]) as db:
        while True:
            count = sum(each["name"] == "fastq" for each in db.client_list())
            # Those of a client that was closed just now may not be gone yet.
            if count <= 2 or time.monotonic() > until:
                return count

with Client(sys.argv[1]) as client:
    client.enqueue("before")
    client.enqueue_many([Task("before")] * 3)
    told, tell = os.pipe()
    child = os.fork()
    if child:
        assert os.read(told, 1) == b"2", "the parent's connection and one of the child's own"
    else:
        client.enqueue("child")
        os.write(tell, b"%d" % connections())
    name = "parent" if child else "child"
    for _ in range(20):
        client.enqueue(name)
    client.enqueue_many([Task(name)] * 20)
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


def test_both_sides_of_a_fork_go_on_with_the_client() -> None:
    with redis_server() as server, server.client() as db:  # whose connections are theirs alone
        subprocess.run([sys.executable, "-c", FORKS, server.url], check=True)
        stored: list[Any] = db.lrange(PENDING, 0, -1)
        types = [stored_message(db, task_id.decode()).type for task_id in stored]
    assert len(stored) == len(set(stored)) == 85
    assert {name: types.count(name) for name in set(types)} == {"before": 4, "parent": 40, "child": 41}


class InterruptedByTestError(Exception):
    """Raised by a signal handler, as the one for Ctrl-C does."""


def functions_of(thread: int) -> list[str]:
    """Name the functions that a thread is in."""
    frame = sys._current_frames().get(thread)
    names = []
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return names


def test_an_interrupted_call_does_not_leave_its_reply_to_the_next(db: Redis, shared_server: RedisServer) -> None:
    def interrupt(_signal: int, _frame: object) -> None:
        raise InterruptedByTestError

    main, others = threading.get_ident(), connections_named_fastq(db)

    def interrupt_the_reading() -> None:
        wait_until(lambda: "_read_reply" in functions_of(main))
        signal.pthread_kill(main, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    late = Fault("EVALSHA", Act.DELAY, then=interrupt_the_reading)
    try:
        with faulty_proxy(shared_server.socket_path) as proxy, Client(proxy.url) as client:
            client.enqueue("t", b"1", task_id="taken")
            proxy.faults.append(late)
            with pytest.raises(InterruptedByTestError):
                client.enqueue("t", b"2", task_id="a")
            late.until.set()
            with pytest.raises(TaskIDConflictError):
                client.enqueue("t", b"3", task_id="taken")
            wait_until(lambda: len(connections_named_fastq(db) - others) == 1)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_ids_of_a_client_are_all_different(db: Redis, url: str) -> None:
    with Client(url) as client:
        ids = [client.enqueue("t").id for _ in range(100)]
        ids += client.enqueue_many(Task("t") for _ in range(1000)).ids()
    assert len(set(ids)) == 1100
    assert all(re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", i) for i in ids)


def test_a_client_can_be_used_after_close(db: Redis, url: str) -> None:
    """redis-py's pool opens new connections; nothing is gained by refusing."""
    client = Client(url)
    client.enqueue("t")
    client.close()
    client.enqueue("t")
    client.close()
    assert db.llen(PENDING) == 2


class Hex:
    """A codec: text as hexadecimal digits."""

    content_type = "text/x-hex"

    def encode(self, value: Any) -> bytes:
        return str(value).encode().hex().encode()

    def decode(self, data: bytes) -> str:
        return bytes.fromhex(data.decode()).decode()


def test_a_codec_encodes_what_is_given_beside_a_type(db: Redis, url: str) -> None:
    async def enqueue_one() -> TaskInfo:
        async with AsyncClient(url, codec=Hex()) as client:
            return await client.enqueue("t", "ab")

    with Client(url, codec=Hex()) as client:
        infos = [client.enqueue("t", "ab"), client.enqueue("t", b"raw"), client.enqueue("t")]
        infos += [client.enqueue(Task("t", 1))]
    assert [info.payload for info in infos] == [b"6162", b"raw", b"", b"1"]
    assert [info.headers for info in infos] == [{"content-type": "text/x-hex"}, {}, {}, {}]
    assert [stored_message(db, info.id).payload for info in infos] == [info.payload for info in infos]
    assert stored_message(db, infos[0].id).headers == infos[0].headers
    one = asyncio.run(enqueue_one())
    assert (one.payload, one.headers) == (infos[0].payload, infos[0].headers)
