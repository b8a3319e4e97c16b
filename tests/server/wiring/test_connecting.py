"""The first contact with Redis: what is checked and said before a server is ready."""

import logging
import sys
from collections.abc import Iterator

import pytest

from fastq.broker.rights import REQUIRED_OF_WORKERS
from fastq.broker.transport.open import open_async_broker
from fastq.errors import BrokerAuthError
from fastq.server.base.config import ServerConfig
from fastq.server.wiring.connecting import check_rights, describe_redis
from fastq.server.wiring.process import ProcessOptions, ServerProcess
from tests.pool.harness import run
from tests.redis_servers import RedisServer, redis_server


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


def user(server: RedisServer, *rules: str) -> str:
    """Make a user with all rights but for these rules, and return its URL."""
    with server.client() as db:
        db.execute_command("ACL", "SETUSER", "some", "reset", "on", ">word", "~*", "&*", "+@all", *rules)
    return f"unix://some:word@{server.socket_path}"


def test_a_server_whose_user_may_run_no_scripts_is_never_ready(server: RedisServer) -> None:
    options = ProcessOptions("tests.inspector.acl_app:mux", user(server, "-@scripting"), ServerConfig(concurrency=1))
    ready: list[bool] = []

    async def serve() -> None:
        await ServerProcess(options).run(lambda: ready.append(True))

    with pytest.raises(BrokerAuthError, match=r"extend its ACL rules, which fastq acl prints .*evalsha"):
        run(serve())
    assert not ready


@pytest.mark.parametrize("rules", [("resetkeys", "~asynq:{a}:*"), ("-zrem",), ("-eval", "-evalsha")])
def test_the_rights_to_every_queue_are_checked(server: RedisServer, rules: tuple[str, ...]) -> None:
    async def check() -> None:
        broker = open_async_broker(user(server, *rules))
        try:
            await check_rights(broker, ["a", "b"])
        finally:
            await broker.close()

    with server.client() as db:
        db.script_flush()
    with pytest.raises(BrokerAuthError):
        run(check())


@pytest.mark.parametrize("command", REQUIRED_OF_WORKERS)
def test_a_server_that_lacks_the_right_to_a_command_is_never_ready(command: str, server: RedisServer) -> None:
    async def check() -> None:
        broker = open_async_broker(user(server, f"-{command}"))
        try:
            await check_rights(broker, ["a"])
        finally:
            await broker.close()

    with pytest.raises(BrokerAuthError, match=rf"\b{command.upper()}\b.*queue 'a'.*fastq acl worker prints"):
        run(check())


@pytest.mark.parametrize(
    ("policy", "rules", "texts"),
    [
        ("noeviction", (), []),
        ("allkeys-lru", ("-info",), []),
        (
            "volatile-ttl",
            (),
            [
                "Redis evicts keys once its memory is full (maxmemory-policy volatile-ttl), and tasks vanish with "
                "them; set it to noeviction"
            ],
        ),
    ],
)
def test_a_policy_that_evicts_is_said(
    server: RedisServer, policy: str, rules: tuple[str, ...], texts: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def describe() -> str:
        broker = open_async_broker(user(server, *rules))
        try:
            await check_rights(broker, ["a"])
            return await describe_redis(broker)
        finally:
            await broker.close()

    with server.client() as db:
        db.config_set("maxmemory-policy", policy)
        where = run(describe())
    assert where.startswith("Redis at " if rules else "Redis ")
    assert where.endswith(f" at {server.socket_path}")
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == texts


def test_a_child_calls_the_function_that_gives_the_credentials(server: RedisServer) -> None:
    async def serve(name: str) -> None:
        url = f"unix://{server.socket_path}?credentials=tests.server.login:{name}"
        process = ServerProcess(ProcessOptions("tests.inspector.acl_app:mux", url, ServerConfig(concurrency=1)))
        await process.run(process.begin_shutdown)
        assert process.has_begun

    user(server)
    run(serve("current"))
    with pytest.raises(
        BrokerAuthError, match=r"no credentials for Redis from tests\.server\.login:broken: .*no token today"
    ):
        run(serve("broken"))
    assert "tests.server.login" not in sys.modules
