"""A pytest fixture: ``embedded_redis``, the URL of a private Redis that is empty at the start of each test.

``pytest_plugins = ["fastq.testing.plugin"]`` in the outermost conftest.py. One server serves the whole session.
"""

from collections.abc import Iterator
from contextlib import closing

import pytest

from fastq.broker.transport.open import open_broker
from fastq.testing.private_redis import embedded_redis, flush


@pytest.fixture(scope="session")
def fastq_embedded_server() -> Iterator[str]:
    """Return the URL of one private Redis for all tests."""
    with embedded_redis() as url:
        yield url


@pytest.fixture(name="embedded_redis")
def flushed_redis(fastq_embedded_server: str) -> str:
    """Return the URL of the private Redis, emptied."""
    with closing(open_broker(fastq_embedded_server)) as broker:
        broker.run(flush())
    return fastq_embedded_server
