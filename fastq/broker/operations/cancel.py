"""Cancellation: a message to all servers to end a task, and the state that the task then gets.

asynq has one channel, whose messages are bare ids: the task is retried, or archived after its last attempt. fastq has a
second channel, whose messages are JSON objects with ``id``, ``queue`` and ``outcome``; asynq does not subscribe to it.
Such a message is sent first. The bare id follows, for asynq's servers.
"""

from enum import StrEnum
from typing import Final, NamedTuple

import orjson

from fastq.broker.operation import Flow, Operation, scripted
from fastq.broker.operations.ends import SubmitKey, read_state
from fastq.broker.operations.lease import id_word
from fastq.common.states import TaskState
from fastq.wire import keys
from fastq.wire.inbox import mark_of

IDS_A_CALL: Final = 5_000
FAR: Final = "far"
"""The task is deep in a long pending list: the caller finds its place by ``find_in_pending``, and tries again."""


class CancelAs(StrEnum):
    """The outcome of a canceled task."""

    RETRY = "retry"
    """The task is retried, as in asynq. After its last attempt, or if its handler decides so, it is archived."""
    ARCHIVE = "archive"
    """The task is archived, even if attempts are left."""
    DELETE = "delete"
    """The task is deleted, as if its handler had raised ``RevokeTask``."""


class Cancellation(NamedTuple):
    """A task to cancel; ``queue`` None means any queue, ``outcome`` None means that only a bare id was received."""

    task_id: str
    queue: str | None = None
    outcome: CancelAs | None = None

    def encode(self) -> bytes:
        """Return the message for fastq's channel."""
        outcome = self.outcome or CancelAs.RETRY
        return orjson.dumps({"id": self.task_id, "queue": self.queue, "outcome": outcome.value})


def cancel_processing(
    task_id: str, queue: str | None = None, outcome: str | None = None, *, by_id: bool = True
) -> Flow[None]:
    """Ask all servers to cancel a task that they have in flight; no server answers, so success proves nothing.

    ``outcome`` is "retry", "archive" or "delete"; asynq's servers always retry. ``by_id`` sends asynq's own message,
    too; without queue and outcome it is the only one. Raises ``ValueError`` for another outcome, before anything is
    sent.
    """
    cancellation = Cancellation(task_id, queue, None if outcome is None else _outcome(outcome))
    if queue is not None or outcome is not None:
        # This message is sent first, alone: if Redis refuses it, the second message must not make servers retry the
        # task.
        yield _publish(keys.CANCEL_AS_CHANNEL, cancellation.encode())
    if by_id:
        yield _publish(keys.CANCEL_CHANNEL, task_id)


def read_cancellation(text: str) -> Cancellation:
    """Parse a message of fastq's channel; ``ValueError`` if it is invalid; unknown fields are ignored."""
    try:
        body = orjson.loads(text)
    except ValueError as error:
        raise ValueError(f"{text!r:.200} is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise ValueError(f"{text!r:.200} is not a JSON object")
    task_id, queue, outcome = body.get("id"), body.get("queue"), body.get("outcome")
    if not isinstance(task_id, str) or not task_id:
        raise ValueError(f"{text!r:.200} names no task: id must be a string")
    if queue is not None and not isinstance(queue, str):
        raise ValueError(f"{text!r:.200} names no queue: it must be a string or null")
    return Cancellation(task_id, queue, _outcome(outcome))


def _outcome(name: object) -> CancelAs:
    try:
        return CancelAs(name)  # type: ignore[arg-type]  # any other value, of any type, is refused
    except ValueError:
        raise ValueError(f"outcome must be one of {', '.join(map(repr, map(str, CancelAs)))}, not {name!r}") from None


def _publish(channel: str, message: str | bytes) -> Operation[int]:
    # Without a key: in a cluster both messages go through the same node, and arrive in order. Idempotent: a repeated
    # message does no harm, while a lost message would.
    return Operation("PUBLISH", (), (channel, message), int, idempotent=True)


def cancel_task(task: SubmitKey) -> Flow[None]:
    """Delete a waiting task, or have a running task stopped and deleted.

    A task that has ended, or that another submit made, is left alone.
    """
    queue, task_id, _ = task
    state = yield read_state(*task)
    while state not in (None, TaskState.ACTIVE, TaskState.COMPLETED, TaskState.ARCHIVED):
        outcome = yield _delete(task, state)
        if outcome == FAR:
            seen_at = yield from find_in_pending(queue, task_id)
            outcome = yield _delete(task, state, seen_at)
        if not isinstance(outcome, str):
            return
        state = yield read_state(*task)  # the task has changed its state meanwhile
    if state is TaskState.ACTIVE:
        yield from cancel_processing(task_id, queue, CancelAs.DELETE)


def _delete(task: SubmitKey, state: TaskState, seen_at: str = "") -> Operation[object]:
    """Delete a task if it is in ``state``, with its unique lock; a str as the result says why it was not deleted."""
    queue, task_id, submit = task
    waiting = keys.pending(queue), keys.scheduled(queue), keys.retry(queue)
    ended = keys.archived(queue), keys.completed(queue)
    script_keys = (*waiting, *ended, keys.groups(queue), keys.aggregation_sets(queue))
    args = (keys.task_prefix(queue), keys.group_prefix(queue), task_id, seen_at, state.value, mark_of(submit))
    return scripted("delete_task", script_keys, args, lambda reply: reply.decode() if type(reply) is bytes else reply)


def find_in_pending(queue: str, task_id: str) -> Flow[str]:
    """Find a task's place in pending, counted from the newest, in several calls; "none" if it is not there."""
    word, start = id_word(task_id), 0
    while True:
        ids: list[bytes] = yield _newest_pending(queue, start)
        if word in ids:
            return str(start + ids.index(word))
        if len(ids) < IDS_A_CALL:
            return "none"
        start += len(ids)


def _newest_pending(queue: str, start: int) -> Operation[list[bytes]]:
    return Operation("LRANGE", (keys.pending(queue),), (start, start + IDS_A_CALL - 1), idempotent=True)
