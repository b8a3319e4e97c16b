"""Runs one task in this process, for ``fastq run``, with lifespan and middleware; errors propagate."""

import asyncio
import sys
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from inspect import isawaitable
from typing import Any

from fastq.checkpoint import Unserved
from fastq.common.encoding import encode_leniently
from fastq.mux import ServeMux
from fastq.running import CURRENT, RunningTask
from fastq.wire.messages import TaskMessage


class _Foreground(Unserved):
    """The context of a task that runs without a pool: no time limit, and results are printed."""

    deadline_ns = 0

    def __init__(self) -> None:
        self.started_ns = time.monotonic_ns()

    def write_result(self, data: bytes) -> None:
        """Print a result that the handler writes while it runs."""
        sys.stdout.write(f"{data.decode(errors='replace')}\n")

    def write_progress(self, data: bytes, is_soon: bool) -> None:
        """Print the progress that the handler reports."""
        if not is_soon:
            sys.stderr.write(f"progress: {data.decode()}\n")


def run_in_foreground(mux: ServeMux, task_type: str, payload: bytes) -> bytes | None:
    """Run a task's handler in this process, after the ``child_start`` hooks and before the ``child_stop`` hooks.

    Returns the result in the form in which a server would store it, None if there is none. All exceptions propagate.
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
    """Call a function, and await its result if that is awaitable."""
    outcome = function()
    return loop.run(_wait_for(outcome)) if isawaitable(outcome) else outcome


async def _wait_for(outcome: Awaitable[Any]) -> Any:
    return await outcome
