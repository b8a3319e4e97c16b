"""Long tasks for whole workers. Each step that is done is a line in a file: the task's id, the step, the process."""

import asyncio
import logging
import os
import time
from pathlib import Path
from typing import Any

from fastq import App, Context, RunningTask
from tests.e2e.apps import tell

LEDGER = "LEDGER"
STEP_S = 0.004

app = App()
before = App()


def note(task: RunningTask, step: int | str) -> None:
    with Path(os.environ[LEDGER]).open("ab", buffering=0) as ledger:
        ledger.write(f"{task.id} {step} {os.getpid()}\n".encode())


def soon(retried: int, error: BaseException, task: RunningTask) -> float:
    return 0.0


@app.task("steps", retention=3600)
def steps(ctx: Context, count: int) -> int:
    for step in ctx.iterate(range(count), every=0):
        time.sleep(STEP_S)
        note(ctx, step)
    return count


@app.task("steps.async", retention=3600)
async def steps_async(ctx: Context, count: int) -> int:
    async for step in ctx.iterate(range(count), every=0):
        await asyncio.sleep(STEP_S)
        note(ctx, step)
    return count


@app.handler("states")
def states(task: RunningTask) -> Any:
    """Tell what it was given, keep a state of its own, and fail once the server is about to stop."""
    found = task.resume()
    logging.getLogger("shop").warning("it found %s", found)
    if found is not None:
        return found
    task.checkpoint({"page": 7})
    tell("saved", task)
    assert task.stopping.wait(600)
    raise ValueError("told to stop")


@app.handler("awaits")
async def awaits(task: RunningTask) -> bool:
    tell("waits", task)
    await task.stopping
    return bool(task.stopping)


@app.task("renamed", aliases=["old"])
def renamed(ctx: Context, id: int) -> None:
    note(ctx, id)


@before.task("old")
def old(ctx: Context, id: int) -> None:
    note(ctx, id)
