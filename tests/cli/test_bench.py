"""``fastq bench`` on a real Redis: a short measurement, its file, and nothing left behind, however it ends."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis import Redis

from fastq import Client
from fastq.planning.profile import load_profile
from tests.cli.commands import Fastq, checked_json
from tests.e2e.harness import ROOT
from tests.redis_servers import redis_server
from tests.waiting import wait_until

LIMIT_S = 120.0
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


def names(db: Redis) -> list[bytes]:
    return sorted(key for key in db.scan_iter() if isinstance(key, bytes))


def servers(db: Redis) -> list[int]:
    return [int(key.split(b":")[3]) for key in names(db) if key.startswith(b"asynq:servers:")]


def contents(db: Redis) -> Mapping[bytes, bytes | None]:
    return {key: db.dump(key) for key in names(db)}


@linux_only
@pytest.mark.slow
def test_a_short_measurement_makes_a_profile_and_leaves_nothing(fastq: Fastq, db: Redis, tmp_path: Path) -> None:
    with Client(fastq.url) as client:
        client.enqueue("others", b"work", queue="theirs")
    before = contents(db)
    path = tmp_path / "here.json"
    words = ("bench", "--seconds", "2", "--children", "2", "--output", str(path), "--yes")
    record = checked_json(fastq.done(*words, "--json"), "bench")
    assert contents(db) == before
    assert json.loads(path.read_text()) == record
    measured = load_profile(path)
    assert measured.redis.is_here
    for curve in (measured.costs.process_redis, measured.costs.process_main, measured.costs.redis_memory):
        assert 0 < curve.at(100) < curve.at(100_000)
    assert measured.costs.redis_memory.at(100_000) > 100_000
    assert measured.server.no_op_rate > 0
    assert measured.server.child_memory_bytes > 2**20


@contextmanager
def measuring(url: str, directory: Path) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", "fastq", "bench", "--redis", url, "--seconds", "300", "--children", "1"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(directory), "XDG_STATE_HOME": str(directory)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@linux_only
@pytest.mark.slow
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_it_leaves_nothing(url: str, db: Redis, tmp_path: Path, signum: int, code: int) -> None:
    with measuring(url, tmp_path) as process:
        wait_until(lambda: any(b":t:" in key for key in names(db)), LIMIT_S)
        process.send_signal(signum)
        assert process.wait(LIMIT_S) == code
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read() == ""
        assert process.stderr.read() == "fastq: interrupted; the queue of the measurement was deleted\n"
    assert names(db) == []
    assert not (tmp_path / "fastq").exists()


@linux_only
@pytest.mark.slow
def test_a_server_that_is_killed_ends_it_and_nothing_is_left(url: str, db: Redis, tmp_path: Path) -> None:
    with measuring(url, tmp_path) as process:
        wait_until(lambda: any(b":processed" in key for key in names(db)), LIMIT_S)
        wait_until(lambda: len(servers(db)) == 1, LIMIT_S)
        os.kill(servers(db)[0], signal.SIGKILL)
        assert process.wait(LIMIT_S) == 1
        assert process.stderr is not None
        assert "ended unexpectedly" in process.stderr.read()
    assert not [key for key in names(db) if b"fastq-bench" in key]


def test_where_redis_holds_anything_it_asks_before(fastq: Fastq, db: Redis) -> None:
    db.set("theirs", "1")
    assert "nothing was done" in fastq.run("bench", input="n\n").stderr
    asked = fastq.run("bench", "--seconds", "30", input="")
    assert asked.exit_code == 2
    assert "Redis holds 1 keys." in asked.stderr
    assert "about 30 s. Go on?" in asked.stderr
    assert "--yes skips the question" in asked.stderr
    assert names(db) == [b"theirs"]


def test_a_queue_that_one_left_is_named(fastq: Fastq, db: Redis) -> None:
    db.sadd("asynq:queues", "fastq-bench-0123")
    assert "fastq queue rm --force fastq-bench-0123" in fastq.run("bench", input="n\n").stderr


def test_a_redis_without_room_is_left_alone() -> None:
    with redis_server(config={"maxmemory": "50mb"}) as server:
        line = Fastq(server.url).failure("bench", "--yes")
        assert "MB left below its maxmemory" in line
        with server.client() as db:
            assert names(db) == []


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--seconds", "1"), "1.0 is not in the range"),
        (("--seconds", "nan"), "nan is not in the range"),
        (("--children", "0"), "0 is not in the range"),
        (("--output", "/"), "is a directory"),
    ],
)
def test_misuse_is_said_in_one_line_with_code_2(fastq: Fastq, words: tuple[str, ...], line: str) -> None:
    assert line in fastq.failure("bench", *words, code=2)


def test_a_cluster_is_not_measured(fastq: Fastq) -> None:
    result = Fastq("redis-cluster://127.0.0.1:1").failure("bench", "--yes")
    assert "fastq bench measures one Redis" in result
