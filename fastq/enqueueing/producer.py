"""How tasks are enqueued: a task and its options become a message, a starting state, and a flow that enqueues it.

A ``Producer`` is thread-safe. Between calls, it keeps only when queues were registered, and, with ``max_pending``,
their last lengths.
"""

from collections.abc import Mapping
from dataclasses import replace
from secrets import token_urlsafe
from typing import Any

from fastq._ids import new_task_id, next_task_id
from fastq.broker.operation import Flow
from fastq.broker.operations.enqueue import EnqueueBatch, NewTask, QueueRegister, enqueue_batches, error_of
from fastq.broker.operations.keyed import Found, KeyTerms
from fastq.common.clock import Clock, at_unix_ns
from fastq.common.encoding import PayloadCodec
from fastq.common.states import TaskState
from fastq.enqueueing.backlog import Backlog, MaxPending
from fastq.errors import BrokerError, hint_of_call
from fastq.info import TaskInfo, task_info
from fastq.options import NO_OPTIONS, TaskOptions, check_options, complete
from fastq.task import MAX_MESSAGE_BYTES, Task, lock_payload
from fastq.wire import keys
from fastq.wire.codec import encode_task_message
from fastq.wire.messages import CHECKPOINT_HEADER, KEY_HEADER, UNTIL_HEADER, TaskMessage

SECOND_NS = 1_000_000_000
PENDING = TaskState.PENDING  # each task needs it, and a look-up in the enum is slow


class Producer:
    """The flows that enqueue tasks, driven by either kind of client; ``bulk`` has the flow for many tasks."""

    def __init__(self, clock: Clock, max_pending: MaxPending | None = None) -> None:
        self.clock = clock
        self.register = QueueRegister(clock)
        self.max_pending = max_pending
        self.backlog = Backlog(clock)

    def enqueue(self, task: Task, options: Mapping[str, object]) -> Flow[TaskInfo]:
        """Return the flow that enqueues one task; the flow raises the task's error."""
        batch, info = compose(task, check_options(options) if options else NO_OPTIONS, self.clock.unix_ns())
        return self._put(batch, info)

    def _put(self, batch: EnqueueBatch, info: TaskInfo) -> Flow[TaskInfo]:
        if self.max_pending is not None:
            yield from self.backlog.room((batch,), self.max_pending)
        due = self.register.due((batch.queue,))
        report = yield from enqueue_batches(self.register.held([batch], due), due)
        outcome = report.outcomes[0][0]
        error = error_of(outcome, info.queue, info.id)
        self.register.done(() if isinstance(error, BrokerError) else due, report.registered)
        if error is not None:
            raise error
        return found_info(info, outcome) if batch.keyed else info


def as_task(task: Task | str, payload: Any, codec: PayloadCodec | None = None) -> Task:
    """Return the task that the first arguments of ``enqueue`` describe."""
    if isinstance(task, Task):
        if payload is not None:
            raise TypeError(f"a Task already has a payload; payload={payload!r} goes only with a type name")
        return task
    if callable(task):
        raise TypeError(f"task must be a fastq.Task or a type name, not {task!r}{hint_of_call(task)}")
    return Task(task, payload) if codec is None else Task(task, payload, codec=codec)


def compose(task: Task, given: Mapping[str, Any], now_ns: int, task_id: str = "") -> tuple[EnqueueBatch, TaskInfo]:
    """Return a batch of one task, and the task's description.

    ``given`` are checked options; they take precedence over the task's. ``task_id`` takes precedence over all options.
    ``ValueError`` for a message above Redis' size limit.
    """
    options = complete({**task.options, **given} if task.options else given, now_ns)
    # A lane starts tasks of the same second in the order of their ids, so these ids ascend.
    own_id = task_id or options.task_id or (next_task_id(now_ns) if options.in_lane else new_task_id())
    message = message_of(task, options, own_id)
    new = new_task_of(message, options, now_ns)
    batch = EnqueueBatch(options.queue, options.state, (new,), now_ns, options.in_lane)
    return batch, enqueued_info(message, options, now_ns)


def message_of(task: Task, options: TaskOptions, task_id: str) -> TaskMessage:
    """Build the message of a new task; its unique key is the key of its lock."""
    message = TaskMessage(task.type, task.payload, task_id, **options.fields)
    if options.unique_ttl_ns:
        message.unique_key = _lock(task, options)
    if task.headers or options.headers:
        message.headers = {**task.headers, **options.headers} if options.headers else task.headers
        if not _OWN.isdisjoint(message.headers):  # copied from a running task, and meant for it alone
            message.headers = {name: text for name, text in message.headers.items() if name not in _OWN}
    if options.if_there:
        message.headers = {**message.headers, KEY_HEADER: token_urlsafe(9)}
    elif options.unique_ttl_ns and options.until in ("start", "end"):
        message.headers = {**message.headers, UNTIL_HEADER: options.until}
    return message


_OWN = frozenset({CHECKPOINT_HEADER, KEY_HEADER, UNTIL_HEADER})


def _lock(task: Task, options: TaskOptions) -> str:
    if options.unique_key is not None:
        return keys.unique_for_key(options.queue, task.type, options.unique_key)
    return keys.unique(options.queue, task.type, lock_payload(task))


def new_task_of(message: TaskMessage, options: TaskOptions, now_ns: int) -> NewTask:
    """Encode a message, and add the other arguments of the scripts; raise ``ValueError`` above Redis' size limit."""
    lock = message.unique_key
    if options.until == "expiry":
        message.unique_key = ""  # a server releases the lock that a message names; this lock only expires
    data = encode_task_message(message)
    if len(data) > MAX_MESSAGE_BYTES:
        raise ValueError(
            f"task {message.id} has a message of {len(data)} bytes; the limit of Redis is {MAX_MESSAGE_BYTES}"
        )
    if options.state is PENDING and not options.unique_ttl_ns and not options.if_there:
        return NewTask(message.id, data)
    run_at_ns = options.process_at_ns
    if options.if_there:
        return _keyed(message, data, options)
    # The TTL of a scheduled task's lock counts from the task's due time, as in asynq.
    deadline_s = options.fields["deadline"]
    delay_ns = 0 if run_at_ns is None else run_at_ns - now_ns
    return NewTask(
        id=message.id,
        message=data,
        lock=lock,
        lock_ttl_s=(options.unique_ttl_ns + delay_ns) // SECOND_NS if lock else 0,
        run_at_s=0 if run_at_ns is None else run_at_ns // SECOND_NS,
        group=options.fields["group_key"],
        priority=f"{options.priority}:{deadline_s}" if deadline_s else options.priority,
    )


def _keyed(message: TaskMessage, data: bytes, options: TaskOptions) -> NewTask:
    run_at_s, latest_s = (options.process_at_ns or 0) // SECOND_NS, options.latest_ns // SECOND_NS
    if latest_s:
        run_at_s = min(run_at_s, latest_s)
    terms = KeyTerms(options.if_there, message.headers[KEY_HEADER], latest_s)
    return NewTask(message.id, data, run_at_s=run_at_s, terms=terms)


def enqueued_info(message: TaskMessage, options: TaskOptions, now_ns: int) -> TaskInfo:
    """Describe a task that has just been enqueued."""
    next_ns = now_ns if options.state is PENDING else options.process_at_ns
    next_process_at = None if next_ns is None else at_unix_ns(next_ns)
    return task_info(message, options.state, next_process_at=next_process_at)


def found_info(info: TaskInfo, outcome: object) -> TaskInfo:
    """Return the description of a task that was enqueued by key, with the outcome for the key."""
    if not isinstance(outcome, Found):
        return info
    if outcome.state is None:
        return replace(info, key_outcome=outcome.outcome)
    at = at_unix_ns(outcome.run_at_s * SECOND_NS) if outcome.run_at_s else None
    return replace(info, key_outcome=outcome.outcome, state=outcome.state, next_process_at=at)
