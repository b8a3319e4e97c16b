"""Runs failed tasks again now: single tasks, or all tasks that match a filter."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from fastq.broker.inspect.bulk import Chosen, run_chosen, run_some
from fastq.broker.inspect.tasks import read_tasks
from fastq.broker.operation import Flow
from fastq.broker.operations.walk import Source, Walk
from fastq.common.states import TaskState
from fastq.errors import TaskNotFoundError, TaskStateError
from fastq.inspector.bulk import run_all_tasks
from fastq.inspector.checks import check_queue, check_states, check_task_id
from fastq.inspector.driver import Driver, action, operation
from fastq.inspector.filters import TaskFilter
from fastq.inspector.jobs import Job
from fastq.inspector.progress import OnProgress, Progress, counting, sizes_of
from fastq.inspector.queues import require_queue
from fastq.inspector.search import described, sources_of
from fastq.log.printable import clean

FAILED: Final = (TaskState.RETRY, TaskState.ARCHIVED)


class RetryMethods(Driver):
    """The inspector's retries."""

    @action
    def retry_task(self, queue: str, task_id: str) -> Flow[None]:
        """Run a failed task again now: it moves from retry or the archive to pending, or raises ``TaskStateError``."""
        check_task_id(task_id)
        yield from require_queue(check_queue(queue))
        for source in (yield from sources_of(queue, FAILED)):
            if (yield run_some(source, [Chosen(task_id.encode())], self._now_ns())).tasks:
                return
        found = (yield read_tasks(queue, [task_id]))[0]
        if found.message is None:
            raise TaskNotFoundError(queue, task_id)
        raise TaskStateError(queue, task_id, "retry", found.state)

    @action
    def retry_tasks(
        self,
        queue: str,
        *,
        states: Iterable[TaskState | str] = FAILED,
        where: TaskFilter | None = None,
        progress: OnProgress | None = None,
    ) -> Flow[int]:
        """Run all failed tasks again now, from retry and the archive; returns how many were moved to pending.

        With ``where``, all failed tasks are read first; then the tasks that match are run, unless they have changed
        since. ``progress`` is called after each page, with the number of tasks read so far, and then before each chunk
        of the work. It may end the reading or the work by raising an exception.
        """
        job = yield from _plan(self._now_ns(), queue, states, where, progress)
        now = Progress(job.total)
        yield from job.work(self._now_ns(), now, progress or (lambda _: None))
        return now.done

    @operation
    def plan_retry(
        self,
        queue: str,
        *,
        states: Iterable[TaskState | str] = FAILED,
        where: TaskFilter | None = None,
        progress: OnProgress | None = None,
    ) -> Flow[Job]:
        """Find the tasks that ``retry_tasks`` would run, and return a job for ``carry_out``.

        With a filter, the job runs exactly these tasks, unless they have changed since; about 150 bytes of each are
        kept. Without a filter, this only counts the tasks, and the job runs all tasks that have failed when it runs.
        ``progress`` is called with the number of tasks read so far.
        """
        return _plan(self._now_ns(), queue, states, where, progress)


def _plan(
    now_ns: int,
    queue: str,
    states: Iterable[TaskState | str],
    where: TaskFilter | None,
    progress: OnProgress | None,
) -> Flow[Job]:
    known = check_states(states, FAILED)
    if where is not None:
        where.check(known)
    yield from require_queue(check_queue(queue))
    sources = yield from sources_of(queue, known)
    total = yield from sizes_of(*sources)
    if where is None or not where.is_needed:
        return _job(queue, known, total, lambda now_ns: _run_all(sources, now_ns))
    chosen = yield from _choose(sources, where, Progress(total), progress, now_ns)
    return _job(queue, known, sum(map(len, chosen)), lambda now_ns: _run_chosen(sources, chosen, now_ns))


def _job(queue: str, states: Sequence[TaskState], total: int, flow: Callable[[int], Flow[int]]) -> Job:
    def work(now_ns: int, now: Progress, note: OnProgress) -> Flow[int]:
        return counting(flow(now_ns), now, note)

    question = f"Retry {total:,} {' and '.join(states)} tasks of {clean(queue)}, as soon as servers get to them?"
    return Job(question, "made pending", total, work)


def _choose(
    sources: Sequence[Source], where: TaskFilter, now: Progress, progress: OnProgress | None, now_ns: int
) -> Flow[list[list[Chosen]]]:
    """Read all tasks; return the matching tasks of each source, with the state in which they were read."""
    found = []
    for source in sources:
        chosen: list[Chosen] = []
        walk = Walk(source)
        while (page := (yield walk.page())).tasks:
            walk.passed(page, page.tasks)
            chosen += [Chosen.of(task) for task, info in described(source, page, now_ns) if where.wants(info)]
            now.done += len(page.tasks)
            if progress is not None:
                progress(now)
        found.append(chosen)
    return found


def _run_all(sources: Sequence[Source], now_ns: int) -> Flow[int]:
    moved = 0
    for source in sources:
        moved += yield from run_all_tasks(source.queue, source.state, None, now_ns)
    return moved


def _run_chosen(sources: Sequence[Source], chosen: Sequence[Sequence[Chosen]], now_ns: int) -> Flow[int]:
    moved = 0
    for source, some in zip(sources, chosen, strict=True):
        moved += yield from run_chosen(source, some, now_ns)
    return moved
