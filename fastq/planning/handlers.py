"""The handlers that a measurement runs: they do nothing, compute for a number of loops, or wait for a time.

The beginning of a task's payload, ``loops microseconds``, says what to do; the rest is padding.
"""

import asyncio
import time
from typing import Final

from fastq.mux import ServeMux
from fastq.running import RunningTask as Task

NOOP: Final = "fastq-bench:noop"
PLAIN: Final = "fastq-bench:plain"
ASYNC: Final = "fastq-bench:async"

_HEAD: Final = 24

mux = ServeMux()


def order(size: int, loops: int = 0, wait_us: int = 0) -> bytes:
    """Return a payload of ``size`` bytes, at least 24, that asks for this much work."""
    return f"{loops} {wait_us} ".encode().ljust(_HEAD, b".").ljust(size, b"\xa5")


def spin(loops: int) -> int:
    """Compute. Each loop takes equally long, because the numbers stay small."""
    total = 0
    for _ in range(loops):
        total = (31 * total + 7) % 1009
    return total


def _read(payload: bytes) -> tuple[int, float]:
    loops, wait_us, _ = payload[:_HEAD].split(b" ", 2)
    return int(loops), int(wait_us) / 1e6


@mux.handler(NOOP)
def do_nothing(task: Task) -> None:
    """Return at once."""


@mux.handler(PLAIN)
def work(task: Task) -> None:
    """Compute, then wait."""
    loops, wait_s = _read(task.payload)
    spin(loops)
    if wait_s:
        time.sleep(wait_s)


@mux.handler(ASYNC)
async def work_async(task: Task) -> None:
    """Compute, then wait without blocking other coroutines."""
    loops, wait_s = _read(task.payload)
    spin(loops)
    await asyncio.sleep(wait_s)
