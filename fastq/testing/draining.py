"""Runs all tasks of a Redis in this process, as a server would, one after the other."""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from typing import Any, Final, TypeVar

from fastq.broker.inspect.queues import list_queues
from fastq.broker.operation import Operation
from fastq.broker.operations.dequeue import NoTasks, dequeue, take
from fastq.broker.operations.finish import ANY_OWNER, Archived, Requeued, RunOutcome, archive, release_lock
from fastq.broker.operations.lanes import forget_rates, has_rules, sweep_lanes
from fastq.broker.operations.lease import Leased, LeasedTask, Owner
from fastq.broker.operations.limits import LANES_A_CALL, recheck_lanes
from fastq.broker.operations.maintain import forward
from fastq.broker.transport.blocking import BlockingBroker
from fastq.broker.transport.open import BlockingRedis, open_broker
from fastq.common.clock import at_unix_ns
from fastq.common.states import TaskState
from fastq.errors import InvalidMessageError, QueueNotFoundError
from fastq.hooks import Hooks
from fastq.inspector.bulk import run_all_tasks
from fastq.mux import ServeMux
from fastq.server.base.lane_queues import LaneQueues
from fastq.server.inflight.ack_planner import plan_acks
from fastq.server.inflight.dispositions import undecodable
from fastq.server.inflight.marked import behind_ends, has_lock
from fastq.server.inflight.tasks import InFlightTask, InFlightTasks, view_leased
from fastq.testing.runs import NO_HOOKS, MessageRunner, TaskRun
from fastq.wire.marks import Mark, asked_of

T = TypeVar("T")

MAX_RUNS: Final = 100_000
FORWARDED_AT_ONCE: Final = 100


def drain(
    mux: ServeMux,
    redis: str | BlockingRedis | None = None,
    *,
    queues: Sequence[str] | None = None,
    scheduled: bool = False,
    retries: bool = False,
    hooks: Hooks = NO_HOOKS,
) -> list[TaskRun]:
    """Run all tasks that are pending or due, and tasks that these enqueue, until none is left; return the runs.

    Afterwards Redis has the data that a server would leave: results, retries, archive, counters. All known queues are
    drained, or only those in ``queues``; paused queues are skipped. ``scheduled`` also runs tasks that are not due yet,
    ``retries`` also runs failed tasks until they are done or archived. A batch handler gets the tasks that the queue
    has, without waiting for more. Groups wait for ``aggregate_groups``. Lanes take turns; their rates are ignored.
    ``RuntimeError`` after 100 000 runs, because some tasks enqueue themselves forever.

    >>> from fastq import Client
    >>> from fastq.testing import embedded_redis
    >>> mux = ServeMux()
    >>> @mux.handler("add")
    ... def add(task):
    ...     return sum(task.json())
    >>> with embedded_redis() as url, Client(url) as client:
    ...     _ = client.enqueue("add", [1, 2])
    ...     _ = client.enqueue("add", [3, 4], process_in=3600)
    ...     [run.json() for run in drain(mux, url)], [run.json() for run in drain(mux, url, scheduled=True)]
    ([3], [7])
    """
    broker = open_broker(redis)
    with closing(broker):
        draining = _Draining(broker, MessageRunner(mux, hooks), queues)
        early = [TaskState.SCHEDULED] * scheduled + [TaskState.RETRY] * retries
        runs: list[TaskRun] = []
        for run in draining.runs(early):
            runs.append(run)
            if len(runs) >= MAX_RUNS:
                raise RuntimeError(f"drain: no end after {MAX_RUNS} runs, the last one of {run.type!r}")
        return runs


class _Draining:
    def __init__(self, broker: BlockingBroker, runner: MessageRunner, queues: Sequence[str] | None) -> None:
        self._broker = broker
        self._runner = runner
        self._only = queues
        self._owner = Owner.draw()
        self._lanes = LaneQueues()

    def runs(self, early: Sequence[TaskState]) -> Iterator[TaskRun]:
        """Yield each run; a round takes one task of every queue, until a round finds none."""
        found = True
        while found:
            found = False
            queues = self._broker.run(list_queues()) if self._only is None else self._only
            for queue in queues:
                if self._broker.run(has_rules(queue)):
                    self._lanes.add(queue)
                self._forward(queue, early)
                for run in self._work_off(queue, self._take(queue)):
                    found = True
                    yield run

    def _forward(self, queue: str, early: Sequence[TaskState]) -> None:
        now_ns = time.time_ns()
        for state in early:
            with suppress(QueueNotFoundError):  # no task has been enqueued into this queue yet
                self._broker.drive(run_all_tasks(queue, state, None, now_ns))
        while self._run(forward(queue, now_ns, FORWARDED_AT_ONCE)).taken:
            pass

    def _run(self, operation: Operation[T]) -> T:
        """Run an operation, or its twin for queues with lanes."""
        (operation,) = self._lanes.twins([operation])
        return self._broker.run(operation)

    def _take(self, queue: str) -> list[LeasedTask]:
        if queue in self._lanes:
            if not (tasks := self._take_of_lanes(queue)):
                self._hasten(queue)
                tasks = self._take_of_lanes(queue)
            return tasks
        leased = self._broker.run(dequeue(queue, self._runner.most, self._owner.score(time.time())))
        return leased.tasks if isinstance(leased, Leased) else []

    def _take_of_lanes(self, queue: str) -> list[LeasedTask]:
        taken = self._broker.run(take(queue, self._runner.most, self._owner.score(time.time())))
        if taken is NoTasks.WITHOUT_RULES:
            self._lanes.discard(queue)
        return [] if isinstance(taken, NoTasks) else taken.leased.tasks

    def _hasten(self, queue: str) -> None:
        """Make each lane with tasks ready now, whatever its rate."""
        cursor = 0
        self._broker.run(forget_rates(queue))
        while cursor := self._broker.run(sweep_lanes(queue, cursor)).cursor:
            pass
        while self._broker.run(recheck_lanes(queue)) >= LANES_A_CALL:
            pass

    def _work_off(self, queue: str, leased: Sequence[LeasedTask]) -> Iterator[TaskRun]:
        """Run tasks, for a batch handler several in one call. After an exception, requeue those that have not run."""
        tasks = InFlightTasks()
        waiting: list[InFlightTask] = []
        for one in leased:
            try:
                waiting.append(self._begin(tasks.add(queue, view_leased(one), time.monotonic())))
            except InvalidMessageError as error:
                yield self._reject(queue, one, error)
        try:
            while waiting:
                call = self._next_call(waiting)
                runs = [self._runner.run(call[0])] if len(call) == 1 else self._runner.run_batch(call)
                for task, (_, disposition) in zip(call, runs, strict=True):
                    task.disposition = disposition
                waiting = [task for task in waiting if task not in call]
                self._write(tasks, call)
                yield from (run for run, _ in runs)
        finally:
            for task in waiting:
                task.disposition = Requeued(task.id)
            self._write(tasks, waiting)

    def _begin(self, task: InFlightTask) -> InFlightTask:
        """Record a task's marks, and release a unique lock that ends at the start."""
        if task.view.has_fastq_headers:
            task.marks = asked_of(task.view.data).marks
            if task.marks & Mark.UNLOCK_AT_START and has_lock(task.queue, task.view.unique_key):
                self._broker.run(release_lock(task.view.unique_key, task.id))
        return task

    def _next_call(self, waiting: list[InFlightTask]) -> list[InFlightTask]:
        """Return the first task, and the later tasks that its handler gets in the same call."""
        pattern, most = self._runner.batch_of(waiting[0].view.type)
        if most == 1:
            return waiting[:1]
        return [task for task in waiting if self._runner.batch_of(task.view.type)[0] == pattern][:most]

    def _write(self, tasks: InFlightTasks, ended: list[InFlightTask]) -> None:
        calls = plan_acks(ended, tasks, self._owner, time.time_ns(), checks_done=False, lanes=self._lanes)
        for call in calls:
            self._run(call.operation)
        for operation in behind_ends(ended, time.time_ns()):
            self._broker.run(operation)

    def _reject(self, queue: str, leased: LeasedTask, error: InvalidMessageError) -> TaskRun:
        now_ns = time.time_ns()
        message = undecodable(leased.id, queue, leased.message, str(error), now_ns // 1_000_000_000)
        self._run(archive(queue, [Archived(leased.id, message)], at_unix_ns(now_ns), ANY_OWNER))
        facts: dict[str, Any] = {"id": leased.id, "queue": queue, "type": "", "payload": leased.message, "retried": 0}
        return TaskRun(**facts, outcome=RunOutcome.ARCHIVE, error=error, error_text=str(error), is_failure=True)
