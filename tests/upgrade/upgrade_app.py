"""The app that servers of both versions run: its handlers write down what they have done.

It uses only what both versions have. Each line of the ledger is an id, the word of what happened, and the server.
"""

import asyncio
import json
import os
import time
from collections.abc import Sequence

from fastq import ServeMux, SkipRetry, Task, current_task

LEDGER = "UPGRADE_LEDGER"
SERVER = "UPGRADE_SERVER"

mux = ServeMux()


def note(task_id: str, what: str) -> None:
    line = f"{task_id} {what} {os.environ[SERVER]}\n".encode()
    file = os.open(os.environ[LEDGER], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line)
    finally:
        os.close(file)


def done() -> None:
    task = current_task()
    assert task is not None
    note(task.id, "done")


@mux.handler("plain")
@mux.handler("late")
@mux.handler("unique")
def plain(task: object) -> None:
    done()


@mux.handler("long")
def long(task: object) -> None:
    time.sleep(1.5)
    done()


@mux.handler("kept")
def kept(task: object) -> bytes:
    done()
    found = current_task()
    assert found is not None
    return found.id.encode()


@mux.handler("async")
async def in_loop(task: object) -> None:
    await asyncio.sleep(0.01)
    done()


@mux.handler("flaky")
def flaky(task: object) -> None:
    found = current_task()
    assert found is not None
    if found.retried == 0:
        note(found.id, "failed")
        raise ValueError("not this time")
    done()


@mux.handler("broken")
def broken(task: object) -> None:
    done()
    raise SkipRetry("for good")


@mux.handler("tick")
def tick(task: object) -> None:
    found = current_task()
    assert found is not None
    note(found.id, "tick")


@mux.handler("digest")
def digest(task: object) -> None:
    found = current_task()
    assert found is not None
    for task_id in json.loads(found.payload):
        note(task_id, "done")


def aggregate(group: str, tasks: Sequence[Task]) -> Task:
    return Task("digest", [task.payload.decode() for task in tasks])


def retry_delay(retried: int, error: BaseException, task: object) -> float:
    return 0.2
