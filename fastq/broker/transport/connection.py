"""redis-py clients for a Redis URL that never send a command twice.

By default redis-py sends a command without a reply again, up to ten times. A script whose reply was lost would run
again. So these retries are off in every client made here; only the broker knows which operations may be repeated.
"""

from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias

from redis import Redis, RedisCluster
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio import RedisCluster as AsyncRedisCluster
from redis.asyncio.client import Pipeline as AsyncPipeline
from redis.asyncio.cluster import ClusterNode as AsyncClusterNode
from redis.asyncio.cluster import ClusterPipeline as AsyncClusterPipeline
from redis.asyncio.connection import AbstractConnection as AsyncConnection
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.client import Pipeline
from redis.cluster import ClusterNode, ClusterPipeline
from redis.connection import AbstractConnection
from redis.exceptions import AuthenticationError, RedisClusterException, RedisError, ResponseError
from redis.retry import Retry

from fastq.broker.transport.credentials import Ask, Credentials
from fastq.broker.transport.embedded import shared_socket
from fastq.broker.transport.faults import CredentialsError, without_arguments
from fastq.broker.transport.limit import REPLY_S
from fastq.broker.transport.parser import use_parser
from fastq.broker.transport.sentinel import async_master, master
from fastq.broker.transport.tls import check_files, tls_class, use_tls
from fastq.broker.transport.uri import ConnectionKind, ConnectionSpec, default_url, parse_redis_uri
from fastq.errors import BrokerAuthError, BrokerConnectionError

RedisClient: TypeAlias = Redis | RedisCluster
AsyncRedisClient: TypeAlias = AsyncRedis | AsyncRedisCluster

_PIPELINES = (Pipeline, ClusterPipeline, AsyncPipeline, AsyncClusterPipeline)

READ_SIZE = 1 << 20
"""Bytes to read at once from asyncio: each read has the same overhead, and a batch has 256 kB."""
CLIENT_NAME = "fastq"
CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = REPLY_S
MOST_THREADS = 10_000
"""Each thread needs a connection during a call; by default redis-py would refuse the 101st."""


def connect(
    redis: str | RedisClient | None = None,
    *,
    read_timeout_s: float = READ_TIMEOUT_S,
    more_s: float = 0.0,
    at_most_s: float | None = None,
) -> RedisClient:
    """Return a blocking client for a URL (``None``: that of the environment), or the client given, untouched.

    The caller closes a client that is made here, but not a given one. Only a cluster is contacted at once; a
    ``BrokerError`` is raised if that fails. ``read_timeout_s``, or that of the URL, plus ``more_s`` bounds each write
    and each read. ``at_most_s`` replaces both, and also bounds connecting.
    """
    _refuse_pipeline(redis)
    if isinstance(redis, Redis | RedisCluster):
        return redis
    spec = _spec(redis, "redis.Redis or redis.RedisCluster")
    limit_s = at_most_s or (spec.read_timeout_s or read_timeout_s) + more_s
    settings = _settings(spec, limit_s, at_most_s or CONNECT_TIMEOUT_S) | {
        "retry": Retry(NoBackoff(), 0),
        "redis_connect_func": _introduce,
        "max_connections": MOST_THREADS,
    }
    match spec.kind:
        case ConnectionKind.SENTINEL:
            return master(spec, settings)
        case ConnectionKind.CLUSTER:
            return _cluster(spec, settings)
        case _:
            client = Redis(**settings, **_place(spec))
            use_tls(spec.tls, client.connection_pool)
            return client


def connect_async(
    redis: str | AsyncRedisClient | None = None,
    *,
    read_timeout_s: float = READ_TIMEOUT_S,
    more_s: float = 0.0,
    at_most_s: float | None = None,
    ask: Ask | None = None,
) -> AsyncRedisClient:
    """Return an asyncio client for a URL (``None``: that of the environment), or the client given, untouched.

    Nothing is sent before the first use, but an ``embedded://`` server is started, which takes about 0.1 s. ``ask``
    calls the function of the credentials; by default, a thread of this process calls it.
    """
    _refuse_pipeline(redis)
    if isinstance(redis, AsyncRedis | AsyncRedisCluster):
        return redis
    spec = _spec(redis, "redis.asyncio.Redis or redis.asyncio.RedisCluster")
    limit_s = at_most_s or (spec.read_timeout_s or read_timeout_s) + more_s
    settings = _settings(spec, limit_s, CONNECT_TIMEOUT_S, ask) | {"retry": AsyncRetry(NoBackoff(), 0)}
    if spec.kind is ConnectionKind.CLUSTER:
        return _async_cluster(spec, settings)
    settings |= {"redis_connect_func": _introduce_async, "socket_read_size": READ_SIZE}
    if spec.kind is ConnectionKind.SENTINEL:
        return async_master(spec, settings)
    client = AsyncRedis(**settings, **_place(spec))
    use_tls(spec.tls, client.connection_pool)
    use_parser(client.connection_pool)
    return client


def _refuse_pipeline(redis: object) -> None:
    """Refuse redis-py's pipelines: they are clients, too, but fastq's commands would not be part of their MULTI."""
    if isinstance(redis, _PIPELINES):
        raise TypeError(
            f"redis must be a client, not a {type(redis).__name__}: fastq asks Redis at once, "
            "outside of any pipeline or MULTI of yours; give the client that the pipeline was made from"
        )


def _spec(redis: object, clients: str) -> ConnectionSpec:
    if redis is None:
        redis = default_url()
    if not isinstance(redis, str):
        raise TypeError(f"redis must be a URL, {clients}, not {type(redis).__name__}")
    spec = parse_redis_uri(redis)
    if spec.kind is ConnectionKind.EMBEDDED:
        return replace(spec, kind=ConnectionKind.UNIX, path=shared_socket(spec.path))
    return spec


def _settings(
    spec: ConnectionSpec, read_timeout_s: float, connect_timeout_s: float, ask: Ask | None = None
) -> dict[str, Any]:
    if spec.tls is not None:
        check_files(spec.tls)
    login: dict[str, Any] = {"username": spec.username or None, "password": spec.password or None}
    if spec.credentials:
        login = {"credential_provider": Credentials(spec.credentials, spec.username, ask)}
    return {
        "db": max(spec.db, 0),
        **login,
        "socket_connect_timeout": connect_timeout_s,
        "socket_timeout": read_timeout_s,
        "socket_keepalive": True,
        # With RESP2, replies are the same from every server and every redis-py, and Redis pushes no messages.
        "protocol": 2,
    }


def _place(spec: ConnectionSpec) -> dict[str, Any]:
    if spec.kind is ConnectionKind.UNIX:
        return {"unix_socket_path": spec.path}
    (address,) = spec.addresses
    return address._asdict()


def _without_db(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name != "db"}


def _cluster(spec: ConnectionSpec, settings: dict[str, Any]) -> RedisCluster:
    nodes = [ClusterNode(*address) for address in spec.addresses]  # type: ignore[no-untyped-call]  # redis-py's
    settings["redis_connect_func"] = _set_name  # the cluster's own function logs in, then calls this one
    if spec.tls is not None:
        # redis-py takes a class of connections only with a URL, whose address becomes one more startup node.
        host, port = spec.addresses[0]
        settings["url"] = f"redis://{f'[{host}]' if ':' in host else host}:{port}"
        settings["connection_class"] = tls_class(spec.tls)
    try:
        return _Cluster(startup_nodes=nodes, **_without_db(settings))
    except (RedisError, RedisClusterException) as error:
        if isinstance(error.__cause__, CredentialsError):
            raise BrokerAuthError(str(error.__cause__), operation="connect") from error
        if isinstance(error.__cause__, AuthenticationError):
            text = _login_text(error.__cause__, spec.username)
            raise BrokerAuthError(text, operation="connect") from error
        raise BrokerConnectionError(without_arguments(error), operation="connect") from error


class _Cluster(RedisCluster):
    def close(self) -> None:
        """Close the connections, also those of pools that redis-py takes for the user's."""
        super().close()
        self.disconnect_connection_pools()  # type: ignore[no-untyped-call]  # redis-py's


def _async_cluster(spec: ConnectionSpec, settings: dict[str, Any]) -> "_AsyncCluster":
    nodes = [AsyncClusterNode(*address) for address in spec.addresses]
    cluster = _AsyncCluster(startup_nodes=nodes, client_name=CLIENT_NAME, **_without_db(settings))
    use_tls(spec.tls, *cluster.startup_nodes)
    use_parser(*cluster.startup_nodes, cluster)
    cluster.connection_kwargs["connection_class"] = cluster.startup_nodes[0].connection_class
    return cluster


class _AsyncCluster(AsyncRedisCluster):
    async def aclose(self) -> None:
        """Close every connection, even if the client was about to look for its nodes again.

        After a connection error, redis-py treats a client as never opened.
        """
        await super().aclose()
        await self.nodes_manager.aclose()
        await self.nodes_manager.aclose("startup_nodes")  # a node may have an object of its own in each


def _introduce(connection: AbstractConnection) -> None:
    try:
        connection.on_connect()  # type: ignore[no-untyped-call]  # redis-py's
    except AuthenticationError as error:
        raise AuthenticationError(_login_text(error, connection.username)) from error
    _set_name(connection)


def _set_name(connection: AbstractConnection) -> None:
    # The name appears in CLIENT LIST. A user whose ACL forbids the command must still be able to work.
    with suppress(ResponseError):
        connection.send_command("CLIENT", "SETNAME", CLIENT_NAME)  # type: ignore[no-untyped-call]  # redis-py's
        connection.read_response()


async def _introduce_async(connection: AsyncConnection) -> None:
    try:
        await connection.on_connect()
    except AuthenticationError as error:
        raise AuthenticationError(_login_text(error, connection.username)) from error
    with suppress(ResponseError):
        await connection.send_command("CLIENT", "SETNAME", CLIENT_NAME)
        await connection.read_response()


def _login_text(error: AuthenticationError, username: str | None) -> str:
    if not username:
        return str(error)
    return f"{error} (tried as user {username!r}; asynq ignores the user name in a URL: leave it out to do as it does)"
