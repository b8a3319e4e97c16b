"""The app of fastq's servers in the crowd: does what tasks say, as the Go peer does, and writes each run into a file.

A script stands where the peer looks for it: in the header "script", else in the payload. The files are in the server's
working directory, one a process, a line of JSON a run's beginning and its end.
"""

import asyncio
import base64
import functools
import itertools
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fastq import RevokeTask, ServeMux, SkipRetry, Task
from fastq.running import GroupedTask, RunningTask

RETRY_DELAY_S = 0.05
FOREVER_S = 600.0
AGGREGATED = "whole"
RUNS = itertools.count()

mux = ServeMux()


@functools.cache
def ledger() -> int:
    """Return this process' file; opened at its first task, as its forks are to have files of their own."""
    return os.open(f"ledger-{os.getpid()}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def write(**line: Any) -> None:
    os.write(ledger(), json.dumps(line).encode() + b"\n")


def script_of(task: Task) -> dict[str, Any]:
    text = task.headers.get("script", task.payload)
    try:
        script = json.loads(text)
    except ValueError:  # a payload that is none of ours
        return {}
    return script if isinstance(script, dict) else {}


def facts(task: RunningTask) -> dict[str, Any]:
    return {
        "server": str(os.getpid()),
        "id": task.id,
        "type": task.type,
        "payload": base64.b64encode(task.payload).decode(),
        "headers": dict(task.headers),
        "queue": task.queue,
        "retried": task.retried,
        "max_retry": task.max_retry,
        "start_ns": time.time_ns(),
    }


def play(script: dict[str, Any]) -> bytes | None:
    """Do what can be done without waiting."""
    text = script.get("text", "")
    match script.get("do", "ok"):
        case "ok":
            return None
        case "result":
            return base64.b64decode(script["result"])
        case "error":
            raise ValueError(text)
        case "skip":
            raise SkipRetry(text)
        case "revoke":
            raise RevokeTask(text)
        case "panic":
            raise ZeroDivisionError(text)
    raise SkipRetry(f"script: unknown do {script['do']!r}")


def is_over(task: RunningTask, script: dict[str, Any]) -> bool:
    """Return whether this attempt should succeed."""
    return bool(script.get("times")) and task.retried >= script["times"]


def lasts(script: dict[str, Any]) -> bool:
    return script.get("do") in ("sleep", "wait")


@contextmanager
def written(task: RunningTask) -> Iterator[None]:
    """Write down a run's beginning and its end; what stops it may come at once."""
    number = next(RUNS)
    outcome = "ok"
    try:
        write(run=number, **facts(task))
        yield
    except BaseException as error:
        outcome = f"{type(error).__name__}: {error}"
        raise
    finally:
        write(run=number, end_ns=time.time_ns(), outcome=outcome)


@mux.handler("job:")
@mux.handler("tick")
@mux.handler(AGGREGATED)
def handle(task: RunningTask) -> bytes | None:
    with written(task):
        script = script_of(task)
        if is_over(task, script):
            return None
        if lasts(script):
            time.sleep(FOREVER_S)
        return play(script)


@mux.handler("job:async")
async def handle_async(task: RunningTask) -> bytes | None:
    with written(task):
        script = script_of(task)
        if is_over(task, script):
            return None
        await asyncio.sleep(FOREVER_S if lasts(script) else 0)
        return play(script)


def retry_delay(retried: int, error: BaseException, task: RunningTask) -> float:
    return float(script_of(task).get("retry_in_ns", 0)) / 1e9 or RETRY_DELAY_S


def aggregate(group: str, tasks: Sequence[GroupedTask]) -> Task:
    """Make of a group what the peer's aggregator makes of it."""
    parts = [
        {"type": task.type, "payload": base64.b64encode(task.payload).decode(), "headers": dict(task.headers)}
        for task in tasks
    ]
    return Task(AGGREGATED, {"group": group, "tasks": parts})
