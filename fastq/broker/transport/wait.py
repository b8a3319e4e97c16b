"""Waiting until queues have pending tasks: by client-side tracking, on one connection per node for all queues.

A queue's list is read once, by EXISTS. Redis remembers that, and sends one message at the next write to the list by any
client. Nothing is polled, blocked or moved. It needs RESP3, and the right to CLIENT TRACKING and EXISTS.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from hiredis import PushNotification
from redis.exceptions import AskError, InvalidResponse, RedisError, ResponseError

from fastq.broker.transport.aio import AsyncPool, AsyncTransport
from fastq.broker.transport.faults import (
    CONNECT_FAULTS,
    CONNECTION_FAULTS,
    REFUSALS,
    NoReply,
    Unsent,
    refusal,
    transport_error,
)
from fastq.broker.transport.line import MORE, Tap
from fastq.broker.transport.packing import pack_command
from fastq.broker.transport.sentinel import is_replaced
from fastq.errors import BrokerConnectionError, BrokerError
from fastq.wire import keys

PING_EVERY_S = 3.0
ANSWER_WITHIN_S = 3.0
CANCEL_AGAIN_S: Final = 0.1
_INVALIDATE: Final = b"invalidate"
_PING: Final = b""
"""Stands for a key in a request that is a PING."""


class TaskWatch:
    """The waits of one server for pending tasks."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport
        self._lines: dict[str, _Line] = {}
        self.is_refused = False
        """Whether a caller has logged that Redis refuses; the other callers then need not."""

    async def wait(
        self,
        queue: str,
        timeout_s: float,
        told: Callable[[], None] = lambda: None,
        key_of: Callable[[str], str] = keys.pending,
    ) -> bool:
        """Return true once a queue has pending tasks, false after ``timeout_s`` or earlier; raise ``BrokerError``.

        ``key_of`` names another list in place of pending. ``told`` is called as soon as Redis reports tasks, some
        turns of the loop before this returns. Another wait for the same list replaces the one before. Redis may report
        a write to a list that is empty by now, or that is in another database.
        """
        key = key_of(queue)
        try:
            place = await self._transport.place_of(key)
        except CONNECT_FAULTS as error:
            raise transport_error(Unsent(error), "CLIENT TRACKING", self._transport.where) from error
        line = self._lines.get(place)
        if line is None or line.is_over:
            line = self._lines[place] = _Line(
                self._transport.lender(key), self._transport.where, may_move=self._transport.node_name_of is not None
            )
        return await line.wait(key.encode(), timeout_s, told)

    def renew(self) -> None:
        """Drop the connections, since another server may be the master now. Waits end as if their time were up."""
        for line in self._lines.values():
            if not line.is_over:  # a line that is canceled twice might not give its connection back
                line.end()

    async def close(self) -> None:
        """Drop the connections; may be called twice."""
        await asyncio.gather(*(line.close() for line in self._lines.values()))


class _Line:
    """One connection, the keys that are watched on it, and the requests that have no reply yet."""

    def __init__(self, pool: AsyncPool, where: str, *, may_move: bool) -> None:
        self._pool = pool
        self._may_move = may_move
        self._where = where
        self._waits: dict[bytes, asyncio.Future[bool]] = {}
        self._told: dict[bytes, Callable[[], None]] = {}
        self._watched: set[bytes] = set()
        self._to_ask: list[bytes] = []
        self._asked: deque[tuple[bytes, float]] = deque()
        self._ear: _Ear | None = None
        self._loop = asyncio.get_running_loop()
        self.is_over = False
        self._task = asyncio.create_task(self._run(), name="fastq watch")

    async def wait(self, key: bytes, timeout_s: float, told: Callable[[], None]) -> bool:
        """Wait for one key."""
        wait = self._waits[key] = self._loop.create_future()
        self._told[key] = told
        self._watched.discard(key)
        self._ask(key)
        try:
            await asyncio.wait({wait}, timeout=timeout_s)
            return wait.result() if wait.done() else False
        finally:
            if self._waits.get(key) is wait:
                del self._waits[key]

    def end(self) -> None:
        """End the waits as if their time were up, and begin to close the connection."""
        self._end(None)
        self._task.cancel()

    async def close(self) -> None:
        """Do as ``end``, and wait until the connection is closed."""
        while not self._task.done():
            self._task.cancel()  # again: redis-py swallows a cancellation that coincides with the end of its wait
            await asyncio.wait({self._task}, timeout=CANCEL_AGAIN_S)
        self._end(None)  # a coroutine that was canceled before it began has ended no waits

    def _ask(self, key: bytes) -> None:
        if not self._to_ask:
            self._loop.call_soon(self._send)
        self._to_ask.append(key)

    def _send(self) -> None:
        """Send the requests, those of one turn of the loop together."""
        if self._ear is None or not self._to_ask:
            return
        batch, self._to_ask = self._to_ask, []
        now_s = self._loop.time()
        self._asked.extend((key, now_s) for key in batch)
        self._ear.send(b"".join(pack_command(("EXISTS", key) if key else ("PING",)) for key in batch))

    async def _run(self) -> None:
        try:
            connection = await self._pool.get_connection()
        except CONNECT_FAULTS as error:
            self._end(transport_error(Unsent(error), "CLIENT TRACKING", self._where))
            return
        except BaseException:
            self._end(None)
            raise
        try:
            await self._introduce(connection)
            self._ear = _Ear(connection, self._hear)
            self._send()
            await self._listen(connection, self._ear)
        except (ResponseError, *REFUSALS) as error:
            self._end(refusal(error, "CLIENT TRACKING"))
        except (InvalidResponse, *CONNECTION_FAULTS) as error:
            self._end(transport_error(NoReply(error), "CLIENT TRACKING", self._where))
        finally:
            self._ear = None
            self._end(None)
            await connection.disconnect(nowait=True)
            await self._pool.release(connection)

    async def _introduce(self, connection: Any) -> None:
        """Switch to RESP3, in which messages come between replies, and to tracking; raise Redis' errors."""
        for words in (("HELLO", "3"), ("CLIENT", "TRACKING", "ON")):
            await connection.send_command(*words)
            reply = await connection.read_response(
                disable_decoding=True, disconnect_on_error=False, timeout=ANSWER_WITHIN_S
            )
            if reply is None:  # otherwise its reply would be taken for that of the next request
                raise TimeoutError(f"no answer to {words[0]}")

    async def _listen(self, connection: Any, ear: "_Ear") -> None:
        """Keep the connection until it ends or the sentinels name another master; raise why it ended.

        redis-py may swallow the cancellation by ``end``. In that case, ``is_over`` ends this coroutine.
        """
        while not (self.is_over or is_replaced(self._pool, connection)):
            await asyncio.wait({ear.over}, timeout=max(0.0, ear.heard_s + PING_EVERY_S - self._loop.time()))
            if ear.over.done():
                raise ear.over.result()
            if self._loop.time() >= ear.heard_s + PING_EVERY_S:
                ear.heard_s = self._loop.time()
                self._look_after()

    def _look_after(self) -> None:
        """Check that Redis answers, by a PING, or on a cluster by EXISTS for all lists, since slots move."""
        if not self._asked:
            for key in (self._may_move and tuple(self._watched)) or (_PING,):
                self._ask(key)
        elif self._loop.time() - self._asked[0][1] >= ANSWER_WITHIN_S:
            raise TimeoutError("no answer to EXISTS or PING")

    def _hear(self, heard: Any) -> None:
        """Take a message or a reply; raise an error that is no answer to a request."""
        if not isinstance(heard, PushNotification):
            self._take_reply(heard)
        elif heard[0] == _INVALIDATE:
            # A requested key is watched only from its reply on: until then a message is about an earlier request.
            # ``None`` in place of keys means that the database was flushed.
            for key in self._watched.copy() if heard[1] is None else self._watched.intersection(heard[1]):
                self._tell(key)

    def _take_reply(self, reply: Any) -> None:
        error = reply if isinstance(reply, Exception) else None
        if not self._asked or not (error is None or isinstance(error, ResponseError)):
            raise error or InvalidResponse("a reply that nobody asked for")
        key, _ = self._asked.popleft()
        if key == _PING:
            return
        if error is not None:
            self._tell(key, _error_of(error))
        elif reply:
            self._tell(key)
        elif key in self._waits:
            self._watched.add(key)

    def _tell(self, key: bytes, error: BrokerError | None = None) -> None:
        self._watched.discard(key)
        wait = self._waits.pop(key, None)
        if wait is None or wait.done():
            return
        if error is None:
            self._told[key]()  # first, so that what this wakes comes before the end of the wait
            wait.set_result(True)
        else:
            wait.set_exception(error)

    def _end(self, error: BrokerError | None) -> None:
        self.is_over = True
        waits, self._waits = self._waits, {}
        for wait in waits.values():
            if wait.done():
                continue
            if error is None:
                wait.set_result(False)
            else:
                wait.set_exception(error)


class _Ear(Tap):
    """The protocol that passes each message and reply on at once: redis-py's reader would cost a turn of the loop."""

    def __init__(self, connection: Any, hear: Callable[[Any], None]) -> None:
        super().__init__(connection)
        self._hear = hear
        self._loop = asyncio.get_running_loop()
        self.heard_s = self._loop.time()
        self.over: asyncio.Future[Exception] = self._loop.create_future()
        """Why nothing more is heard, once that is so."""

    def send(self, packed: bytes) -> None:
        """Send packed commands."""
        self._transport.write(packed)

    def data_received(self, data: bytes) -> None:
        """Pass on what is whole."""
        self.heard_s = self._loop.time()
        try:
            self._reader.feed(data)
            while not self.over.done() and (heard := self._reader.gets(False)) is not MORE:
                self._hear(heard)
        except (RedisError, *CONNECTION_FAULTS) as error:
            self.ended(error)

    def ended(self, error: Exception) -> None:
        """Note why nothing more is heard."""
        if not self.over.done():
            self.over.set_result(error)


def _error_of(error: ResponseError) -> BrokerError:
    if isinstance(error, AskError):  # MOVED is one, too; the next dequeue learns the new node
        return BrokerConnectionError("EXISTS: the slot of the queue has moved to another node", operation="EXISTS")
    return refusal(error, "EXISTS")
