"""A private Redis, as a block and as a fixture; and the examples of the testing aids."""

import doctest
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fastq import Client
from fastq.errors import BrokerConnectionError
from fastq.testing import assertions, draining, embedded_redis, grouping, inline, runs

ROOT = Path(__file__).parents[2]

TESTS = """
from fastq import Client
from fastq.testing import assert_enqueued

seen = set()

def test_it_is_empty_and_ours(embedded_redis):
    seen.add(embedded_redis)
    with Client(embedded_redis) as client:
        assert_enqueued(client, "t", count=0)
        client.enqueue("t")
        assert_enqueued(client, "t", count=1)

test_it_is_emptied_and_the_same = test_it_is_empty_and_ours

def test_one_server_served_all():
    assert len(seen) == 1
"""


def test_the_server_is_there_for_the_block_and_gone_after_it() -> None:
    with embedded_redis() as url, embedded_redis() as other:
        assert url != other
        with Client(url) as client:
            client.ping()
            client.enqueue("t")
    client = Client(url)
    with pytest.raises(BrokerConnectionError):
        client.ping()
    client.close()
    assert not Path(url.removeprefix("unix://")).exists()


def test_the_fixture_gives_an_emptied_redis_to_each_test(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["fastq.testing.plugin"]\n')
    (tmp_path / "test_app.py").write_text(TESTS)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env)
    assert "3 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("module", [assertions, draining, grouping, inline, runs])
def test_the_examples_do_what_they_say(module: object) -> None:
    found = doctest.testmod(module)  # type: ignore[arg-type]  # a module
    assert found.attempted
    assert not found.failed
