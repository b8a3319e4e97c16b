"""Clients of the master that a Sentinel names.

redis-py asks the sentinels when it connects, and goes on writing to a master that was replaced for as long as that one
takes the writes: some ten seconds in a planned failover, after which they are gone. So they are asked once a second.
"""

import time
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

__all__ = ["async_master", "master"]

_LOOK_INTERVAL_S = 1.0
_LARGEST_SHARE = 0.1  # of the time may go into asking sentinels that do not answer


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


class _Lookout:
    """Say when to ask the sentinels again."""

    def __init__(self) -> None:
        self._next_s = 0.0
        self._began_s = 0.0

    def begin(self) -> bool:
        now = time.monotonic()
        if now < self._next_s:
            return False
        self._began_s = now
        self._next_s = now + _LOOK_INTERVAL_S  # other threads and coroutines need not ask meanwhile
        return True

    def end(self) -> None:
        now = time.monotonic()
        self._next_s = now + max(_LOOK_INTERVAL_S, (now - self._began_s) / _LARGEST_SHARE)


class _MasterPool(SentinelConnectionPool):
    def __init__(self, service_name: str, sentinels: Sentinel, **settings: Any) -> None:
        super().__init__(service_name, sentinels, **settings)  # type: ignore[no-untyped-call]  # redis-py's
        self._lookout = _Lookout()

    def get_connection(self, command_name: Any = None, *keys: Any, **options: Any) -> Connection:
        if self._lookout.begin():
            with suppress(RedisError):
                self.get_master_address()  # type: ignore[no-untyped-call]  # redis-py's; drops idle connections to another
            self._lookout.end()
        return super().get_connection()  # the arguments have no meaning since redis-py 5.3

    def close(self) -> None:
        super().close()
        for sentinel in self.sentinel_manager.sentinels:
            sentinel.close()


class _AsyncMasterPool(AsyncSentinelConnectionPool):
    def __init__(self, service_name: str, sentinels: AsyncSentinel, **settings: Any) -> None:
        super().__init__(service_name, sentinels, **settings)  # type: ignore[no-untyped-call]  # redis-py's
        self._lookout = _Lookout()

    async def get_connection(self, command_name: Any = None, *keys: Any, **options: Any) -> AsyncConnection:
        if self._lookout.begin():
            with suppress(RedisError):
                await self.get_master_address()  # type: ignore[no-untyped-call]  # redis-py's; drops idle connections to another
            self._lookout.end()
        connection: AsyncConnection = await super().get_connection()  # type: ignore[no-untyped-call]  # redis-py's
        return connection

    async def aclose(self) -> None:
        await super().aclose()
        for sentinel in self.sentinel_manager.sentinels:
            await sentinel.aclose()
