"""The log of whole servers: what each level shows, and a stderr that nobody reads."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastq import Client, Task
from tests.e2e.harness import Workers
from tests.e2e.view import View
from tests.waiting import wait_until


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[Path]:
    """Make a pipe that is full and that nobody reads."""
    pipe = tmp_path / "stderr"
    os.mkfifo(pipe)
    fd = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        while True:
            os.write(fd, b"." * 4096)
    except BlockingIOError:
        pass
    yield pipe
    os.close(fd)


def test_a_stderr_that_nobody_reads_holds_nothing_up(workers: Workers, client: Client, view: View, stuck: Path) -> None:
    """All lines of the main process and one task's print: the others are worked, and SIGTERM is heard."""
    program = ("sh", "-c", 'exec "$@" 2>"$0"', str(stuck), sys.executable, "-m", "fastq.cli.worker")
    printing = client.enqueue("print", timeout=1, max_retry=0).id
    failing = [client.enqueue("fail", 1) for _ in range(20)]
    worker = workers.start("--concurrency", "2", "--timeout-grace", "0.1", program=program)
    for info in failing:
        view.until("retry", info.id)
    message = view.until("archived", printing)  # only its own child waits for the reader, until its time is up
    assert message is not None
    assert message.error_msg.startswith("TaskTimeout: ")
    wait_until(lambda: bool(view.db.zcard("asynq:servers")))
    assert worker.stop() == 0


def test_hostile_types_and_errors_are_one_line_each(workers: Workers, client: Client) -> None:
    forged = "fail\nfastq: pid=1 2026/01/01 00:00:00.000000 ERROR: forged\x1b[2J\x9b\u202e\u2028"
    client.enqueue(Task(forged, forged, max_retry=0))
    worker = workers.start("--burst", "--concurrency", "1", "--log-tracebacks", "never")
    assert worker.ended() == 0, worker.text
    (line,) = (line for line in worker.text.split("\n") if "forged" in line)
    assert line.isprintable()
    assert "ERROR: pool: task " in line
    assert re.search(r"failed at attempt 1 of 1 after \d+\.\d{3} s: ValueError: fail\\nfastq: pid=1", line)


@pytest.mark.parametrize(
    ("tracebacks", "max_retry", "seen"),
    [("never", 0, False), ("archived", 0, True), ("archived", 1, False), ("always", 1, True)],
)
def test_tracebacks_are_in_the_log_as_set(
    workers: Workers, client: Client, tracebacks: str, max_retry: int, seen: bool
) -> None:
    client.enqueue("fail", 1, max_retry=max_retry)
    worker = workers.start("--burst", "--concurrency", "1", "--log-tracebacks", tracebacks)
    assert worker.ended() == 0, worker.text
    assert ("    Traceback (most recent call last):" in worker.lines) is seen
    assert ("    ValueError: 1" in worker.lines) is seen


def test_debug_shows_each_task_that_begins_and_is_done(workers: Workers, client: Client) -> None:
    task_id = client.enqueue("ok").id
    worker = workers.start("--burst", "--concurrency", "1", "--log-level", "debug")
    assert worker.ended() == 0, worker.text
    said = [line.partition("worker: task ")[2] for line in worker.lines if f"task {task_id}" in line]
    assert said[0] == f"{task_id} (ok, queue default) begins attempt 1 of 26"
    assert said[1].startswith(f"{task_id} (ok, queue default) is done after ")
