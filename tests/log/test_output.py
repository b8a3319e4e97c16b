"""A stderr that blocks nobody: what waits, what is dropped and counted, and how it ends."""

import contextlib
import errno
import fcntl
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fastq.log.output import MAX_WAITING, UnblockedStderr, unblocked_stderr
from fastq.log.setup import set_up_logging
from tests.waiting import PATIENCE_S, wait_until

LINE = "x" * 999 + "\n"


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    for fd in (reader, writer):
        with contextlib.suppress(OSError):  # a test may have closed it
            os.close(fd)


def fill(writer: int) -> int:
    """Fill a pipe, and return how much it took."""
    flags = fcntl.fcntl(writer, fcntl.F_GETFL)
    fcntl.fcntl(writer, fcntl.F_SETFL, flags | os.O_NONBLOCK)
    size = 0
    try:
        while True:
            size += os.write(writer, b"." * 4096)
    except BlockingIOError:
        pass
    fcntl.fcntl(writer, fcntl.F_SETFL, flags)
    return size


@contextlib.contextmanager
def errors_logged() -> Iterator[None]:
    """Let fastq's errors go to what stderr is now."""
    logger = logging.getLogger("fastq")
    before = (logger.handlers, logger.propagate, logger.level)
    set_up_logging("error", "text")
    try:
        yield
    finally:
        logger.handlers, logger.propagate = before[:2]
        logger.setLevel(before[2])


def read_all(reader: int) -> bytes:
    data = b""
    while piece := os.read(reader, 1 << 16):
        data += piece
    return data


def test_what_is_written_comes_out_in_order(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    stream = UnblockedStderr(writer)
    for number in range(1000):
        print(number, "\ud800", file=stream)
    assert stream.finish(PATIENCE_S)
    os.close(writer)
    assert read_all(reader).decode().splitlines() == [f"{number} \\ud800" for number in range(1000)]


def test_bytes_are_refused_as_by_any_text_stream(pipe: tuple[int, int]) -> None:
    stream: Any = UnblockedStderr(pipe[1])
    with pytest.raises(TypeError, match="write takes a str, not bytes"):
        stream.write(b"")
    stream.write("text\n")
    assert stream.finish(PATIENCE_S)
    assert os.read(pipe[0], 100) == b"text\n"


def test_a_pipe_without_a_reader_blocks_nobody_and_what_was_dropped_is_counted(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = pipe
    filled = fill(writer)
    stream = UnblockedStderr(writer)
    monkeypatch.setattr(sys, "stderr", stream)
    stream.write("first\n")
    wait_until(lambda: not stream._waiting)  # the thread holds it; later it would make room in the middle of the others
    for _ in range(2 * MAX_WAITING // len(LINE) + 100):
        stream.write(LINE)
    assert not stream.finish(0.0)
    with errors_logged():
        # It flows again.
        data = b""
        while b"were dropped here" not in data:
            data += os.read(reader, 1 << 16)
        assert stream.finish(PATIENCE_S)
    lines = data[filled:].decode().splitlines()
    assert lines[0] == "first"
    dropped = 2 * MAX_WAITING // len(LINE) + 100 - (len(lines) - 2)
    assert lines[-1].endswith(f"ERROR: log: {dropped} lines of this log were dropped here because stderr was blocked")
    assert dropped >= 100


def test_what_was_dropped_last_is_counted_though_no_line_follows(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = pipe
    filled = fill(writer)
    stream = UnblockedStderr(writer)
    monkeypatch.setattr(sys, "stderr", stream)
    stream.write("first\n")
    wait_until(lambda: not stream._waiting)  # the thread has it, and waits for the pipe
    stream.write("x" * MAX_WAITING + "\n")
    with errors_logged():
        data = b""
        while len(data) < filled + len("first\n"):
            data += os.read(reader, 1 << 16)
        assert stream.finish(PATIENCE_S)
    os.close(writer)
    data += read_all(reader)
    first, told = data[filled:].decode().splitlines()
    assert first == "first"
    assert told.endswith("ERROR: log: 1 lines of this log were dropped here because stderr was blocked")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_blocks_nobody() -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        stream = UnblockedStderr(full.fileno())
        for _ in range(100):
            stream.write(LINE)
        assert stream.finish(PATIENCE_S)


def test_a_line_that_was_cut_off_spoils_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full in the middle of a line, and later there is room again."""
    room, write = [len("one\ntw")], os.write

    def put(fd: int, data: Any) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "no space left")
        done = write(fd, bytes(data)[: room[0]])
        room[0] -= done
        return done

    with open(tmp_path / "log", "wb", buffering=0) as file:
        stream = UnblockedStderr(file.fileno())
        monkeypatch.setattr(os, "write", put)
        for text in ("one\ntwo\nthree\n", "four\n"):
            stream.write(text)
            wait_until(stream._is_through)
        assert stream.dropped == 3
        room[0] = 1000
        stream.write("five\n")
        assert stream.finish(PATIENCE_S)
        monkeypatch.undo()
    assert (tmp_path / "log").read_text() == "one\ntw\nfive\n"
    assert stream.dropped == 3


def test_a_reader_that_went_away_blocks_nobody(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    os.close(reader)
    stream = UnblockedStderr(writer)
    stream.write(LINE)
    assert stream.finish(PATIENCE_S)


def test_a_descriptor_that_somebody_made_non_blocking_loses_nothing(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    fcntl.fcntl(writer, fcntl.F_SETFL, fcntl.fcntl(writer, fcntl.F_GETFL) | os.O_NONBLOCK)
    stream = UnblockedStderr(writer)
    for _ in range(500):
        stream.write(LINE)
    data = b""
    while len(data) < 500 * len(LINE):
        data += os.read(reader, 1 << 16)
    assert stream.finish(PATIENCE_S)
    assert data.decode() == LINE * 500


def test_a_process_that_stood_still_while_it_ended_has_time_left_for_its_last_words(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = pipe
    reading = threading.Thread(target=os.read, args=(reader, fill(writer)))
    stream = UnblockedStderr(writer)
    stream.write("its last words\n")
    wait_until(lambda: stream._is_writing)
    wait, lost_s = stream._changed.wait, list[float]()

    def stand_still(timeout: float | None = None) -> bool:
        """Let the first wait take all the time that there is."""
        if lost_s:
            return wait(timeout)
        lost_s.append(PATIENCE_S)
        reading.start()
        return False

    monkeypatch.setattr(threading, "_time", lambda: time.monotonic() + sum(lost_s))
    monkeypatch.setattr(stream._changed, "wait", stand_still)
    assert stream.finish(PATIENCE_S)
    reading.join()
    assert os.read(reader, 100) == b"its last words\n"


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # what forks is the app's business
def test_a_fork_writes_by_itself(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    stream = UnblockedStderr(writer)
    pid = os.fork()
    if pid == 0:
        stream.write("from the fork\n")
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(reader, 100) == b"from the fork\n"
    assert stream.finish(PATIENCE_S)


def test_stderr_is_given_back_when_all_of_it_was_taken(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sys.stderr
    with unblocked_stderr():
        assert isinstance(sys.stderr, UnblockedStderr)
        assert sys.stderr.fileno() == before.fileno()
        with unblocked_stderr():
            sys.stderr.write("a line\n")
        assert isinstance(sys.stderr, UnblockedStderr)
    assert sys.stderr is before
    assert capfd.readouterr().err == "a line\n"


def test_without_a_stderr_there_is_nothing_to_unblock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with unblocked_stderr():
        assert sys.stderr is None


def test_a_stderr_that_is_no_file_stays(capsys: pytest.CaptureFixture[str]) -> None:
    with unblocked_stderr():
        sys.stderr.write("a line\n")
        assert not isinstance(sys.stderr, UnblockedStderr)
    assert capsys.readouterr().err == "a line\n"
