"""Producer: how long it remembers that a queue was registered, and what is said where Redis is away."""

import asyncio
import gc

import pytest
from redis import Redis

from fastq import AsyncClient, BrokerConnectionError, Client, Inspector, Task
from fastq.broker.operations import enqueue
from fastq.broker.transport.open import open_broker
from fastq.enqueueing.bulk import enqueue_many
from fastq.enqueueing.producer import Producer
from fastq.wire import keys
from tests.faulty_proxy import Act, Fault, faulty_proxy
from tests.manual_clock import ManualClock
from tests.ports import free_port
from tests.redis_servers import RedisServer


def test_a_queue_is_registered_again_after_ten_seconds(db: Redis, shared_server: RedisServer) -> None:
    clock = ManualClock()
    producer = Producer(clock)
    with faulty_proxy(shared_server.socket_path) as proxy:
        broker = open_broker(proxy.url)
        for seconds in (0, 9.9, 0.2):
            clock.advance(seconds)
            broker.drive(producer.enqueue(Task("t", b""), {}))
        broker.close()
        assert proxy.names_seen().count("SADD") == 2


def test_a_registration_that_failed_is_said_and_due_again(
    db: Redis, shared_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    producer = Producer(ManualClock())
    fault = Fault("SADD", Act.ANSWER, answer=b"-OOM command not allowed when used memory > 'maxmemory'.\r\n")
    with faulty_proxy(shared_server.socket_path, fault) as proxy:
        broker = open_broker(proxy.url)
        for _ in range(3):
            broker.drive(producer.enqueue(Task("t", b""), {}))
        broker.close()
        assert proxy.names_seen().count("SADD") == 1
        assert db.smembers("asynq:queues") == {b"default"}
    assert caplog.messages == ["queue 'default' could not be added to asynq:queues; inspectors do not list it"]


def test_where_redis_is_away_nothing_is_said_of_lists(caplog: pytest.LogCaptureFixture) -> None:
    """The error says what is wrong; the queue is registered with the next task that goes in."""
    url = f"redis://127.0.0.1:{free_port()}"
    with Client(url) as client:
        for call in (lambda: client.enqueue("t"), lambda: client.enqueue_many([Task("t")])):
            with pytest.raises(BrokerConnectionError, match="cannot reach Redis"):
                call()
    assert caplog.messages == []


@pytest.mark.parametrize("way", ["Client", "AsyncClient"])
def test_connecting_is_tried_again_while_nothing_was_sent(way: str, db: Redis, shared_server: RedisServer) -> None:
    async def enqueue(url: str) -> None:
        async with AsyncClient(url) as client:
            await client.enqueue("t", task_id="a")

    cut = Fault("CLIENT", Act.CUT_BEFORE_REPLY, times=2)  # the first thing that is said on a connection
    with faulty_proxy(shared_server.socket_path, cut) as proxy:
        if way == "AsyncClient":
            asyncio.run(enqueue(proxy.url))
        else:
            with Client(proxy.url) as client:
                client.enqueue("t", task_id="a")
        assert proxy.connections == 3
        assert proxy.names_seen().count("EVALSHA") == 1
    assert db.llen("asynq:{default}:pending") == 1


def test_a_queue_that_this_process_deletes_is_listed_with_its_next_task(db: Redis, url: str) -> None:
    with Client(url) as client, Inspector(url) as inspector:
        for _ in range(2):
            client.enqueue("t")
            assert inspector.queues() == ["default"]
            inspector.delete_queue("default", force=True)
            assert inspector.queues() == []


def test_clients_that_are_gone_are_not_kept_to_be_told_of_deleted_queues() -> None:
    gc.collect()  # those of earlier tests are not to go meanwhile
    known = len(enqueue._registers)
    producers = [Producer(ManualClock()) for _ in range(3)]
    assert len(enqueue._registers) == known + 3
    producers.clear()
    assert len(enqueue._registers) == known


def test_the_tasks_of_a_lane_wait_as_they_were_enqueued_also_within_a_second(db: Redis, url: str) -> None:
    clock = ManualClock()
    producer, broker = Producer(clock), open_broker(url)
    ids = []
    for _ in range(5):
        clock.advance(0.0001)
        ids += [broker.drive(producer.enqueue(Task("t"), {"lane": "x"})).id for _ in range(3)]
        many = [Task("t", lane="x") for _ in range(3)]
        ids += broker.drive(enqueue_many(producer, many, {})).ids()
    broker.close()
    waiting = db.zrange(keys.group("default", "x"), 0, -1, withscores=True)
    assert waiting == [(task_id.encode(), clock.unix_ns() // 1_000_000_000) for task_id in ids]
