"""Producer: how long it remembers that a queue was registered."""

import pytest
from redis import Redis

from fastq.broker.open import open_broker
from fastq.clock import ManualClock
from fastq.producer import Producer
from tests.faulty_proxy import Act, Fault, faulty_proxy
from tests.redis_servers import RedisServer


def test_a_queue_is_registered_again_after_ten_seconds(db: Redis, shared_server: RedisServer) -> None:
    clock = ManualClock()
    producer = Producer(clock)
    with faulty_proxy(shared_server.socket_path) as proxy:
        broker = open_broker(proxy.url)
        for seconds in (0, 9.9, 0.2):
            clock.advance(seconds)
            broker.drive(producer.enqueue("t", b"", {}))
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
            broker.drive(producer.enqueue("t", b"", {}))
        broker.close()
        assert proxy.names_seen().count("SADD") == 1
        assert db.smembers("asynq:queues") == {b"default"}
    assert caplog.messages == ["queue 'default' could not be added to asynq:queues; inspectors do not list it"]
