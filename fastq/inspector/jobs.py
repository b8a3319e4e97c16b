"""Jobs: actions on tasks or queues, each with a question for the user, and work that is done in chunks.
``Inspector.carry_out`` runs a job. If ``progress`` raises, the job stops between two chunks, so no task is left half
done.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from fastq.broker.operation import Flow
from fastq.broker.operations.walk import TASKS_A_CALL, Source, Walk, WalkPage
from fastq.common.states import TaskState
from fastq.errors import BrokerError, FastqError, TaskNotFoundError, TaskStateError
from fastq.info import TaskInfo
from fastq.inspector import actions
from fastq.inspector.bulk import archive_all_tasks, delete_all_tasks, run_all_tasks
from fastq.inspector.driver import Driver, action
from fastq.inspector.filters import TaskFilter
from fastq.inspector.progress import OnProgress, Progress, counting
from fastq.inspector.queues import pause, unpause
from fastq.inspector.records import QueueInfo
from fastq.inspector.search import described, sources_of
from fastq.log.printable import clean


@dataclass(frozen=True, slots=True)
class Job:
    """An action to confirm: the ``question``, the ``work``, and ``done``, the words for its result."""

    question: str
    done: str
    total: int
    work: Callable[[int, Progress, OnProgress], Flow[object]]
    destroys: bool = False
    thing: str = "task"

    def outcome(self, progress: Progress) -> str:
        """Return a sentence about what the job did."""
        said = f"{progress.done:,} {self.thing}{'' if progress.done == 1 else 's'} {self.done}{progress.doubt}."
        if progress.failures:
            said += f" {len(progress.failures):,} left unchanged: {clean(progress.failures[0])}"
        return said


class JobMethods(Driver):
    """The inspector's execution of jobs."""

    @action
    def carry_out(self, job: Job, *, progress: OnProgress | None = None) -> Flow[Progress]:
        """Run a job; returns its progress. The errors of single tasks are in ``Progress.failures``.

        ``progress`` is called before each chunk, and may end the work by raising an exception. If Redis does not
        answer, a job of ``plan_retry`` or ``plan_move`` ends with the error; call the method again to plan the rest.
        """
        now, note = Progress(job.total), progress or _ignore
        note(now)
        yield from job.work(self._now_ns(), now, note)
        return now


def _ignore(progress: Progress) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class Place:
    """The tasks of a queue in one state; ``group`` applies to aggregating tasks, None is all groups."""

    queue: str
    state: TaskState
    group: str | None = None

    def __str__(self) -> str:
        group = "" if self.group is None else f" in group {clean(self.group)}"
        return f"{self.state} tasks of {clean(self.queue)}{group}"


@dataclass(frozen=True, slots=True)
class Deed:
    """An action on one task or on all tasks of a state; it is possible for tasks in one of ``states`` only."""

    verb: str
    past: str
    what_for: str
    states: frozenset[TaskState]
    one: Callable[[TaskInfo, int], Flow[None]]
    all: Callable[[Place, int], Flow[int]]


AGGREGATION: Final = "aggregation"
"""The state that an error names for a task that is being combined with others into one."""
IDLE: Final = frozenset(TaskState) - {TaskState.ACTIVE}

RUN: Final = Deed(
    "Run",
    "made pending",
    "as soon as servers get to them",
    IDLE - {TaskState.PENDING},
    lambda info, now_ns: actions.run(info.queue, info.id, now_ns, info.state),
    lambda place, now_ns: run_all_tasks(place.queue, place.state, place.group, now_ns),
)
ARCHIVE: Final = Deed(
    "Archive",
    "archived",
    "where the newest 10,000 are kept",
    IDLE - {TaskState.ARCHIVED},
    lambda info, now_ns: actions.archive(info.queue, info.id, now_ns, info.state),
    lambda place, now_ns: archive_all_tasks(place.queue, place.state, place.group, now_ns),
)
DELETE: Final = Deed(
    "Delete",
    "deleted",
    "for good",
    IDLE,
    lambda info, now_ns: actions.delete(info.queue, info.id, info.state),
    lambda place, now_ns: delete_all_tasks(place.queue, place.state, place.group),
)
DEEDS: Final = {"run": RUN, "archive": ARCHIVE, "delete": DELETE}


def may(name: str, state: TaskState) -> bool:
    """Return whether an action is possible on tasks in a state."""
    return state in DEEDS[name].states if name in DEEDS else state is TaskState.ACTIVE


def doing(name: str, infos: Sequence[TaskInfo]) -> Job:
    """Act on the given tasks, one after the other; a failure does not stop the others."""
    deed = DEEDS[name]

    def work(now_ns: int, now: Progress, note: OnProgress) -> Flow[None]:
        return _each(infos, now, note, lambda info: deed.one(info, now_ns))

    question = f"{deed.verb} {_named(infos)}, {deed.what_for}?"
    return Job(question, deed.past, len(infos), work, destroys=deed is DELETE)


def canceling(infos: Sequence[TaskInfo]) -> Job:
    """Ask the servers that run tasks to stop them; the servers decide how the tasks end."""

    def work(now_ns: int, now: Progress, note: OnProgress) -> Flow[None]:
        return _each(infos, now, note, lambda info: actions.cancel(info.id, None, info.queue))

    return Job(f"Cancel {_named(infos)}; servers stop and retry them?", "asked to stop", len(infos), work)


def doing_all(name: str, place: Place, count: int) -> Job:
    """Act on all tasks of a state, some hundreds at a time. If Redis is down, the job waits until it is back."""
    deed = DEEDS[name]

    def work(now_ns: int, now: Progress, note: OnProgress) -> Flow[int]:
        return counting(deed.all(place, now_ns), now, note, insist=True)

    question = f"{deed.verb} all {count:,} {place}, {deed.what_for}?"
    return Job(question, deed.past, count, work, destroys=deed is DELETE)


def doing_where(name: str, places: Sequence[Place], where: TaskFilter, count: int) -> Job:
    """Act on the tasks of some places that match a filter, page by page; ``count`` is an estimate.

    The job reads as many tasks as there were at the start. If a task cannot be changed, the job goes on with the
    others.
    """
    deed = DEEDS.get(name)

    def work(now_ns: int, now: Progress, note: OnProgress) -> Flow[None]:
        def act(info: TaskInfo) -> Flow[None]:
            return actions.cancel(info.id, None, info.queue) if deed is None else deed.one(info, now_ns)

        for place in places:
            for source in (yield from sources_of(place.queue, [place.state], place.group)):
                yield from _each_where(source, where, now_ns, now, note, act)

    verb, past, follows = ("Cancel", "asked to stop", "servers stop and retry them")
    if deed is not None:
        verb, past, follows = deed.verb, deed.past, deed.what_for
    which = f"the tasks that match, {count:,} when they were counted"
    if not where.is_needed and len(places) == 1:
        which = f"all {count:,} {places[0]}"
    question = f"{verb} {which}, {follows}?"
    return Job(question, past, count, work, destroys=deed is DELETE)


def pausing(info: QueueInfo) -> Job:
    """Pause a queue, or resume it if it is paused."""
    name, pending = clean(info.queue), f"its {info.pending:,} pending tasks"

    def work(now_ns: int, now: Progress, note: OnProgress) -> Flow[None]:
        yield from (unpause(info.queue) if info.paused else pause(info.queue, now_ns))
        now.done = 1

    if info.paused:
        return Job(f"Resume {name}, so that servers take {pending}?", f"resumed: {name}", 1, work, thing="queue")
    return Job(f"Pause {name}, so that servers leave {pending}?", f"paused: {name}", 1, work, thing="queue")


def _each(
    infos: Sequence[TaskInfo], now: Progress, note: OnProgress, act: Callable[[TaskInfo], Flow[None]]
) -> Flow[None]:
    for info in infos:
        note(now)
        yield from _one(info, now, act)


def _each_where(
    source: Source,
    where: TaskFilter,
    now_ns: int,
    now: Progress,
    note: OnProgress,
    act: Callable[[TaskInfo], Flow[None]],
) -> Flow[None]:
    walk = Walk(source)
    left: int = yield source.size()
    while left > 0:
        note(now)
        page: WalkPage = yield walk.page(min(left, TASKS_A_CALL))
        if not page.tasks:
            return
        left -= len(page.tasks)
        now.looked += len(page.tasks)
        gone = set()
        for task, info in described(source, page, now_ns):
            if where.wants(info):
                note(now)
                if (yield from _one(info, now, act)) and source.state is not TaskState.ACTIVE:
                    gone.add(task.id)
        walk.passed(page, [task for task in page.tasks if task.id not in gone])


def _one(info: TaskInfo, now: Progress, act: Callable[[TaskInfo], Flow[None]]) -> Flow[bool]:
    """Change a task; returns False, and records a failure, if that was not possible."""
    try:
        yield from act(info)
    except BrokerError:
        raise
    except TaskStateError as error:
        now.failures.append(_moved(info, error.state))
    except TaskNotFoundError:
        now.failures.append(_moved(info, "gone"))
    except FastqError as error:
        now.failures.append(str(error))
    else:
        now.done += 1
        return True
    return False


def _moved(info: TaskInfo, state: str) -> str:
    if state == AGGREGATION:
        return f"{info.id} is being made into another task now"
    return f"{info.id} is {state} now, no longer {info.state}"


def _named(infos: Sequence[TaskInfo]) -> str:
    if len(infos) == 1:
        return f"1 {infos[0].state} task of {clean(infos[0].queue)}: {clean(infos[0].id)} ({clean(infos[0].type)})"
    return f"the {len(infos):,} {infos[0].state} tasks shown of {clean(infos[0].queue)}"
