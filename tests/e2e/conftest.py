"""Servers as whole processes on the shared, emptied Redis."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from fastq import Client
from tests.e2e.harness import Workers, workers_on
from tests.e2e.view import View


@pytest.fixture
def workers(url: str, tmp_path: Path) -> Iterator[Workers]:
    with workers_on(url, tmp_path) as workers:
        yield workers


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


@pytest.fixture
def view(db: Redis) -> Iterator[View]:
    view = View(db)
    yield view
    view.allow_all()
