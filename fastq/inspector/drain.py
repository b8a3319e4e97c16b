"""Waits until the work in a queue is done."""

import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Final, NamedTuple

from fastq.broker.inspect.queues import QueueStats, group_sizes, pause_queue, queue_exists, queue_stats
from fastq.broker.operation import Flow, Operation, Pause, together
from fastq.broker.operations.keyed import count_again
from fastq.common.states import TaskState
from fastq.errors import QueueNotFoundError, QueuePausedError
from fastq.inspector.checks import check_queue, check_states, check_timeout
from fastq.inspector.driver import Driver, action
from fastq.inspector.records import Drain
from fastq.wire import keys

SECOND_NS: Final = 1_000_000_000
POLL_S: Final = 0.25
"""The shortest time between two counts. If counting many groups takes longer, the time between counts is longer, too.
"""
LOOK_SHARE: Final = 0.1
DRAINABLE: Final = (
    TaskState.PENDING,
    TaskState.ACTIVE,
    TaskState.AGGREGATING,
    TaskState.SCHEDULED,
    TaskState.RETRY,
)
WAITED_FOR: Final = (TaskState.PENDING, TaskState.ACTIVE, TaskState.AGGREGATING, TaskState.RETRY)


class DrainMethods(Driver):
    """The inspector's wait for an empty queue."""

    @action
    def drain_queue(
        self,
        queue: str,
        *,
        states: Iterable[TaskState | str] = WAITED_FOR,
        timeout: float | timedelta | None = None,
        pause_after: bool = False,
        progress: Callable[[Drain], object] | None = None,
    ) -> Flow[Drain]:
        """Wait until a queue has no tasks in ``states``, or until the ``timeout``; ``Drain.empty`` says which. Clients
        may continue to enqueue. With ``pause_after``, the empty queue is then paused, and the call also waits for tasks
        that servers took before the pause. ``progress`` is called after each count, and may end the wait by raising. A
        paused queue with pending tasks would never become empty, so it raises ``QueuePausedError``.
        """
        timeout_s = None if timeout is None else check_timeout(timeout)
        drain = _Drain(self, check_queue(queue), check_states(states, DRAINABLE), timeout_s, progress)
        end = yield from drain.wait()
        return (yield from drain.pause()) if end.empty and pause_after else end


class _Counts(NamedTuple):
    sizes: dict[TaskState, int]
    processed: int
    failed: int
    paused: bool


class _Drain:
    """The repeated counts of a queue's tasks."""

    def __init__(
        self,
        driver: Driver,
        queue: str,
        states: list[TaskState],
        timeout_s: float | None,
        progress: Callable[[Drain], object] | None,
    ) -> None:
        self._now_ns = driver._now_ns
        self._queue = queue
        self._states = states
        self._timeout_s = timeout_s
        self._progress = progress
        self._began_s = time.monotonic()
        self._first: _Counts | None = None

    def wait(self) -> Flow[Drain]:
        while True:
            looked_s = time.monotonic()
            now = yield from self._look()
            took_s = time.monotonic() - looked_s
            if now.empty:
                return now
            if now.paused and now.left.get(TaskState.PENDING):
                raise QueuePausedError(self._queue, {state.value: size for state, size in now.left.items()})
            if self._is_over():
                return now
            yield from self._pause(now, max(POLL_S, took_s / LOOK_SHARE))

    def pause(self) -> Flow[Drain]:
        """Pause the empty queue, and wait for tasks that servers took before that; tasks not taken by then stay."""
        yield pause_queue(self._queue, self._now_ns() // SECOND_NS)
        self._states = [TaskState.ACTIVE]
        return (yield from self.wait())

    def _pause(self, now: Drain, seconds: float) -> Flow[None]:
        """Wait in short intervals, so that ``progress`` can end the wait."""
        until_s = time.monotonic() + seconds
        if self._timeout_s is not None:
            until_s = min(until_s, self._began_s + self._timeout_s)
        while (left_s := until_s - time.monotonic()) > 0:
            yield Pause(min(left_s, POLL_S))
            self._tell(now)

    def _is_over(self) -> bool:
        return self._timeout_s is not None and time.monotonic() - self._began_s >= self._timeout_s

    def _tell(self, now: Drain) -> None:
        if self._progress is not None:
            self._progress(now)

    def _look(self) -> Flow[Drain]:
        counts = yield from _count(self._queue, self._now_ns())
        first = self._first = self._first or counts
        now = Drain(
            self._queue,
            {state: counts.sizes[state] for state in self._states},
            counts.processed - first.processed,
            counts.failed - first.failed,
            timedelta(seconds=time.monotonic() - self._began_s),
            counts.paused,
        )
        self._tell(now)
        return now


def _count(queue: str, now_ns: int) -> Flow[_Counts]:
    """Count the tasks of a queue; groups are counted separately, in several calls.

    Tasks that are to run once a task with their key has ended count as pending.
    """
    exists, behind, stats, sets = yield from together(
        queue_exists(queue),
        count_again(queue),  # before the states, since such a task becomes pending
        queue_stats(queue, now_ns / SECOND_NS),
        Operation("ZCARD", (keys.aggregation_sets(queue),), (), int, idempotent=True),
    )
    if not exists:
        raise QueueNotFoundError(queue)
    return (yield from _with_groups(queue, stats, sets, behind))


def _with_groups(queue: str, stats: QueueStats, sets: int, behind: int) -> Flow[_Counts]:
    grouped = sum((yield from group_sizes(queue)).values()) if stats.groups else 0
    pending = stats.sizes[TaskState.PENDING] + behind
    sizes = {**stats.sizes, TaskState.AGGREGATING: grouped + sets, TaskState.PENDING: pending}
    return _Counts(sizes, stats.processed_total, stats.failed_total, stats.paused)
