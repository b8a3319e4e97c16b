"""20 000 thumbnails in two processes: a ``ProcessPoolExecutor`` against ``fastq-worker``, each collected as they end.

Both sides submit and collect in the process of the benchmark. ``BENCH_ROUNDS`` (3) and ``BENCH_TASKS`` (20 000) shorten
a run.
"""

import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import pytest

from benchmarks.bench_worker import worker
from benchmarks.interleave import interleaved
from benchmarks.thumbnails_app import DIRECTORY, make_photos, make_thumbnail, thumbnail
from fastq import Client
from tests.redis_servers import RedisServer

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
TASKS = int(os.environ.get("BENCH_TASKS", "20000"))
EXECUTOR = "ProcessPoolExecutor"


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(DIRECTORY, str(tmp_path))
    make_photos(tmp_path)
    return tmp_path


def test_thumbnails(
    photos: Path, tcp_server: RedisServer, capsys: pytest.CaptureFixture[str], pytestconfig: pytest.Config
) -> None:
    is_smoke = bool(pytestconfig.getoption("benchmark_disable"))
    count, rounds = (200, 1) if is_smoke else (TASKS, ROUNDS)
    with (
        Client(tcp_server.tcp_url) as client,
        worker(tcp_server, "benchmarks.thumbnails_app:app"),
        ProcessPoolExecutor(2) as pool,
    ):

        def by_executor() -> float:
            began_s = time.perf_counter()
            futures = [pool.submit(make_thumbnail, number) for number in range(count)]
            sizes = [future.result() for future in as_completed(futures)]
            assert len(sizes) == count
            return count / (time.perf_counter() - began_s)

        def by_fastq() -> float:
            began_s = time.perf_counter()
            handles = client.submit_many([thumbnail.task(number) for number in range(count)])
            sizes = [handle.result() for handle in client.as_completed(handles)]
            assert len(sizes) == count
            return count / (time.perf_counter() - began_s)

        result = interleaved({EXECUTOR: by_executor, "fastq": by_fastq}, rounds)
    with capsys.disabled():
        print(result.table(f"{count:,} thumbnails, submitted and collected", "a second", EXECUTOR))
