"""A private Redis on loopback TCP, as the rivals use it, and a Go asynq where there is Go."""

from collections.abc import Iterator

import pytest

from tests.interop.build import build_peer
from tests.interop.peer import GoPeer
from tests.ports import free_port
from tests.redis_servers import RedisServer, redis_server


@pytest.fixture(scope="session")
def tcp_server() -> Iterator[RedisServer]:
    """Run a server on a loopback port, without persistence."""
    with redis_server(port=free_port()) as server:
        yield server


@pytest.fixture
def go_asynq(tcp_server: RedisServer) -> Iterator[GoPeer]:
    """Run a Go asynq on that server; skips where Go is missing."""
    with GoPeer(build_peer(flags=())) as peer:
        peer.request("connect", addr=f"127.0.0.1:{tcp_server.port}")
        yield peer
