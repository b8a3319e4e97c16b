"""The app of the bench: handlers that work, and handlers that do what no handler should, on their first attempt.

Each writes its beginning and its end into the ledger. All that a server is to know of the bench is in its environment.
"""

import asyncio
import contextlib
import functools
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastq import Batch, FastqError, ServeMux
from fastq.running import RunningTask
from tests.chaos.ledger import LedgerWriter, What
from tests.chaos.slots import SlotLock
from tests.chaos.workload import JOBS

LEDGER: Final = "CHAOS_LEDGER"
GENERATION: Final = "CHAOS_GENERATION"
SLOTS_FILE: Final = "CHAOS_SLOTS_FILE"
SLOTS: Final = "CHAOS_SLOTS"
COROUTINES: Final = 4
THREADS: Final = 3
HOG_BYTES: Final = 220 << 20
CROWD: Final = 8
BATCH: Final = 16
LATE: Final = 60
LATE_S: Final = 0.005

mux = ServeMux()
_kept: list[object] = []


class Scribe:
    """Write down what runs in this process."""

    def __init__(self) -> None:
        self._ledger = LedgerWriter(os.environ[LEDGER], int(os.environ[GENERATION]))
        self._slots = SlotLock(os.environ[SLOTS_FILE], int(os.environ[SLOTS]))

    def begin(self, *tasks: RunningTask, is_async: bool = False) -> None:
        """Write down the beginning of a call, which has one slot for all of its tasks."""
        for task in tasks:
            self._ledger.write(task.id, What.BEGAN, task.retried)
        if not self._slots.enter(is_async=is_async, coroutines=COROUTINES + THREADS):
            self._ledger.write(tasks[0].id, What.OVERFULL, tasks[0].retried)

    def end(self, *tasks: RunningTask, what: What, is_async: bool = False) -> None:
        self._slots.leave(is_async=is_async)
        for task in tasks:
            self._ledger.write(task.id, what, task.retried)


@mux.child_start
@functools.cache
def scribe() -> Scribe:
    """Return this process' scribe; made before its first task, since locks and descriptors are not to be inherited."""
    return Scribe()


def written(handler: Callable[[RunningTask], object], *, in_thread: bool = False) -> Callable[[RunningTask], object]:
    """Write down the runs of a plain handler."""

    @functools.wraps(handler)
    def run(task: RunningTask) -> object:
        scribe().begin(task, is_async=in_thread)
        try:
            result = handler(task)
        except BaseException:
            scribe().end(task, what=What.RAISED, is_async=in_thread)
            raise
        scribe().end(task, what=What.RETURNED, is_async=in_thread)
        return result

    return run


def written_async(
    handler: Callable[[RunningTask], Coroutine[Any, Any, object]],
) -> Callable[[RunningTask], Coroutine[Any, Any, object]]:
    """Write down the runs of a coroutine handler."""

    @functools.wraps(handler)
    async def run(task: RunningTask) -> object:
        scribe().begin(task, is_async=True)
        try:
            result = await handler(task)
        except BaseException:
            scribe().end(task, what=What.RAISED, is_async=True)
            raise
        scribe().end(task, what=What.RETURNED, is_async=True)
        return result

    return run


def seconds(task: RunningTask) -> float:
    """Return how long a task is to work."""
    return float(task.json()["ms"]) / 1000


def retry_delay(retried: int, error: BaseException, task: RunningTask) -> float:
    """Try again soon: asynq's delays are longer than the bench."""
    return 0.1


@written
def quick(task: RunningTask) -> None:
    return None


for name in ("quick", "due", "unique"):
    mux.handle(name, quick, threads=False)


@mux.handler("work", threads=False)
@written
def work(task: RunningTask) -> None:
    until_s = time.process_time() + seconds(task)
    while time.process_time() < until_s:
        pass


@mux.handler("keep", threads=False)
@written
def keep(task: RunningTask) -> str:
    return task.id


def nap(task: RunningTask) -> None:
    time.sleep(seconds(task))


def nap_for_ever(task: RunningTask) -> None:
    if task.retried == 0:
        time.sleep(10**6)


mux.handle("thread", written(nap, in_thread=True))
mux.handle("thread-hang", written(nap_for_ever, in_thread=True))
mux.handle("hang", written(nap_for_ever), threads=False)


for name in ("nap", "long", "last", "blank", "outlast", "outlast-last"):
    mux.handle(name, written(nap), threads=False)


@mux.handler("late", threads=False)
@written
def late(task: RunningTask) -> str:
    """Write results long after the end."""

    def write() -> None:
        for _ in range(LATE):
            time.sleep(LATE_S)
            with contextlib.suppress(FastqError):
                task.write_result(task.id)

    threading.Thread(target=write, daemon=True).start()
    return task.id


@mux.handler("batch", threads=False, batch=BATCH, max_wait=0.02)
def batch(tasks: Batch[RunningTask]) -> list[str]:
    """Work for many tasks in one call, for as long as the longest of them."""
    scribe().begin(*tasks)
    try:
        time.sleep(max(map(seconds, tasks)))
    except BaseException:
        scribe().end(*tasks, what=What.RAISED)
        raise
    scribe().end(*tasks, what=What.RETURNED)
    return [task.id for task in tasks]


@mux.handler("bulky", threads=False)
@written
def bulky(task: RunningTask) -> str:
    return task.id * JOBS["bulky"].echoes


@mux.handler("loud", threads=False)
@written
def loud(task: RunningTask) -> None:
    sys.stderr.write(f"task {task.id} has something to say\n")
    sys.stderr.flush()


@mux.handler("flaky", threads=False)
@written
def flaky(task: RunningTask) -> None:
    if task.retried == 0:
        raise ValueError("not this time")


@written_async
async def async_sleep(task: RunningTask) -> None:
    await asyncio.sleep(seconds(task))


for name in ("async", "beside"):
    mux.handle(name, async_sleep)


@mux.handler("block")
@written_async
async def block(task: RunningTask) -> None:
    """Block the event loop, whatever is raised."""
    while task.retried == 0:
        try:
            time.sleep(60)
        except BaseException:  # noqa: BLE001 - that is what it is for
            continue


@mux.handler("deaf", threads=False)
@written
def deaf(task: RunningTask) -> None:
    """Go on whatever is raised."""
    while task.retried == 0:
        try:
            time.sleep(60)
        except BaseException:  # noqa: BLE001 - that is what it is for
            continue


@mux.handler("gil", threads=False)
@written
def hold_gil(task: RunningTask) -> None:
    """Stay for ever in one C call that holds the interpreter."""
    if task.retried == 0:
        deque(itertools.repeat(None), maxlen=0)


@mux.handler("async-hang")
@written_async
async def async_hang(task: RunningTask) -> None:
    if task.retried == 0:
        await asyncio.sleep(10**6)


@mux.handler("crash", threads=False)
@written
def crash(task: RunningTask) -> None:
    if task.retried == 0:
        os._exit(70)


@mux.handler("segfault", threads=False)
@written
def segfault(task: RunningTask) -> None:
    if task.retried == 0:
        os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(60)


@mux.handler("hog", threads=False)
@written
def hog(task: RunningTask) -> None:
    """Take more memory than a child may have, and keep it."""
    _kept.append(bytearray(b"x") * HOG_BYTES)


@mux.handler("crowd", threads=False)
@written
def crowd(task: RunningTask) -> None:
    """Start processes, and leave them behind."""
    _kept.extend(subprocess.Popen(["sleep", "600"]) for _ in range(CROWD))


@mux.handler("spin", threads=False)
@written
def spin(task: RunningTask) -> None:
    """Occupy the interpreter for so long, but for a moment every few hundred milliseconds; for ``--long``."""
    until_s = time.monotonic() + seconds(task)
    while time.monotonic() < until_s:
        deque(itertools.repeat(None, 50_000_000), maxlen=0)
