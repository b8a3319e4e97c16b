"""What the inspectors' tests share.

A method is written once, and both inspectors are made of it (test_driver.py). So each test asks one of them; both, and
a client of the user's own that speaks RESP3, are asked where the way matters: for the keyspace, in a cluster, and
where replies are lost. Replies that RESP3 shapes otherwise are compared in tests/broker/transport/test_replies.py.
"""

import pytest
from redis import Redis

from tests.inspector.harness import Ask, Seeded, ask_blocking


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the doctor look a second time at once."""
    monkeypatch.setattr("fastq.inspector.doctor.examination.SECOND_LOOK_S", 0.0)


@pytest.fixture
def ask(url: str) -> Ask:
    return ask_blocking(url)


@pytest.fixture
def queue(db: Redis) -> Seeded:
    return Seeded(db)
