"""The subscriber: cancellations are heard, kept for a moment when they come early, and survive a lost connection."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from redis import Redis

from fastq.broker.operations.cancel import CancelAs, Cancellation
from fastq.broker.operations.control import ServerOrder, read_order
from fastq.broker.operations.health import ping
from fastq.errors import BrokerConnectionError
from fastq.server.actors.subscriber import Subscriber, Topic
from fastq.server.inflight.cancellations import EarlyCancellations
from fastq.wire import keys
from tests.broker.harness import until
from tests.cutting_proxy import cutting_proxy
from tests.redis_servers import RedisServer
from tests.sentinel_site import sentinel_site
from tests.server.harness import Bench, logged, on_bench


class Held:
    """Stand for the processor: what it holds, and what it was told to cancel."""

    def __init__(self, *held: str) -> None:
        self.tasks = held
        self.canceled: list[Cancellation] = []

    def cancel(self, cancellation: Cancellation) -> bool:
        self.canceled.append(cancellation)
        return cancellation.task_id in self.tasks


def full(task_id: str, queue: str | None = "q", outcome: CancelAs = CancelAs.DELETE) -> Cancellation:
    return Cancellation(task_id, queue, outcome)


def publish(bench: Bench, *messages: Cancellation | str | bytes) -> None:
    """Send bare ids (text), fastq's messages, or what may be one (bytes)."""
    for message in messages:
        if isinstance(message, str):
            bench.db.publish(keys.CANCEL_CHANNEL, message)
        else:
            body = message.encode() if isinstance(message, Cancellation) else message
            bench.db.publish(keys.CANCEL_AS_CHANNEL, body)


async def heard(bench: Bench, held: Held, *messages: Cancellation | str | bytes) -> list[Cancellation]:
    """Publish messages, and return what the processor was told of them: all, once a last id has come through."""
    before, last = len(held.canceled), Cancellation(f"last-{len(held.canceled)}")
    publish(bench, *messages, last.task_id)
    await until(lambda: last in held.canceled)
    return held.canceled[before:-1]


def subscriber_of(bench: Bench, held: Held, *topics: Topic) -> Subscriber:
    early = EarlyCancellations(bench.clock)
    return Subscriber(bench.broker, held.cancel, early, bench.clock, topics, bench.outage)


def on_subscriber(db: Redis, url: str, held: Held, test: Callable[[Bench, Subscriber], Awaitable[None]]) -> None:
    async def running(bench: Bench) -> None:
        subscriber = Subscriber(
            bench.broker, held.cancel, EarlyCancellations(bench.clock), bench.clock, [], bench.outage
        )
        subscriber.start()
        await until(lambda: subscriber.is_subscribed)
        await test(bench, subscriber)
        await subscriber.stop()
        assert not subscriber.is_subscribed

    on_bench(db, url, running)


def test_a_task_that_is_held_is_cancelled(db: Redis, url: str) -> None:
    held = Held("a", "b")

    async def test(bench: Bench, subscriber: Subscriber) -> None:
        assert await heard(bench, held, "a", full("b")) == [Cancellation("a"), full("b")]
        assert subscriber._early.outcome_of("q", "a", 0.0) is None, "it was here: the next task of this id is another"
        assert subscriber._early.outcome_of("q", "b", 0.0) is None

    on_subscriber(db, url, held, test)


def test_an_id_that_is_not_held_is_kept_for_2_s_for_a_dequeue_under_way(db: Redis, url: str) -> None:
    held = Held()

    async def test(bench: Bench, subscriber: Subscriber) -> None:
        await heard(bench, held, "a", "b", "c")
        assert subscriber._early.outcome_of("q", "other", 0.0) is None
        assert subscriber._early.outcome_of("q", "a", 0.0) is CancelAs.RETRY
        assert subscriber._early.outcome_of("q", "a", 0.0) is None, "once"
        bench.clock.advance(1.9)
        assert subscriber._early.outcome_of("other", "b", 0.0) is CancelAs.RETRY
        bench.clock.advance(0.1)
        assert subscriber._early.outcome_of("q", "c", 0.0) is None

    on_subscriber(db, url, held, test)


def test_what_came_early_is_forgotten_though_nothing_comes_after_it(db: Redis, url: str) -> None:
    held = Held()

    async def test(bench: Bench, subscriber: Subscriber) -> None:
        await heard(bench, held, full("a"), full("b"))  # their bare ids, which would follow, are lost
        bench.clock.advance(1.9)
        subscriber.forget_what_is_over()
        assert len(subscriber._early) == 3, "with the last id of those that were heard"
        assert list(subscriber._bare_ids_due) == ["a", "b"]
        bench.clock.advance(0.1)
        subscriber.forget_what_is_over()
        assert not subscriber._early
        assert not subscriber._bare_ids_due

    on_subscriber(db, url, held, test)


def test_a_task_whose_dequeue_was_asked_for_after_the_cancellation_is_not_canceled(db: Redis, url: str) -> None:
    """It ran on another server, was canceled there, and somebody has run it again since."""
    held = Held()

    async def test(bench: Bench, subscriber: Subscriber) -> None:
        await heard(bench, held, "a", "b")
        heard_s = bench.clock.monotonic_s()
        bench.clock.advance(0.1)
        assert subscriber._early.outcome_of("q", "a", heard_s + 0.05) is None
        assert subscriber._early.outcome_of("q", "b", heard_s) is CancelAs.RETRY

    on_subscriber(db, url, held, test)


def test_an_outcome_for_a_task_to_come_is_kept_for_its_queue(db: Redis, url: str) -> None:
    held = Held()

    async def test(bench: Bench, subscriber: Subscriber) -> None:
        await heard(bench, held, full("a"), "a", full("b", None, CancelAs.ARCHIVE), "b", full("c", "q", CancelAs.RETRY))
        assert subscriber._early.outcome_of("other", "a", 0.0) is None
        assert subscriber._early.outcome_of("q", "a", 0.0) is CancelAs.DELETE
        assert subscriber._early.outcome_of("q", "a", 0.0) is None, "the bare id that followed is the same cancellation"
        assert subscriber._early.outcome_of("any", "b", 0.0) is CancelAs.ARCHIVE
        assert subscriber._early.outcome_of("q", "c", 0.0) is CancelAs.RETRY

    on_subscriber(db, url, held, test)


def test_an_outcome_counts_before_a_bare_id_that_came_first(db: Redis, url: str) -> None:
    held = Held()

    async def test(bench: Bench, subscriber: Subscriber) -> None:
        await heard(bench, held, "a", full("a"))
        assert subscriber._early.outcome_of("q", "a", 0.0) is CancelAs.DELETE
        assert subscriber._early.outcome_of("q", "a", 0.0) is None

    on_subscriber(db, url, held, test)


def test_the_bare_id_that_follows_an_outcome_cancels_nothing_more(db: Redis, url: str) -> None:
    # The task may be gone by then: its namesake of another queue, or its next run, is not meant.
    held = Held("a")

    async def test(bench: Bench, subscriber: Subscriber) -> None:
        both = full("a"), full("a", "low", CancelAs.ARCHIVE)
        assert await heard(bench, held, both[0], "a") == [both[0]]
        assert await heard(bench, held, *both, "a", "a") == [*both]
        assert await heard(bench, held, "a") == [Cancellation("a")]

    on_subscriber(db, url, held, test)


def test_a_bare_id_2_s_after_an_outcome_is_another_cancellation(db: Redis, url: str) -> None:
    held = Held("a")

    async def test(bench: Bench, subscriber: Subscriber) -> None:
        assert await heard(bench, held, full("a")) == [full("a")]
        bench.clock.advance(2.0)
        assert await heard(bench, held, "a") == [Cancellation("a")]

    on_subscriber(db, url, held, test)


def test_nonsense_on_our_channel_is_ignored_and_said_once(
    db: Redis, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    held = Held("a")

    async def test(bench: Bench, subscriber: Subscriber) -> None:
        nonsense = [b"a", b"\xff", b"{}", b'{"id": "a", "outcome": "pause"}', b"[" * 10_000]
        assert await heard(bench, held, *nonsense, full("a"), "a") == [full("a")]
        assert subscriber.ticks == 0, "the connection lives"

    on_subscriber(db, url, held, test)
    (said,) = logged(caplog, logging.WARNING)
    assert said.startswith(
        "ignored an invalid message on asynq:cancel:as (others like it are not logged): 'a' is not JSON: "
    )


def test_an_id_that_is_cancelled_again_is_kept_for_2_s_more(db: Redis, url: str) -> None:
    held = Held()

    async def test(bench: Bench, subscriber: Subscriber) -> None:
        await heard(bench, held, "a", "b")
        bench.clock.advance(1.5)
        await heard(bench, held, "a")
        bench.clock.advance(1.5)
        await heard(bench, held, "c")
        assert subscriber._early.outcome_of("q", "b", 0.0) is None
        assert subscriber._early.outcome_of("q", "a", 0.0) is CancelAs.RETRY

    on_subscriber(db, url, held, test)


def test_a_user_who_may_listen_to_asynqs_channel_only_still_cancels_and_it_is_said_once(
    db: Redis, shared_server: RedisServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastq.server.base.outage.MAX_BACKOFF_S", 0.01)
    admin: Any = db
    rights = {"categories": ["+@all"], "keys": ["*"], "reset_channels": True, "channels": [keys.CANCEL_CHANNEL]}
    admin.acl_setuser("s", enabled=True, passwords=["+p"], **rights)
    held = Held("a")

    async def test(bench: Bench) -> None:
        subscriber = Subscriber(
            bench.broker, held.cancel, EarlyCancellations(bench.clock), bench.clock, [], bench.outage
        )
        subscriber.start()
        for ticks in range(2):
            await until(lambda: subscriber.is_subscribed)
            assert await heard(bench, held, full("a"), "a") == [Cancellation("a")]
            if not ticks:
                bench.db.client_kill_filter(_type="pubsub")
                await until(lambda: not subscriber.is_subscribed)
        await subscriber.stop()

    try:
        on_bench(db, shared_server.url, test, through=f"unix://s:p@{shared_server.socket_path}")
    finally:
        admin.acl_deluser("s")
    said = [text for text in logged(caplog, logging.WARNING) if "asynq:cancel:as" in text]
    assert len(said) == 1
    assert "SUBSCRIBE" in said[0]


def test_orders_on_its_own_channel_are_obeyed_and_nonsense_is_not(
    db: Redis, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    held, obeyed = Held("a"), list[ServerOrder]()
    control = Topic([keys.control_channel("me")], lambda heard: obeyed.append(read_order(heard.text)), "no orders")

    async def test(bench: Bench) -> None:
        subscriber = Subscriber(
            bench.broker, held.cancel, EarlyCancellations(bench.clock), bench.clock, [control], bench.outage
        )
        subscriber.start()
        await until(lambda: subscriber.is_subscribed)
        for channel, body in (("you", '{"do": "stop"}'), ("me", "stop"), ("me", "a"), ("me", '{"do": "quiet"}')):
            bench.db.publish(keys.control_channel(channel), body)
        assert await heard(bench, held, "a") == [Cancellation("a")]
        await subscriber.stop()

    on_bench(db, url, test)
    assert obeyed == [ServerOrder.QUIET]
    (said,) = logged(caplog, logging.WARNING)
    assert said.startswith(
        "ignored an invalid message on asynq:control:me (others like it are not logged): 'stop' is not JSON: "
    )


def test_a_user_who_may_not_listen_to_orders_still_hears_outcomes(
    db: Redis, shared_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    admin: Any = db
    channels = [keys.CANCEL_CHANNEL, keys.CANCEL_AS_CHANNEL]
    rights = {"categories": ["+@all"], "keys": ["*"], "reset_channels": True, "channels": channels}
    admin.acl_setuser("s", enabled=True, passwords=["+p"], **rights)
    held = Held("a")

    async def test(bench: Bench) -> None:
        control = Topic([keys.control_channel("me")], lambda heard: None, "no orders are obeyed")
        subscriber = Subscriber(
            bench.broker, held.cancel, EarlyCancellations(bench.clock), bench.clock, [control], bench.outage
        )
        subscriber.start()
        await until(lambda: subscriber.is_subscribed)
        assert await heard(bench, held, full("a"), "a") == [full("a")]
        await subscriber.stop()

    try:
        on_bench(db, shared_server.url, test, through=f"unix://s:p@{shared_server.socket_path}")
    finally:
        admin.acl_deluser("s")
    (said,) = logged(caplog, logging.WARNING)
    assert "no orders are obeyed: the Redis user may not subscribe to asynq:control:me" in said


def test_a_lost_connection_is_made_anew_and_said_once(
    db: Redis, shared_server: RedisServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastq.server.base.outage.MAX_BACKOFF_S", 0.01)
    caplog.set_level(logging.INFO, "fastq")
    held = Held("a")
    with cutting_proxy(shared_server.socket_path) as proxy:
        proxy.marker = b"SUBSCRIBE"

        async def test(bench: Bench) -> None:
            subscriber = Subscriber(
                bench.broker, held.cancel, EarlyCancellations(bench.clock), bench.clock, [], bench.outage
            )
            subscriber.start()
            await until(lambda: proxy.times_seen >= 3)
            proxy.marker = b""
            await until(lambda: subscriber.is_subscribed)
            assert await heard(bench, held, "a") == [Cancellation("a")]
            await subscriber.stop()

        on_bench(db, shared_server.url, test, through=f"redis://127.0.0.1:{proxy.port}")
    said = logged(caplog, logging.INFO)
    assert len(said) == 2
    assert said[0].startswith("SUBSCRIBE: the connection to Redis")
    assert re.fullmatch(r"Redis operations succeed again after \d+ failed attempts", said[1])


def test_it_listens_at_the_master_that_the_sentinels_name_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastq.broker.transport.subscription.PING_EVERY_S", 0.01)
    with sentinel_site() as site, site.new.client() as new:
        held = Held("a")

        async def test(bench: Bench, subscriber: Subscriber) -> None:
            site.replace()
            while not new.pubsub_numsub(keys.CANCEL_CHANNEL)[0][1]:
                with suppress(BrokerConnectionError):
                    await bench.broker.run(ping())  # as others in the server do; the pool asks the sentinels meanwhile
            assert await heard(bench, held, "a") == [Cancellation("a")]
            with site.old.client() as old:
                await until(lambda: not old.pubsub_channels())

        on_subscriber(new, site.url, held, test)


def test_it_starts_and_stops_again_and_again(db: Redis, url: str) -> None:
    async def test(bench: Bench) -> None:
        for number in range(50):
            subscriber = Subscriber(
                bench.broker, Held().cancel, EarlyCancellations(bench.clock), bench.clock, [], bench.outage
            )
            subscriber.start()
            for _ in range(number % 25):
                await asyncio.sleep(0)
            await subscriber.stop()
            assert not subscriber.is_subscribed
        channels = keys.CANCEL_CHANNEL, keys.CANCEL_AS_CHANNEL
        await until(lambda: [count for _, count in bench.db.pubsub_numsub(*channels)] == [0, 0])

    on_bench(db, url, test)
