"""What a blocking client sends: each request whole, on one connection, whatever its size and whoever closes."""

from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from fastq import BrokerAuthError, Client
from fastq.broker.transport.exchange import in_pieces
from tests.redis_servers import RedisServer, redis_server
from tests.waiting import PATIENCE_S

COMMANDS_INSIDE = b"\r\nINCR executed\r\n" * 60_000
"""A megabyte that does harm where Redis reads it as commands."""


def test_no_health_check_comes_into_a_large_request(shared_server: RedisServer, db: Redis) -> None:
    often: Any = 1e-7
    with Redis(
        unix_socket_path=shared_server.socket_path, protocol=2, health_check_interval=often, socket_timeout=PATIENCE_S
    ) as given:
        info = Client(given).enqueue("t", COMMANDS_INSIDE)
    message: Any = db.hget(f"asynq:{{default}}:t:{info.id}", "msg")
    assert COMMANDS_INSIDE in message
    assert db.get("executed") is None


def test_the_rest_of_a_request_is_not_sent_on_a_new_connection(
    url: str, db: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread closes the client between two parts of a large request: it is lost, looked for and sent again."""
    to_close: list[Client] = []

    def closing_halfway(packed: list[Any]) -> Iterator[list[Any]]:
        for number, piece in enumerate(in_pieces(packed)):
            if number == 3 and to_close:
                to_close.pop().close()
            yield piece

    monkeypatch.setattr("fastq.broker.transport.blocking.in_pieces", closing_halfway)
    with Client(url) as client:
        to_close.append(client)
        client.enqueue("t", COMMANDS_INSIDE)
    assert not to_close
    assert db.llen("asynq:{default}:pending") == 1
    assert db.get("executed") is None


def test_a_refused_health_check_is_an_error_of_ours_and_nothing_was_sent() -> None:
    with (
        redis_server() as server,
        server.client() as db,
        Redis(unix_socket_path=server.socket_path, health_check_interval=3600, retry=Retry(NoBackoff(), 0)) as given,
    ):
        client = Client(given)
        client.ping()
        db.execute_command("ACL", "SETUSER", "default", "-ping")
        for connection in given.connection_pool._available_connections:
            connection.next_health_check = 0.0
        with pytest.raises(BrokerAuthError, match="ping") as caught:
            client.enqueue("t")
        assert not caught.value.maybe_applied
        assert not db.exists("asynq:{default}:pending")
