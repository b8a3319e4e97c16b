"""Marks: what fastq's own headers of a task demand of the server that runs the task."""

from enum import IntFlag
from typing import Final, NamedTuple

from fastq.errors import InvalidMessageError
from fastq.wire.codec import decode_task_message
from fastq.wire.inbox import Awaiter, awaiter_in
from fastq.wire.messages import KEY_HEADER, UNTIL_HEADER


class Mark(IntFlag):
    """The marks of a task."""

    KEYED = 1
    """The task was enqueued by key, so a later enqueue may have asked for another run of it."""
    UNLOCK_AT_START = 2
    """The task's unique lock is released before the task runs, or when it is archived."""
    UNLOCK_AT_END = 4
    """The task's unique lock is released not only when the task completes, but also when it is archived."""


EARLY_UNLOCK: Final = Mark.UNLOCK_AT_START.value | Mark.UNLOCK_AT_END.value
"""The marks of tasks whose unique locks are released no later than when the task is archived."""


class Asked(NamedTuple):
    """The client that waits for a task, and the marks of the task, 0 for none."""

    awaiter: Awaiter | None = None
    marks: int = 0


_NOTHING = Asked()
_UNTIL = {"start": Mark.UNLOCK_AT_START.value, "end": Mark.UNLOCK_AT_END.value}


def asked_of(data: bytes) -> Asked:
    """Return what a task's headers demand of the server."""
    try:
        headers = decode_task_message(data).headers
    except InvalidMessageError:
        return _NOTHING  # the child reports the invalid message
    marks = _UNTIL.get(headers.get(UNTIL_HEADER, ""), 0)
    if KEY_HEADER in headers:
        marks |= Mark.KEYED.value
    return Asked(awaiter_in(headers), marks)
