"""How long clients that are made of a URL, in this process, wait for an answer of Redis.

By default that is 3 s: on a machine that stands still for longer, and Redis with it, every test could fail.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from fastq.broker.transport import subscription, wait
from fastq.broker.transport.connection import connect, connect_async
from tests.waiting import PATIENCE_S


def be_patient(seconds: float = PATIENCE_S) -> None:
    """Give Redis so long, from now on, where a test says nothing else."""
    for make in (connect, connect_async):
        assert make.__kwdefaults__ is not None
        make.__kwdefaults__["read_timeout_s"] = seconds
    subscription.ANSWER_WITHIN_S = wait.ANSWER_WITHIN_S = seconds


@contextmanager
def redis_must_answer_within(seconds: float) -> Iterator[None]:
    """Give Redis so long in a block: for what happens when it does not."""
    be_patient(seconds)
    try:
        yield
    finally:
        be_patient()
