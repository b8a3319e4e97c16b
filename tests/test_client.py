"""Client: what it puts into Redis and says of it, and what it refuses."""

import asyncio
import re
import time
from datetime import UTC, datetime, timedelta
from hashlib import md5
from typing import Any
from uuid import UUID

import pytest
from redis import Redis

from fastq import AsyncClient, Client, DuplicateTaskError, Task, TaskIDConflictError, TaskInfo, TaskState
from fastq.task import MAX_MESSAGE_BYTES
from fastq.wire.codec import decode_task_message
from tests.bad_input import BAD_OPTIONS
from tests.keyspace import Moment, Place, snapshot

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


def test_ids_of_a_client_are_all_different(db: Redis, url: str) -> None:
    with Client(url) as client:
        ids = [client.enqueue("t").id for _ in range(100)]
        ids += client.enqueue_many(Task("t") for _ in range(1000)).ids()
    assert len(set(ids)) == 1100
    assert all(re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", i) for i in ids)


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
