import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from fastq.pool.shared.processes import kill_group
from tests.pool.harness import Beacon, gone, is_alive, run
from tests.waiting import PATIENCE_S

ROOT = os.getcwd()

ARMED = """
import collections, itertools, os, sys
os.setpgid(0, 0)
from fastq.pool.child.lifeline import arm
arm(int(sys.argv[1]), by_thread=sys.argv[2] == "thread")
if os.fork() == 0:
    while True: pass
print("armed", flush=True)
collections.deque(itertools.repeat(None), maxlen=0)
"""


def env() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([ROOT, *sys.path])}


@pytest.mark.parametrize("way", ["kernel", "thread"])
def test_a_cut_lifeline_kills_the_whole_group_though_the_gil_is_held(way: str) -> None:
    read_fd, write_fd = os.pipe()
    command = [sys.executable, "-c", ARMED, str(read_fd), way]
    child = subprocess.Popen(command, pass_fds=[read_fd], stdout=subprocess.PIPE, env=env())
    assert child.stdout is not None
    assert child.stdout.readline() == b"armed\n"
    assert child.poll() is None
    os.close(write_fd)
    os.close(read_fd)
    try:
        assert child.wait(PATIENCE_S) == -signal.SIGKILL
        # Its fork holds the other end of the pipe: end of file says that it is gone, too.
        assert select.select([child.stdout], [], [], PATIENCE_S)[0]
        assert child.stdout.read() == b""
    finally:
        kill_group(child.pid)  # should it have failed
        child.wait()
        child.stdout.close()


def test_a_lifeline_that_was_cut_before_it_was_armed_kills_at_once() -> None:
    read_fd, write_fd = os.pipe()
    os.close(write_fd)
    with subprocess.Popen(
        [sys.executable, "-c", ARMED, str(read_fd), "kernel"], pass_fds=[read_fd], env=env()
    ) as child:
        assert child.wait(PATIENCE_S) == -signal.SIGKILL
    os.close(read_fd)


IDLE = """
import os, signal, sys
os.setpgid(0, 0)
from fastq.pool.child.run import ChildSetup, Host
host = Host(ChildSetup(-1, int(sys.argv[1]), -1, -1, -1, 0))
if os.fork() == 0:
    signal.pause()
print("idle", flush=True)
host.sleep()
"""


def test_a_child_that_hears_of_the_end_before_its_lifeline_is_cut_takes_its_group_along() -> None:
    # The socket and the preloader's lifeline close together, and nobody watches over the group once its leader is gone.
    ours, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    command = [sys.executable, "-c", IDLE, str(far.fileno())]
    child = subprocess.Popen(command, pass_fds=[far.fileno()], stdout=subprocess.PIPE, env=env())
    far.close()
    assert child.stdout is not None
    assert child.stdout.readline() == b"idle\n"
    ours.close()
    try:
        assert child.wait(PATIENCE_S) == -signal.SIGKILL
        assert select.select([child.stdout], [], [], PATIENCE_S)[0], "its fork holds the other end of the pipe"
        assert child.stdout.read() == b""
    finally:
        kill_group(child.pid)
        child.wait()
        child.stdout.close()


class MainProgram:
    """A main process of its own, with a pool."""

    def __init__(self, argument: str, start_method: str, *orders: str) -> None:
        self.beacon = Beacon()
        texts = [json.dumps({"do": order, "beacon": self.beacon.path}) for order in orders]
        command = [sys.executable, "-m", "tests.pool.main_program", argument, "2", start_method, *texts]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, env=env(), text=True)
        self.preloader = int(self.line())

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def children(self) -> list[int]:
        return [int(pid) for pid in self.line().split()]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.beacon.close()


@contextlib.contextmanager
def main_program(argument: str, start_method: str, *orders: str) -> Iterator[MainProgram]:
    program = MainProgram(argument, start_method, *orders)
    try:
        yield program
    finally:
        program.close()


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
@pytest.mark.parametrize("order", ["spin", "hold_gil", "with_grandchildren", "noop"])
def test_nobody_is_left_behind_when_the_main_process_is_killed(order: str, start_method: str) -> None:
    with main_program("", start_method, order) as main:
        pids = [main.preloader, *main.children()]
        if order == "noop":
            assert main.line() == "0 DONE\n"
        else:
            pids += run(main.beacon.pids())
        assert all(is_alive(pid) for pid in pids)
        main.process.kill()
        run(gone(*pids))


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP])
def test_children_end_with_the_main_process_without_the_preloaders_help(blow: int) -> None:
    with main_program("", "forkserver", "with_grandchildren") as main:
        children = [*main.children(), *run(main.beacon.pids())]
        main.process.send_signal(signal.SIGSTOP)  # so that it does not see to them itself
        os.kill(main.preloader, blow)
        main.process.kill()
        run(gone(*children, main.preloader))


def test_children_end_with_the_preloader_though_the_main_process_stands_still() -> None:
    with main_program("", "forkserver", "with_grandchildren") as main:
        children = [*main.children(), *run(main.beacon.pids())]
        main.process.send_signal(signal.SIGSTOP)
        os.kill(main.preloader, signal.SIGKILL)
        run(gone(*children))


def test_the_preloader_ends_with_the_main_process_in_the_middle_of_an_import() -> None:
    with main_program("hang", "forkserver") as main:
        main.process.kill()
        run(gone(main.preloader))
