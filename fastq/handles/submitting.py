"""What makes a task one that a client waits for."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from fastq.broker.operations.ends import TaskKey
from fastq.errors import FastqError, not_a_task
from fastq.handles.handle import Decode
from fastq.handles.waits import Inbox
from fastq.results import EnqueueResults
from fastq.task import Task, TaskCall, with_options
from fastq.wire.inbox import INBOX_HEADER

__all__ = ["awaited", "decoder_of", "places_of"]

KEPT_S: Final = 3600
"""How long a submitted task is kept once it is completed, unless it says otherwise."""


def awaited(task: Task, checked: Mapping[str, Any], inbox: Inbox) -> Task:
    """Return a task with the checked options of a call, that is kept and tells an inbox of its end."""
    if not isinstance(task, Task):
        raise not_a_task(task)
    made = with_options(task, {"retention": KEPT_S, **task.options, **checked})
    made.headers = {**made.headers, INBOX_HEADER: inbox.name}
    if not made.options["retention"]:
        raise ValueError("retention must be more than 0 for a task that is submitted: its result would not be kept")
    if group := made.options.get("group"):
        raise ValueError(f"a task of a group, {group!r}, cannot be submitted: it becomes a part of another task")
    if inbox.waits is not None and (task_id := made.options.get("task_id")):
        inbox.waits.forget((made.options.get("queue", "default"), task_id))
    return made


def decoder_of(task: Task) -> Decode:
    """Return what turns the result of a task into a value: of any but a typed task it stays bytes."""
    return task.decode_result if isinstance(task, TaskCall) else _as_it_is


def places_of(results: EnqueueResults) -> Iterator[tuple[TaskKey, FastqError | None]]:
    """Yield where each task is, and why it was not enqueued if it was not."""
    for task_id, result in zip(results.ids(), results, strict=True):
        if isinstance(result, FastqError):
            yield ("", task_id), result
        else:
            yield (result.queue, task_id), None


def _as_it_is(result: bytes | None) -> bytes | None:
    return result
