"""What is taken from a process is gone while it is to be, and there again after that."""

import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.chaos.shortage import LogPipe, take_descriptors
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="prlimit and /proc are Linux's")

OPEN = """
import os, sys
for line in sys.stdin:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
        print("opened", flush=True)
    except OSError as error:
        print(error.strerror, flush=True)
"""


def test_a_process_opens_nothing_while_it_has_no_descriptors() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OPEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def said() -> str:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("open\n")
            return process.stdout.readline().strip()

        assert said() == "opened"
        before = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        taken = take_descriptors(process.pid)
        assert taken is not None
        assert said() == "Too many open files"
        taken.give_back()
        assert said() == "opened"
        assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == before
        process.stdin.close()
    taken.give_back()  # it is gone
    assert take_descriptors(process.pid) is None


def test_who_writes_into_a_pipe_that_stands_still_waits_and_nothing_is_lost(tmp_path: Path) -> None:
    pipe = LogPipe(tmp_path / "log")
    os.write(pipe.write_fd, b"before\n")
    wait_until(lambda: "before" in (tmp_path / "log").read_text())
    pipe.stand_still()
    os.set_blocking(pipe.write_fd, False)
    with pytest.raises(BlockingIOError):
        os.write(pipe.write_fd, b"x")
    os.set_blocking(pipe.write_fd, True)
    writer = threading.Thread(target=os.write, args=(pipe.write_fd, b"meanwhile\n"))
    writer.start()
    pipe.go_on()
    writer.join()
    os.close(pipe.write_fd)
    pipe.close()
    assert (tmp_path / "log").read_text().split() == ["before", "meanwhile"]
