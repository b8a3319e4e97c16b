import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

import pytest
import redis.asyncio
from redis import Redis, RedisCluster
from redis.exceptions import AuthenticationError, RedisClusterException, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from fastq.broker.transport.connection import AsyncRedisClient, connect, connect_async
from fastq.broker.transport.uri import default_url
from fastq.errors import BrokerAuthError, BrokerConnectionError
from tests.certificates import encrypted_key, make_certificates
from tests.cutting_proxy import CuttingProxy, cutting_proxy
from tests.ports import free_port
from tests.redis_servers import (
    RedisServer,
    SentinelSetup,
    redis_cluster,
    redis_sentinel,
    redis_server,
    sentinel_server,
    tls_redis_server,
    tls_sentinel,
)
from tests.waiting import PATIENCE_S, wait_until

T = TypeVar("T")


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with redis_server(free_port()) as server:
        yield server


@pytest.fixture(scope="module")
def guarded_server() -> Iterator[RedisServer]:
    """A server with a password, and a user ``worker`` who may do nothing but what ``SET`` and ``GET`` need."""
    with redis_server(free_port(), "s3cr:t@/") as server:
        with server.client() as client:
            client.execute_command("ACL", "SETUSER", "worker", "on", ">p#w", "~*", "+set", "+get", "+select")
        yield server


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RedisServer, int, Path]]:
    with tls_redis_server(tmp_path_factory.mktemp("tls")) as setup:
        yield setup


@pytest.fixture(scope="module")
def sentinel_setup() -> Iterator[SentinelSetup]:
    with redis_sentinel("data", "watch") as setup:
        yield setup


@pytest.fixture(scope="module")
def cluster() -> Iterator[Sequence[RedisServer]]:
    with redis_cluster(password="ring") as servers:
        yield servers


def run_async(url: str, use: Callable[[AsyncRedisClient], Awaitable[T]], **options: Any) -> T:
    async def run() -> T:
        async with connect_async(url, **options) as client:
            return await use(client)

    return asyncio.run(run())


def assert_writes(url: str, look: Redis | RedisCluster) -> None:
    """Write once with each kind of client, and see both where the URL points."""
    keys = [f"key-{number}" for number in range(8)]  # enough to reach every node of a cluster
    with look:
        with connect(url) as client:
            for key in keys:
                assert client.set(key, f"blocking {url}")
        assert {look.get(key) for key in keys} == {f"blocking {url}".encode()}

        async def write(client: AsyncRedisClient) -> None:
            for key in keys:
                assert await client.set(key, f"asyncio {url}")

        run_async(url, write)
        assert {look.get(key) for key in keys} == {f"asyncio {url}".encode()}


def test_a_url_of_a_tcp_port_is_connected(server: RedisServer) -> None:
    assert_writes(f"redis://127.0.0.1:{server.port}/3", server.client(3))


def test_a_url_of_a_unix_socket_is_connected(server: RedisServer) -> None:
    assert_writes(f"redis-socket://{server.socket_path}?db=4", server.client(4))
    assert_writes(f"unix://{server.socket_path}", server.client())


def test_a_negative_database_is_the_first_one_as_for_asynq(server: RedisServer) -> None:
    assert_writes(f"redis://127.0.0.1:{server.port}/-1", server.client())


def test_a_password_is_decoded_and_given(guarded_server: RedisServer) -> None:
    assert_writes(f"redis://:s3cr%3At%40%2F@127.0.0.1:{guarded_server.port}", guarded_server.client())
    assert_writes(f"unix://{guarded_server.socket_path}?password=s3cr:t@/", guarded_server.client())


def test_a_user_is_logged_in_even_if_it_may_not_tell_its_name(guarded_server: RedisServer) -> None:
    assert_writes(f"redis://worker:p%23w@127.0.0.1:{guarded_server.port}/2", guarded_server.client(2))


@pytest.mark.parametrize("userinfo", [":wrong", "worker:wrong", "nobody:s3cr%3At%40%2F"])
def test_a_refused_login_says_that_asynq_ignores_the_user_name(guarded_server: RedisServer, userinfo: str) -> None:
    url = f"redis://{userinfo}@127.0.0.1:{guarded_server.port}"
    with connect(url) as client, pytest.raises(AuthenticationError) as caught:
        client.get("key")
    with pytest.raises(AuthenticationError) as caught_async:
        run_async(url, lambda client: client.get("key"))
    username = userinfo.partition(":")[0]
    for error in (caught, caught_async):
        assert ("asynq ignores the user name" in str(error.value)) == bool(username)
        assert username in str(error.value)


def test_tls_checks_the_server_against_the_authority_given(tls_server: tuple[RedisServer, int, Path]) -> None:
    server, port, authority = tls_server
    assert_writes(f"rediss://localhost:{port}?ssl_ca_certs={authority}", server.client())


def test_tls_refuses_a_server_that_no_known_authority_vouches_for(tls_server: tuple[RedisServer, int, Path]) -> None:
    url = f"rediss://localhost:{tls_server[1]}"
    with connect(url) as client, pytest.raises(RedisConnectionError, match="certificate verify failed"):
        client.ping()
    with pytest.raises(RedisConnectionError, match="certificate verify failed"):
        run_async(url, lambda client: client.ping())


def test_tls_refuses_a_certificate_of_another_host(tls_server: tuple[RedisServer, int, Path]) -> None:
    _, port, authority = tls_server
    with (
        connect(f"rediss://127.0.0.1:{port}?ssl_ca_certs={authority}") as client,
        pytest.raises(RedisConnectionError, match=r"certificate is not valid for '127\.0\.0\.1'"),
    ):
        client.ping()


def test_sentinels_and_their_master_are_talked_to_by_tls(tmp_path: Path) -> None:
    with tls_sentinel(tmp_path) as (master, port, authority):
        url = f"rediss-sentinel://localhost:{port}/2?master=mymaster"
        assert_writes(f"{url}&ssl_ca_certs={authority}", master.client(2))
        by_address = f"{url.replace('localhost', '127.0.0.1')}&ssl_server_name=localhost"
        assert_writes(f"{by_address}&ssl_ca_certs={authority}", master.client(2))
        with connect(url) as client, pytest.raises(RedisConnectionError, match="certificate verify failed"):
            client.ping()
        with pytest.raises(RedisConnectionError, match="certificate verify failed"):
            run_async(url, lambda client: client.ping())
        with connect(url.replace("rediss", "redis")) as client, pytest.raises(RedisConnectionError):
            client.ping()


def test_a_certificate_may_have_another_name_than_the_host(tls_server: tuple[RedisServer, int, Path]) -> None:
    server, port, authority = tls_server
    url = f"rediss://127.0.0.1:{port}?ssl_ca_certs={authority}&ssl_server_name="
    assert_writes(f"{url}localhost", server.client())
    with connect(f"{url}other") as client, pytest.raises(RedisConnectionError, match="not valid for 'other'"):
        client.ping()
    with pytest.raises(RedisConnectionError, match="not valid for 'other'"):
        run_async(f"{url}other", lambda client: client.ping())


def test_the_version_of_tls_has_a_lower_limit(tls_server: tuple[RedisServer, int, Path]) -> None:
    server, port, authority = tls_server
    url = f"rediss://localhost:{port}?ssl_ca_certs={authority}&ssl_min_version="
    with server.client() as look:
        assert_writes(f"{url}TLSv1.3", server.client())
        look.config_set("tls-protocols", "TLSv1.2")
        try:
            assert_writes(f"{url}TLSv1.2", server.client())
            with connect(f"{url}TLSv1.3") as client, pytest.raises(RedisConnectionError, match=r"(?i)version"):
                client.ping()
            with pytest.raises(RedisConnectionError):
                run_async(f"{url}TLSv1.3", lambda client: client.ping())
        finally:
            look.config_set("tls-protocols", "")


def test_a_key_may_be_encrypted(tls_server: tuple[RedisServer, int, Path]) -> None:
    server, port, authority = tls_server
    certificate, key = authority.with_name("server.pem"), encrypted_key(authority.parent, "s3cret")
    url = f"rediss://localhost:{port}?ssl_ca_certs={authority}&ssl_certfile={certificate}&ssl_keyfile={key}"
    assert_writes(f"{url}&ssl_password=s3cret", server.client())
    for wrong in (url, f"{url}&ssl_password=wrong"):
        for connecting in (connect, connect_async):
            with pytest.raises(BrokerConnectionError, match=f"ssl_certfile: cannot use {certificate} with {key}: "):
                connecting(wrong)


@pytest.mark.parametrize("scheme", ["rediss", "rediss-sentinel", "rediss-cluster"])
def test_a_file_that_cannot_be_used_is_named(scheme: str, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for name, file, text in (
        ("ssl_ca_certs", "ca.pem", "cannot read {}: No such file or directory"),
        ("ssl_certfile", "", "cannot read {}: Is a directory"),
        ("ssl_ca_certs", "empty", "{} holds no certificate"),
        ("ssl_certfile", "empty", "cannot use {} with the key in it"),
    ):
        path = tmp_path / file
        with pytest.raises(BrokerConnectionError, match=f"connect: {name}: {text.format(path)}") as caught:
            connect(f"{scheme}://h?master=m&{name}={path}")
        assert not caught.value.transient


def test_a_cluster_is_talked_to_by_tls(tmp_path: Path) -> None:
    files, port = make_certificates(tmp_path), free_port()
    key = encrypted_key(tmp_path, "s3cret")
    config = {
        "tls-port": str(port),
        "tls-cert-file": str(files.certificate),
        "tls-key-file": str(files.key),
        "tls-ca-cert-file": str(files.authority),
        "tls-cluster": "yes",
        "cluster-node-timeout": "1000",  # how long a node that meets itself counts twice
    }
    with redis_cluster(1, config=config) as (server,):
        url = f"rediss-cluster://127.0.0.1:{port}?ssl_ca_certs={files.authority}&ssl_certfile={files.certificate}"
        url += f"&ssl_keyfile={key}&ssl_password=s3cret&ssl_min_version=TLSv1.3&ssl_server_name="
        assert_writes(f"{url}localhost", server.client())
        with pytest.raises(BrokerConnectionError, match="not valid for 'other'"):
            connect(f"{url}other")
        with pytest.raises(RedisClusterException, match="not valid for 'other'"):
            run_async(f"{url}other", lambda client: client.ping())


def test_a_sentinel_names_the_master(sentinel_setup: SentinelSetup) -> None:
    url = f"redis-sentinel://:watch@127.0.0.1:{sentinel_setup.sentinel_port}/2?master=mymaster&password=data"
    assert_writes(url, sentinel_setup.master.client(2))


def test_the_first_sentinel_that_answers_is_enough(sentinel_setup: SentinelSetup) -> None:
    hosts = f"127.0.0.1:{free_port()},127.0.0.1:{sentinel_setup.sentinel_port}"
    url = f"redis-sentinel://:watch@{hosts}?master=mymaster&password=data"
    assert_writes(url, sentinel_setup.master.client())


def test_a_client_follows_the_master_through_a_failover() -> None:
    with redis_sentinel(down_after_ms=1000) as setup:
        with connect(f"redis-sentinel://127.0.0.1:{setup.sentinel_port}?master=mymaster") as client:
            assert client.set("before", "1")
            setup.master.stop()

            def writes_reach_the_replica() -> bool:
                with suppress(RedisError), setup.replica.client() as replica:
                    return bool(client.set("after", "2")) and replica.role()[0] == b"master"
                return False

            wait_until(writes_reach_the_replica)
        with setup.replica.client() as replica:
            assert replica.mget("before", "after") == [b"1", b"2"]


def test_a_client_leaves_a_master_that_was_replaced_and_still_takes_writes() -> None:
    with redis_server(free_port()) as old, redis_server(free_port()) as new, sentinel_server(old.port) as port:
        url = f"redis-sentinel://127.0.0.1:{port}?master=mymaster"
        with connect(url) as client, new.client() as look, Redis(port=port) as sentinel:
            assert client.set("blocking", "old")

            async def write(client: AsyncRedisClient) -> None:
                assert await client.set("asyncio", "old")
                assert look.dbsize() == 0
                sentinel.sentinel_remove("mymaster")
                sentinel.sentinel_monitor("mymaster", "127.0.0.1", new.port, 1)

                async def reaches_the_new_one() -> bool:
                    return bool(await client.set("asyncio", "new")) and look.get("asyncio") == b"new"

                async with asyncio.timeout(PATIENCE_S):
                    while not await reaches_the_new_one():
                        await asyncio.to_thread(Event().wait, 0.01)

            run_async(url, write)
            wait_until(lambda: client.set("blocking", "new") and look.get("blocking") == b"new")


def test_a_cluster_is_found_by_one_of_its_nodes(cluster: Sequence[RedisServer]) -> None:
    url = f"redis-cluster://:ring@127.0.0.1:{free_port()},127.0.0.1:{cluster[1].port}/0"
    assert_writes(url, RedisCluster(port=cluster[0].port, host="127.0.0.1", password="ring"))
    for node in cluster:
        with node.client() as client:
            assert client.dbsize() > 0


def test_a_cluster_that_cannot_be_reached_is_a_broker_error(cluster: Sequence[RedisServer]) -> None:
    with pytest.raises(BrokerConnectionError, match=r"connect: "):
        connect(f"redis-cluster://127.0.0.1:{free_port()}")
    with pytest.raises(BrokerAuthError, match="asynq ignores the user name"):
        connect(f"redis-cluster://nobody:ring@127.0.0.1:{cluster[0].port}")


@pytest.fixture(scope="module")
def proxied_server() -> Iterator[tuple[RedisServer, CuttingProxy]]:
    with redis_server() as server, cutting_proxy(server.socket_path) as proxy:
        yield server, proxy


@pytest.fixture(scope="module")
def proxied_cluster() -> Iterator[tuple[RedisServer, CuttingProxy]]:
    """A cluster of one node, whose clients are told to come through the proxy."""
    port = free_port()
    config = {"cluster-announce-port": str(port)}
    with redis_cluster(1, config=config) as (server,), cutting_proxy(server.socket_path, port) as proxy:
        yield server, proxy


def lose_the_reply_of_incr(proxied: tuple[RedisServer, CuttingProxy], incr: Callable[[], object]) -> None:
    """Check that a command whose reply is lost fails, and reached the server once."""
    server, proxy = proxied
    proxy.marker, proxy.times_seen = b"counter", 0
    try:
        with server.client() as look:
            look.delete("counter")
            with pytest.raises((RedisConnectionError, RedisTimeoutError)):
                incr()
            assert proxy.times_seen == 1
            assert look.get("counter") == b"1"
    finally:
        proxy.marker = b""


def test_a_blocking_client_never_sends_a_command_twice(proxied_server: tuple[RedisServer, CuttingProxy]) -> None:
    with connect(f"redis://127.0.0.1:{proxied_server[1].port}") as client:
        client.ping()
        lose_the_reply_of_incr(proxied_server, lambda: client.incr("counter"))
        lose_the_reply_of_incr(proxied_server, lambda: client.pipeline(transaction=False).incr("counter").execute())
        lose_the_reply_of_incr(proxied_server, lambda: client.eval("return redis.call('INCR', KEYS[1])", 1, "counter"))


def test_an_asyncio_client_never_sends_a_command_twice(proxied_server: tuple[RedisServer, CuttingProxy]) -> None:
    url = f"redis://127.0.0.1:{proxied_server[1].port}"
    lose_the_reply_of_incr(proxied_server, lambda: run_async(url, lambda client: client.incr("counter")))

    async def incr_in_pipeline(client: AsyncRedisClient) -> object:
        pipeline = client.pipeline(transaction=False)
        pipeline.incr("counter")
        return await pipeline.execute()

    lose_the_reply_of_incr(proxied_server, lambda: run_async(url, incr_in_pipeline))


def test_a_cluster_client_never_sends_a_command_twice(proxied_cluster: tuple[RedisServer, CuttingProxy]) -> None:
    url = f"redis-cluster://127.0.0.1:{proxied_cluster[1].port}"
    with connect(url) as client:
        lose_the_reply_of_incr(proxied_cluster, lambda: client.incr("counter"))
        assert client.incr("counter") == 2
    lose_the_reply_of_incr(proxied_cluster, lambda: run_async(url, lambda client: client.incr("counter")))


def test_a_sentinel_client_never_sends_a_command_twice(proxied_server: tuple[RedisServer, CuttingProxy]) -> None:
    with sentinel_server(proxied_server[1].port) as port:
        url = f"redis-sentinel://127.0.0.1:{port}?master=mymaster"
        with connect(url) as client:
            lose_the_reply_of_incr(proxied_server, lambda: client.incr("counter"))
            assert client.incr("counter") == 2
        lose_the_reply_of_incr(proxied_server, lambda: run_async(url, lambda client: client.incr("counter")))


def test_a_server_that_does_not_answer_is_given_up(server: RedisServer) -> None:
    with server.client() as look:
        look.client_pause(600_000, all=False)
        try:
            with connect(server.tcp_url, read_timeout_s=0.05) as client, pytest.raises(RedisTimeoutError):
                client.set("key", "value")
            with pytest.raises(RedisTimeoutError):
                run_async(server.tcp_url, lambda client: client.set("key", "value"), read_timeout_s=0.05)
        finally:
            look.client_unpause()


def test_the_url_says_how_long_redis_may_be_silent(server: RedisServer) -> None:
    url = f"{server.tcp_url}?read_timeout=0.5"
    limits: list[dict[str, Any]] = [{}, {"more_s": 1.0}, {"at_most_s": 0.25}]
    for make in (connect, connect_async):
        pools: list[Any] = [make(url, **limit).connection_pool for limit in limits]  # type: ignore[union-attr]  # no cluster
        assert [pool.connection_kwargs["socket_timeout"] for pool in pools] == [0.5, 1.5, 0.25]


def test_connections_have_a_name_that_an_operator_sees(server: RedisServer) -> None:
    with connect(server.tcp_url) as client:
        assert client.client_getname() == "fastq"
    assert run_async(server.tcp_url, lambda client: client.client_getname()) == "fastq"


def test_scripts_answer_in_bytes(server: RedisServer) -> None:
    script = "return {1, 'text', {false, 2}}"
    with connect(server.tcp_url) as client:
        assert client.eval(script, 0) == [1, b"text", [None, 2]]


def test_a_client_that_is_given_is_handed_back_untouched(server: RedisServer) -> None:
    with server.client() as client:
        assert connect(client) is client

    async def hand_over() -> None:
        async with redis.asyncio.Redis(unix_socket_path=server.socket_path) as client:
            assert connect_async(client) is client

    asyncio.run(hand_over())


def test_without_a_url_the_environment_names_it(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTQ_REDIS_URL", f"unix://{server.socket_path}?db=5")
    with connect() as client, server.client(5) as look:
        client.set("from", "environment")
        assert look.get("from") == b"environment"


@pytest.mark.parametrize("value", [None, ""])
def test_without_url_and_environment_it_is_this_machine(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if value is None:
        monkeypatch.delenv("FASTQ_REDIS_URL", raising=False)
    else:
        monkeypatch.setenv("FASTQ_REDIS_URL", value)
    assert default_url() == "redis://127.0.0.1:6379/0"


@pytest.mark.parametrize("value", [6379, b"redis://h", ["redis://h"]])
def test_what_is_neither_url_nor_client_is_a_type_error(value: Any) -> None:
    with pytest.raises(TypeError, match=rf"redis must be a URL, .*Redis.*, not {type(value).__name__}"):
        connect(value)
    with pytest.raises(TypeError, match=r"redis must be a URL, .*asyncio.*"):
        connect_async(value)


def test_a_client_of_the_other_kind_is_a_type_error(server: RedisServer) -> None:
    blocking: Any = server.client()
    with blocking, pytest.raises(TypeError, match=r"redis\.asyncio\.Redis"):
        connect_async(blocking)
    asyncio_client: Any = redis.asyncio.Redis()
    with pytest.raises(TypeError, match=r"redis\.Redis"):
        connect(asyncio_client)
