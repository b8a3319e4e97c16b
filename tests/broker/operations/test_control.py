"""Control: an order goes to one server's channel; what is no order is refused with its reason."""

from typing import Any

import orjson
import pytest
from redis import Redis

from fastq.broker.operations.control import ServerOrder, count_listeners, read_order, send_order
from fastq.broker.transport.open import open_broker
from fastq.wire import keys
from tests.waiting import PATIENCE_S


def test_an_order_goes_to_the_server_that_it_names(db: Any, url: str) -> None:
    broker = open_broker(url)
    with db.pubsub() as pubsub:
        pubsub.subscribe(keys.control_channel("a"))
        assert pubsub.get_message(timeout=PATIENCE_S)["type"] == "subscribe"
        assert broker.run(send_order("b", ServerOrder.STOP)) == 0
        assert broker.run(send_order("a", ServerOrder.QUIET)) == 1
        message = pubsub.get_message(timeout=PATIENCE_S)
    broker.close()
    assert message["channel"] == b"asynq:control:a"
    assert orjson.loads(message["data"]) == {"do": "quiet"}


def test_who_watches_all_channels_is_not_counted_as_a_server(db: Any, url: str) -> None:
    broker = open_broker(url)
    with db.pubsub() as watching, db.pubsub() as server:
        watching.psubscribe("*")
        assert watching.get_message(timeout=PATIENCE_S)["type"] == "psubscribe"
        assert broker.run(count_listeners("a")) == 0
        server.subscribe(keys.control_channel("a"))
        assert server.get_message(timeout=PATIENCE_S)["type"] == "subscribe"
        assert broker.run(count_listeners("a")) == 1
    broker.close()


@pytest.mark.parametrize("order", ServerOrder)
def test_an_order_is_read_back(order: ServerOrder, db: Redis) -> None:
    (body,) = send_order("a", order).args[1:]
    assert isinstance(body, bytes)
    assert read_order(body.decode()) is order
    assert read_order(f'{{"by": "who knows", "do": "{order}"}}') is order


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("stop", "'stop' is not JSON"),
        ('"stop"', "do must be one of 'stop', 'quiet'"),
        ('{"do": "explode"}', "do must be one of"),
        ('{"do": ["stop"]}', "do must be one of"),
        ("[]", "do must be one of"),
    ],
)
def test_what_is_no_order_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_order(text)
