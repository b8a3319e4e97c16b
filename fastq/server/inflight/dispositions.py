"""Turns the pool's events into dispositions for Redis: the rules of a task's end, without I/O.

asynq's order: revoked tasks are deleted; tasks without retries left, and tasks that asked for the archive, are
archived; all other failed tasks wait in retry. A task's message is rewritten by splicing, so that fields of newer peers
survive.
"""

from collections.abc import Callable, Container, Mapping
from typing import Final

import orjson

from fastq.broker.operations.cancel import CancelAs
from fastq.broker.operations.finish import Archived, Disposition, Done, Parked, Requeued, Retried
from fastq.errors import InvalidMessageError
from fastq.pool.main.protocol import NOT_BEGUN, TOO_LATE, EventKind
from fastq.server.inflight._processor import success_of
from fastq.server.inflight.tasks import InFlightTask
from fastq.wire.codec import TaskMessage, TaskView, clean_text, encode_task_message, rewrite_task_message
from fastq.wire.messages import UNDECODABLE_TYPE
from fastq.worker.shared.report import FailureReport

DelayRule = Callable[[int], float]
"""Seconds until the next attempt, given how often a task was retried."""

# Looked up once: to ask an enum for a member takes 50 ns.
_SUCCESSES: Final = (EventKind.DONE, EventKind.RESULT)
_UNCHARGED: Final = (EventKind.ABORTED, EventKind.RERUN, EventKind.RETURNED)
_SAID_BY_THE_POOL: Final = (EventKind.CRASHED, EventKind.BROKEN)
_SKIP_RETRY: Final = EventKind.SKIP_RETRY
_INVALID: Final = EventKind.INVALID
_DECIDED: Final[Mapping[EventKind, Callable[[TaskView, FailureReport], Disposition]]] = {
    EventKind.REVOKED: lambda view, report: Done(view.id, view.unique_key),
}
"""The dispositions of tasks whose handlers decided on an end that is no failure."""


def disposition_of(
    task: InFlightTask,
    kind: EventKind,
    data: bytes,
    now_s: int,
    default_delay: DelayRule,
    report: FailureReport | None = None,
) -> Disposition:
    """Return the disposition that ends a task's run; ``now_s`` is the Unix second, ``data`` belongs to the event.

    ``report`` describes a failure; by default it is read from ``data``.
    """
    view = task.view
    if kind in _SUCCESSES:
        return success_of(task, data if kind is EventKind.RESULT else None, now_s)
    if kind in _DECIDED:
        return _DECIDED[kind](view, report or report_of(kind, data))
    if kind in _UNCHARGED:
        return Requeued(view.id)
    if kind is _INVALID:
        return Archived(view.id, undecodable(view.id, task.queue, view.data, data.decode(errors="replace"), now_s))
    return failure_of(task, kind, report or report_of(kind, data), now_s, default_delay)


def failure_of(
    task: InFlightTask, kind: EventKind, report: FailureReport, now_s: int, default_delay: DelayRule
) -> Disposition:
    """Return the disposition of a failed task: archived if there is no retry, else put into retry."""
    view = task.view
    error = clean_text(report.error)
    limit = report.limit(view.retry)
    may_retry = kind is not _SKIP_RETRY and not report.final
    will_retry = (view.retried < limit or report.is_snoozed) and may_retry
    retried = view.retried + 1 if will_retry and report.is_failure else view.retried
    try:
        message = rewrite_task_message(view.data, retried=retried, error_msg=error, last_failed_at=now_s)
        if limit != view.retry:
            message = rewrite_task_message(message, retry=limit)
    except InvalidMessageError as flaw:
        # A message that no child has decoded may be malformed in a part that the view did not read.
        return Archived(view.id, undecodable(view.id, task.queue, view.data, str(flaw), now_s))
    if not will_retry:
        return Archived(view.id, message)
    delay_s = default_delay(view.retried) if report.retry_in_s is None else report.retry_in_s
    return Retried(view.id, message, int(now_s + delay_s), report.is_failure)


def in_its_lane(
    disposition: Disposition, task: InFlightTask, report: FailureReport, queues_with_lanes: Container[str]
) -> Disposition:
    """Return ``Parked`` for a retry that asked for its lane to rest: the task waits in that lane.

    Return ``disposition`` otherwise.
    """
    if not (report.rests_lane and task.view.group_key and task.queue in queues_with_lanes):
        return disposition
    return Parked(task.id, int((report.retry_in_s or 0.0) * 1e6)) if isinstance(disposition, Retried) else disposition


def passed_on(task: InFlightTask, data: bytes, now_s: int, delay_s: int) -> Disposition:
    """Return the disposition of a task left to another server: it waits in retry, and no attempt is charged.

    A task at its last attempt is treated the same, since the attempt was not made.
    """
    view = task.view
    report = report_of(EventKind.NOT_FOUND, data)
    try:
        message = rewrite_task_message(view.data, error_msg=clean_text(report.error), last_failed_at=now_s)
    except InvalidMessageError:
        return failure_of(task, EventKind.NOT_FOUND, report, now_s, lambda retried: delay_s)
    return Retried(view.id, message, now_s + delay_s, is_failure=False)


def overrides(task: InFlightTask, kind: EventKind) -> bool:
    """Return whether a cancellation decided the task's outcome; a finished or unreadable task keeps its own."""
    if task.canceled is None or kind in _SUCCESSES:
        return False
    return task.canceled is CancelAs.DELETE or (task.canceled is CancelAs.ARCHIVE and kind is not _INVALID)


def canceled_of(task: InFlightTask, report: FailureReport, now_s: int) -> Disposition:
    """Return the disposition that the cancellation of a task asked for; it overrides handler and hooks."""
    if task.canceled is CancelAs.DELETE:
        return Done(task.view.id, task.view.unique_key)
    return failure_of(task, EventKind.SKIP_RETRY, report, now_s, lambda retried: 0.0)


_TOO_LATE: Final = {
    EventKind.TIMEOUT: "TaskTimeout: the handler returned after its time was up",
    EventKind.CANCELED: "TaskCanceled: the handler returned after it was canceled",
    EventKind.MEMORY_LIMIT: "TaskCanceled: the handler returned after its process had grown above memory_limit",
}
_TEXTS: Final = {
    EventKind.TIMEOUT: "TaskTimeout: the handler did not end in time and its process was killed",
    EventKind.CANCELED: "TaskCanceled: the handler did not end when it was canceled and its process was killed",
    EventKind.MEMORY_LIMIT: "TaskCanceled: its process had grown above memory_limit",
    EventKind.ABORTED: "TaskCanceled: the task was canceled while its server shut down",
    EventKind.RERUN: "its process was killed, and not because of it",
    EventKind.RETURNED: "it had not started",
    EventKind.CRASHED: "WorkerCrashedError: ",
    EventKind.BROKEN: "WorkerCrashedError: ",
}


def has_report(kind: EventKind, data: bytes) -> bool:
    """Return whether the child that ran the task reported what its hooks decided; a dead child did not."""
    return kind not in _SAID_BY_THE_POOL and data not in (b"", TOO_LATE, NOT_BEGUN)


def report_of(kind: EventKind, data: bytes) -> FailureReport:
    """Read the child's report. If a killed child sent none, make one; if a child died, the pool tells why."""
    if kind in _SAID_BY_THE_POOL:
        return FailureReport(_TEXTS[kind] + data.decode(errors="replace").strip())
    if kind is _INVALID:
        return FailureReport(f"InvalidMessageError: {data.decode(errors='replace')}")
    if data == TOO_LATE and kind in _TOO_LATE:
        return FailureReport(_TOO_LATE[kind])
    if data == NOT_BEGUN:
        return FailureReport("TaskTimeout: the task's time was up before it could begin; its handler was not called")
    try:
        return FailureReport.decode(data)
    except (orjson.JSONDecodeError, ValueError, TypeError):
        return FailureReport(_TEXTS.get(kind, f"{kind.name}: {data!r}"))


def undecodable(task_id: str, queue: str, data: bytes, why: str, now_s: int) -> bytes:
    """Wrap an undecodable message in a valid one, so that no peer trips over it in the archive."""
    return encode_task_message(
        TaskMessage(
            type=UNDECODABLE_TYPE,
            payload=data,
            id=clean_text(task_id),
            queue=queue,
            error_msg=clean_text(f"InvalidMessageError: {why}"),
            last_failed_at=now_s,
        )
    )
