"""The handlers of ``bench_limits``: they hang in every way, leak, or work, and leave word in the directory BENCH_DIR.

A handler is live from its file ``live.<pid>.<id>`` until that is gone or the process is. Each counts the live ones as
it starts, so that nothing has to be guessed from outside.
"""

import asyncio
import itertools
import mmap
import os
import resource
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.apps import one_ms
from fastq import ServeMux
from fastq.running import RunningTask

mux = ServeMux()
LEAK: Final = 10 << 20
_KEPT: list[mmap.mmap] = []


def note(*words: object) -> None:
    """Append a line to the journal; short ones are never torn apart."""
    line = " ".join(map(str, words)) + "\n"
    fd = os.open(os.path.join(os.environ["BENCH_DIR"], "journal"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(fd, line.encode())
    finally:
        os.close(fd)


def is_running(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextmanager
def live(task: RunningTask, *pids: int) -> Iterator[None]:
    """Count as running while the handler runs, and record how many are live as it begins."""
    directory = Path(os.environ["BENCH_DIR"])
    mark = directory / f"live.{os.getpid()}.{task.id}"
    mark.touch()
    owners = [int(path.name.split(".")[1]) for path in directory.glob("live.*")]
    note("began", task.type, task.id, time.monotonic(), sum(map(is_running, owners)), os.getpid(), *pids)
    try:
        yield
    finally:
        mark.unlink(missing_ok=True)
        note("ended", task.type, task.id, time.monotonic())


@contextmanager
def measured() -> Iterator[None]:
    """Note when the handler ran, and how big its process has been."""
    began_s = time.monotonic()
    yield
    note("ran", began_s, time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def spin() -> None:
    """Loop in Python."""
    while True:
        pass


def loop_in_c() -> None:
    """Loop in one C call that keeps the interpreter and never looks for signals."""
    deque(itertools.repeat(None), maxlen=0)


@mux.handler("hang:spin")
def hang_spin(task: RunningTask) -> None:
    """Hang in Python."""
    with live(task):
        spin()


@mux.handler("hang:sleep")
def hang_sleep(task: RunningTask) -> None:
    """Hang in a system call."""
    with live(task):
        time.sleep(10**6)


@mux.handler("hang:c-loop")
def hang_in_c(task: RunningTask) -> None:
    """Hang in C, with the interpreter held."""
    with live(task):
        loop_in_c()


@mux.handler("hang:deaf")
def hang_deaf(task: RunningTask) -> None:
    """Hang whatever is raised."""
    with live(task):
        while True:
            try:
                spin()
            except BaseException:  # noqa: BLE001 - that is what it is for
                continue


@mux.handler("hang:grandchildren")
def hang_with_processes(task: RunningTask) -> None:
    """Hang in C, with a program and a process of its own that hang, too."""
    program, shell = (subprocess.Popen(words) for words in (["sleep", "1000"], ["sh", "-c", "sleep 1000 & wait"]))
    with live(task, program.pid, shell.pid):
        loop_in_c()


@mux.handler("hang:async-block")
async def hang_the_loop(task: RunningTask) -> None:
    """Block the event loop."""
    with live(task):
        time.sleep(10**6)


@mux.handler("hang:async-spin")
async def hang_the_loop_in_c(task: RunningTask) -> None:
    """Block the event loop, and the interpreter."""
    with live(task):
        loop_in_c()


@mux.handler("hang:async-deaf")
async def hang_and_swallow(task: RunningTask) -> None:
    """Swallow the cancellation."""
    with live(task):
        while True:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                continue


@mux.handler("hang:async-sleep")
async def hang_politely(task: RunningTask) -> None:
    """Wait for ever, and let the cancellation through."""
    with live(task):
        await asyncio.sleep(10**6)


@mux.handler("spinners")
def start_spinners(task: RunningTask) -> None:
    """Leave two processes behind that spin as long as this child lives."""
    for _ in range(2):
        subprocess.Popen([sys.executable, "-c", "while True: pass"])


@mux.handler("work:counted")
def work_counted(task: RunningTask) -> None:
    """Use about 5 ms of CPU, and count the live handlers."""
    with live(task):
        work(task)


@mux.handler("work:5ms")
def work(task: RunningTask) -> None:
    """Use about 5 ms of CPU."""
    with measured():
        for _ in range(5):
            one_ms()


def _use_10_mb() -> mmap.mmap:
    memory = mmap.mmap(-1, LEAK)  # by itself: what malloc keeps would make one side's pages cheaper
    for at in range(0, LEAK, mmap.PAGESIZE):
        memory[at] = 1
    for _ in range(20):
        one_ms()
    return memory


@mux.handler("memory:leak")
def leak(task: RunningTask) -> None:
    """Use about 20 ms of CPU, and keep 10 MB."""
    with measured():
        _KEPT.append(_use_10_mb())


@mux.handler("memory:free")
def free(task: RunningTask) -> None:
    """Use about 20 ms of CPU, and give 10 MB back."""
    with measured():
        _use_10_mb().close()
