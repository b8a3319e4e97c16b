"""What sentinels tell a blocking client. Any Redis publishes as they do, and lets the test do it."""

import os
import select
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from threading import Thread
from typing import Any

import pytest
from redis import Redis

from fastq.broker.transport.events import EVENTS, SentinelEvents
from tests.ports import free_port
from tests.redis_servers import RedisServer, redis_server
from tests.waiting import wait_until

SWITCH = "master mymaster 127.0.0.1 6379"


@pytest.fixture(scope="module")
def servers() -> Iterator[list[RedisServer]]:
    with redis_server(free_port()) as first, redis_server(free_port()) as second:
        yield [first, second]


@pytest.fixture
def sentinels(servers: list[RedisServer]) -> Iterator[list[Redis]]:
    clients = [Redis(port=server.port, protocol=2) for server in servers]
    yield clients
    for client in clients:
        client.close()


def is_heard_by(sentinel: Redis, listeners: int) -> bool:
    return bool(sentinel.pubsub_numsub(EVENTS[0])[0][1] == listeners)


def may(sentinel: Redis, rule: str) -> None:
    sentinel.execute_command("ACL", "SETUSER", "default", rule)  # type: ignore[no-untyped-call]  # redis-py's


def subscribed(sentinels: list[Redis], events: SentinelEvents) -> None:
    for sentinel in sentinels:
        events.subscribe()
        wait_until(partial(is_heard_by, sentinel, 1))


def test_the_sentinel_that_has_told_of_our_master_is_returned_once(sentinels: list[Redis]) -> None:
    with closing(SentinelEvents(sentinels, "mymaster")) as events:
        assert events.told() is None
        subscribed(sentinels, events)
        assert events.told() is None
        sentinels[1].publish(EVENTS[0], SWITCH.replace("mymaster", "another"))
        sentinels[1].publish(EVENTS[1], SWITCH)
        wait_until(lambda: events.told() is sentinels[1])
        assert events.told() is None
    for sentinel in sentinels:
        wait_until(partial(is_heard_by, sentinel, 0))


def test_a_lost_subscription_is_made_anew(sentinels: list[Redis], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastq.broker.transport.events.AGAIN_S", 0.0)
    with closing(SentinelEvents(sentinels[:1], "mymaster")) as events:
        subscribed(sentinels[:1], events)
        sentinels[0].client_kill_filter(_type="pubsub")

        def is_back() -> bool:
            assert events.told() is None
            events.subscribe()
            return is_heard_by(sentinels[0], 1)

        wait_until(lambda: is_heard_by(sentinels[0], 0))
        wait_until(is_back)
        sentinels[0].publish(EVENTS[0], SWITCH)
        wait_until(lambda: events.told() is sentinels[0])


def test_a_sentinel_that_told_before_its_connection_ended_is_asked(sentinels: list[Redis]) -> None:
    with closing(SentinelEvents(sentinels[:1], "mymaster")) as events:
        subscribed(sentinels[:1], events)
        ended = select.poll()
        (fd,) = events._open
        ended.register(fd, getattr(select, "POLLRDHUP", select.POLLHUP))
        sentinels[0].publish(EVENTS[0], SWITCH)
        sentinels[0].client_kill_filter(_type="pubsub")
        wait_until(lambda: ended.poll(0))
        assert events.told() is sentinels[0]
        assert not events._open


def test_another_thread_may_close_what_is_being_read(sentinels: list[Redis]) -> None:
    events = SentinelEvents(sentinels, "mymaster")
    subscribed(sentinels, events)
    for _, connection in events._open.values():
        closes_meanwhile(connection, events)
    wait_until(lambda: events._poll.poll(0))  # what it reads is the answer to SUBSCRIBE
    assert events.told() is None
    assert not events._open
    for sentinel in sentinels:
        wait_until(partial(is_heard_by, sentinel, 0))
    subscribed(sentinels, events)  # a closed client opens again
    events.close()


def closes_meanwhile(connection: Any, events: SentinelEvents) -> None:
    """Let another thread close the subscriptions whenever a connection is about to be read."""
    can_read = connection.can_read

    def close_and_ask(timeout: float) -> bool:
        closer = Thread(target=events.close)
        closer.start()
        closer.join()
        return bool(can_read(timeout))

    connection.can_read = close_and_ask


def test_a_refusal_is_logged_once(sentinels: list[Redis], caplog: pytest.LogCaptureFixture) -> None:
    refusing = sentinels[0]
    may(refusing, "-subscribe")
    try:
        with closing(SentinelEvents([refusing], "mymaster")) as events:
            for _ in range(2):
                events._missing = dict.fromkeys(events._missing, 0.0)
                events.subscribe()
                wait_until(lambda: events.told() is None and not events._open)
    finally:
        may(refusing, "+subscribe")
    (text,) = [record.getMessage() for record in caplog.records]
    assert text.startswith("the sentinel at ")
    assert text.endswith("; it is asked once a second")


def test_a_forked_child_leaves_the_subscriptions_to_its_parent(sentinels: list[Redis]) -> None:
    with closing(SentinelEvents(sentinels[:1], "mymaster")) as events:
        subscribed(sentinels[:1], events)
        sentinels[0].publish(EVENTS[0], SWITCH)
        if not (child := os.fork()):
            os._exit(3 if events.told() is None and not events._open else 4)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        wait_until(lambda: events.told() is sentinels[0])
