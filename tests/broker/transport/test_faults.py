"""What is said when Redis is away, or does not want to: a class to catch, and a text that says what to do."""

import asyncio
import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthenticationWrongNumberOfArgsError,
    BusyLoadingError,
    MovedError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry

import fastq.broker.transport.blocking
from fastq import (
    AsyncClient,
    BrokerAuthError,
    BrokerConnectionError,
    BrokerError,
    BrokerOutOfMemoryError,
    BrokerReadOnlyError,
    BrokerTimeoutError,
    Client,
    Task,
)
from fastq.broker.transport.faults import NoReply, Unsent, refusal, transport_error
from tests.faulty_proxy import Act, Fault, faulty_proxy
from tests.ports import free_port
from tests.redis_servers import RedisServer, redis_server, sentinel_server
from tests.waiting import wait_until

CALLS: dict[str, Callable[[Any], Any]] = {
    "enqueue": lambda client: client.enqueue("t", b"x"),
    "unique": lambda client: client.enqueue("t", b"x", unique=60),
    "scheduled": lambda client: client.enqueue("t", b"x", process_in=60),
    "group": lambda client: client.enqueue("t", b"x", group="g"),
    "enqueue_many": lambda client: client.enqueue_many([Task("t", b"x")]),
}


@pytest.fixture(params=["Client", "AsyncClient"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def error_at(url: str, way: str, call: Callable[[Any], Any] = CALLS["enqueue"]) -> BrokerError:
    """Return the error of a call on a new client."""

    async def run() -> Any:
        async with AsyncClient(url) as client:
            return await call(client)

    if way == "AsyncClient":
        with pytest.raises(BrokerError) as caught:
            asyncio.run(run())
    else:
        with Client(url) as client, pytest.raises(BrokerError) as caught:
            call(client)
    return caught.value


@pytest.fixture(scope="module")
def users_server() -> Iterator[RedisServer]:
    """Run a server with a password and some users."""
    with redis_server(free_port(), password="secret") as server, server.client() as db:
        users = {
            "reader": ["+@all", "-evalsha", "-eval"],
            "writer": ["+@all", "-hset", "-set"],
            "elsewhere": ["+@all"],
        }
        for name, rules in users.items():
            keys = ["other:*" if name == "elsewhere" else "asynq:*"]
            db.acl_setuser(name, enabled=True, passwords=["+pw"], keys=keys, commands=rules)
        yield server


def written(server: RedisServer) -> list[bytes]:
    with server.client() as db:
        found: Any = db.keys("asynq:{*")
        return sorted(found)


@pytest.mark.parametrize("call", ["enqueue", "enqueue_many"])
def test_a_port_nobody_listens_on(call: str, way: str) -> None:
    port = free_port()
    error = error_at(f"redis://127.0.0.1:{port}", way, CALLS[call])
    assert type(error) is BrokerConnectionError
    assert not error.maybe_applied
    assert error.transient
    assert re.fullmatch(
        rf"enqueue: cannot reach Redis at 127\.0\.0\.1:{port}: Connection refused\. "
        r"Is it running, and is FASTQ_REDIS_URL or --redis right\?",
        str(error),
    )


def test_the_errors_are_pythons_own_too(way: str) -> None:
    error = error_at(f"redis://127.0.0.1:{free_port()}", way)
    assert isinstance(error, ConnectionError)
    assert issubclass(BrokerTimeoutError, TimeoutError)
    assert issubclass(BrokerAuthError, PermissionError)


def test_a_socket_that_is_not_there(way: str) -> None:
    error = error_at("unix:///tmp/fastq-no-such.sock", way)
    assert type(error) is BrokerConnectionError
    assert str(error) == (
        "enqueue: cannot reach Redis at /tmp/fastq-no-such.sock: "
        "No such file or directory. Is it running, and is FASTQ_REDIS_URL or --redis right?"
    )


@pytest.mark.parametrize("host", ["no.such.host.invalid", "a..b"])
def test_a_host_that_is_none(host: str, way: str) -> None:
    error = error_at(f"redis://{host}:1", way)
    assert type(error) is BrokerConnectionError
    assert str(error).startswith(f"enqueue: cannot reach Redis at {host}:1: ")


def test_no_error_tells_the_password(way: str) -> None:
    error = error_at(f"redis://user:geheim@127.0.0.1:{free_port()}", way)
    assert "geheim" not in str(error)


def test_ping_says_the_same(way: str) -> None:
    error = error_at(f"redis://127.0.0.1:{free_port()}", way, lambda client: client.ping())
    assert type(error) is BrokerConnectionError
    assert str(error).startswith("PING: cannot reach Redis at 127.0.0.1:")


def test_a_listener_that_never_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with (
            Redis(port=port, socket_timeout=0.1, retry=Retry(NoBackoff(), 0)) as given,
            pytest.raises(BrokerTimeoutError) as caught,
        ):
            Client(given).enqueue("t")
    assert not caught.value.maybe_applied
    assert str(caught.value).startswith(f"enqueue: cannot reach Redis at localhost:{port}: Timeout")


def test_a_listener_that_never_answers_a_loop() -> None:
    async def run(port: int) -> BrokerError:
        retry = redis.asyncio.retry.Retry(NoBackoff(), 0)
        async with redis.asyncio.Redis(port=port, socket_timeout=0.1, retry=retry) as given:
            with pytest.raises(BrokerTimeoutError) as caught:
                await AsyncClient(given).enqueue("t")
            return caught.value

    with socket.create_server(("127.0.0.1", 0)) as listener:
        error = asyncio.run(run(listener.getsockname()[1]))
    assert not error.maybe_applied
    assert "cannot reach Redis" in str(error)


def test_no_password(users_server: RedisServer, way: str) -> None:
    error = error_at(users_server.tcp_url, way)
    assert type(error) is BrokerAuthError
    assert str(error) == (
        "enqueue: Redis asks for a password; give it in the URL: redis://:password@host:port "
        "(Redis: Authentication required.)"
    )
    assert not error.transient
    assert not error.maybe_applied


@pytest.mark.parametrize("credentials", [":wrong", "reader:wrong", "nobody:pw"])
def test_a_wrong_password(credentials: str, users_server: RedisServer, way: str) -> None:
    error = error_at(f"redis://{credentials}@127.0.0.1:{users_server.port}", way)
    assert type(error) is BrokerAuthError
    assert str(error).startswith(
        "enqueue: Redis refuses the user name or password of the URL. A user name is sent to Redis (asynq ignores it): "
        "to log in as the default user write redis://:password@host:port (Redis: invalid username-password pair or"
    )
    user = credentials.split(":")[0]
    assert (f"tried as user '{user}'" in str(error)) == bool(user)


def test_a_redis_without_auth_does_not_make_us_tell_the_password(way: str, tmp_path: Path) -> None:
    """Redis repeats the arguments of a command that it does not know."""
    (tmp_path / "more.conf").write_text('rename-command AUTH ""\n')
    with redis_server(free_port(), config={"include": str(tmp_path / "more.conf")}) as server:
        error = error_at(f"redis://:geheim@127.0.0.1:{server.port}", way)
    assert "geheim" not in str(error)
    assert "unknown command 'AUTH'" in str(error).replace("`", "'")  # as 6.2 has them


def test_a_password_where_none_is_wanted(shared_server: RedisServer, way: str) -> None:
    error = error_at(f"redis-socket://:pw@{shared_server.socket_path}", way)
    assert type(error) is BrokerAuthError
    assert "without any password configured for the default user" in str(error)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("user", ["reader", "writer", "elsewhere"])
def test_a_user_without_the_right(user: str, call: str, users_server: RedisServer, way: str) -> None:
    error = error_at(f"redis://{user}:pw@127.0.0.1:{users_server.port}", way, CALLS[call])
    assert type(error) is BrokerAuthError
    assert "the Redis user may not do this; extend its ACL rules, which fastq acl prints (Redis: " in str(error)
    assert not error.maybe_applied


def test_a_database_that_is_not_there(shared_server: RedisServer, way: str) -> None:
    error = error_at(f"{shared_server.url}?db=99", way)
    assert str(error) == (
        "enqueue: this Redis has fewer databases than the number in the URL (Redis: DB index is out of range)"
    )


@pytest.mark.parametrize("call", CALLS)
def test_a_read_only_replica(call: str, replica: RedisServer, way: str) -> None:
    error = error_at(replica.url, way, CALLS[call])
    assert type(error) is BrokerReadOnlyError
    assert "this Redis is a read-only replica; point the URL at the master, or use redis-sentinel://" in str(error)
    assert not error.maybe_applied


@pytest.fixture(scope="module")
def replica() -> Iterator[RedisServer]:
    with redis_server() as server, server.client() as db:
        db.replicaof("127.0.0.1", free_port())
        yield server


@pytest.fixture(scope="module")
def full_server() -> Iterator[RedisServer]:
    with redis_server(config={"maxmemory": "1", "maxmemory-policy": "noeviction"}) as server:
        yield server


@pytest.mark.parametrize("call", CALLS)
def test_a_full_redis(call: str, full_server: RedisServer, way: str) -> None:
    error = error_at(full_server.url, way, CALLS[call])
    assert type(error) is BrokerOutOfMemoryError
    assert "Redis has reached its maxmemory and takes no writes; nothing was written. Free memory or raise" in str(
        error
    )
    assert not error.maybe_applied
    assert written(full_server) == []


def test_a_script_that_keeps_redis_busy(way: str) -> None:
    with redis_server(config={"lua-time-limit": "1"}) as server, server.client() as db:
        endless = threading.Thread(target=_run_until_killed, args=(server,))
        endless.start()
        try:
            wait_until(lambda: _is_busy(db))
            error = error_at(server.url, way)
        finally:
            db.script_kill()
            endless.join()
        assert type(error) is BrokerTimeoutError
        told = r"Redis is busy with a script that runs too long \(Redis: BUSY \w+ is busy running a script\."
        assert re.search(told, str(error)), error  # Valkey says its own name
        assert not error.maybe_applied
        assert written(server) == []


def _run_until_killed(server: RedisServer) -> None:
    with server.client() as client, pytest.raises(ResponseError, match="killed"):
        client.eval("while true do end", 0)


def _is_busy(db: Redis) -> bool:
    try:
        db.ping()
    except ResponseError as error:
        return str(error).startswith("BUSY")
    return False


@pytest.mark.parametrize(
    ("reply", "kind", "text"),
    [
        ("LOADING Redis is loading the dataset in memory", BrokerConnectionError, "Redis is still loading its data"),
        (
            "MISCONF Errors writing to the AOF file: No space",
            BrokerReadOnlyError,
            "it cannot save to disk; see its log and its",
        ),
        ("ERR unknown command 'EVALSHA', with args", BrokerError, "disabled it, or it is older than 6.2"),
        ("ERR unknown subcommand 'TRACKING'. Try CLIENT HELP.", BrokerError, "its provider has disabled it"),
        ("NOREPLICAS Not enough good replicas to write.", BrokerReadOnlyError, "too few of its replicas are there"),
        (
            "WRONGTYPE Operation against a key",
            BrokerError,
            "Redis refused the operation: WRONGTYPE Operation against a key",
        ),
    ],
)
def test_a_refusal_by_its_text(
    reply: str, kind: type[BrokerError], text: str, db: Redis, shared_server: RedisServer, way: str
) -> None:
    fault = Fault("EVALSHA", Act.ANSWER, times=None, answer=f"-{reply}\r\n".encode())
    with faulty_proxy(shared_server.socket_path, fault) as proxy:
        error = error_at(proxy.url, way)
        assert proxy.names_seen() == ["SADD"], "a refusal is neither sent again nor looked for"
    assert type(error) is kind
    assert str(error).startswith("enqueue: ")
    assert text in str(error)
    assert not error.maybe_applied


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        # In Redis 6.2 a script's error has its code inside a sentence.
        (ResponseError("Error running script: @user_script:1: -READONLY You can't write against a read only replica."),
         BrokerReadOnlyError),
        (ResponseError("Error running script: -OOM command not allowed when used memory > 'maxmemory'."),
         BrokerOutOfMemoryError),
        (ResponseError("The user executing the script can't run this command or subcommand"), BrokerAuthError),
        (BusyLoadingError("Redis is loading the dataset in memory"), BrokerConnectionError),
        (MovedError("4247 127.0.0.1:7577"), BrokerConnectionError),
        (AuthenticationError("Authentication required."), BrokerAuthError),
        (AuthenticationWrongNumberOfArgsError("wrong number of arguments for 'auth' command"), BrokerAuthError),
    ],
)  # fmt: skip
def test_a_refusal_of_another_redis(error: Exception, kind: type[BrokerError]) -> None:
    assert type(refusal(error, "x")) is kind


def test_a_command_that_was_sent_from_node_to_node_in_vain_is_told_so() -> None:
    assert str(refusal(MovedError("4247 127.0.0.1:7577"), "enqueue")) == (
        "enqueue: the cluster is moving this queue to another node; try again in a moment "
        "(Redis: sent from node to node, at last to 127.0.0.1:7577)"
    )


@pytest.mark.parametrize("sent", [True, False])
def test_a_replica_behind_redis_pys_own_sentinel_pool_has_refused_it(sent: bool) -> None:
    closed = RedisConnectionError("The previous master is now a slave")
    error = transport_error(NoReply(closed) if sent else Unsent(closed), "enqueue", "there")
    assert type(error) is BrokerReadOnlyError
    assert not error.maybe_applied


@pytest.mark.parametrize(
    ("text", "maybe"),
    [
        ("WRONGTYPE Operation against a key holding the wrong kind of value", False),
        ("WRONGTYPE Operation against a key holding the wrong kind of value script: 5ha, on @user_script:9.", True),
        ("Error running script (call to f_5ha): @user_script:9: WRONGTYPE Operation against a key", True),
        # These meet a script at its first write.
        ("OOM command not allowed when used memory > 'maxmemory'. script: 5ha, on @user_script:3.", False),
        ("READONLY You can't write against a read only replica. script: 5ha, on @user_script:3.", False),
    ],
)
def test_a_script_that_an_error_ended_half_way_may_have_been_applied(text: str, maybe: bool) -> None:
    assert refusal(ResponseError(text), "x").maybe_applied is maybe


def test_what_was_sent_may_have_been_applied_and_what_was_not_was_not() -> None:
    cut = redis.exceptions.ConnectionError("cut")
    assert transport_error(NoReply(cut), "x", "here").maybe_applied
    assert not transport_error(Unsent(cut), "x", "here").maybe_applied
    assert not transport_error(Unsent(AuthenticationError("NOAUTH")), "x", "here").maybe_applied


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Error 111 connecting to h:1. Connection refused.", "Connection refused"),
        ("Error 111 connecting to h:1. Connect call failed ('127.0.0.1', 1).", "Connection refused"),
        ("Error -2 connecting to h:1. Name or service not known.", "Name or service not known"),
        (
            "Error Multiple exceptions: [Errno 111] Connect call failed ('::1', 1, 0, 0), "
            "[Errno 113] Connect call failed ('127.0.0.1', 1) connecting to h:1.",
            "Multiple exceptions: Connection refused ('::1', 1, 0, 0), No route to host ('127.0.0.1', 1)",
        ),
        ("Error 111 connecting to other:2. Connection refused.", "Error 111 connecting to other:2. Connection refused"),
        ("Timeout connecting to server", "Timeout connecting to server"),
    ],
)
def test_an_address_is_told_once(text: str, why: str) -> None:
    error = transport_error(Unsent(redis.exceptions.ConnectionError(text)), "x", "h:1")
    assert str(error) == f"x: cannot reach Redis at h:1: {why}. Is it running, and is FASTQ_REDIS_URL or --redis right?"


def test_a_sentinel_that_is_away_or_knows_no_such_master(way: str) -> None:
    error = error_at(f"redis-sentinel://127.0.0.1:{(away := free_port())}/?master=mymaster", way)
    assert type(error) is BrokerConnectionError
    assert str(error).startswith(
        "enqueue: cannot reach Redis at the sentinels' master 'mymaster': No master found for 'mymaster': "
        f"Error 111 connecting to 127.0.0.1:{away}. "
    )
    assert str(error).endswith(". Is it running, and is FASTQ_REDIS_URL or --redis right?")
    with sentinel_server(free_port()) as port:
        error = error_at(f"redis-sentinel://127.0.0.1:{port}/?master=other", way)
        known = f"No master found for 'other': 127.0.0.1:{port}: knows no such master."
        assert f"at the sentinels' master 'other': {known}" in str(error)


def test_a_password_that_the_sentinels_refuse(way: str) -> None:
    with sentinel_server(free_port(), sentinel_password="secret") as port:
        for credentials, text in (("", "Redis asks for a password"), (":wrong@", "refuses the user name or password")):
            hosts = f"127.0.0.1:{free_port()},127.0.0.1:{port}"
            error = error_at(f"redis-sentinel://{credentials}{hosts}/?master=mymaster", way)
            assert type(error) is BrokerAuthError
            assert text in str(error)
            assert f"(Redis: the sentinel at 127.0.0.1:{port}: " in str(error)


def test_a_user_who_may_not_ask_the_sentinels(way: str) -> None:
    with sentinel_server(free_port()) as port, Redis(port=port) as sentinel:
        sentinel.acl_setuser("limited", enabled=True, nopass=True, commands=["+ping", "+client"])
        error = error_at(f"redis-sentinel://limited:any@127.0.0.1:{port}/?master=mymaster", way)
        assert type(error) is BrokerAuthError
        assert "may not do this" in str(error)


def test_every_connection_is_looked_at_once_in_a_while_however_busy(
    db: Redis, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool's look is what finds a master that was replaced, and a server that was restarted."""
    monkeypatch.setattr(fastq.broker.transport.blocking, "TRUSTED_S", 0.05)
    looks = 0
    with Client(url) as client:
        pool: Any = client._broker.transport._pool  # type: ignore[attr-defined]  # what is counted is inside
        lend = pool.get_connection

        def count() -> Any:
            nonlocal looks
            looks += 1
            return lend()

        monkeypatch.setattr(pool, "get_connection", count)

        def enqueue_and_count() -> int:
            client.enqueue("t")
            return looks

        wait_until(lambda: enqueue_and_count() >= 3, interval_s=0.001)


def test_a_lent_connection_is_used_again_without_a_look(db: Redis, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastq.broker.transport.blocking, "TRUSTED_S", 3600)
    with Client(url) as client:
        client.enqueue("t")
        pool: Any = client._broker.transport._pool  # type: ignore[attr-defined]  # what is counted is inside
        monkeypatch.setattr(pool, "get_connection", lambda: pytest.fail("the pool was asked"))
        for _ in range(10):
            client.enqueue("t")
    assert db.llen("asynq:{default}:pending") == 11
