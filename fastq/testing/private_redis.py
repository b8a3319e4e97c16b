"""A private Redis for a test: an ``embedded://`` server that stops at the end of a block."""

from collections.abc import Iterator
from contextlib import contextmanager

from fastq.broker.operation import Operation
from fastq.broker.transport.embedded import EmbeddedRedis


@contextmanager
def embedded_redis() -> Iterator[str]:
    """Start an empty private Redis, yield its URL, and stop it at the end of the block.

    Processes started meanwhile may use it, too. Without a Redis server, ``BrokerConnectionError`` says what to install.
    """
    with EmbeddedRedis() as server:
        yield server.url


def flush() -> Operation[None]:
    """Empty the private Redis of a test."""
    return Operation("FLUSHALL", (), (), lambda reply: None, idempotent=True)
