"""Actions on one task: delete it, move it to the archive or to pending; each is atomic."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

from fastq.broker.inspect.tasks import containers
from fastq.broker.operation import Operation, Word, scripted
from fastq.broker.operations.finish import archive_bounds, archive_keys
from fastq.common.states import TaskState
from fastq.wire import keys

DONE: Final = 1
NOT_FOUND: Final = 0
ActionOutcome: TypeAlias = int | str | bytes
"""``DONE``, ``NOT_FOUND``, or why nothing was done (a state, "aggregation", ``FAR``).

Bytes mean done, and are a message that may name a lock to be released.
"""


@dataclass(frozen=True, slots=True)
class Target:
    """A task to act on; ``expected`` is the state that it must be in, None for any.

    ``seen_at`` is where ``find_in_pending`` found it.
    """

    queue: str
    id: str
    expected: TaskState | None = None
    seen_at: str = ""


def delete_task(task: Target) -> Operation[ActionOutcome]:
    """Delete a task and its unique lock; returns the message if it may name a lock that the hash does not."""
    return _action("delete_task", task, "")


def archive_task(task: Target, now: datetime) -> Operation[ActionOutcome]:
    """Move a task to the archive."""
    return _action("archive_task", task, *archive_bounds(now), more_keys=archive_keys(task.queue))


def run_task(task: Target, now_ns: int) -> Operation[ActionOutcome]:
    """Move a task to pending, behind all others."""
    return _action("run_task", task, now_ns)


def _action(name: str, task: Target, *more: Word, more_keys: tuple[str, ...] = ()) -> Operation[ActionOutcome]:
    queue = task.queue
    script_keys = (
        *containers(queue, active=False),
        keys.groups(queue),
        keys.aggregation_sets(queue),
        *more_keys,
    )
    expected = "" if task.expected is None else task.expected.value
    args = (keys.task_prefix(queue), keys.group_prefix(queue), task.id, task.seen_at, expected, *more)
    return scripted(name, script_keys, args, _parse)


def _parse(reply: Any) -> ActionOutcome:
    if isinstance(reply, bytes):
        return reply.decode(errors="replace")
    if isinstance(reply, list):
        message: bytes = reply[0]
        return message
    return int(reply)
