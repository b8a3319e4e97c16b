"""Run one task in this process, as ``fastq run`` does: with lifespan and middleware, and its errors let out."""

import asyncio
import sys
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from inspect import isawaitable
from typing import Any

from fastq.encoding import encode_leniently
from fastq.mux import ServeMux
from fastq.running import CURRENT, RunningTask
from fastq.wire.messages import TaskMessage

__all__ = ["run_in_foreground"]


class _Foreground:
    """What a running task needs of a pool, where there is none: no time limit, and results are printed."""

    deadline_ns = 0

    def __init__(self) -> None:
        self.started_ns = time.monotonic_ns()

    def write_result(self, data: bytes) -> None:
        """Print a result that a handler writes meanwhile."""
        sys.stdout.write(f"{data.decode(errors='replace')}\n")


def run_in_foreground(mux: ServeMux, task_type: str, payload: bytes) -> bytes | None:
    """Run a task by its handler here and now, between the ``child_start`` and ``child_stop`` hooks.

    Return what it returned, as it would be kept; None for nothing. Whatever raises passes.
    """
    task = RunningTask(TaskMessage(task_type, payload, str(uuid.uuid4()), "default"), _Foreground())
    CURRENT.set(task)
    begins, ends = mux.child_hooks()
    with asyncio.Runner() as loop, ExitStack() as stack:
        for begin in begins:
            _call(loop, begin)
        for end in reversed(ends):
            stack.callback(_call, loop, end)
        result = _call(loop, lambda: mux.dispatch(task_type)(task))
    if result is None or isinstance(result, bytes):
        return result
    return encode_leniently(result)[0]


def _call(loop: asyncio.Runner, function: Callable[[], Any]) -> Any:
    """Call a function, and wait for what it returns if that can be awaited."""
    outcome = function()
    return loop.run(_wait_for(outcome)) if isawaitable(outcome) else outcome


async def _wait_for(outcome: Awaitable[Any]) -> Any:
    return await outcome
