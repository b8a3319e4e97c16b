"""Moves tasks to another queue, maybe on another node, in steps that may be interrupted and repeated.

The steps: park a task in its queue (claim), park a copy in the other queue (``put_tasks``), delete the task from its
queue and leave a note there (commit), put the copy into the task's state (unpark), delete the note (forget). No server
runs a parked task, so two copies can never run. The places where a task is parked show how far its move came. A copy
carries the token of its move. If a copy of another move has already arrived, it may have run, so a later copy is
dropped.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fastq.broker.inspect.bulk import BulkResult
from fastq.broker.inspect.tasks import containers
from fastq.broker.operation import Operation, Word, scripted
from fastq.broker.operations.walk import Source
from fastq.broker.transport.replies import fields_of
from fastq.wire import keys


class ParkedTask(NamedTuple):
    """A parked task: its locks in the other queue and in this one, and ``by``, the token of the move that parked it.

    ``by`` is empty in the queue that the task comes from.
    """

    id: bytes
    by: str = ""
    lock: str = ""
    old_lock: str = ""


def claim_tasks(source: Source, ids: Sequence[bytes], token: str, target: str, place: int) -> Operation[int]:
    """Park some tasks behind a given place of their list or set; returns how many were still there."""
    queue = source.queue
    return scripted(
        "claim_tasks",
        (source.key, keys.moving(queue), keys.groups(queue)),
        (keys.task_prefix(queue), source.state.value, source.group, token, target, place, *ids),
        int,
    )


def commit_move(queue: str, token: str, tasks: Sequence[ParkedTask]) -> Operation[list[int]]:
    """Delete tasks whose copies are parked elsewhere: 1 if done, 0 if the copy is of another move or is late."""
    words: list[Word] = [word for task in tasks for word in (task.id, task.old_lock, task.by)]
    return scripted(
        "commit_move",
        (keys.moving(queue), keys.moved(queue)),
        (keys.task_prefix(queue), token, *words),
        idempotent=True,
    )


def unpark_tasks(queue: str, token: str, tasks: Sequence[ParkedTask], *, back: bool = False) -> Operation[BulkResult]:
    """Put parked tasks into their states, pending ones behind all others, or with ``back`` before them.

    Tasks that are put back do not count as done.
    """
    script_keys = (
        keys.moving(queue),
        *containers(queue, active=False),
        keys.groups(queue),
        keys.scheduled_groups(queue),
    )
    words: list[Word] = [word for task in tasks for word in (task.id, task.by)]
    args: list[Word] = [keys.task_prefix(queue), keys.group_prefix(queue), token, "1" if back else "", *words]
    return scripted(
        "unpark_tasks",
        script_keys,
        args,
        lambda count: BulkResult(len(tasks), 0 if back else count, []),
        idempotent=True,
    )


def drop_parked(queue: str, token: str, tasks: Sequence[ParkedTask]) -> Operation[int]:
    """Delete parked tasks of a move that their original queue no longer knows."""
    words: list[Word] = [word for task in tasks for word in (task.id, task.lock, task.by)]
    args: list[Word] = [keys.task_prefix(queue), token, *words]
    return scripted("drop_parked", (keys.moving(queue),), args, int, idempotent=True)


def read_notes(queue: str) -> Operation[dict[bytes, bytes]]:
    """Read the notes on tasks that left a queue, ``token:id`` to ``by:queue``; at most 200 per interrupted move."""
    return Operation("HGETALL", (keys.moved(queue),), (), fields_of, idempotent=True)


def forget_move(queue: str, token: str, ids: Sequence[bytes]) -> Operation[int]:
    """Delete the notes on tasks that are in the other queue now."""
    notes = [token.encode() + b":" + task_id for task_id in ids]
    return Operation("HDEL", (keys.moved(queue),), notes, int, idempotent=True)


def count_parked(queue: str) -> Operation[int]:
    """Count the parked tasks of a queue, whose move between it and another queue has not ended."""
    return Operation("ZCARD", (keys.moving(queue),), (), int, idempotent=True)
