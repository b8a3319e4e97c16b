"""A subscription to Redis channels, read for as long as the connection lives.

It has a connection of its own. An idle connection is pinged, so that its silent death is noticed.
"""

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from redis.exceptions import ResponseError

from fastq.broker.transport.aio import AsyncPool
from fastq.broker.transport.faults import (
    CONNECT_FAULTS,
    CONNECTION_FAULTS,
    REFUSALS,
    NoReply,
    Unsent,
    refusal,
    transport_error,
)
from fastq.broker.transport.sentinel import is_replaced
from fastq.errors import BrokerError

PING_EVERY_S = 3.0
ANSWER_WITHIN_S = 3.0


class ChannelMessage(NamedTuple):
    """A message and its channel; bytes that are not UTF-8 are replaced."""

    channel: str
    text: str


def require_two(pool: Any) -> None:
    """Raise ``BrokerError`` for a pool of one connection: during a subscription on it, nothing else could be sent."""
    if getattr(pool, "max_connections", 2) < 2:
        text = "the Redis client was given with max_connections=1, and a subscription needs a connection of its own"
        raise BrokerError(text, operation="SUBSCRIBE")


async def listen(pool: AsyncPool, where: str, *channels: str) -> AsyncIterator[ChannelMessage | None]:
    """Yield None once subscribed to all channels, and each message.

    End once the sentinels have named another master: messages are published there from then on. Raise ``BrokerError``
    when Redis refuses a subscription, and when the connection is gone.
    """
    require_two(pool)
    try:
        connection = await pool.get_connection()
    except CONNECT_FAULTS as error:
        raise transport_error(Unsent(error), "SUBSCRIBE", where) from error
    try:
        await connection.send_command("SUBSCRIBE", *channels)
        missing = len(channels)
        asked = False
        while not is_replaced(pool, connection):
            # With a timeout argument, redis-py returns None if nothing came in time. Messages are pushes in RESP3.
            reply = await connection.read_response(
                disable_decoding=True,
                disconnect_on_error=False,
                timeout=ANSWER_WITHIN_S if asked or missing else PING_EVERY_S,
                push_request=True,
            )
            if reply is None and (asked or missing):
                raise TimeoutError(f"no answer to {'PING' if asked else 'SUBSCRIBE'}")
            if reply is None:
                await connection.send_command("PING")
            elif reply[0] == b"subscribe":
                missing -= 1
                if not missing:
                    yield None
            elif reply[0] == b"message":
                yield ChannelMessage(reply[1].decode(), reply[2].decode(errors="replace"))
            asked = reply is None
    except (ResponseError, *REFUSALS) as error:
        raise refusal(error, "SUBSCRIBE") from error
    except CONNECTION_FAULTS as error:
        raise transport_error(NoReply(error), "SUBSCRIBE", where) from error
    finally:
        # A subscribed connection cannot be used for commands.
        await connection.disconnect(nowait=True)
        await pool.release(connection)
