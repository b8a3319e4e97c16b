"""Operations carried out with blocking sockets: the broker of ``Client`` and ``Inspector``.

Thread-safe and fork-safe, as redis-py's connection pool is: each round trip takes a connection of its own, and after a
fork the child opens new ones.
"""

import os
import time
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from redis.exceptions import ResponseError

from fastq.broker.operation import Flow, Operation, Pause, Receive, Send, Soon, Step, Wait
from fastq.broker.transport.confirm import Confirm
from fastq.broker.transport.credentials import credentials_of
from fastq.broker.transport.exchange import Command, Exchange, in_pieces
from fastq.broker.transport.faults import CONNECT_FAULTS, CONNECTION_FAULTS, REFUSALS, NoReply, Unsent, is_demoted
from fastq.broker.transport.limit import REPLY_S, Limit
from fastq.broker.transport.packing import pack_command
from fastq.broker.transport.sentinel import is_replaced
from fastq.errors import BrokerError

T = TypeVar("T")

TRUSTED_S: Final = 1.0
"""How long a kept connection is used without another check by the pool."""


class Connection(Protocol):
    """The part of redis-py's blocking connection that fastq uses."""

    def check_health(self) -> None:
        """Send a PING and wait for the reply, if the client's settings want one now."""

    def send_packed_command(self, command: Any, check_health: bool) -> None:
        """Write encoded commands; connect first if the connection is closed."""

    def read_response(self, *, disable_decoding: bool, disconnect_on_error: bool, timeout: float = ...) -> Any:
        """Wait for a reply; an error reply is raised."""

    def disconnect(self) -> None:
        """Close the socket."""

    def mark_for_reconnect(self) -> None:
        """Let the pool close the socket when the connection is returned."""

    def should_reconnect(self) -> bool:
        """Return whether the pool must close the socket."""


class Pool(Protocol):
    """The part of redis-py's blocking connection pool that fastq uses."""

    connection_class: Any
    connection_kwargs: dict[str, Any]

    def get_connection(self) -> Connection:
        """Lend a connected connection."""

    def release(self, connection: Any) -> None:
        """Take a connection back."""


class Transport(Protocol):
    """A connection to one server or to a cluster, which sends commands and returns their replies."""

    where: str

    def send(self, commands: Sequence[Command], limit: Limit | None = None) -> "Sent":
        """Send commands in one write; faults are reported with the replies."""

    def lender(self) -> Pool:
        """Return a pool of connections to the server, or to any node, for callers that keep one for themselves."""


class Sent(Protocol):
    """Commands that were sent and whose replies are pending."""

    def replies(self) -> list[Any]:
        """Return a reply, an error reply, ``NoReply`` or ``Unsent`` for each command; such faults are never raised."""

    def abandon(self) -> None:
        """Drop the connection, since the replies will not be read."""


def address_of(pool: Any) -> str:
    """Return the address of a pool's connections for messages, without secrets."""
    settings = pool.connection_kwargs
    if service := getattr(pool, "service_name", None):
        return f"the sentinels' master {service!r}"
    if path := settings.get("path"):
        return str(path)
    return f"{settings.get('host', 'localhost')}:{settings.get('port', 6379)}"


def peer_of(connection: Any) -> str:
    """Return the peer address of a connection."""
    if path := getattr(connection, "path", None):
        return str(path)
    host = getattr(connection, "host", None)
    return f"{host}:{connection.port}" if host else ""


class NodeTransport:
    """A transport to one Redis server through a redis-py connection pool, one pipeline a call.

    With ``keep``, connections stay here between calls, which halves the cost of a short call. The pool must not be
    shared then. ``close`` returns the connections to the pool.
    """

    def __init__(self, pool: Pool, *, keep: bool = False, confirm: Confirm | None = None) -> None:
        self._pool = pool
        self._credentials = credentials_of(pool)
        self._confirm = confirm
        self._keep = keep
        self._follow: Callable[[], None] | None = getattr(pool, "follow", None)
        self._kept: list[_Lent] = []
        self._pid = os.getpid()
        self.where = address_of(pool)

    def lender(self) -> Pool:
        """Return the pool."""
        return self._pool

    def send(self, commands: Sequence[Command], limit: Limit | None = None) -> Sent:
        """Send the commands in one write."""
        try:
            lent = self._take(limit)
        except CONNECT_FAULTS as error:
            return Unsendable([Unsent(error, self.where)] * len(commands))
        connection = lent.connection
        lines = commands if self._confirm is None else self._confirm.lines(commands)
        missing: type[Unsent | NoReply] = Unsent
        sent: Sent = _Pipeline(self, lent, len(lines), limit)
        try:
            packed = [b"".join([pack_command(command.words) for command in lines])]
            connection.check_health()
            missing = NoReply
            # Sent in one call: between two calls, the connection could be closed, and redis-py would send the rest on a
            # new one. The socket's timeout applies to each item, so there are several items; a limit applies to the
            # whole call.
            items = packed if limit is not None else chain.from_iterable(in_pieces(packed))
            connection.send_packed_command(items, check_health=False)
        except (ResponseError, *CONNECTION_FAULTS, AttributeError) as error:
            self.drop(lent)
            sent = Unsendable([missing(_named(error), peer_of(connection))] * len(lines))
        except BaseException:
            self.drop(lent)
            raise
        return sent if self._confirm is None or lines is commands else _Confirmed(sent, commands, self._confirm)

    def receive(self, lent: "_Lent", count: int, limit: Limit | None) -> list[Any]:
        """Read ``count`` replies, and release the connection."""
        connection = lent.connection
        replies: list[Any] = []
        try:
            for _ in range(count):
                replies.append(_read_reply(connection, limit))
        except CONNECTION_FAULTS as error:
            self.drop(lent)
            return replies + [NoReply(error, peer_of(connection))] * (count - len(replies))
        except BaseException:
            self.drop(lent)  # if a call is interrupted between command and reply, the next user would read its replies
            raise
        self._give_back(lent)
        return replies

    def drop(self, lent: "_Lent") -> None:
        """Close a connection that is broken or out of step."""
        # The pool connects it again before it lends it, so no command is sent on a broken connection.
        lent.connection.disconnect()
        if not lent.is_once:
            self._pool.release(lent.connection)

    def close(self) -> None:
        """Return kept connections to the pool."""
        while self._kept and self._pid == os.getpid():
            self._pool.release(self._kept.pop().connection)

    def _take(self, limit: Limit | None) -> "_Lent":
        if limit is not None:
            limit.require(0)
        if self._pid != os.getpid():
            # After a fork these connections belong to the parent; the pool opens new ones. The process id is set last:
            # as soon as it is right, another thread may use the kept connections.
            self._kept, self._pid = [], os.getpid()
        if self._follow is not None:
            self._follow()
        if limit is not None and limit.is_afresh:
            return self._afresh(limit)
        try:
            kept = self._kept.pop()
        except IndexError:
            return self._connected(limit)
        is_trusted = time.monotonic() - kept.seen_s < TRUSTED_S
        if is_trusted and not (self._follow is not None and is_replaced(self._pool, kept.connection)):
            return kept
        # Redis may have closed the connection, or the sentinels may name another master: the pool checks it, and
        # reconnects.
        self._pool.release(kept.connection)
        return self._connected(limit)

    def _connected(self, limit: Limit | None) -> "_Lent":
        if limit is not None:
            limit.require(2)
        pool = self._pool
        connection = self._credentials.lend(pool) if self._credentials is not None else pool.get_connection()
        return _Lent(connection, time.monotonic())

    def _afresh(self, limit: Limit) -> "_Lent":
        """Connect within the time that is left; the pool's own connections have longer limits."""
        at_most_s = limit.left_s / 2
        limits = {"socket_connect_timeout": at_most_s, "socket_timeout": at_most_s}
        connection = self._pool.connection_class(**self._pool.connection_kwargs | limits)
        connection.connect()
        return _Lent(connection, time.monotonic(), is_once=True)

    def _give_back(self, lent: "_Lent") -> None:
        if lent.is_once:
            lent.connection.disconnect()
        elif self._keep and not lent.connection.should_reconnect():
            self._kept.append(lent)
        else:
            self._pool.release(lent.connection)


class _Lent(NamedTuple):
    """A connection, and the time at which the pool last checked it, in monotonic seconds."""

    connection: Connection
    seen_s: float
    is_once: bool = False
    """Whether the connection belongs to no pool, and is closed after the call."""


class _Pipeline(NamedTuple):
    transport: NodeTransport
    lent: _Lent
    expected: int
    limit: Limit | None

    def replies(self) -> list[Any]:
        return self.transport.receive(self.lent, self.expected, self.limit)

    def abandon(self) -> None:
        self.transport.drop(self.lent)


class _Confirmed(NamedTuple):
    """Commands that were sent with a WAIT."""

    sent: Sent
    commands: Sequence[Command]
    confirm: Confirm

    def replies(self) -> list[Any]:
        return self.confirm.replies(self.commands, self.sent.replies())

    def abandon(self) -> None:
        self.sent.abandon()


class Unsendable(NamedTuple):
    """Commands that could not be sent."""

    faults: list[Any]

    def replies(self) -> list[Any]:
        """Return the fault for each command."""
        return self.faults

    def abandon(self) -> None:
        """Do nothing: no connection is lent."""


def _named(error: Exception) -> Exception:
    # redis-py raises AttributeError if another thread closes the connection between two items.
    return ConnectionError("it was closed meanwhile") if isinstance(error, AttributeError) else error


def _read_reply(connection: Connection, limit: Limit | None) -> Any:
    try:
        if limit is None:
            return connection.read_response(disable_decoding=True, disconnect_on_error=False)
        limit.require(0)
        return connection.read_response(disable_decoding=True, disconnect_on_error=False, timeout=limit.left_s)
    except (ResponseError, *REFUSALS) as error:
        if is_demoted(error):
            connection.mark_for_reconnect()  # behind a name or a proxy, a new connection may lead to the master
        return error


class BlockingBroker:
    """An executor of operations and flows, one after the other, on the calling thread.

    ``timeout_s`` bounds each call. In a flow that uses ``Send``, it bounds the time from one ``Send`` to the next.
    ``reply_s`` is the time that a reply may take.
    """

    def __init__(
        self,
        transport: Transport,
        close: Callable[[], None] | None = None,
        timeout_s: float | None = None,
        reply_s: float = REPLY_S,
    ) -> None:
        self.transport = transport
        self._close = close
        self._timeout_s = timeout_s
        self._reply_s = reply_s

    def close(self) -> None:
        """Close the connections, unless the caller gave them; may be called twice."""
        if self._close is not None:
            self._close()

    def run(self, operation: Operation[T]) -> T:
        """Carry out one operation; raise its ``BrokerError``."""
        return self._run(operation, self._limit())

    def run_many(self, operations: Sequence[Operation[Any]]) -> list[Any]:
        """Carry out operations in one round trip; the result of a failed one is its ``BrokerError``."""
        return self._receive(self._send(operations, self._limit()))

    def drive(self, flow: Flow[T]) -> T:
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
                    result = self._take(step, limit)
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

    def _take(self, step: Step, limit: Limit | None) -> Any:
        match step:
            case Operation():
                return self._run(step, limit)
            case Send(operations):
                return self._send(operations, limit)
            case Receive(ticket):
                return self._receive(ticket)
            case Pause(seconds):
                return _pause(seconds, limit)
            case Soon():
                return None
            case _:
                return self._receive(self._send(step, limit))

    def _run(self, operation: Operation[T], limit: Limit | None) -> T:
        result = self._receive(self._send((operation,), limit))[0]
        if isinstance(result, BrokerError):
            raise result
        return cast("T", result)

    def _send(self, operations: Sequence[Operation[Any]], limit: Limit | None) -> "_Ticket":
        exchange = Exchange(operations, self.transport.where)
        return exchange, self.transport.send(exchange.commands(), limit), limit

    def _receive(self, ticket: "_Ticket") -> list[Any]:
        exchange, sent, limit = ticket
        exchange.receive(sent.replies())
        while commands := exchange.commands():
            if exchange.pause_s:
                _pause(exchange.pause_s, limit)
            exchange.receive(self.transport.send(commands, limit).replies())
        return exchange.results


_Ticket: TypeAlias = tuple[Exchange, Sent, Limit | None]


def _pause(seconds: float, limit: Limit | None) -> None:
    time.sleep(seconds if limit is None else min(seconds, limit.left_s))
