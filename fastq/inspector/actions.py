"""What an inspector does to one task, as flows."""

from typing import Final

from fastq.broker.inspect_queues import queue_exists
from fastq.broker.inspect_tasks import read_message, update_payload
from fastq.broker.operation import Flow, together
from fastq.codec import rewrite_task_message
from fastq.errors import QueueNotFoundError, TaskNotFoundError, TaskStateError
from fastq.inspector.checks import check_queue, check_task_id
from fastq.task import encode_payload

__all__ = ["update_task_payload"]

CHANGED: Final = -1
NOT_FOUND: Final = 0
DONE: Final = 1


def update_task_payload(queue: str, task_id: str, payload: object) -> Flow[None]:
    """Give a scheduled task another payload; its unique lock stays that of the old one, as in asynq."""
    data = encode_payload(payload)
    outcome: int | str = CHANGED
    while outcome == CHANGED:  # somebody else rewrote it between our look and our write
        message = yield from _message(check_queue(queue), check_task_id(task_id))
        outcome = yield update_payload(queue, task_id, message, rewrite_task_message(message, payload=data))
    if outcome == NOT_FOUND:
        raise TaskNotFoundError(queue, task_id)
    if outcome != DONE:
        raise TaskStateError(queue, task_id, "update", str(outcome))


def _message(queue: str, task_id: str) -> Flow[bytes]:
    exists, message = yield from together(queue_exists(queue), read_message(queue, task_id))
    if not exists:
        raise QueueNotFoundError(queue)
    if message is None:
        raise TaskNotFoundError(queue, task_id)
    found: bytes = message
    return found
