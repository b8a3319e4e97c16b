"""The fault bench itself, short and with a fixed seed; and that it leaves nothing behind when it is interrupted."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import pytest

from tests.redis_servers import server_program
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes in /proc")


@pytest.fixture
def place() -> Iterator[Path]:
    """Give a directory with a short path, in which the bench makes its own."""
    with tempfile.TemporaryDirectory(prefix="fastq-test-") as name:
        yield Path(name)


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "tests.chaos", "--redis-server", server_program(), *words]


def environment(place: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(place)}


def left_of(place: Path) -> set[int]:
    """Return the processes that have inherited the directory."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"TMPDIR={place}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.add(int(entry.name))
    return found


@pytest.mark.slow
def test_no_guarantee_breaks_under_fire(place: Path) -> None:
    words = ["--seed", "20261121", "--seconds", "7", "--tasks", "4000", "--servers", "2", "--lease", "4"]
    done = subprocess.run(
        command(*words, "--every", "0.3", "--outage", "0", "--json"),
        cwd=place,
        env=environment(place),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["violations"] == []
    figures = report["figures"]
    # A last attempt that a fault cut short is archived, and never returned.
    assert figures["runs that returned"] + figures["tasks archived"] >= figures["tasks enqueued"] > 1000
    assert sum(report["faults"].values()) >= 8, report
    assert left_of(place) == set()
    assert list(place.iterdir()) == []


@contextmanager
def interrupted(command: list[str], place: Path) -> Iterator[IO[str]]:
    """Start a bench, give what it prints, and interrupt it; it has to end all that it has started."""
    with subprocess.Popen(
        command, cwd=place, env=environment(place), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as bench:
        assert bench.stdout is not None
        try:
            yield bench.stdout
        finally:
            bench.send_signal(signal.SIGINT)
        said = bench.stdout.read()
    assert bench.returncode == 130, said
    assert "interrupted by SIGINT" in said
    wait_until(lambda: not left_of(place))


def test_an_interrupted_run_leaves_nothing_behind(place: Path) -> None:
    with interrupted(command("--seconds", "600", "--tasks", "100000", "--servers", "1"), place) as output:
        assert any("are ready" in line for line in output)
        assert len(left_of(place)) > 3
    assert list(place.iterdir()) == []
