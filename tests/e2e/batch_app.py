"""Batch handlers for whole workers. Each call is a line in a file: how many tasks it had, and the process."""

import asyncio
import ctypes
import os
from pathlib import Path
from typing import Any

from fastq import Batch, RunningTask, ServeMux
from tests.e2e.apps import tell

LEDGER = "LEDGER"
SIZE = 64

mux = ServeMux()


def note(batch: Batch) -> None:
    with Path(os.environ[LEDGER]).open("ab", buffering=0) as ledger:
        ledger.write(f"{len(batch)} {os.getpid()}\n".encode())


def one(task: RunningTask) -> Any:
    order = task.json()
    if order == "die":
        ctypes.string_at(0)
    return ValueError(order) if order == "fail" else 2 * order


@mux.handler("plain", batch=SIZE, max_wait=600)
def plain(batch: Batch) -> list[Any]:
    note(batch)
    return [one(task) for task in batch]


@mux.handler("async", batch=SIZE, max_wait=600)
async def in_loop(batch: Batch) -> list[Any]:
    note(batch)
    await asyncio.sleep(0)
    assert asyncio.get_running_loop() is LOOP[0]
    return [one(task) for task in batch]


LOOP: list[asyncio.AbstractEventLoop] = []


@mux.child_start
async def loop() -> None:
    LOOP[:] = [asyncio.get_running_loop()]


@mux.handler("waits", batch=SIZE, max_wait=600)
def waits(batch: Batch) -> list[Any]:
    """Tell that it runs, and end once the server is about to stop, if the first task says so."""
    note(batch)
    tell("waits", batch[0])
    while not batch[0].stopping.wait(600):
        pass
    if batch[0].json() != "end":
        asyncio.run(asyncio.sleep(600))
    return [task.id for task in batch]


@mux.handler("now", batch=SIZE)
def now(batch: Batch) -> list[int]:
    note(batch)
    return [len(batch)] * len(batch)
