"""A private Redis for a test: ``embedded://`` that ends with its block."""

from collections.abc import Iterator
from contextlib import contextmanager

from fastq.broker.operation import Operation
from fastq.broker.transport.embedded import EmbeddedRedis

__all__ = ["embedded_redis", "flush"]


@contextmanager
def embedded_redis() -> Iterator[str]:
    """Start an empty Redis of one's own, give its URL, end it with the block.

    Processes started meanwhile may use it, too. ``BrokerConnectionError`` says what to install where no server is.
    """
    with EmbeddedRedis() as server:
        yield server.url


def flush() -> Operation[None]:
    """Empty a Redis that is a test's own."""
    return Operation("FLUSHALL", (), (), lambda reply: None, idempotent=True)
