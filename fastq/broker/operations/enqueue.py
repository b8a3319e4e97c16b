"""Enqueue: the operations that put new tasks into a queue, and the flow that does it and settles lost replies.

Redis is never asked twice blindly. When the reply of an enqueue was lost, the flow looks for each task by its id. A
task with the same type and payload, in any state, is success. A missing task is sent again. So a task that has run and
been deleted by then is enqueued a second time; the promise is at least once. The script that puts tasks by their keys
looks for them itself, when an argument says that the script may have run before.

A request that Redis refuses for the moment is sent again, with pauses: the slot of the queue is moving, or the
connection led to a replica.
"""

import logging
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from fastq.broker.operation import Flow, Operation, Pause, Soon, Word
from fastq.broker.operations.keyed import Found, KeyTerms, found_of, keyed_keys
from fastq.broker.operations.lanes import lane_keys
from fastq.broker.scripts import SCRIPTS, Script
from fastq.broker.transport.exchange import ATTEMPTS, backoff_s
from fastq.common.clock import Clock
from fastq.common.states import KeyOutcome, TaskState
from fastq.errors import (
    BrokerError,
    BrokerTimeoutError,
    DuplicateTaskError,
    FastqError,
    InvalidMessageError,
    QueueFullError,
    TaskIDConflictError,
)
from fastq.wire import keys
from fastq.wire.codec import decode_task_message
from fastq.wire.inbox import SUBMIT_HEADER

REGISTER_EVERY_S: Final = 10.0
_NO_ROOM: Final = -3

_log = logging.getLogger("fastq.client")
_registers: Final[list[weakref.ref["QueueRegister"]]] = []


class EnqueueOutcome(IntEnum):
    """The outcome for a new task; the numbers are the scripts'."""

    ENQUEUED = 1
    ID_CONFLICT = 0
    DUPLICATE = -1
    TAKEN = -2
    """Another scheduler has enqueued the task of this tick."""


Outcome: TypeAlias = EnqueueOutcome | Found | BrokerError


def error_of(outcome: Outcome, queue: str, task_id: str) -> FastqError | None:
    """Return the error for an outcome, None for success."""
    if outcome is EnqueueOutcome.ENQUEUED or isinstance(outcome, Found):
        return None
    if isinstance(outcome, BrokerError):
        return outcome
    return (TaskIDConflictError if outcome is EnqueueOutcome.ID_CONFLICT else DuplicateTaskError)(queue, task_id)


class NewTask(NamedTuple):
    """The facts about one new task that the scripts need; the message is encoded.

    ``terms`` say how the task is put if its id is its key. ``priority`` is its priority in its lane; a colon and a
    deadline in Unix seconds may follow, for lanes that are ordered by deadline.
    """

    id: str
    message: bytes
    lock: str = ""
    lock_ttl_s: int = 0
    run_at_s: int = 0
    group: str = ""
    terms: KeyTerms | None = None
    priority: int | str = 0


@dataclass(frozen=True, slots=True)
class EnqueueBatch:
    """New tasks of one queue that start in the same state; one script call writes them, in order.

    The caller limits their number and bytes: 500 tasks with 256 kB in total keep Redis busy for about 2 ms. All or none
    are ``keyed``.
    """

    queue: str
    state: TaskState
    tasks: Sequence[NewTask]
    now_ns: int
    in_lane: bool = False
    """Whether the groups of the tasks are lanes."""
    register: "QueueRegister | None" = None
    """If given, the script looks at the limit of the queue, and this register notes whether there is a limit."""

    @property
    def keyed(self) -> bool:
        """Return whether the tasks' ids are their keys."""
        return bool(self.tasks) and self.tasks[0].terms is not None


class EnqueueReport(NamedTuple):
    """The report of ``enqueue_batches``: the registered queues, and each task's outcome or error, by batch."""

    registered: list[str]
    outcomes: list[Sequence[Outcome]]


def register_queue(queue: str) -> Operation[int]:
    """Add a queue to the set that inspectors list."""
    return Operation("SADD", (keys.all_queues(),), (queue,), int, idempotent=True)


class QueueRegister:
    """The queues that one client has added to ``asynq:queues`` in the last 10 s.

    asynq remembers such queues forever, so that a queue deleted elsewhere never returns to the list.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._fresh_until: dict[str, float] = {}
        self._limited: set[str] = set()
        self._unlisted: set[str] = set()
        _registers.append(weakref.ref(self, _registers.remove))

    def due(self, queues: Iterable[str]) -> list[str]:
        """Return those of ``queues`` that must be registered again."""
        now = self._clock.monotonic_s()
        return [queue for queue in queues if self._fresh_until.get(queue, 0.0) <= now]

    def done(self, due: Iterable[str], registered: Iterable[str]) -> None:
        """Note the registered queues; log once for each ``due`` queue that is not among them.

        If the tasks of a queue failed, too, their errors show the cause, so the caller leaves that queue out of
        ``due``.
        """
        until = self._clock.monotonic_s() + REGISTER_EVERY_S
        for queue in registered:
            self._fresh_until[queue] = until
        for queue in set(due).difference(registered, self._unlisted):
            self._unlisted.add(queue)
            _log.warning("queue %r could not be added to asynq:queues; inspectors do not list it", queue)

    def held(self, batches: list[EnqueueBatch], due: Sequence[str]) -> list[EnqueueBatch]:
        """Return the batches; those whose queue has a limit, or may have got one, will check it.

        A call that registers a queue checks its limit. Other calls do so only once a limit is known.
        """
        if not due and not self._limited:
            return batches
        asked = self._limited.union(due)
        return [
            replace(batch, register=self) if batch.state is TaskState.PENDING and batch.queue in asked else batch
            for batch in batches
        ]

    def note_limit(self, queue: str, *, is_limited: bool) -> None:
        """Note whether a queue has a limit of pending tasks."""
        (self._limited.add if is_limited else self._limited.discard)(queue)

    def forget(self, queue: str) -> None:
        """Register a queue again with its next task."""
        self._fresh_until.pop(queue, None)


def forget_registered(queue: str) -> None:
    """Let all clients of this process register a queue again with its next task, since it was deleted from the list."""
    for reference in tuple(_registers):  # copied in one step, since other threads may make clients
        register = reference()
        if register is not None:
            register.forget(queue)


def enqueue_batches(batches: Sequence[EnqueueBatch], register: Sequence[str]) -> Flow[EnqueueReport]:
    """Enqueue batches and register queues in one round trip; settle lost replies."""
    results = yield enqueue_operations(batches, register)
    return (yield from settle_enqueue(batches, register, results))


def enqueue_operations(batches: Sequence[EnqueueBatch], register: Sequence[str]) -> tuple[Operation[Any], ...]:
    """Return the operations of one round trip that enqueues batches and registers queues."""
    # Not idempotent: else a registration without a reply would be repeated, and waited for, before the tasks are
    # settled. Registrations are repeated after that.
    registering = (replace(register_queue(queue), idempotent=False) for queue in register)
    return (*registering, *map(_operation, batches))


def settle_enqueue(
    batches: Sequence[EnqueueBatch], register: Sequence[str], results: Sequence[Any], beside: Sequence[Any] = ()
) -> Flow[EnqueueReport]:
    """Turn the results of ``enqueue_operations`` into outcomes; settle lost replies, repeat temporary refusals.

    ``beside`` are the results of other operations of the same round trip.
    """
    outcomes: list[Sequence[Outcome]] = []
    for batch, first in zip(batches, results[len(register) :], strict=True):
        result = first
        if isinstance(result, BrokerError) and result.tries > 1:
            result = yield from _try_again(batch, result)
        if not isinstance(result, BrokerError):
            outcomes.append(result)
        elif result.maybe_applied and result.transient:  # the reply was lost; a refusal halfway is not settled
            outcomes.append((yield from (_settle_keyed if batch.keyed else _settle)(batch, result)))
        else:
            outcomes.append([result] * len(batch.tasks))
    registered = _registered(register, results)
    if len(registered) < len(register):
        registered += yield from _register_again(register, results, [*outcomes, beside])
    return EnqueueReport(registered, outcomes)


def _registered(queues: Sequence[str], results: Sequence[Any]) -> list[str]:
    """Return the queues that are now registered, and log which of them are new."""
    counts = {queue: result for queue, result in zip(queues, results, strict=False) if isinstance(result, int)}
    for queue in (queue for queue, count in counts.items() if count):  # SADD counts new names: a misspelled name is one
        _log.info("queue %r is new: asynq:queues did not list it", queue)
    return list(counts)


def _register_again(
    queues: Sequence[str], results: Sequence[Any], outcomes: Sequence[Sequence[object]]
) -> Flow[list[str]]:
    """Register queues again where that may help, if Redis has answered for any task; return those registered."""
    failed = {queue: result for queue, result in zip(queues, results, strict=False) if isinstance(result, BrokerError)}
    open_ = {queue: error for queue, error in failed.items() if error.transient or error.tries > 1}
    if not open_ or all(isinstance(outcome, BrokerError) for batch in outcomes for outcome in batch):
        return []
    yield Soon(after_silence=any(isinstance(error, BrokerTimeoutError) for error in open_.values()))
    again = tuple(open_)
    return _registered(again, (yield tuple(map(register_queue, again))))


def _try_again(batch: EnqueueBatch, refused: BrokerError) -> Flow[list[EnqueueOutcome | BrokerError] | BrokerError]:
    """Repeat an enqueue that Redis has refused for the moment, with pauses; return the outcomes or the last error."""
    yield Soon(after_silence=False)
    attempt = 1
    while attempt < refused.tries:
        yield Pause(backoff_s(attempt))
        attempt += 1
        result = (yield (_operation(batch),))[0]
        if not isinstance(result, BrokerError) or result.maybe_applied:
            return result  # type: ignore[no-any-return]  # of an operation
        if isinstance(result, BrokerTimeoutError):
            break  # the time of the call is over, and the refusal says more than a timeout
        refused = result
    return refused


def _settle(batch: EnqueueBatch, error: BrokerError) -> Flow[list[EnqueueOutcome | BrokerError]]:
    """Look for the tasks of an enqueue without a reply, and enqueue the missing ones again.

    A conflict in the second enqueue may be with our own first request, if Redis carried it out after we looked. So a
    conflict stays open until the stored task has been compared. Tasks that stay open to the end get the error of the
    lost reply, since only that error says that they may have been enqueued. Its cause is the reason why they could not
    be settled. A task that was found is not known to have been confirmed by replicas.
    """
    yield Soon(after_silence=isinstance(error, BrokerTimeoutError))
    settled: dict[int, EnqueueOutcome | BrokerError] = {}
    found: list[int] = []
    tasks = batch.tasks
    for attempt in range(1, ATTEMPTS):
        yield Pause(backoff_s(attempt))
        unsettled = [index for index in range(len(tasks)) if index not in settled]
        messages = yield tuple(_read_message(batch.queue, tasks[index].id) for index in unsettled)
        missing: list[int] = []
        for index, message in zip(unsettled, messages, strict=True):
            if isinstance(message, BrokerError):
                error.__cause__ = message
            elif message is None:
                missing.append(index)
            else:
                settled[index] = _compare(tasks, index, settled, message)
                found.append(index)
        if missing:
            again = (yield (_operation(replace(batch, tasks=[tasks[index] for index in missing])),))[0]
            if isinstance(again, BrokerError):
                error.__cause__ = again
            else:
                settled.update(
                    pair for pair in zip(missing, again, strict=True) if pair[1] != EnqueueOutcome.ID_CONFLICT
                )
        if len(settled) == len(tasks) or all(isinstance(message, BrokerError) for message in messages):
            break  # if no look succeeds, Redis is away: each look was tried several times
    if error.if_applied is not None:
        settled.update((i, error.if_applied) for i in found if settled[i] is EnqueueOutcome.ENQUEUED)
    return [settled.get(index, error) for index in range(len(tasks))]


def _settle_keyed(batch: EnqueueBatch, error: BrokerError) -> Flow[list[Outcome]]:
    """Put tasks by their keys again, except those that Redis has put already, which a mark in their messages shows."""
    yield Soon(after_silence=isinstance(error, BrokerTimeoutError))
    for attempt in range(1, ATTEMPTS):
        yield Pause(backoff_s(attempt))
        outcomes = (yield (_put_keyed(batch, is_repeat=True),))[0]
        if not isinstance(outcomes, BrokerError):
            if error.if_applied is None:
                return outcomes  # type: ignore[no-any-return]  # of an operation
            return [error.if_applied if isinstance(one, Found) and one.is_repeat else one for one in outcomes]
        error.__cause__ = outcomes
    return [error] * len(batch.tasks)


def _compare(tasks: Sequence[NewTask], index: int, settled: Mapping[int, object], stored: bytes) -> EnqueueOutcome:
    """Return ENQUEUED if the stored task is this one.

    It must be the first task with its id in the batch. Type and payload must be equal; so must the submit, if a client
    waits for the task.
    """
    task = tasks[index]
    if any(tasks[i].id == task.id for i, outcome in settled.items() if outcome is EnqueueOutcome.ENQUEUED):
        return EnqueueOutcome.ID_CONFLICT
    try:
        found = decode_task_message(stored)
    except InvalidMessageError:
        return EnqueueOutcome.ID_CONFLICT
    ours = decode_task_message(task.message)
    same = (found.type, found.payload) == (ours.type, ours.payload)
    submit = ours.headers.get(SUBMIT_HEADER)
    if not same or (submit is not None and submit != found.headers.get(SUBMIT_HEADER)):
        return EnqueueOutcome.ID_CONFLICT
    return EnqueueOutcome.ENQUEUED


def _read_message(queue: str, task_id: str) -> Operation[bytes | None]:
    return Operation("HGET", (keys.task(queue, task_id),), ("msg",), idempotent=True)


def _operation(batch: EnqueueBatch) -> Operation[Any]:
    if batch.keyed:
        return _put_keyed(batch)
    if batch.register is not None:
        return _put_limited(batch, batch.register)
    script, layout = (_IN_LANES if batch.in_lane else _LAYOUTS)[batch.state]
    parse = partial(_outcomes, len(batch.tasks))
    return Operation(script.name, *layout(batch), parse, script=script, unconfirmed=_unconfirmed)


def _outcomes(count: int, reply: int | list[int]) -> list[EnqueueOutcome]:
    if isinstance(reply, int):
        return [EnqueueOutcome.ENQUEUED] * count
    return [EnqueueOutcome(code) for code in reply]


def _put_limited(batch: EnqueueBatch, register: QueueRegister) -> Operation[list[Outcome]]:
    """Return the operation that puts pending tasks up to the limit of their queue, if it has one."""

    def outcomes_of(reply: list[Any]) -> list[Outcome]:
        most, there, codes = reply
        register.note_limit(batch.queue, is_limited=most > 0)
        if isinstance(codes, int):
            return [*_outcomes(len(batch.tasks), codes)]
        full = QueueFullError(batch.queue, there, most, is_queues=True)
        return [full if code == _NO_ROOM else EnqueueOutcome(code) for code in codes]

    script, (script_keys, args) = SCRIPTS["enqueue_limited"], _pending(batch)
    script_keys = (*script_keys, keys.quota(batch.queue))
    return Operation("enqueue", script_keys, args, outcomes_of, script=script, unconfirmed=_unconfirmed)


def _unconfirmed(outcomes: Sequence[Outcome], error: BrokerError) -> list[Outcome]:
    return [error if _is_written(outcome) else outcome for outcome in outcomes]


def _is_written(outcome: Outcome) -> bool:
    if isinstance(outcome, Found):
        return outcome.outcome is not KeyOutcome.KEPT
    return outcome is EnqueueOutcome.ENQUEUED


def _put_keyed(batch: EnqueueBatch, *, is_repeat: bool = False) -> Operation[list[EnqueueOutcome | Found]]:
    """Return the operation that puts tasks by key; ``is_repeat``: an earlier sending may have been carried out."""
    queue = batch.queue
    has_times = any(task.run_at_s for task in batch.tasks)
    width = (5 if has_times else 3) + is_repeat
    args: list[Word] = [keys.task_prefix(queue), batch.now_ns, keys.due_channel(queue), width]
    for task in batch.tasks:
        assert task.terms is not None, "a keyed batch has the terms of each key"
        if_there, mark, latest_s = task.terms
        args += (task.id, task.message, if_there)
        if has_times:
            args += (task.run_at_s or "", latest_s or "")
        if is_repeat:
            args.append(mark)
    script = SCRIPTS["put_keyed"]
    return Operation(script.name, keyed_keys(queue), args, _found, script=script, unconfirmed=_unconfirmed)


def _found(reply: list[Any]) -> list[EnqueueOutcome | Found]:
    return [
        found_of(code, more) or EnqueueOutcome.ID_CONFLICT for code, more in zip(reply[::2], reply[1::2], strict=True)
    ]


_Layout: TypeAlias = tuple[tuple[str, ...], list[Word]]


def _pending(batch: EnqueueBatch) -> _Layout:
    width = 4 if any(task.lock for task in batch.tasks) else 2
    args: list[Word] = [keys.task_prefix(batch.queue), batch.now_ns, width]
    if width == 2:
        for task in batch.tasks:
            args += task[:2]
    else:
        for task in batch.tasks:
            args += task[:4]
    return (keys.pending(batch.queue),), args


def _scheduled(batch: EnqueueBatch) -> _Layout:
    prefixes = keys.task_prefix(batch.queue), keys.group_prefix(batch.queue)
    args: list[Word] = [*prefixes, keys.due_channel(batch.queue)]
    for task in batch.tasks:
        args += (task.id, task.message, task.run_at_s, task.lock, task.lock_ttl_s, task.group)
    script_keys = (keys.scheduled(batch.queue), keys.groups(batch.queue), keys.scheduled_groups(batch.queue))
    return script_keys, args


def _aggregating(batch: EnqueueBatch) -> _Layout:
    args: list[Word] = [keys.task_prefix(batch.queue), keys.group_prefix(batch.queue), batch.now_ns // 1_000_000_000]
    for task in batch.tasks:
        args += (task.id, task.message, task.group, task.lock, task.lock_ttl_s)
    return (keys.groups(batch.queue),), args


def _scheduled_in_lanes(batch: EnqueueBatch) -> _Layout:
    script_keys, args = _scheduled(batch)
    words, tasks = args[3:], batch.tasks
    more = (word for at, task in enumerate(tasks) for word in (*words[6 * at : 6 * at + 6], task.priority))
    return (*script_keys, keys.limits(batch.queue)), [*args[:3], *more]


def _in_lanes(batch: EnqueueBatch) -> _Layout:
    has_priorities = any(task.priority for task in batch.tasks)
    prefixes = keys.task_prefix(batch.queue), keys.group_prefix(batch.queue)
    args: list[Word] = [*prefixes, batch.now_ns // 1_000_000_000, keys.due_channel(batch.queue), 5 + has_priorities]
    for task in batch.tasks:
        args += (task.id, task.message, task.group, task.lock, task.lock_ttl_s)
        if has_priorities:
            args.append(task.priority)
    return lane_keys(batch.queue), args


_Layouts: TypeAlias = Mapping[TaskState, tuple[Script, Callable[[EnqueueBatch], _Layout]]]
_LAYOUTS: Final[_Layouts] = {
    TaskState.PENDING: (SCRIPTS["enqueue"], _pending),
    TaskState.SCHEDULED: (SCRIPTS["schedule"], _scheduled),
    TaskState.AGGREGATING: (SCRIPTS["add_to_group"], _aggregating),
}
_IN_LANES: Final[_Layouts] = {
    TaskState.SCHEDULED: (SCRIPTS["schedule_lanes"], _scheduled_in_lanes),
    TaskState.AGGREGATING: (SCRIPTS["enqueue_lane"], _in_lanes),
}
