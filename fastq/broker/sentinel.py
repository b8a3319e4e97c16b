"""Clients of the master that a Sentinel names.

redis-py asks the sentinels when it connects, and goes on writing to a master that was replaced for as long as that one
takes the writes: some ten seconds in a planned failover, longer in a partition, and all of them are lost. So they are
asked once a second by whoever wants a connection, and one to another address than the last answer's is not lent.
"""

from contextlib import suppress
from typing import Any

from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.connection import AbstractConnection as AsyncConnection
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.asyncio.sentinel import SentinelConnectionPool as AsyncSentinelConnectionPool
from redis.connection import Connection
from redis.exceptions import RedisError
from redis.sentinel import Sentinel, SentinelConnectionPool

from fastq.broker.uri import ConnectionSpec
from fastq.clock import Clock, SystemClock

__all__ = ["Lookout", "async_master", "is_replaced", "master"]

_LOOK_INTERVAL_S = 1.0
_LONGEST_LOOK_S = 60.0  # beyond it, somebody else looks: in a child that was forked meanwhile, there is nobody who does
_LARGEST_SHARE = 0.1  # of the time may go into asking sentinels that do not answer
_LONGEST_PAUSE_S = 30.0  # but a partition ends, and then the old master must be left


def master(spec: ConnectionSpec, settings: dict[str, Any]) -> Redis:
    """Return a blocking client of the master; ``settings`` are those of its connections."""
    sentinels = Sentinel(spec.addresses, sentinel_kwargs=_sentinel_settings(spec, settings))  # type: ignore[no-untyped-call]  # redis-py's
    return Redis.from_pool(_MasterPool(spec.master_name, sentinels, **settings))


def async_master(spec: ConnectionSpec, settings: dict[str, Any]) -> AsyncRedis:
    """Return an asyncio client of the master; ``settings`` are those of its connections."""
    sentinels = AsyncSentinel(spec.addresses, sentinel_kwargs=_sentinel_settings(spec, settings))  # type: ignore[no-untyped-call]  # redis-py's
    return AsyncRedis.from_pool(_AsyncMasterPool(spec.master_name, sentinels, **settings))


def _sentinel_settings(spec: ConnectionSpec, settings: dict[str, Any]) -> dict[str, Any]:
    own = {"db": 0, "username": spec.sentinel_username or None, "password": spec.sentinel_password or None}
    return settings | own


def is_replaced(pool: Any, connection: Any) -> bool:
    """Tell whether a connection goes to another master than the one that its pool last heard of from the sentinels."""
    known = getattr(pool, "master_address", None)  # no other pool has one
    return known is not None and known != (connection.host, connection.port)


class Lookout:
    """Say when to ask the sentinels again, one caller at a time."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._now = (clock or SystemClock()).monotonic_s
        self._next_s = self._began_s = self._now()

    def begin(self) -> bool:
        """Tell whether the caller is to ask now; he says when he is done."""
        now = self._now()
        if now < self._next_s:
            return False
        self._began_s = now
        self._next_s = now + _LONGEST_LOOK_S  # other threads and coroutines need not ask meanwhile
        return True

    def end(self, *, answered: bool) -> None:
        """Note that the caller is done; a sentinel that answered is asked first the next time, so that is quick."""
        now = self._now()
        pause_s = 0.0 if answered else (now - self._began_s) / _LARGEST_SHARE
        self._next_s = now + max(_LOOK_INTERVAL_S, min(_LONGEST_PAUSE_S, pause_s))


class _MasterPool(SentinelConnectionPool):
    def __init__(self, service_name: str, sentinels: Sentinel, **settings: Any) -> None:
        super().__init__(service_name, sentinels, **settings)  # type: ignore[no-untyped-call]  # redis-py's
        self._lookout = Lookout()

    def get_connection(self, command_name: Any = None, *keys: Any, **options: Any) -> Connection:
        if self._lookout.begin():
            self._look()
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
            self._lookout.end(answered=answered)

    def _lead_to_master(self, connection: Connection) -> None:
        """Connect anew what was connected while another thread heard of another master."""
        try:
            connection.disconnect()  # type: ignore[no-untyped-call]  # redis-py's
            connection.connect()  # type: ignore[no-untyped-call]  # redis-py's
        except BaseException:
            self.release(connection)
            raise

    def close(self) -> None:
        super().close()
        for sentinel in self.sentinel_manager.sentinels:
            sentinel.close()


class _AsyncMasterPool(AsyncSentinelConnectionPool):
    def __init__(self, service_name: str, sentinels: AsyncSentinel, **settings: Any) -> None:
        super().__init__(service_name, sentinels, **settings)  # type: ignore[no-untyped-call]  # redis-py's
        self._lookout = Lookout()

    async def get_connection(self, command_name: Any = None, *keys: Any, **options: Any) -> AsyncConnection:
        if self._lookout.begin():
            await self._look()
        connection: AsyncConnection = await super().get_connection()  # type: ignore[no-untyped-call]  # redis-py's
        return connection

    async def _look(self) -> None:
        answered = False
        try:
            with suppress(RedisError):
                await self.get_master_address()  # type: ignore[no-untyped-call]  # redis-py's; drops idle connections to another
                answered = True
        finally:
            self._lookout.end(answered=answered)

    async def ensure_connection(self, connection: AsyncConnection) -> None:
        """Connect one that is to be lent, to the master; redis-py takes back those in use whatever became of theirs."""
        await super().ensure_connection(connection)
        if is_replaced(self, connection):
            await connection.disconnect(nowait=True)
            await super().ensure_connection(connection)

    async def aclose(self) -> None:
        await super().aclose()
        for sentinel in self.sentinel_manager.sentinels:
            await sentinel.aclose()
