"""The subscriber: cancellations are heard, kept for a moment when they come early, and survive a lost connection."""

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable

import pytest
from redis import Redis

from fastq import keys
from fastq.server.subscriber import Subscriber
from tests.broker.harness import until
from tests.cutting_proxy import cutting_proxy
from tests.redis_servers import RedisServer
from tests.server.harness import Bench, logged, on_bench


class Held:
    """Stand for the crew: what it holds, and what it was told to cancel."""

    def __init__(self, *held: str) -> None:
        self.held = held
        self.canceled: list[str] = []

    def cancel(self, task_id: str) -> bool:
        self.canceled.append(task_id)
        return task_id in self.held


async def publish(bench: Bench, held: Held, *task_ids: str) -> None:
    expected = len(held.canceled) + len(task_ids)
    for task_id in task_ids:
        bench.db.publish(keys.CANCEL_CHANNEL, task_id)
    await until(lambda: len(held.canceled) >= expected)


def on_subscriber(db: Redis, url: str, held: Held, test: Callable[[Bench, Subscriber], Awaitable[None]]) -> None:
    async def running(bench: Bench) -> None:
        subscriber = Subscriber(bench.broker, held.cancel, bench.clock)
        subscriber.start()
        await until(lambda: subscriber.is_subscribed)
        await test(bench, subscriber)
        await subscriber.stop()
        assert not subscriber.is_subscribed

    on_bench(db, url, running)


def test_a_task_that_is_held_is_cancelled(db: Redis, url: str) -> None:
    held = Held("a")

    async def test(bench: Bench, subscriber: Subscriber) -> None:
        await publish(bench, held, "a")
        assert held.canceled == ["a"]
        assert not subscriber.was_canceled("a"), "it was here: the next task of this id is another"

    on_subscriber(db, url, held, test)


def test_an_id_that_is_not_held_is_kept_for_2_s_for_a_dequeue_under_way(db: Redis, url: str) -> None:
    held = Held()

    async def test(bench: Bench, subscriber: Subscriber) -> None:
        await publish(bench, held, "a", "b", "c")
        assert not subscriber.was_canceled("other")
        assert subscriber.was_canceled("a")
        assert not subscriber.was_canceled("a"), "once"
        bench.clock.advance(1.9)
        assert subscriber.was_canceled("b")
        bench.clock.advance(0.1)
        assert not subscriber.was_canceled("c")

    on_subscriber(db, url, held, test)


def test_an_id_that_is_cancelled_again_is_kept_for_2_s_more(db: Redis, url: str) -> None:
    held = Held()

    async def test(bench: Bench, subscriber: Subscriber) -> None:
        await publish(bench, held, "a", "b")
        bench.clock.advance(1.5)
        await publish(bench, held, "a")
        bench.clock.advance(1.5)
        await publish(bench, held, "c")
        assert not subscriber.was_canceled("b")
        assert subscriber.was_canceled("a")

    on_subscriber(db, url, held, test)


def test_ids_that_are_over_are_forgotten(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        subscriber = Subscriber(bench.broker, Held().cancel, bench.clock)
        for number in range(1000):
            subscriber._remember(str(number))
        bench.clock.advance(2)
        subscriber._remember("last")
        assert list(subscriber._unknown) == ["last"]

    on_bench(db, url, test)


def test_remembering_costs_no_more_when_thousands_are_cancelled_at_once(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        def cost_s(count: int) -> float:
            subscriber = Subscriber(bench.broker, Held().cancel, bench.clock)
            began_s = time.process_time()
            for number in range(count):
                subscriber._remember(str(number))
            return time.process_time() - began_s

        # Ten times as many take about ten times as long; it was a hundred times, with the loop standing still.
        few, many = min(cost_s(2_000) for _ in range(5)), min(cost_s(20_000) for _ in range(3))
        assert many < 40 * few

    on_bench(db, url, test)


def test_a_lost_connection_is_made_anew_and_said_once(
    db: Redis, shared_server: RedisServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastq.server.actor.MAX_BACKOFF_S", 0.01)
    caplog.set_level(logging.INFO, "fastq")
    held = Held("a")
    with cutting_proxy(shared_server.socket_path) as proxy:
        proxy.marker = b"SUBSCRIBE"

        async def test(bench: Bench) -> None:
            subscriber = Subscriber(bench.broker, held.cancel, bench.clock)
            subscriber.start()
            await until(lambda: proxy.times_seen >= 3)
            proxy.marker = b""
            await until(lambda: subscriber.is_subscribed)
            await publish(bench, held, "a")
            await subscriber.stop()

        on_bench(db, shared_server.url, test, through=f"redis://127.0.0.1:{proxy.port}")
    said = logged(caplog, logging.INFO)
    assert len(said) == 2
    assert said[0].startswith("SUBSCRIBE: the connection to Redis")
    assert re.fullmatch(r"works again after \d+ failed attempts", said[1])


def test_it_starts_and_stops_again_and_again(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        for number in range(50):
            subscriber = Subscriber(bench.broker, Held().cancel, bench.clock)
            subscriber.start()
            for _ in range(number % 25):
                await asyncio.sleep(0)
            await subscriber.stop()
            assert not subscriber.is_subscribed
        await until(lambda: bench.db.pubsub_numsub(keys.CANCEL_CHANNEL) == [(keys.CANCEL_CHANNEL.encode(), 0)])

    on_bench(db, url, test)
