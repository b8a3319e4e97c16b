"""The task log: what a line says, and a file that is renamed, missing, blocked or full."""

import json
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fastq.broker.operations.finish import Archived, Completed, Disposition, Done, Requeued, Retried
from fastq.pool.main.protocol import EventKind, PoolStartError
from fastq.server.inflight import task_log
from fastq.server.inflight.task_log import LEASE_LOST, STDOUT, TaskLog
from fastq.server.inflight.tasks import InFlightTask, InFlightTasks
from fastq.wire.codec import view_task_message
from tests.broker.harness import message
from tests.manual_clock import ManualClock
from tests.waiting import PATIENCE_S, wait_until

NOW_S = 4_000_000_000


DONE = Done("id", "")


def task(disposition: Disposition = DONE, task_id: str = "id", **fields: Any) -> InFlightTask:
    """Return a task that ran for 1.5 s and has ended."""
    view = view_task_message(message(task_id, **fields))
    made = InFlightTasks().add(str(fields.get("queue", "default")), view, 0.0)
    made.disposition, made.ran_ns, made.wait_s = disposition, 1_500_000_999, 0.25
    return made


def opened(path: object) -> TaskLog:
    log = TaskLog(str(path), "host:1", ManualClock(NOW_S))
    log.open()
    return log


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("ascii").splitlines()]


def test_a_line_says_what_became_of_an_attempt(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    failed = task(Retried("id", b"", 1, is_failure=True), "b", type="mail:send", queue="low", retried=4)
    failed.failure, failed.error, failed.wait_s = EventKind.FAILED, "KeyError", -1.0
    log.add([task(), failed])
    log.close()
    first, second = lines(tmp_path / "log")
    assert first == {
        "time": "2096-10-02T07:06:40.000000Z",
        "id": "id",
        "type": "t",
        "queue": "default",
        "end": "done",
        "attempt": 1,
        "wait_s": 0.25,
        "run_s": 1.5,
        "error": None,
        "server": "host:1",
    }
    more = {"end": "retried", "attempt": 5, "wait_s": None, "error": "KeyError"}
    assert second == {**first, "id": "b", "type": "mail:send", "queue": "low", **more}


def test_each_end_has_its_word_but_what_did_not_run_has_no_line(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    revoked, unbegun = task(), task(Requeued("id"))
    revoked.failure, unbegun.ran_ns = EventKind.REVOKED, 0
    ended: list[Disposition] = [Completed("id", b"", 1, "", None), Archived("id", b""), Requeued("id")]
    log.add([revoked, *[task(one) for one in ended], unbegun])
    log.add([task()], LEASE_LOST)
    log.close()
    words = [line["end"] for line in lines(tmp_path / "log")]
    assert words == ["deleted", "completed", "archived", "requeued", "lease_lost"]


def test_hostile_names_come_back_as_they_were_and_in_ascii(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    names = ['a"b\\c', "\x00\x1f\x7f\n", "é\u202e\u2028\U0001f600", "x" * 100_000, ""]
    log.add([task(task_id=name or "id", type=f"{name}t") for name in names])
    log.close()
    text = (tmp_path / "log").read_text("ascii")
    assert "\x7f" not in text
    assert [(line["id"], line["type"]) for line in map(json.loads, text.splitlines())] == [
        (name or "id", f"{name}t") for name in names
    ]


def test_a_file_that_was_renamed_or_deleted_is_opened_again(tmp_path: Path) -> None:
    path, old = tmp_path / "log", tmp_path / "log.1"
    log = opened(path)
    for tidy in (lambda: path.rename(old), path.unlink):
        log.add([task()])
        wait_until(lambda: path.exists() and len(lines(path)) == 1)
        tidy()
    log.add([task()])
    log.close()
    assert (len(lines(old)), len(lines(path))) == (1, 1)


def test_stdout_gets_the_lines_too(capfd: pytest.CaptureFixture[str]) -> None:
    log = opened(STDOUT)
    log.add([task()])
    log.close()
    assert json.loads(capfd.readouterr().out)["id"] == "id"


def test_no_line_is_made_without_a_file() -> None:
    log = TaskLog(None, "host:1", ManualClock(NOW_S))
    log.open()
    log.add([task()])
    log.close()
    assert log.dropped == 0


def fifo(directory: Path) -> Path:
    os.mkfifo(directory / "fifo")
    return directory / "fifo"


@pytest.mark.parametrize("make", [lambda at: at, lambda at: at / "no" / "log", fifo])
def test_a_file_that_cannot_be_written_is_refused_at_the_start(make: Callable[[Path], Path], tmp_path: Path) -> None:
    path = make(tmp_path)
    with pytest.raises(PoolStartError, match=f"task_log='{path}': the file cannot be written: ") as caught:
        opened(path)
    assert caught.value.is_misuse


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_lines_that_a_full_disk_does_not_take_are_told_at_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    log = opened("/dev/full")
    log.add([task(), task()])
    losing = "lines of the task log are lost because /dev/full takes no more; their number follows once it does"
    wait_until(lambda: caplog.messages == [losing])
    log.add([task()])
    log.close()
    assert log.dropped == 3
    wait_until(lambda: len(caplog.messages) == 2)
    assert caplog.messages[1] == "3 lines of the task log were dropped because /dev/full took no more"


def test_a_file_that_is_blocked_at_the_end_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = fifo(tmp_path)
    monkeypatch.setattr(task_log, "FINISH_S", 0.01)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    log = opened(path)
    log.add([task(task_id="x" * 200_000)])  # more than the pipe takes
    log.close()
    assert caplog.messages == [f"the last lines of the task log were lost because {path} took no more"]
    os.close(reader)
    wait_until(lambda: len(caplog.messages) == 3)  # else the thread would tell its loss in the next test


def test_a_blocked_file_costs_lines_but_no_time_and_they_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, lots = fifo(tmp_path), 300
    monkeypatch.setattr(task_log._Output, "most_waiting", 100_000)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    log = opened(path)
    big = task(task_id="x" * 10_000)
    for _ in range(lots):
        log.add([big])
    wait_until(lambda: log.dropped > 0)
    dropped = log.dropped
    os.set_blocking(reader, True)
    with caplog.at_level(logging.ERROR, "fastq.log"):
        assert len(caplog.messages) == 1
        closing = threading.Thread(target=log.close)
        closing.start()
        found = b""
        while found.count(b"\n") < lots - dropped:
            found += os.read(reader, 1 << 16)
        closing.join(PATIENCE_S)
        wait_until(lambda: len(caplog.messages) == 2)
    os.close(reader)
    assert (found.count(b"\n") + dropped, log.dropped) == (lots, dropped)
    assert caplog.messages[-1] == f"{dropped} lines of the task log were dropped because {path} took no more"
    assert [line[:34] for line in caplog.messages[:-1]] == ["lines of the task log are lost bec"]


def test_lines_written_together_each_have_the_names_of_their_own_task(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    names = [("a", "x"), ("a", "x"), ("b", "x"), ("b", "y"), ("a", "x")]
    log.add([task(type=kind, queue=queue) for kind, queue in names])
    log.add([task(type="a", queue="y")])
    log.close()
    found = lines(tmp_path / "log")
    assert [(line["type"], line["queue"]) for line in found] == [*names, ("a", "y")]


def test_numbers_have_all_their_digits(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    made = task(retried=998)
    made.ran_ns, made.wait_s = 12_345_678_901_234_567, 1_000_000.000001
    log.add([made])
    log.close()
    (line,) = lines(tmp_path / "log")
    assert (line["run_s"], line["attempt"], line["wait_s"]) == (12_345_678.901234, 999, 1_000_000.000001)
    assert '"run_s":12345678.901234,' in (tmp_path / "log").read_text()
