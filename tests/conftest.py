"""The Redis that most tests share: one private server a session, emptied for each test."""

import logging
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from redis import Redis

from tests.patience import be_patient
from tests.redis_servers import RedisServer, redis_server

__all__: list[str] = []

# A run under nohup ignores SIGHUP, one in a shell's background SIGINT, and so would every process that a test starts.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

be_patient()

# How long an example takes, or its making, is the machine's affair.
settings.register_profile("fastq", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fastq")


@pytest.fixture(autouse=True)
def _log_as_it_was() -> Iterator[None]:
    """Take back what a command that ran in this process has set: its stderr ends with its test."""
    logger = logging.getLogger("fastq")
    before = logger.handlers, logger.propagate, logger.level
    yield
    logger.handlers, logger.propagate = before[:2]
    logger.setLevel(before[2])


@pytest.fixture(scope="session")
def shared_server() -> Iterator[RedisServer]:
    """Run a server on a Unix socket; a test that changes its settings starts one of its own instead."""
    with redis_server() as server:
        yield server


@pytest.fixture
def db(shared_server: RedisServer) -> Iterator[Redis]:
    """Return a client of redis-py's own on the emptied server, to look behind the code under test."""
    with shared_server.client() as client:
        client.flushall()
        client.script_flush()
        # What an earlier test left open until it is collected must not be counted by this one.
        for kind in ("normal", "pubsub"):
            client.client_kill_filter(_type=kind, skipme=True)
        yield client


@pytest.fixture
def url(shared_server: RedisServer, db: Redis) -> str:
    """Return the URL of the emptied server."""
    return shared_server.url


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a directory from which modules are imported, and forgotten after the test."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]
