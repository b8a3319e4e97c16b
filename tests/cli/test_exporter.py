"""``fastq exporter``: serves the metrics of all queues until a signal ends it."""

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

from redis import Redis

from tests.cli.commands import Fastq, fill
from tests.cli.test_task_bulk import environment
from tests.waiting import PATIENCE_S


def test_metrics_are_served_until_a_signal(db: Redis, url: str, tmp_path: Path) -> None:
    fill(db, url)
    program = [sys.executable, "-m", "fastq", "exporter", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(program, env=environment(url, tmp_path), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.fullmatch(r"metrics at (http://127\.0\.0\.1:\d+/metrics)\n", line)
        assert found, line + process.communicate()[1]
        with urllib.request.urlopen(found[1], timeout=PATIENCE_S) as answer:
            text = answer.read().decode()
        process.send_signal(signal.SIGTERM)
        assert process.communicate()[1] == ""
    assert process.returncode == 0
    assert 'asynq_tasks_processed_total{queue="default"} 1040.0\n' in text


def test_an_address_that_cannot_be_used_is_named(db: Redis, url: str) -> None:
    fastq = Fastq(url)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert fastq.failure("exporter", "--listen", f"127.0.0.1:{port}") == (
            f"fastq: cannot listen on 127.0.0.1:{port}: Address already in use"
        )
    assert "must be HOST:PORT" in fastq.failure("exporter", "--listen", "9876", code=2)
