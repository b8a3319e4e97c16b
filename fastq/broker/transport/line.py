"""A connection's line: commands go out together, and their replies are taken off the socket as they come.

redis-py's asyncio connections read each reply through a stream, with a timer and several coroutines; a server would
spend most of its time on that. The line stands between the transport of a redis-py connection and its streams. While no
command awaits a reply, it passes all data on to the streams, so redis-py connects, logs in and closes as usual.
"""

import asyncio
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Final, TypeAlias, cast

from hiredis import PushNotification, Reader
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse

from fastq.broker.transport.faults import REFUSALS

Answered: TypeAlias = Callable[[list[Any], Exception | None], None]
"""A function that gets the replies. If some are missing, it also gets the fault that is the cause."""
MORE: Final = object()
"""What a reader returns when it has no whole reply or message."""


class Tap(asyncio.Protocol):
    """A protocol that stands between the transport of a connected redis-py asyncio connection and its streams."""

    def __init__(self, connection: Any) -> None:
        self._parser = connection._parser
        self._reader = Reader(protocolError=InvalidResponse, replyError=self._parser.parse_error, notEnoughData=MORE)
        self._transport = _transport_of(connection)
        self._streams = cast("asyncio.StreamReaderProtocol", self._transport.get_protocol())
        self._transport.set_protocol(self)

    def ended(self, error: Exception) -> None:
        """Learn that no more data comes; may be called twice."""
        raise NotImplementedError

    def eof_received(self) -> bool | None:
        """Note that no more data comes."""
        result = self._streams.eof_received()
        self.ended(RedisConnectionError("Connection closed by server."))
        return result

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that no more data comes."""
        self._streams.connection_lost(exc)
        self.ended(exc or RedisConnectionError("Connection closed by server."))

    def pause_writing(self) -> None:
        """Let ``drain`` wait."""
        self._streams.pause_writing()

    def resume_writing(self) -> None:
        """Let ``drain`` go on."""
        self._streams.resume_writing()


class Line(Tap):
    """The protocol that takes the replies; made by ``line_of``."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self._writer = connection._writer
        self._loop = asyncio.get_running_loop()
        self._answered: Answered | None = None
        self._replies: list[Any] = []
        self._awaited = 0
        self._limit_s = self._until_s = inf
        self._got_on_s = 0.0
        self._unsent = inf
        self._timer: asyncio.TimerHandle | None = None
        self._pushes: set[asyncio.Future[Any]] = set()

    def ask(
        self, packed: Sequence[Any], count: int, answered: Answered, limit_s: float | None, most_s: float = inf
    ) -> None:
        """Send ``count`` packed commands, or the first part of them, and call ``answered`` once.

        At most ``limit_s`` may pass without progress, and about ``most_s`` in all.
        """
        self._replies, self._awaited, self._answered = [], count, answered
        if limit_s is not None:
            self._limit(limit_s, most_s)
        self._transport.write(packed[0] if len(packed) == 1 else b"".join(packed))

    async def go_on(self, piece: Any) -> None:
        """Send another part of the commands, once most before it has gone."""
        await self._writer.drain()
        if self._transport.is_closing():
            raise ConnectionError("it was closed meanwhile")
        self._got_on_s = self._loop.time()
        self._transport.write(piece)

    def stop(self) -> None:
        """Do not call ``answered`` any more; the connection is out of step now."""
        self._answered = None

    def _limit(self, limit_s: float, most_s: float) -> None:
        """Start to measure the time without progress.

        A running timer is kept, since a new one for each request would cost time.
        """
        self._got_on_s, self._unsent = self._loop.time(), inf
        self._until_s = self._got_on_s + most_s
        if self._timer is not None and limit_s != self._limit_s:
            self._timer.cancel()
            self._timer = None
        self._limit_s = limit_s
        if self._timer is None:
            self._timer = self._loop.call_at(self._got_on_s + limit_s, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._answered is None:
            return
        now_s, unsent = self._loop.time(), self._transport.get_write_buffer_size()
        if 0 < unsent < self._unsent:
            self._got_on_s = now_s
        self._unsent = unsent
        due_s = min(self._got_on_s + self._limit_s, self._until_s)
        if due_s > now_s:
            self._timer = self._loop.call_at(due_s, self._look)
        elif now_s < self._until_s:
            self._end(TimeoutError(f"no reply within {self._limit_s:g} s"))
        else:
            self._end(TimeoutError("the replies did not come to an end"))

    def _end(self, error: Exception | None) -> None:
        answered, self._answered = self._answered, None
        replies, self._replies = self._replies, []
        if answered is not None:
            answered(replies, error)

    # What the transport calls -------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Take replies."""
        if self._answered is None:
            self._streams.data_received(data)
            return
        self._got_on_s = self._loop.time()
        error: Exception | None = None
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets(False)) is not MORE:
                if isinstance(reply, PushNotification):
                    self._pass_on(reply)
                    continue
                if not self._awaited:
                    self._transport.abort()  # unasked bytes: the next request would take them for its reply
                    break
                if isinstance(reply, RedisConnectionError) and not isinstance(reply, REFUSALS):
                    error = reply
                    break
                self._replies.append(reply)
                self._awaited -= 1
            if self._awaited and error is None:
                return
        except InvalidResponse as invalid:
            error = invalid
        self._end(error)

    def _pass_on(self, push: Any) -> None:
        """Let redis-py see a message that is no reply."""
        handling = asyncio.ensure_future(self._parser.handle_push_response(push))
        self._pushes.add(handling)
        handling.add_done_callback(self._pushes.discard)

    def ended(self, error: Exception) -> None:
        """Let the replies end here."""
        self._end(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that no more data comes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        super().connection_lost(exc)


def line_of(connection: Any) -> Line:
    """Return the line of a connected redis-py asyncio connection, the same one each time."""
    protocol = _transport_of(connection).get_protocol()
    return protocol if isinstance(protocol, Line) else Line(connection)


def _transport_of(connection: Any) -> asyncio.Transport:
    if connection._writer is None:
        raise ConnectionError("it was closed meanwhile")
    transport: asyncio.Transport = connection._writer.transport
    return transport
