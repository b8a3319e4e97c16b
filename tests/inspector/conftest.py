"""What the inspectors' tests share: each runs with both."""

import pytest
from redis import Redis

from tests.inspector.harness import FACES, Ask, Seeded


@pytest.fixture(params=FACES)
def ask(request: pytest.FixtureRequest, url: str) -> Ask:
    return FACES[request.param](url)


@pytest.fixture
def queue(db: Redis) -> Seeded:
    return Seeded(db)
