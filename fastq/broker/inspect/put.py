"""Puts tasks of another queue or of a file into a queue, with all fields, their state and the time left of locks."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from fastq.broker.inspect.tasks import containers
from fastq.broker.operation import Flow, Operation, Word, scripted
from fastq.broker.operations.finish import ARCHIVE_MAX_SIZE
from fastq.wire import keys
from fastq.wire.codec import rewrite_task_message, view_task_message

WORDS_A_CALL: Final = 3_900
MOVING = "moving"
"""The state of a task between two queues; not one of asynq's."""


class PutOutcome(IntEnum):
    """The outcome for a task; the numbers are the script's."""

    DONE = 1
    WITHOUT_LOCK = 2
    DONE_BEFORE = 3
    ID_CONFLICT = 0
    DUPLICATE = -1
    ARCHIVE_FULL = -2


class TaskToPut(NamedTuple):
    """A task as it will be stored.

    ``lock_ms`` is None for a lock that never expires. An empty ``lock`` means no lock. ``fields`` are all fields of the
    hash except the state.
    """

    id: bytes
    state: str
    fields: Mapping[bytes, bytes]
    score: str = ""
    group: bytes = b""
    lock: str = ""
    lock_ms: int | None = None


def put_tasks(
    queue: str,
    tasks: Sequence[TaskToPut],
    *,
    token: str = "",
    is_trial: bool = False,
    most_archived: int = ARCHIVE_MAX_SIZE,
) -> Flow[list[PutOutcome]]:
    """Put tasks into a queue, each unless its id exists; ``is_trial`` writes nothing and returns the same results.

    Tasks that would fill the archive beyond ``most_archived`` are not put. With the ``token`` of a move, tasks are
    parked instead if their locks are free, and the call may be repeated. Above 3 900 words the flow makes several
    calls.
    """
    width = 6 + 2 * max(len(task.fields) for task in tasks)
    terms = (token, "1" if is_trial else "", width, most_archived)
    a_call = max(1, WORDS_A_CALL // width)
    outcomes: list[PutOutcome] = []
    for at in range(0, len(tasks), a_call):
        words = [word for task in tasks[at : at + a_call] for word in _words(task, width)]
        outcomes += yield _put(queue, (*terms, *words), is_repeatable=is_trial or bool(token))
    return outcomes


def _put(queue: str, args: tuple[Word, ...], *, is_repeatable: bool) -> Operation[list[PutOutcome]]:
    script_keys = (
        *containers(queue, active=False),
        keys.groups(queue),
        keys.moving(queue),
        keys.scheduled_groups(queue),
    )
    return scripted(
        "put_tasks",
        script_keys,
        (keys.task_prefix(queue), keys.group_prefix(queue), *args),
        lambda reply: list(map(PutOutcome, reply)),
        idempotent=is_repeatable,
    )


def _words(task: TaskToPut, width: int) -> list[Word]:
    words: list[Word] = [task.id, task.state, task.score, task.group, task.lock]
    words.append("" if task.lock_ms is None else task.lock_ms)
    words += [word for pair in task.fields.items() for word in pair]
    return words + [""] * (width - len(words))


def readdress(fields: Mapping[bytes, bytes], source: str, target: str) -> dict[bytes, bytes]:
    """Return a task's fields for another queue: its message and its unique lock name that queue.

    ``InvalidMessageError`` if its message cannot be read.
    """
    message = fields[b"msg"]
    old, new = keys.queue_prefix(source), keys.queue_prefix(target)
    lock = view_task_message(message).unique_key
    changed = {**fields, b"msg": rewrite_task_message(message, queue=target)}
    if lock.startswith(old):
        changed[b"msg"] = rewrite_task_message(changed[b"msg"], unique_key=new + lock.removeprefix(old))
    noted = fields.get(b"unique_key", b"")
    if noted.startswith(old.encode()):
        changed[b"unique_key"] = new.encode() + noted.removeprefix(old.encode())
    return changed


def lock_of(queue: str, unique_key: str) -> str:
    """Return the unique lock that a message names; empty if that is no lock of the queue, but some other key."""
    return unique_key if unique_key.startswith(f"{keys.queue_prefix(queue)}unique:") else ""


def read_holder(lock: str) -> tuple[Operation[bytes | None], Operation[int]]:
    """Read the id of the task that has a unique lock, and for how many milliseconds: -1 forever."""
    return Operation("GET", (lock,), (), idempotent=True), Operation("PTTL", (lock,), (), int, idempotent=True)


def read_lock(lock: str, task_id: bytes) -> Operation[int]:
    """Return how many milliseconds a task still holds its unique lock: -1 forever, -2 if it does not hold it."""
    return scripted("read_lock", (lock,), (task_id,), int, idempotent=True)
