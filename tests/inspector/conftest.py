"""What the inspectors' tests share: each runs with both."""

import pytest
from redis import Redis

from tests.inspector.harness import FACES, Ask, Seeded


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the doctor look a second time at once."""
    monkeypatch.setattr("fastq.inspector.doctor.examination.SECOND_LOOK_S", 0.0)


@pytest.fixture(params=FACES)
def ask(request: pytest.FixtureRequest, url: str) -> Ask:
    return FACES[request.param](url)


@pytest.fixture
def queue(db: Redis) -> Seeded:
    return Seeded(db)
