"""PID 1 reaps what nobody else does, and leaves its own children to those who started them."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from fastq.server.children.reaper import reap_orphans
from tests.pool.harness import run
from tests.waiting import until


def is_there(pid: int) -> bool:
    """Return whether a child runs, or is not reaped yet."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def exits(code: int) -> list[str]:
    return [sys.executable, "-S", "-c", f"raise SystemExit({code})"]


@pytest.fixture
def _signal_as_it_was() -> Iterator[None]:
    before = signal.getsignal(signal.SIGCHLD)
    yield
    signal.signal(signal.SIGCHLD, before)


@pytest.mark.usefixtures("_signal_as_it_was")
def test_orphans_are_reaped_and_own_children_are_left_to_their_starter() -> None:
    async def test() -> None:
        strangers: set[int] = set()  # the test's own processes besides are not to be reaped either

        class All(set[int]):
            def __contains__(self, pid: object) -> bool:
                return pid not in strangers

        reap_orphans(All)
        own = subprocess.Popen(exits(3))
        await until(lambda: os.waitid(os.P_PID, own.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None)
        for _ in range(3):
            command = exits(0)
            strangers.add(os.posix_spawn(command[0], command, {}))
        await asyncio.sleep(0)
        assert own.wait() == 3  # until then it hides the others
        await until(lambda: not any(map(is_there, strangers)))

    run(test())
