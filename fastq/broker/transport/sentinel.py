"""Clients of the master that a Sentinel names.

redis-py asks the sentinels only when it connects. It continues to write to a replaced master for as long as that master
accepts writes: about ten seconds in a planned failover, longer in a partition. All these writes are lost. So callers
that take a connection ask the sentinels once a second, and a connection to any other address than the last answer is
not lent.

The question is GET-MASTER-ADDR-BY-NAME, as in asynq. redis-py uses SENTINEL MASTERS, which names the old master until
every replica follows the new one: that takes up to the failover-timeout, while writes to the old one are lost.

Each answer has an epoch, which rises with each failover. Sentinels that were set up anew have earlier epochs. An answer
with an earlier epoch than the last known one counts only if no sentinel knows a later epoch. In addition, more than
half of the sentinels must answer, or the known master must be out of reach or a replica.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.connection import AbstractConnection as AsyncConnection
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.asyncio.sentinel import SentinelConnectionPool as AsyncSentinelConnectionPool
from redis.asyncio.sentinel import SentinelManagedConnection as AsyncSentinelManagedConnection
from redis.connection import Connection
from redis.exceptions import NoPermissionError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool, SentinelManagedConnection

from fastq.broker.transport.events import SentinelEvents
from fastq.broker.transport.faults import CONNECT_FAULTS, CONNECTION_FAULTS, REFUSALS, is_demoted
from fastq.broker.transport.parser import use_parser
from fastq.broker.transport.tls import use_tls
from fastq.broker.transport.uri import ConnectionSpec
from fastq.common.clock import Clock, SystemClock

_log = logging.getLogger("fastq")

_LOOK_INTERVAL_S = 1.0
_LONGEST_LOOK_S = 60.0  # then another caller asks: after a fork, the first one may not exist in this process
_LARGEST_SHARE = 0.1  # the part of the time that may be spent on sentinels that do not answer
_LONGEST_PAUSE_S = 30.0  # not longer: when a partition ends, the old master must be left


def master(spec: ConnectionSpec, settings: dict[str, Any]) -> Redis:
    """Return a blocking client of the master; ``settings`` are those of its connections."""
    sentinels = _Sentinels(spec.addresses, _sentinel_settings(spec, settings))
    pool = _MasterPool(spec.master_name, sentinels, **settings)
    use_tls(spec.tls, pool, *(sentinel.connection_pool for sentinel in sentinels.sentinels))
    return Redis.from_pool(pool)


def async_master(spec: ConnectionSpec, settings: dict[str, Any]) -> AsyncRedis:
    """Return an asyncio client of the master; ``settings`` are those of its connections."""
    sentinels = _AsyncSentinels(spec.addresses, _sentinel_settings(spec, settings))
    pool = AsyncMasterPool(spec.master_name, sentinels, **settings)
    pools = pool, *(sentinel.connection_pool for sentinel in sentinels.sentinels)
    use_tls(spec.tls, *pools)
    use_parser(*pools)
    return AsyncRedis.from_pool(pool)


def _sentinel_settings(spec: ConnectionSpec, settings: dict[str, Any]) -> dict[str, Any]:
    own = {"db": 0, "username": spec.sentinel_username or None, "password": spec.sentinel_password or None}
    return settings | own | {"credential_provider": None}


def is_replaced(pool: Any, connection: Any) -> bool:
    """Return whether the sentinels have named another master to a pool since it made a connection."""
    known = getattr(pool, "master_address", None)  # pools without sentinels have none
    return known is not None and known != (connection.host, connection.port)


class SentinelSchedule:
    """The schedule of questions to the sentinels; one caller at a time asks."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._now = (clock or SystemClock()).monotonic_s
        self._next_s = self._began_s = self._now()

    def begin(self) -> bool:
        """Return whether the caller must ask now; it calls ``end`` afterwards."""
        now = self._now()
        if now < self._next_s:
            return False
        self._began_s = now
        self._next_s = now + _LONGEST_LOOK_S  # other threads and coroutines need not ask meanwhile
        return True

    def end(self, *, answered: bool) -> None:
        """Note the end of a question.

        If no sentinel answered, the pause is longer, since the next question would be slow, too.
        """
        now = self._now()
        pause_s = 0.0 if answered else (now - self._began_s) / _LARGEST_SHARE
        self._next_s = now + max(_LOOK_INTERVAL_S, min(_LONGEST_PAUSE_S, pause_s))


class _Answer(NamedTuple):
    """Who the master is, since which epoch, and the sentinel that said so."""

    address: tuple[str, int]
    epoch: int
    sentinel: Any


class Known:
    """The last answer of the sentinels of one pool, and which of them to ask first."""

    def __init__(self) -> None:
        self.first: Any = None
        self.epoch = -1
        self.address: tuple[str, int] | None = None
        self.is_gone = False
        """Whether the master's address cannot be reached, or is that of a replica."""
        self._lock = threading.Lock()

    def in_order(self, sentinels: Sequence[Any]) -> list[Any]:
        """Return the sentinels in the order in which they are to be asked."""
        return sorted(sentinels, key=lambda sentinel: sentinel is not self.first)

    def note(self, service_name: str, answer: _Answer, *, may_go_back: bool) -> bool:
        """Take an answer, unless a later one has come meanwhile; log a switch, and return whether there was one."""
        with self._lock:
            if answer.epoch < self.epoch and not may_go_back:
                return False
            before, self.address = self.address, answer.address
            self.epoch, self.first, self.is_gone = answer.epoch, answer.sentinel, False
        if before is None or before == answer.address:
            return False
        text = "the sentinels name %s:%d as the master of %r, in place of %s:%d"
        _log.info(text, *answer.address, service_name, *before)
        return True

    def saw(self, address: tuple[str, int], *, is_gone: bool) -> None:
        """Note that the known master was reached, or (``is_gone``) that it cannot be reached or refuses writes."""
        if address == self.address:
            self.is_gone = is_gone


class Search:
    """A search for the master: the answers of the sentinels, until a sentinel that is up to date names the master."""

    def __init__(self, service_name: str, known: Known) -> None:
        self._name = service_name
        self._known = known
        self._known_epoch = known.epoch
        self._errors: list[Exception] = []
        self._refusal: Exception | None = None
        self._said: list[str] = []
        self._answers: list[_Answer] = []
        self._was_answered = False

    def ask(self, pipeline: Any) -> Any:
        """Put the questions into a pipeline; the address last, so that it is never older than the epoch."""
        pipeline.execute_command("SENTINEL MASTER", self._name)
        pipeline.execute_command("SENTINEL GET-MASTER-ADDR-BY-NAME", self._name)
        return pipeline

    def note(self, sentinel: Any, error: Exception) -> None:
        """Note that a sentinel could not be asked."""
        self._errors.append(error)
        if isinstance(error, (*REFUSALS, NoPermissionError)) and self._refusal is None:
            self._refusal = type(error)(f"the sentinel at {_address(sentinel)}: {error}")
        self._note_words(sentinel, str(error).rstrip("."))

    def take(self, sentinel: Any, answers: Sequence[Any]) -> bool:
        """Take one sentinel's answers; return whether the search is over."""
        state, named = answers
        self._was_answered = True
        if isinstance(named, Exception):
            self.note(sentinel, named)
            return False
        if named is None:
            self._note_words(sentinel, "knows no such master")
            return False
        address = named[0].decode(), int(named[1])
        known = state if isinstance(state, dict) else {}
        is_about_it = bool(known) and (known["ip"], known["port"]) == address
        if is_about_it and (known["is_sdown"] or known["is_odown"]):
            self._note_words(sentinel, f"takes {address[0]}:{address[1]} for down")
            return False
        self._answers.append(_Answer(address, known.get("config-epoch", 0), sentinel))
        return self._answers[-1].epoch >= self._known.epoch

    def end(self, sentinels: int) -> bool:
        """Keep the latest answer; return whether it names another master than is known.

        ``sentinels`` is how many sentinels there are.

        If none named a master, raise the reasons; a refused user comes before all else. If some timed out and none
        answered, raise a time-out. A search that timed out is not tried again, since each takes seconds.
        """
        if not self._answers:
            raise self._failure()
        latest = max(self._answers, key=lambda answer: answer.epoch)
        known = self._known
        is_credible = 2 * len(self._answers) > sentinels or known.is_gone
        # Not if a later answer has come meanwhile: this search may have asked long ago.
        return known.note(self._name, latest, may_go_back=is_credible and known.epoch == self._known_epoch)

    def _failure(self) -> Exception:
        if self._refusal is not None:
            return self._refusal
        text = f"No master found for {self._name!r}: {'; '.join(self._said)}"
        timed_out = any(isinstance(error, (RedisTimeoutError, TimeoutError)) for error in self._errors)
        return RedisTimeoutError(text) if timed_out and not self._was_answered else MasterNotFoundError(text)

    def _note_words(self, sentinel: Any, words: str) -> None:
        address = _address(sentinel)
        self._said.append(words if address in words else f"{address}: {words}")


def _address(sentinel: Any) -> str:
    place = sentinel.connection_pool.connection_kwargs
    return f"{place['host']}:{place['port']}"


class _Sentinels(Sentinel):
    def __init__(self, addresses: Sequence[tuple[str, int]], settings: dict[str, Any]) -> None:
        super().__init__(addresses, sentinel_kwargs=settings)  # type: ignore[no-untyped-call]  # redis-py's
        self.known = Known()

    def discover_master(self, service_name: str) -> tuple[str, int] | None:
        search = Search(service_name, self.known)
        for sentinel in self.known.in_order(self.sentinels):
            try:
                answers = search.ask(sentinel.pipeline(transaction=False)).execute(raise_on_error=False)
            except CONNECT_FAULTS as error:
                search.note(sentinel, error)
                continue
            if search.take(sentinel, answers):
                break
        search.end(len(self.sentinels))
        return self.known.address


class _AsyncSentinels(AsyncSentinel):
    def __init__(self, addresses: Sequence[tuple[str, int]], settings: dict[str, Any]) -> None:
        super().__init__(addresses, sentinel_kwargs=settings)  # type: ignore[no-untyped-call]  # redis-py's
        self.known = Known()
        self.on_switch: list[Callable[[], None]] = []

    async def discover_master(self, service_name: str) -> tuple[str, int] | None:
        search = Search(service_name, self.known)
        for sentinel in self.known.in_order(self.sentinels):
            try:
                answers = await search.ask(sentinel.pipeline(transaction=False)).execute(raise_on_error=False)
            except CONNECT_FAULTS as error:
                search.note(sentinel, error)
                continue
            if search.take(sentinel, answers):
                break
        if search.end(len(self.sentinels)):
            for call in self.on_switch:
                asyncio.get_running_loop().call_soon(call)  # called later, when the pool has the address, too
        return self.known.address


class _MasterConnection(SentinelManagedConnection):
    """A connection that notes whether it has reached a master."""

    def connect_to(self, address: tuple[str, int]) -> None:
        known: Known = self.connection_pool.sentinel_manager.known
        try:
            super().connect_to(address)  # type: ignore[no-untyped-call]  # redis-py's
        except CONNECTION_FAULTS as error:
            known.saw(address, is_gone=not isinstance(error, REFUSALS))
            raise
        known.saw(address, is_gone=False)

    def read_response(self, *args: Any, **named: Any) -> Any:
        # This skips redis-py's method, which turns the refusal of a replica into a broken connection.
        try:
            return super(SentinelManagedConnection, self).read_response(*args, **named)
        except ResponseError as error:
            if is_demoted(error):
                _note_replica(self)
            raise


class _AsyncMasterConnection(AsyncSentinelManagedConnection):
    """As ``_MasterConnection``, for asyncio."""

    async def connect_to(self, address: tuple[str, int]) -> None:
        known: Known = self.connection_pool.sentinel_manager.known
        try:
            await super().connect_to(address)  # type: ignore[no-untyped-call]  # redis-py's
        except CONNECTION_FAULTS as error:
            known.saw(address, is_gone=not isinstance(error, REFUSALS))
            raise
        known.saw(address, is_gone=False)

    async def read_response(self, *args: Any, **named: Any) -> Any:
        try:
            return await super(AsyncSentinelManagedConnection, self).read_response(*args, **named)
        except ResponseError as error:
            if is_demoted(error):
                self.note_replica()
            raise

    def note_replica(self) -> None:
        """Note that the server is no master any more."""
        _note_replica(self)


def _note_replica(connection: Any) -> None:
    connection.connection_pool.sentinel_manager.known.saw((connection.host, connection.port), is_gone=True)
    connection.mark_for_reconnect()


class _MasterPool(SentinelConnectionPool):
    sentinel_manager: _Sentinels

    def __init__(self, service_name: str, sentinels: Sentinel, **settings: Any) -> None:
        made = {"connection_class": _MasterConnection, **settings}
        super().__init__(service_name, sentinels, **made)  # type: ignore[no-untyped-call]  # redis-py's
        self._schedule = SentinelSchedule()
        self._events = SentinelEvents(self.sentinel_manager.sentinels, service_name)

    @property
    def master_address(self) -> tuple[str, int] | None:
        # Not from redis-py's attribute: two threads may set that in the wrong order.
        return self.sentinel_manager.known.address

    def follow(self) -> None:
        """Learn who the master is now, if a sentinel has announced another one, or nobody has asked for a second."""
        if (sentinel := self._events.told()) is not None:
            self.sentinel_manager.known.first = sentinel
            with suppress(RedisError):
                self.get_master_address()  # type: ignore[no-untyped-call]  # redis-py's
        elif self._schedule.begin():
            if self.master_address is not None:  # a client that makes only one call needs no events
                self._events.subscribe()
            self._look()

    def get_connection(self, command_name: Any = None, *keys: Any, **options: Any) -> Connection:
        self.follow()
        connection = super().get_connection()  # the arguments have no meaning since redis-py 5.3
        if is_replaced(self, connection):
            self._lead_to_master(connection)
        return connection

    def _look(self) -> None:
        answered = False
        try:
            with suppress(RedisError):
                self.get_master_address()  # type: ignore[no-untyped-call]  # redis-py's; drops idle connections to another
                answered = True
        finally:
            self._schedule.end(answered=answered)

    def _lead_to_master(self, connection: Connection) -> None:
        """Reconnect a connection that was made while another thread learned of another master."""
        try:
            connection.disconnect()  # type: ignore[no-untyped-call]  # redis-py's
            connection.connect()  # type: ignore[no-untyped-call]  # redis-py's
        except BaseException:
            self.release(connection)
            raise

    def close(self) -> None:
        super().close()
        self._events.close()
        for sentinel in self.sentinel_manager.sentinels:
            sentinel.close()


class AsyncMasterPool(AsyncSentinelConnectionPool):
    """The connections to the master."""

    sentinel_manager: _AsyncSentinels

    def __init__(self, service_name: str, sentinels: AsyncSentinel, **settings: Any) -> None:
        made = {"connection_class": _AsyncMasterConnection, **settings}
        super().__init__(service_name, sentinels, **made)  # type: ignore[no-untyped-call]  # redis-py's
        self._schedule = SentinelSchedule()

    async def get_connection(self, command_name: Any = None, *keys: Any, **options: Any) -> AsyncConnection:
        """Lend a connection to the master; once a second, ask the sentinels first."""
        if self._schedule.begin():
            await self._look()
        connection: AsyncConnection = await super().get_connection()  # type: ignore[no-untyped-call]  # redis-py's
        return connection

    async def ask_first(self, sentinel: AsyncRedis) -> None:
        """Ask who the master is now, first the sentinel that has announced a change."""
        self.sentinel_manager.known.first = sentinel
        with suppress(RedisError):
            await self.get_master_address()  # type: ignore[no-untyped-call]  # redis-py's

    async def _look(self) -> None:
        answered = False
        try:
            with suppress(RedisError):
                await self.get_master_address()  # type: ignore[no-untyped-call]  # redis-py's; drops idle connections to another
                answered = True
        finally:
            self._schedule.end(answered=answered)

    async def ensure_connection(self, connection: AsyncConnection) -> None:
        """Connect a connection before it is lent, anew if the master has changed; redis-py does not check that."""
        await super().ensure_connection(connection)
        if is_replaced(self, connection):
            await connection.disconnect(nowait=True)
            await super().ensure_connection(connection)

    async def aclose(self) -> None:
        """Close the connections, including those to the sentinels."""
        await super().aclose()
        for sentinel in self.sentinel_manager.sentinels:
            await sentinel.aclose()
