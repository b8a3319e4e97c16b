"""The handlers that the benchmarks of the worker run."""

import time
from typing import Final

from fastq import ServeMux
from fastq.running import RunningTask

mux = ServeMux()


@mux.handler("bench:noop")
def noop(task: RunningTask) -> None:
    """Do nothing."""


def _spin(loops: int) -> int:
    total = 0
    for number in range(loops):
        total += number * number % 7
    return total


LOOPS_A_MS: Final = 12_000
"""About 1 ms of CPU on the machines measured; the same work on both sides of a comparison is what counts."""


def one_ms() -> int:
    """Use about 1 ms of CPU."""
    return _spin(LOOPS_A_MS)


@mux.handler("bench:ms")
def cpu_bound(task: RunningTask) -> None:
    """Use about 1 ms of CPU."""
    one_ms()


@mux.handler("bench:when")
def when(task: RunningTask) -> bytes:
    """Return when the handler began."""
    return str(time.time_ns()).encode()


@mux.handler("bench:fails")
def fail(task: RunningTask) -> None:
    """Fail at every attempt, each task with a text of its own."""
    raise ValueError(f"no such order: {task.id}")


@mux.handler("bench:result")
def echo(task: RunningTask) -> bytes:
    """Return the payload."""
    return task.payload


@mux.handler("bench:fails-once")
def fail_once(task: RunningTask) -> bytes:
    """Fail at the first attempt; tell when the second one began."""
    if not task.retried:
        raise RuntimeError("the first attempt")
    return when(task)


def retry_soon(retried: int, error: object, task: object) -> float:
    """Retry after a second."""
    return 1.0


@mux.handler("bench:10ms")
def ten_ms(task: RunningTask) -> None:
    """Use about 10 ms of CPU."""
    _spin(10 * LOOPS_A_MS)


@mux.handler("bench:sleep")
def sleep(task: RunningTask) -> bytes:
    """Sleep for the seconds that the payload says; tell when it began."""
    began_ns = time.time_ns()
    time.sleep(float(task.payload))
    return str(began_ns).encode()
