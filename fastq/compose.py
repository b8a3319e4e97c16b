"""Compose: a task and its options become the message that is stored, and the place where it starts.

asynq's composeOptions. A time in the future goes to scheduled, even with a group; else a group to aggregating; else
pending.
"""

from collections.abc import Mapping

from fastq.broker.operations.enqueue import NewTask
from fastq.options import TaskOptions
from fastq.states import TaskState
from fastq.task import MAX_MESSAGE_BYTES, Task, lock_payload
from fastq.wire import keys
from fastq.wire.codec import encode_task_message
from fastq.wire.messages import TaskMessage

__all__ = ["compose", "message_of", "starting_state"]

SECOND_NS = 1_000_000_000


def starting_state(options: TaskOptions) -> TaskState:
    """Return the state in which a task with these options starts."""
    if options.process_at_ns is not None:
        return TaskState.SCHEDULED
    return TaskState.AGGREGATING if options.group else TaskState.PENDING


def message_of(task: Task, options: TaskOptions, headers: Mapping[str, str], task_id: str) -> TaskMessage:
    """Build the message of a new task; its unique key is the key of its lock."""
    return TaskMessage(
        type=task.type,
        payload=task.payload,
        id=task_id,
        queue=options.queue,
        retry=options.max_retry,
        timeout=options.timeout_s,
        deadline=options.deadline_s,
        unique_key=_lock(task, options) if options.unique_ttl_ns else "",
        group_key=options.group,
        retention=options.retention_s,
        headers=headers or None,  # a plain dict is known as a mapping at once, a proxy is not
    )


def compose(message: TaskMessage, options: TaskOptions, now_ns: int) -> NewTask:
    """Encode a message and add what the scripts need beside it; ``ValueError`` above Redis' size limit."""
    data = encode_task_message(message)
    if len(data) > MAX_MESSAGE_BYTES:
        raise ValueError(f"task {message.id} makes a message of {len(data)} bytes; Redis takes {MAX_MESSAGE_BYTES}")
    if not options.unique_ttl_ns and options.process_at_ns is None and not options.group:
        return NewTask(message.id, data)
    # A scheduled task's lock lasts from its time on (asynq: time until processAt + ttl).
    delay_ns = 0 if options.process_at_ns is None else options.process_at_ns - now_ns
    return NewTask(
        id=message.id,
        message=data,
        lock=message.unique_key,
        lock_ttl_s=(options.unique_ttl_ns + delay_ns) // SECOND_NS if message.unique_key else 0,
        run_at_s=0 if options.process_at_ns is None else options.process_at_ns // SECOND_NS,
        group=options.group,
    )


def _lock(task: Task, options: TaskOptions) -> str:
    if options.unique_key is not None:
        return keys.unique_for_key(options.queue, task.type, options.unique_key)
    return keys.unique(options.queue, task.type, lock_payload(task))
