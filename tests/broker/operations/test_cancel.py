"""Cancel: fastq's own message goes first, asynq's bare id follows; what is no message is refused with its reason."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import orjson
import pytest
from redis import Redis

from fastq.broker.operations.cancel import CancelAs, Cancellation, cancel_processing, read_cancellation
from fastq.broker.transport.open import open_async_broker, open_broker
from fastq.errors import BrokerError
from fastq.wire import keys
from tests.broker.harness import run
from tests.redis_servers import redis_cluster
from tests.waiting import PATIENCE_S

OURS, ASYNQS = keys.CANCEL_AS_CHANNEL, keys.CANCEL_CHANNEL
Hear = Callable[[int], list[tuple[str, bytes]]]


@pytest.fixture
def hear(db: Any) -> Iterator[Hear]:
    """Return what collects so many messages of both channels, in the order in which they come."""
    with db.pubsub(ignore_subscribe_messages=False) as pubsub:
        pubsub.subscribe(OURS, ASYNQS)
        for _ in range(2):
            assert pubsub.get_message(timeout=PATIENCE_S)

        def collect(count: int) -> list[tuple[str, bytes]]:
            heard: list[Any] = [pubsub.get_message(timeout=PATIENCE_S) for _ in range(count)]
            return [(message["channel"].decode(), message["data"]) for message in heard]

        yield collect


def test_an_outcome_goes_before_the_bare_id(url: str, hear: Hear) -> None:
    broker = open_broker(url)
    broker.drive(cancel_processing("id-1", "low", "archive"))
    broker.close()
    (ours, body), asynqs = hear(2)
    assert ours == OURS
    assert orjson.loads(body) == {"id": "id-1", "queue": "low", "outcome": "archive"}
    assert asynqs == (ASYNQS, b"id-1")


def test_without_outcome_and_queue_it_is_asynqs_own_cancellation(url: str, hear: Hear) -> None:
    async def test() -> None:
        broker = open_async_broker(url)
        await broker.drive(cancel_processing("ü"))
        await broker.drive(cancel_processing("last", outcome="delete"))
        await broker.close()

    run(test)
    heard = hear(3)
    assert [channel for channel, _ in heard] == [ASYNQS, OURS, ASYNQS]
    assert heard[0][1] == "ü".encode()
    assert orjson.loads(heard[1][1]) == {"id": "last", "queue": None, "outcome": "delete"}


def test_a_queue_alone_means_asynqs_outcome_in_that_queue(url: str, hear: Hear) -> None:
    broker = open_broker(url)
    broker.drive(cancel_processing("id-1", "low"))
    broker.close()
    assert orjson.loads(hear(1)[0][1]) == {"id": "id-1", "queue": "low", "outcome": "retry"}


def test_an_unknown_outcome_is_refused_before_anything_is_sent(url: str, hear: Hear) -> None:
    broker = open_broker(url)
    with pytest.raises(ValueError, match=r"^outcome must be one of 'retry', 'archive', 'delete', not 'pause'$"):
        broker.drive(cancel_processing("id-1", "low", "pause"))
    broker.drive(cancel_processing("next"))
    broker.close()
    assert hear(1) == [(ASYNQS, b"next")]


def test_where_our_channel_is_forbidden_the_task_is_not_retried_instead(url: str, db: Redis, hear: Hear) -> None:
    # Redis 6.2 gives new users all channels.
    db.acl_setuser(
        "limited", enabled=True, nopass=True, keys=["*"], reset_channels=True, channels=[ASYNQS], commands=["+@all"]
    )
    broker = open_broker(url.replace("unix://", "unix://limited:x@"))
    try:
        with pytest.raises(BrokerError, match="may not do this"):
            broker.drive(cancel_processing("id-1", "low", "delete"))
        broker.drive(cancel_processing("id-2"))
    finally:
        broker.close()
        db.acl_deluser("limited")
    assert hear(1) == [(ASYNQS, b"id-2")]


def test_in_a_cluster_subscribers_at_any_node_hear_the_outcome_first() -> None:
    channels = [OURS, ASYNQS]
    with ExitStack() as stack:
        nodes = stack.enter_context(redis_cluster())
        ears: list[Any] = []
        for node in nodes:
            db: Any = stack.enter_context(node.client())
            ears.append(stack.enter_context(db.pubsub()))
            ears[-1].subscribe(*channels)
            assert {ears[-1].get_message(timeout=PATIENCE_S)["type"] for _ in channels} == {"subscribe"}
        broker = open_broker("redis-cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes))
        for number in range(20):
            broker.drive(cancel_processing(f"id-{number}", "q", "delete"))
        broker.close()
        for ear in ears:
            heard = [ear.get_message(timeout=PATIENCE_S) for _ in range(40)]
            assert [message["channel"].decode() for message in heard] == channels * 20
            assert [message["data"] for message in heard[1::2]] == [b"id-%d" % number for number in range(20)]


@pytest.mark.parametrize("outcome", CancelAs)
@pytest.mark.parametrize("queue", [None, "low", "ü"])
def test_a_message_comes_back_as_it_was(outcome: CancelAs, queue: str | None) -> None:
    cancellation = Cancellation("id-1", queue, outcome)
    assert read_cancellation(cancellation.encode().decode()) == cancellation


def test_fields_of_newer_peers_are_left_aside() -> None:
    text = '{"id": "a", "queue": "q", "outcome": "delete", "reason": "a whim"}'
    assert read_cancellation(text) == Cancellation("a", "q", CancelAs.DELETE)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("id-1", "is not JSON"),
        ("", "is not JSON"),
        ("[]", "is not a JSON object"),
        ("{}", "names no task"),
        ('{"id": "", "outcome": "retry"}', "names no task"),
        ('{"id": 7, "outcome": "retry"}', "names no task"),
        ('{"id": "a", "queue": 7, "outcome": "retry"}', "names no queue"),
        ('{"id": "a", "queue": "q"}', "outcome must be one of 'retry', 'archive', 'delete', not None"),
        ('{"id": "a", "outcome": "pause"}', "not 'pause'"),
        ('{"id": "a", "outcome": ["retry"]}', "not \\['retry'\\]"),
    ],
)
def test_what_is_no_message_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_cancellation(text)
