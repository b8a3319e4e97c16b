"""The coroutines that the worker's benchmarks run, in an app of their own: they change what a child may hold."""

import asyncio

from fastq import ServeMux
from fastq.running import RunningTask

mux = ServeMux()


@mux.handler("bench:nap")
async def nap(task: RunningTask) -> None:
    """Wait for 10 ms."""
    await asyncio.sleep(0.01)


@mux.handler("bench:hold")
async def hold(task: RunningTask) -> None:
    """Wait for a minute."""
    await asyncio.sleep(60.0)


@mux.handler("bench:noop")
async def noop(task: RunningTask) -> None:
    """Do nothing."""
