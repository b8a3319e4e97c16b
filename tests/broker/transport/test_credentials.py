"""Credentials that change while connections are open."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

import fastq.broker.transport.blocking
import fastq.broker.transport.credentials
from fastq import AsyncClient, BrokerAuthError, Client
from tests.broker.transport import rotating
from tests.redis_servers import RedisServer, redis_cluster, redis_sentinel, redis_server

NAME = "tests.broker.transport.rotating:current"


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture(autouse=True)
def _always_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask at each call, and let the pool look at each connection that a client keeps."""
    monkeypatch.setattr(fastq.broker.transport.credentials, "ASK_EVERY_S", -1.0)
    monkeypatch.setattr(fastq.broker.transport.blocking, "TRUSTED_S", -1.0)


def url_of(server: RedisServer, name: str = NAME) -> str:
    return f"unix://{server.socket_path}?credentials={name}"


def let_in(db: Redis, user: str, *rules: str) -> None:
    """Make a user who has these passwords and may do all."""
    db.execute_command("ACL", "SETUSER", user, "reset", "on", "~*", "&*", "+@all", *rules)  # type: ignore[no-untyped-call]  # redis-py's


def connections(db: Redis) -> dict[str, str]:
    """Return the users of fastq's connections by their ids."""
    return {each["id"]: each["user"] for each in db.client_list() if each["name"] == "fastq"}


Step = Callable[[], None]


def pinged(url: str, way: str, *steps: Step) -> None:
    """Ping with one client, before the steps and after each."""

    async def run() -> None:
        async with AsyncClient(url) as client:
            await client.ping()
            for step in steps:
                step()
                await client.ping()

    if way == "AsyncClient":
        asyncio.run(run())
        return
    with Client(url) as client:
        client.ping()
        for step in steps:
            step()
            client.ping()


@pytest.fixture(params=["Client", "AsyncClient"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_connection_logs_in_again_in_place(server: RedisServer, way: str) -> None:
    seen: list[dict[str, str]] = []
    with server.client() as db:
        let_in(db, "first", ">one")
        let_in(db, "second", ">two")
        rotating.given = ("first", "one")

        def rotate() -> None:
            seen.append(connections(db))
            rotating.given = ["second", "two"]

        pinged(url_of(server), way, rotate, lambda: seen.append(connections(db)))
    before, after = seen
    assert before.keys() == after.keys()
    assert ({*before.values()}, {*after.values()}) == ({"first"}, {"second"})


def test_a_refused_login_is_tried_again_with_new_credentials(
    server: RedisServer, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fastq.broker.transport.credentials, "ASK_EVERY_S", 3600.0)
    with server.client() as db:
        let_in(db, "app", ">old")
        rotating.given = ("app", "old")
        rotating.calls = 0

        def rotate() -> None:
            assert rotating.calls == 1
            let_in(db, "app", ">new")
            rotating.given = ("app", "new")
            for client_id in connections(db):
                db.client_kill_filter(_id=client_id)

        pinged(url_of(server), way, rotate)
        assert rotating.calls == 2


def test_new_credentials_that_redis_refuses_are_said_and_the_login_stays(
    server: RedisServer, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    with server.client() as db:
        let_in(db, "app", ">old")
        rotating.given = ("app", "old")

        def rotate() -> None:
            rotating.given = ("app", "s3cret")

        pinged(url_of(server), way, rotate, lambda: None)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert f"Redis refuses the new credentials of {NAME}: " in record.getMessage()
    assert "s3cret" not in record.getMessage()


def test_a_function_that_fails_is_said_and_the_last_credentials_stay(
    server: RedisServer, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    with server.client() as db:
        let_in(db, "app", ">word")
        rotating.given = ("app", "word")

        def fail() -> None:
            rotating.given = OSError("no token")

        pinged(url_of(server), way, fail)
    assert f"no credentials for Redis from {NAME}: no token; the last ones stay in use" in caplog.messages


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (OSError("no token"), "no token"),
        (None, "it must return a password, or a user name and a password, not NoneType"),
        (b"s3cret", "it must return a password, or a user name and a password, not bytes"),
        (("s3cret",), "it must return a password, or a user name and a password, not tuple"),
        (("app", ""), "the password is empty"),
    ],
)
def test_without_credentials_nothing_is_sent(server: RedisServer, way: str, given: Any, text: str) -> None:
    rotating.given = given
    with pytest.raises(BrokerAuthError) as caught:
        pinged(url_of(server), way)
    assert f"no credentials for Redis from {NAME}: {text}" in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("name", ["tests.broker.transport.rotating:other", "tests.nowhere:current"])
def test_a_name_that_leads_nowhere_is_said(server: RedisServer, way: str, name: str) -> None:
    with pytest.raises(BrokerAuthError, match=f"no credentials for Redis from {name}: "):
        pinged(url_of(server, name), way)


def test_a_file_is_read_again(server: RedisServer, way: str, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("one\n")
    with server.client() as db:
        let_in(db, "app", ">one")

        def rotate() -> None:
            let_in(db, "app", ">two")
            file.write_text("two")
            for client_id in connections(db):
                db.client_kill_filter(_id=client_id)

        pinged(f"unix://app@{server.socket_path}?credentials={file}", way, rotate)
    with pytest.raises(BrokerAuthError, match=f"no credentials for Redis from {tmp_path}/none: .*No such file"):
        pinged(url_of(server, f"{tmp_path}/none"), way)


def test_the_nodes_of_a_cluster_are_logged_in_to(way: str) -> None:
    with redis_cluster(1) as (node,), node.client() as db:
        let_in(db, "app", ">one")
        let_in(db, "next", ">two")
        db.execute_command("ACL", "SETUSER", "default", "off")
        rotating.given = ("app", "one")

        def rotate() -> None:
            rotating.given = ("next", "two")

        pinged(f"redis-cluster://127.0.0.1:{node.port}?credentials={NAME}", way, rotate, lambda: None)
        rotating.given = OSError("no token")
        with pytest.raises(BrokerAuthError, match="no token"):
            pinged(f"redis-cluster://127.0.0.1:{node.port}?credentials={NAME}", way)


def test_the_master_is_logged_in_to_and_the_sentinels_are_not(way: str) -> None:
    with redis_sentinel("data", "watch") as setup:
        rotating.given = "data"
        pinged(f"redis-sentinel://:watch@127.0.0.1:{setup.sentinel_port}?master=mymaster&credentials={NAME}", way)
