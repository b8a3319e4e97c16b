"""The command ``fastq`` on the test's Redis, and that Redis filled."""

from pathlib import Path

import pytest
from redis import Redis

from tests.cli.commands import Fastq, fill


@pytest.fixture
def fastq(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fastq:
    """Return the command, out of reach of whatever the machine's own environment says."""
    for name in ("FASTQ_REDIS_URL", "FASTQ_CONFIG", "FASTQ_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return Fastq(url)


@pytest.fixture
def filled(fastq: Fastq, db: Redis) -> Fastq:
    """Return the command on a Redis with tasks of every state."""
    fill(db, fastq.url)
    return fastq
