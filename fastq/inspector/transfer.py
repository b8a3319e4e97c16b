"""The move of selected tasks to another queue; ``move`` has the steps."""

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from fastq.broker.inspect.move import count_parked
from fastq.broker.inspect.put import PutOutcome
from fastq.broker.operation import Flow, together
from fastq.broker.operations.archive_rule import ArchiveRule, read_archive_rule
from fastq.broker.operations.walk import Source, WalkedTask
from fastq.common.clock import at_unix_ns
from fastq.common.states import TaskState
from fastq.inspector.checks import check_queue, check_states
from fastq.inspector.driver import Driver, action, operation
from fastq.inspector.filters import TaskFilter
from fastq.inspector.jobs import Job
from fastq.inspector.move import Move
from fastq.inspector.progress import OnProgress, Progress, counting, sizes_of
from fastq.inspector.queues import require_queue
from fastq.inspector.records import Moved
from fastq.inspector.search import sources_of
from fastq.inspector.task_lines import describe_listed
from fastq.log.printable import clean
from fastq.options import check_queue_name

MOVABLE: Final = (
    TaskState.PENDING,
    TaskState.SCHEDULED,
    TaskState.RETRY,
    TaskState.AGGREGATING,
    TaskState.ARCHIVED,
    TaskState.COMPLETED,
)
REASONS: Final = {
    PutOutcome.ID_CONFLICT: "its id exists there already",
    PutOutcome.DUPLICATE: "another task there has its unique lock",
}


@dataclass(frozen=True, slots=True)
class MovePlan:
    """A move to confirm: ``job`` does it, and ``moved`` has the result afterwards. ``parked`` counts the tasks that an
    interrupted move left between the queues; the job finishes their move. ``archived`` is the number of archived tasks
    that the other queue may have after the move, 0 if no archived tasks are moved; ``archive`` is the rule of its
    archive.
    """

    job: Job
    parked: int
    archived: int
    archive: ArchiveRule
    _move: Move

    @property
    def moved(self) -> Moved:
        """The result so far."""
        move = self._move
        named = [(task_id, REASONS[why]) for task_id, why in move.named]
        return Moved(move.moved, move.stayed[PutOutcome.ID_CONFLICT], move.stayed[PutOutcome.DUPLICATE], named)


class TransferMethods(Driver):
    """The inspector's moves to other queues."""

    @action
    def move_tasks(
        self,
        origin: str,
        target: str,
        *,
        states: Iterable[TaskState | str] = MOVABLE,
        where: TaskFilter | None = None,
        progress: OnProgress | None = None,
    ) -> Flow[Moved]:
        """Move tasks, except active ones, to another queue, with their ids, states, times and unique locks.

        200 tasks at a time are parked where no server takes them, first in one queue, then in the other, so that each
        can run in only one of them, whatever happens. The next call finishes the move of tasks that an interrupted move
        has left parked. A task stays if the other queue has its id, or if another task there holds its lock.
        ``progress`` is called before each chunk, and may end the move by raising an exception.
        """
        plan = yield from _plan(self._now_ns(), (origin, target), states, where)
        yield from plan.job.work(self._now_ns(), Progress(plan.job.total), progress or (lambda _: None))
        return plan.moved

    @operation
    def plan_move(
        self,
        origin: str,
        target: str,
        *,
        states: Iterable[TaskState | str] = MOVABLE,
        where: TaskFilter | None = None,
    ) -> Flow[MovePlan]:
        """Return a plan of what ``move_tasks`` would do; pass its ``job`` to ``carry_out``."""
        return _plan(self._now_ns(), (origin, target), states, where)


def _plan(
    now_ns: int, queues: tuple[str, str], states: Iterable[TaskState | str], where: TaskFilter | None
) -> Flow[MovePlan]:
    origin, target = check_queue(queues[0]), check_queue_name(queues[1], "queue")
    if origin == target:
        raise ValueError(f"tasks cannot be moved from {origin!r} to itself")
    known = check_states(states, MOVABLE)
    if where is not None:
        where.check(known)
    sources = yield from sources_of(origin, known)
    total = yield from sizes_of(*sources)
    parked = sum((yield from together(count_parked(origin), count_parked(target))))
    if not parked:  # if all tasks are parked, Go's tools may have unlisted the queue
        yield from require_queue(origin)
    move = Move(origin, target, secrets.token_hex(8), _wanted(origin, where or TaskFilter(), now_ns))
    rule: ArchiveRule = yield read_archive_rule(target)
    archived = (yield from _archived(origin, target)) if TaskState.ARCHIVED in known else 0

    def work(now_ns: int, now: Progress, note: OnProgress) -> Flow[int]:
        return counting(move.run(sources), now, note)

    question = f"Move {total:,} tasks of {clean(origin)} that are {', '.join(known)} to {clean(target)}?"
    return MovePlan(Job(question, "moved", total, work), parked, archived, rule, move)


def _wanted(origin: str, where: TaskFilter, now_ns: int) -> Callable[[Source, WalkedTask], bool]:
    now = at_unix_ns(now_ns)

    def wanted(source: Source, task: WalkedTask) -> bool:
        info = describe_listed(origin, source.state, task, now)
        return info is not None and where.wants(info)

    return wanted


def _archived(origin: str, target: str) -> Flow[int]:
    """Count the archived tasks that the target will have, 0 if no archived tasks are moved."""
    (leaving,) = yield from sources_of(origin, [TaskState.ARCHIVED])
    (there,) = yield from sources_of(target, [TaskState.ARCHIVED])
    count = yield from sizes_of(leaving)
    return count + (yield from sizes_of(there)) if count else 0
