"""Runs all tasks of a Redis in this process, as a server would, one after the other."""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from typing import Any, Final

from fastq.broker.inspect.queues import list_queues
from fastq.broker.operations.dequeue import NoTasks, dequeue
from fastq.broker.operations.finish import ANY_OWNER, Archived, Requeued, archive
from fastq.broker.operations.lease import LeasedTask, Owner
from fastq.broker.operations.maintain import forward
from fastq.broker.transport.blocking import BlockingBroker
from fastq.broker.transport.open import BlockingRedis, open_broker
from fastq.common.clock import at_unix_ns
from fastq.common.states import TaskState
from fastq.errors import InvalidMessageError, QueueNotFoundError
from fastq.hooks import Hooks
from fastq.inspector.bulk import run_all_tasks
from fastq.mux import ServeMux
from fastq.server.inflight.ack_planner import plan_acks
from fastq.server.inflight.dispositions import undecodable
from fastq.server.inflight.tasks import InFlightTask, InFlightTasks, view_leased
from fastq.testing.runs import NO_HOOKS, MessageRunner, RunOutcome, TaskRun

__all__ = ["drain"]

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
    """Run all tasks that are pending or due, and those that they enqueue, until there are none; return their runs.

    Afterwards Redis has the data that a server would leave: results, retries, archive, counters. All known queues are
    drained in turn, unless ``queues`` names some; paused queues are left alone. ``scheduled`` also runs tasks that are
    not due yet, ``retries`` also runs failed tasks until they are done or archived. Groups wait for
    ``aggregate_groups``. ``RuntimeError`` after 100 000 runs, because some tasks enqueue themselves forever.

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

    def runs(self, early: Sequence[TaskState]) -> Iterator[TaskRun]:
        """Yield each run; a round takes one task of every queue, until a round finds none."""
        found = True
        while found:
            found = False
            queues = self._broker.run(list_queues()) if self._only is None else self._only
            for queue in queues:
                self._forward(queue, early)
                for task in self._take(queue):
                    found = True
                    yield self._work(queue, task)

    def _forward(self, queue: str, early: Sequence[TaskState]) -> None:
        now_ns = time.time_ns()
        for state in early:
            with suppress(QueueNotFoundError):  # no task has been enqueued into it yet
                self._broker.drive(run_all_tasks(queue, state, None, now_ns))
        while self._broker.run(forward(queue, now_ns, FORWARDED_AT_ONCE)).taken:
            pass

    def _take(self, queue: str) -> list[LeasedTask]:
        leased = self._broker.run(dequeue(queue, 1, self._owner.score(time.time())))
        return [] if isinstance(leased, NoTasks) else leased.tasks

    def _work(self, queue: str, leased: LeasedTask) -> TaskRun:
        tasks = InFlightTasks()
        try:
            task = tasks.add(queue, view_leased(leased), time.monotonic())
        except InvalidMessageError as error:
            return self._reject(queue, leased, error)
        try:
            run, task.disposition = self._runner.run(task)
        except BaseException:
            task.disposition = Requeued(task.id)
            self._write(tasks, task)
            raise
        self._write(tasks, task)
        return run

    def _write(self, tasks: InFlightTasks, task: InFlightTask) -> None:
        for call in plan_acks([task], tasks, self._owner, time.time_ns(), checks_done=False):
            self._broker.run(call.operation)

    def _reject(self, queue: str, leased: LeasedTask, error: InvalidMessageError) -> TaskRun:
        now_ns = time.time_ns()
        message = undecodable(leased.id, queue, leased.message, str(error), now_ns // 1_000_000_000)
        self._broker.run(archive(queue, [Archived(leased.id, message)], at_unix_ns(now_ns), ANY_OWNER))
        facts: dict[str, Any] = {"id": leased.id, "queue": queue, "type": "", "payload": leased.message, "retried": 0}
        return TaskRun(**facts, outcome=RunOutcome.ARCHIVE, error=error, error_text=str(error), is_failure=True)
