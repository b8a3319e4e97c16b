"""What a task and its options need in addition, so that a client can wait for the task."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from fastq.errors import not_a_task
from fastq.handles.handle import Decode
from fastq.handles.waits import Inbox
from fastq.options import EnqueueOptions, check_options
from fastq.task import Task, TaskCall, with_options
from fastq.wire.inbox import INBOX_HEADER, SUBMIT_HEADER

KEPT_S: Final = 3600
"""How long a submitted task is kept once it is completed, unless it has a ``retention``."""


def awaited(task: Task, checked: Mapping[str, Any], inbox: Inbox) -> Task:
    """Return a copy of a task with the call's checked options, a retention, and headers that name the inbox."""
    if not isinstance(task, Task):
        raise not_a_task(task)
    made = with_options(task, {"retention": KEPT_S, **task.options, **checked})
    made.headers = {**made.headers, **_headers(inbox)}
    _check(made.options)
    return made


def awaited_together(tasks: Iterable[Task], options: EnqueueOptions, inbox: Inbox) -> tuple[list[Task], EnqueueOptions]:
    """Return tasks, and options for all of them: the effect is that of ``awaited`` on each task.

    Options of the whole call cost much less than options of each task. If only some tasks have a retention of their
    own, each task gets its own options all the same.
    """
    checked, listed = check_options(options), list(tasks)
    has_own = set()
    for task in listed:
        if not isinstance(task, Task):
            raise not_a_task(task)
        has_own.add("retention" in task.options)
        _check({"retention": KEPT_S, **task.options, **checked})
    if len(has_own) > 1 and "retention" not in checked:
        return [awaited(task, checked, inbox) for task in listed], {}
    made: EnqueueOptions = {**options, "headers": {**checked.get("headers", {}), **_headers(inbox)}}
    return listed, made if True in has_own or "retention" in checked else {**made, "retention": KEPT_S}


def _headers(inbox: Inbox) -> dict[str, str]:
    return {INBOX_HEADER: inbox.name, SUBMIT_HEADER: inbox.submit}


def _check(options: Mapping[str, Any]) -> None:
    """Refuse a task that nobody can wait for."""
    if not options["retention"]:
        raise ValueError("retention must be more than 0 for a task that is submitted: its result would not be kept")
    if group := options.get("group"):
        raise ValueError(f"a task of a group, {group!r}, cannot be submitted: it becomes a part of another task")
    if key := options.get("key"):
        raise ValueError(
            f"a task with a key, {key!r}, cannot be submitted: the one that runs may be another; enqueue it, and wait "
            "for whichever runs by client.wait(queue, key)"
        )


def decoder_of(task: Task) -> Decode:
    """Return the function that decodes the result of a task; only results of typed tasks are decoded."""
    return task.decode_result if isinstance(task, TaskCall) else _as_it_is


def _as_it_is(result: bytes | None) -> bytes | None:
    return result
