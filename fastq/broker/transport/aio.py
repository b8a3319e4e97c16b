"""Operations carried out on an asyncio loop: the broker of ``AsyncClient`` and of the server process.

The same operations and flows as in ``blocking``; only the waiting differs.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, Protocol, TypeVar, cast

from redis.exceptions import ResponseError

from fastq.broker.operation import Flow, Operation, Pause, Receive, Send, Soon, Step, Wait
from fastq.broker.transport.blocking import address_of, peer_of
from fastq.broker.transport.confirm import NO_TERMS, Terms
from fastq.broker.transport.credentials import credentials_of
from fastq.broker.transport.exchange import Command, Exchange, in_pieces
from fastq.broker.transport.faults import (
    CONNECT_FAULTS,
    CONNECTION_FAULTS,
    ClientClosedError,
    NoReply,
    Unsent,
    given_up,
    is_demoted,
    transport_error,
)
from fastq.broker.transport.limit import REPLY_S, Limit
from fastq.broker.transport.line import Answered, Line, line_of
from fastq.broker.transport.packing import pack_command
from fastq.errors import BrokerError

T = TypeVar("T")

MOST_AT_ONCE: Final = 64
"""The number of concurrent round trips; others wait, since redis-py would refuse the 101st connection."""


class AsyncPool(Protocol):
    """The part of redis-py's asyncio connection pool that fastq uses."""

    connection_kwargs: dict[str, Any]

    async def get_connection(self) -> Any:
        """Lend a connected connection."""

    async def release(self, connection: Any) -> None:
        """Take a connection back."""


class AsyncTransport(Protocol):
    """A connection to one server or to a cluster, which sends commands and returns their replies."""

    where: str

    @property
    def node_name_of(self) -> Callable[[str], str] | None:
        """Return the function that names a key's node by the current slot map, None if one server has all keys."""

    async def transfer(self, commands: Sequence[Command]) -> list[Any]:
        """Return a reply, an error reply, ``NoReply`` or ``Unsent`` for each command; such faults are never raised."""

    def begin(self, commands: Sequence[Command], done: Callable[[list[Any]], None], most_s: float) -> bool:
        """Begin a transfer on a free, open connection, and call ``done`` with the replies; return false without one.

        The transfer takes about ``most_s`` at most.
        """

    def lender(self, key: str | None = None) -> AsyncPool:
        """Return a pool that lends connections to the node of ``key`` (None: any) for exclusive use."""

    async def place_of(self, key: str) -> str:
        """Return the address of a key's node; raise redis-py's errors."""

    def on_change(self, call: Callable[[], None]) -> None:
        """Register a function to call whenever keys get another master, or a silent node answers again."""

    async def close(self) -> None:
        """End background coroutines, and soon all calls under way; leave the connections to the client."""


class AsyncNodeTransport:
    """A transport to one Redis server through a redis-py asyncio connection pool, one pipeline a call.

    With ``keep``, connections stay here between calls, as in ``NodeTransport``. The pool must not be shared then.
    """

    node_name_of: Callable[[str], str] | None = None

    def __init__(self, pool: AsyncPool, terms: Terms = NO_TERMS, *, keep: bool = False) -> None:
        self._pool = pool
        self._credentials = credentials_of(pool)
        self._keep = keep and self._credentials is None  # changing credentials are checked at each lending
        self._kept: list[Any] = []
        self._ending: set[asyncio.Task[None]] = set()
        self._connect_within_s, self._confirm = terms
        # One connection of a given pool is left for a subscription.
        self._turns = asyncio.Semaphore(max(1, min(MOST_AT_ONCE, getattr(pool, "max_connections", 100) - 1)))
        self._is_closed = False
        self.where = address_of(pool)

    def lender(self, key: str | None = None) -> AsyncPool:
        """Return the pool, since one server has all keys."""
        del key
        return self._pool

    async def place_of(self, key: str) -> str:
        """Return the address of the one server."""
        del key
        return self.where

    def on_change(self, call: Callable[[], None]) -> None:
        """Do nothing: the server never changes."""

    async def close(self) -> None:
        """Let calls whose connections the client closes end with ``ClientClosedError``."""
        self._is_closed = True

    async def transfer(self, commands: Sequence[Command]) -> list[Any]:
        """Send the commands in one write and read their replies; a canceled call closes its connection."""
        async with self._turns:
            try:
                connection = await self._connection()
            except Exception as error:
                if self._is_closed:  # redis-py may find no writer any more, and raise AttributeError
                    return [Unsent(ClientClosedError(), self.where)] * len(commands)
                if isinstance(error, CONNECT_FAULTS):
                    return [Unsent(error, self.where)] * len(commands)
                raise
            lines = commands if self._confirm is None else self._confirm.lines(commands)
            try:
                replies = await exchange_on(connection, lines)
            finally:
                if self._is_closed:
                    await connection.disconnect(nowait=True)  # the client may have been closed while it connected
                await self._give_back(connection)
            if self._is_closed:
                replies = list(map(given_up, replies))
            return replies if self._confirm is None or lines is commands else self._confirm.replies(commands, replies)

    def begin(self, commands: Sequence[Command], done: Callable[[list[Any]], None], most_s: float) -> bool:
        """Send the commands on a kept connection, and call ``done`` with their replies; return false without one."""
        kept = self._kept[-1] if self._kept and self._confirm is None else None
        if kept is None or not is_open(kept) or kept.health_check_interval:
            return False
        line, pieces = line_of(kept), in_pieces(packed(commands))
        if len(pieces) > 1:
            return False
        del self._kept[-1]

        def answered(replies: list[Any], fault: Exception | None) -> None:
            if fault is None and not self._is_closed:
                note_demotion(kept, replies)
                if not kept.should_reconnect():
                    self._kept.append(kept)
                    done(replies)
                    return
            ending = asyncio.create_task(self._end(kept, commands, replies, fault, done))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

        line.ask(pieces[0], len(commands), answered, kept.socket_timeout, most_s)
        return True

    async def _end(
        self,
        connection: Any,
        commands: Sequence[Command],
        replies: list[Any],
        fault: Exception | None,
        done: Callable[[list[Any]], None],
    ) -> None:
        """Give back a connection that is not to be kept."""
        try:
            replies = await settled(connection, commands, replies, fault)
        except Exception as error:  # noqa: BLE001 - whatever came in place of replies
            replies = [NoReply(error, self.where)] * len(commands)
        if self._is_closed:
            await connection.disconnect(nowait=True)
            replies = list(map(given_up, replies))
        await self._pool.release(connection)
        done(replies)

    async def _connection(self) -> Any:
        while self._kept:
            kept = self._kept.pop()
            if is_open(kept):
                return kept
            await kept.disconnect(nowait=True)  # Redis has closed it; the pool will connect it again
            await self._pool.release(kept)
        credentials, pool = self._credentials, self._pool
        lending = pool.get_connection() if credentials is None else credentials.lend_async(pool)
        if self._connect_within_s is None:
            return await lending
        try:
            async with asyncio.timeout(self._connect_within_s):
                return await lending
        except TimeoutError as error:
            raise TimeoutError(str(error) or f"not connected within {self._connect_within_s:g} s") from error

    async def _give_back(self, connection: Any) -> None:
        if self._keep and connection.is_connected and not connection.should_reconnect():
            self._kept.append(connection)
        else:
            await self._pool.release(connection)


def is_open(connection: Any) -> bool:
    """Return whether a redis-py asyncio connection is connected at both ends, and has no unread data."""
    if not connection.is_connected or connection._writer.is_closing():  # a reset is not seen as the end of data
        return False
    # Bytes that nobody asked for may be half a message: the next reply would be taken for the other half.
    return not (connection._reader.at_eof() or connection._reader._buffer)


async def exchange_on(connection: Any, commands: Sequence[Command]) -> list[Any]:
    """Send commands on a connected redis-py asyncio connection and return the reply or fault of each.

    The connection's ``socket_timeout`` is the longest time without progress.
    """
    try:
        # If the user's client has health checks, this sends redis-py's PING: before anything else is sent, with its own
        # timeout.
        await connection.check_health()
    except (ResponseError, *CONNECTION_FAULTS) as error:
        await connection.disconnect(nowait=True)
        return [Unsent(error, peer_of(connection))] * len(commands)
    except BaseException:
        await connection.disconnect(nowait=True)  # canceled between PING and PONG: out of step
        raise
    if not is_open(connection):  # redis-py does not see a reset
        await connection.disconnect(nowait=True)
        return [Unsent(ConnectionError("it was closed meanwhile"), peer_of(connection))] * len(commands)
    answered: asyncio.Future[tuple[list[Any], Exception | None]] = asyncio.get_running_loop().create_future()
    line: Line | None = None
    try:
        line = line_of(connection)
        first, *others = in_pieces(packed(commands))
        line.ask(first, len(commands), _once(answered), connection.socket_timeout)
        for (piece,) in others:
            await line.go_on(piece)
        replies, fault = await answered
    except CONNECTION_FAULTS as error:
        replies, fault = [], error
    except BaseException:
        if line is not None:
            line.stop()
        abort_sending(connection)
        await connection.disconnect(nowait=True)  # canceled between command and reply: out of step
        raise
    return await settled(connection, commands, replies, fault)


def packed(commands: Sequence[Command]) -> list[bytes]:
    """Return the bytes of commands."""
    return [pack_command(command.words) for command in commands]


def _once(answered: asyncio.Future[tuple[list[Any], Exception | None]]) -> Answered:
    def answer(replies: list[Any], fault: Exception | None) -> None:
        if not answered.done():
            answered.set_result((replies, fault))

    return answer


async def settled(
    connection: Any, commands: Sequence[Command], replies: list[Any], fault: Exception | None
) -> list[Any]:
    """Return a reply or fault for each command; a connection with a fault is closed."""
    note_demotion(connection, replies)
    if fault is None:
        return replies
    abort_sending(connection)
    await connection.disconnect(nowait=True)
    if not isinstance(fault, CONNECTION_FAULTS):
        raise fault
    return [*replies, *[NoReply(fault, peer_of(connection))] * (len(commands) - len(replies))]


def note_demotion(connection: Any, replies: Sequence[Any]) -> None:
    """Mark a connection for a reconnect if its server is no master any more."""
    for reply in replies:
        if isinstance(reply, Exception) and is_demoted(reply):
            # Behind a name or a proxy, a new connection may lead to the master. Sentinels are asked again.
            getattr(connection, "note_replica", connection.mark_for_reconnect)()


def abort_sending(connection: Any) -> None:
    """Abort a redis-py asyncio connection with unsent data; a close would wait until all is sent."""
    writer = connection._writer
    if writer is not None and writer.transport.get_write_buffer_size():
        writer.transport.abort()


class AsyncBroker:
    """An executor of operations and flows; concurrent calls use connections of their own.

    ``timeout_s`` and ``reply_s`` are as for ``BlockingBroker``.
    """

    def __init__(
        self,
        transport: AsyncTransport,
        close: Callable[[], Awaitable[None]] | None = None,
        timeout_s: float | None = None,
        reply_s: float = REPLY_S,
    ) -> None:
        self.transport = transport
        self._close = close
        self._timeout_s = timeout_s
        self._reply_s = reply_s

    async def close(self) -> None:
        """Close the connections, unless the caller gave them; may be called twice."""
        if self._close is not None:
            await self._close()

    async def run(self, operation: Operation[T]) -> T:
        """Carry out one operation; raise its ``BrokerError``."""
        result = (await self.run_many((operation,)))[0]
        if isinstance(result, BrokerError):
            raise result
        return cast("T", result)

    async def run_many(self, operations: Sequence[Operation[Any]]) -> list[Any]:
        """Carry out operations in one round trip; the result of a failed one is its ``BrokerError``."""
        return await self._run_many(operations, self._limit())

    def begin(
        self, operations: Sequence[Operation[Any]], done: Callable[[Exchange, Exception | None], None], most_s: float
    ) -> bool:
        """Send operations on a connection that is open and free; return false if there is none.

        ``done`` is called once the first round trip is over, which takes about ``most_s`` at most. It gets the
        exchange, and an exception if the replies could not be taken.
        """
        exchange = Exchange(operations, self.transport.where)

        def received(replies: list[Any]) -> None:
            defect: Exception | None = None
            try:
                exchange.receive(replies)
            except Exception as error:  # noqa: BLE001 - whoever asked must hear of an end
                defect = error
            done(exchange, defect)

        return self.transport.begin(exchange.commands(), received, most_s)

    async def drive(self, flow: Flow[T]) -> T:
        """Run a flow to its end and return its value."""
        limit = self._limit()
        try:
            step = next(flow)
            while True:
                if isinstance(step, Send):
                    limit = self._limit()
                elif isinstance(step, Wait):
                    limit = self._limit(step.seconds)
                elif isinstance(step, Soon) and self._timeout_s is None:
                    limit = Limit.of_rest(step, self._reply_s, limit)
                try:
                    result = await self._take(step, limit)
                except BrokerError as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(result)
        except StopIteration as end:
            return cast("T", end.value)
        finally:
            flow.close()  # close it now: an exception that is still held would keep the flow open

    def _limit(self, after_s: float = 0.0) -> Limit | None:
        return None if self._timeout_s is None else Limit.from_now(self._timeout_s, after_s)

    async def _take(self, step: Step, limit: Limit | None) -> Any:
        match step:
            case Operation():
                (result,) = await self._run_many((step,), limit)
                if isinstance(result, BrokerError):
                    raise result
                return result
            case Send(operations):
                return await _begun(self._run_many(operations, limit))
            case Receive(ticket):
                return await ticket
            case Soon():
                return None
            case Pause(seconds):
                return await asyncio.sleep(seconds if limit is None else min(seconds, limit.left_s))
            case _:
                return await self._run_many(step, limit)

    async def _run_many(self, operations: Sequence[Operation[Any]], limit: Limit | None) -> list[Any]:
        if limit is None:
            return await self._exchange(operations)
        fault: NoReply | Unsent
        try:
            limit.require(0)
        except TimeoutError as late:
            fault = Unsent(late)
        else:
            try:
                async with asyncio.timeout(limit.left_s):
                    return await self._exchange(operations)
            except TimeoutError:
                fault = NoReply(TimeoutError(f"no reply within {limit.timeout_s:g} s"))
        return [transport_error(fault, operation.name, self._place_of(operation)) for operation in operations]

    async def _exchange(self, operations: Sequence[Operation[Any]]) -> list[Any]:
        return await self.carry_on(Exchange(operations, self.transport.where))

    async def carry_on(self, exchange: Exchange) -> list[Any]:
        """Carry an exchange through the round trips that it still needs."""
        while commands := exchange.commands():
            if exchange.pause_s:
                await asyncio.sleep(exchange.pause_s)
            exchange.receive(await self.transport.transfer(commands))
        return exchange.results

    def _place_of(self, operation: Operation[Any]) -> str:
        node_name_of = self.transport.node_name_of
        return (node_name_of(operation.keys[0]) if node_name_of and operation.keys else "") or self.transport.where


async def _begun(sending: Coroutine[Any, Any, list[Any]]) -> asyncio.Task[list[Any]]:
    """Start a coroutine in the background, and let it run to its first wait."""
    task = asyncio.create_task(sending)
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        task.cancel()  # nobody needs the result any more
        raise
    return task
