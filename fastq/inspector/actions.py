"""The inspector's actions on one task."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from fastq.broker.inspect.actions import (
    DONE,
    NOT_FOUND,
    ActionOutcome,
    Target,
    archive_task,
    delete_task,
    run_task,
)
from fastq.broker.inspect.bulk import release_locks
from fastq.broker.inspect.queues import list_queues, queue_exists
from fastq.broker.inspect.tasks import read_message, update_payload
from fastq.broker.operation import Flow, Operation, together
from fastq.broker.operations.cancel import FAR, cancel_processing, find_in_pending
from fastq.broker.operations.ends import read_state
from fastq.common.clock import at_unix_ns
from fastq.common.states import TaskState
from fastq.errors import BrokerError, QueueNotFoundError, TaskNotFoundError, TaskStateError
from fastq.inspector.checks import check_queue, check_state_name, check_task_id
from fastq.inspector.driver import Driver, action
from fastq.inspector.queues import require_queue
from fastq.task import encode_payload
from fastq.wire.codec import rewrite_task_message

CHANGED: Final = -1


class ActionMethods(Driver):
    """The inspector's actions on one task."""

    @action
    def delete_task(self, queue: str, task_id: str, *, expected: TaskState | str | None = None) -> Flow[None]:
        """Delete a task and release its unique lock; ``TaskStateError`` while a server works on it.

        A task in a state other than ``expected`` is left alone; this also raises ``TaskStateError``.
        """
        return delete(queue, task_id, _known(expected))

    @action
    def run_task(self, queue: str, task_id: str, *, expected: TaskState | str | None = None) -> Flow[None]:
        """Move a task to pending, behind all others; ``TaskStateError`` if pending, active or not ``expected``."""
        return run(queue, task_id, self._now_ns(), _known(expected))

    @action
    def archive_task(self, queue: str, task_id: str, *, expected: TaskState | str | None = None) -> Flow[None]:
        """Move a task to the archive; ``TaskStateError`` if it is active, archived already, or not ``expected``."""
        return archive(queue, task_id, self._now_ns(), _known(expected))

    @action
    def update_task_payload(self, queue: str, task_id: str, payload: Any) -> Flow[None]:
        """Give a scheduled task another payload, as ``Task`` takes it; ``TaskStateError`` for a task in another state.

        As in asynq, its unique lock stays the lock of the original payload.
        """
        check_queue(queue)
        check_task_id(task_id)
        data = encode_payload(payload)
        outcome: int | str = CHANGED
        while outcome == CHANGED:  # another program has changed the task between our read and our write
            message = yield from _message(queue, task_id)
            outcome = yield update_payload(queue, task_id, message, rewrite_task_message(message, payload=data))
        _settle(queue, task_id, "update", outcome)

    @action
    def cancel_processing(self, task_id: str, outcome: str | None = None, *, queue: str | None = None) -> Flow[None]:
        """Ask the server that runs a task to stop it. Servers do not answer, so the call cannot report whether it ran.

        ``outcome`` chooses how the task ends: "retry" (as in asynq: archived if no attempt is left), "archive" or
        "delete". Go servers always retry. ``queue`` distinguishes tasks with the same id. A Go server gets only the id,
        so the request is not sent to Go servers while a task of another queue runs with this id.
        """
        return cancel(task_id, outcome, queue)


def cancel(task_id: str, outcome: str | None, queue: str | None) -> Flow[None]:
    """Ask the server that runs a task to stop it, and to end the task in the given way.

    asynq's servers get only the id. They get no request while a task of another queue runs with this id.
    """
    check_task_id(task_id)
    by_id = queue is None or not (yield from _runs_elsewhere(check_queue(queue), task_id))
    yield from cancel_processing(task_id, queue, outcome, by_id=by_id)


def _runs_elsewhere(queue: str, task_id: str) -> Flow[bool]:
    names: list[str] = yield list_queues()
    reads = tuple(read_state(name, task_id) for name in names if name != queue)
    states: list[TaskState | BrokerError | None] = (yield reads) if reads else []
    return TaskState.ACTIVE in states  # errors are skipped: not every Redis user may read other queues


def _known(expected: TaskState | str | None) -> TaskState | None:
    return None if expected is None else check_state_name(expected)


def delete(queue: str, task_id: str, expected: TaskState | None = None) -> Flow[None]:
    """Delete a task that is not active, with its unique lock."""
    yield from _require(queue, task_id)
    task = Target(queue, task_id, expected)
    outcome = yield from _found(task, delete_task)
    if isinstance(outcome, bytes):
        yield from release_locks(queue, [(task_id.encode(), outcome)])
    else:
        _settle(queue, task_id, "delete", outcome)


def archive(queue: str, task_id: str, now_ns: int, expected: TaskState | None = None) -> Flow[None]:
    """Move a task that is not active to the archive."""
    yield from _require(queue, task_id)
    now, task = at_unix_ns(now_ns), Target(queue, task_id, expected)
    _settle(queue, task_id, "archive", (yield from _found(task, lambda each: archive_task(each, now))))


def run(queue: str, task_id: str, now_ns: int, expected: TaskState | None = None) -> Flow[None]:
    """Move a waiting, archived or completed task to pending."""
    yield from _require(queue, task_id)
    _settle(queue, task_id, "run", (yield run_task(Target(queue, task_id, expected), now_ns)))


def _found(task: Target, act: Callable[[Target], Operation[ActionOutcome]]) -> Flow[ActionOutcome]:
    """Act on a task; if it is far back in pending, find its position first."""
    outcome: ActionOutcome = yield act(task)
    while outcome == FAR:
        seen_at = yield from find_in_pending(task.queue, task.id)
        outcome = yield act(replace(task, seen_at=seen_at))
    return outcome


def _require(queue: str, task_id: str) -> Flow[None]:
    check_queue(queue)
    check_task_id(task_id)
    return require_queue(queue)


def _settle(queue: str, task_id: str, action: str, outcome: ActionOutcome) -> None:
    if outcome == NOT_FOUND:
        raise TaskNotFoundError(queue, task_id)
    if outcome != DONE:
        raise TaskStateError(queue, task_id, action, str(outcome))


def _message(queue: str, task_id: str) -> Flow[bytes]:
    exists, message = yield from together(queue_exists(queue), read_message(queue, task_id))
    if not exists:
        raise QueueNotFoundError(queue)
    if message is None:
        raise TaskNotFoundError(queue, task_id)
    found: bytes = message
    return found
