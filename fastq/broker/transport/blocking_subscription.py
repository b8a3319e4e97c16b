"""A subscription to one Redis channel, read with blocking sockets; ``subscription`` is the same for asyncio."""

import time
from typing import Any

from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from fastq.broker.transport.blocking import Transport
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
from fastq.broker.transport.subscription import ANSWER_WITHIN_S, PING_EVERY_S, require_two
from fastq.errors import BrokerConnectionError


class BlockingSubscription:
    """A connection that is subscribed to a channel; one thread uses it.

    An idle connection is pinged, so that its silent death is noticed. All methods raise ``BrokerError``.
    """

    def __init__(self, transport: Transport, channel: str) -> None:
        self._where = transport.where
        self._waits_for_pong = False
        try:
            self._pool = transport.lender()
            require_two(self._pool)
            self._connection: Any = self._pool.get_connection()
        except CONNECT_FAULTS as error:
            raise transport_error(Unsent(error), "SUBSCRIBE", self._where) from error
        self._heard_s = time.monotonic()
        try:
            self._send("SUBSCRIBE", channel)
            while (reply := self._read(ANSWER_WITHIN_S)) is None or reply[0] != b"subscribe":
                if reply is None:
                    raise BrokerConnectionError(f"{self._where} does not answer", operation="SUBSCRIBE")
        except BaseException:
            self.close()
            raise

    def next(self, within_s: float) -> bytes | None:
        """Return the next message, None if there was none in time."""
        if is_replaced(self._pool, self._connection):
            raise BrokerConnectionError("the sentinels name another master", operation="SUBSCRIBE")
        quiet_s = time.monotonic() - self._heard_s
        if quiet_s >= PING_EVERY_S and not self._waits_for_pong:
            self._send("PING")
            self._waits_for_pong = True
        elif quiet_s >= PING_EVERY_S + ANSWER_WITHIN_S:
            raise BrokerConnectionError(f"{self._where} does not answer", operation="SUBSCRIBE")
        reply = self._read(min(within_s, PING_EVERY_S))
        is_message = isinstance(reply, list) and reply[0] == b"message"
        return reply[2] if is_message else None

    def close(self) -> None:
        """Close the connection, which is of no use to others."""
        self._connection.disconnect()
        self._pool.release(self._connection)

    def _send(self, *words: str) -> None:
        try:
            self._connection.send_command(*words, check_health=False)
        except CONNECTION_FAULTS as error:
            raise transport_error(NoReply(error), "SUBSCRIBE", self._where) from error

    def _read(self, within_s: float) -> Any:
        try:
            # At least 1 ms: with 0, redis-py would not wait at all.
            reply = self._connection.read_response(
                disable_decoding=True, disconnect_on_error=False, timeout=max(within_s, 0.001), push_request=True
            )
        except RedisTimeoutError:
            return None
        except (ResponseError, *REFUSALS) as error:
            raise refusal(error, "SUBSCRIBE") from error
        except CONNECTION_FAULTS as error:
            raise transport_error(NoReply(error), "SUBSCRIBE", self._where) from error
        self._heard_s, self._waits_for_pong = time.monotonic(), False
        return reply
