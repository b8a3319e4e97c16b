"""What can be done from the dashboard, as jobs: a question to confirm, and then the work, in pieces that count.

A job ends between two pieces when it is asked to: each task is done, or as it was.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fastq.broker.inspect.bulk import TASKS_A_CALL
from fastq.broker.operation import Flow
from fastq.cli.dash.desk import Desk
from fastq.cli.human import clean, number
from fastq.cli.pieces import count_tasks, is_piece, watched
from fastq.clock import SystemClock
from fastq.errors import BrokerError, FastqError, TaskNotFoundError, TaskStateError
from fastq.info import TaskInfo
from fastq.inspector import QueueInfo, actions
from fastq.inspector.bulk import archive_all_tasks, delete_all_tasks, run_all_tasks
from fastq.states import TaskState

__all__ = ["Deed", "Job", "Place", "Progress", "StoppedError", "canceling", "doing", "doing_all", "may", "pausing"]


class StoppedError(Exception):
    """Tell that a job was asked to end."""


class Progress:
    """Count the tasks that are done; ``stop`` asks the job to end.

    ``unsure`` is how many more may have been done: answers about them were lost.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self.unsure = 0
        self.failures: list[str] = []
        self.trouble = ""
        self._stopped = False

    def __str__(self) -> str:
        return f"{number(self.done)} of {number(self.total)}"

    def stop(self) -> None:
        """Let the job end before its next piece."""
        self._stopped = True

    def check(self) -> None:
        """Raise ``StoppedError`` once the job is to end."""
        if self._stopped:
            raise StoppedError

    def note(self, result: Any) -> None:
        """Count what an operation did to tasks."""
        self.done += count_tasks(result)
        self.trouble = ""

    def lost(self, error: BrokerError) -> None:
        """Take it that Redis did not answer; the job goes on once it does, unless it is to end."""
        if error.maybe_applied and is_piece(error.operation):
            self.unsure += TASKS_A_CALL
        self.trouble = "; Redis does not answer, so it is asked again"
        self.check()

    @property
    def doubt(self) -> str:
        """Say how many more may be done, if any."""
        return f"; up to {number(self.unsure)} more, since an answer was lost" if self.unsure else ""


@dataclass(frozen=True, slots=True)
class Job:
    """Be something to do: ``question`` says what and to how many, ``done`` what was done, ``work`` does it."""

    question: str
    done: str
    total: int
    work: Callable[[Progress], Awaitable[object]]
    destroys: bool = False
    thing: str = "task"

    def outcome(self, progress: "Progress") -> str:
        """Say what came of it."""
        said = f"{number(progress.done)} {self.thing}{'' if progress.done == 1 else 's'} {self.done}{progress.doubt}."
        if progress.failures:
            said += f" {number(len(progress.failures))} left as it was: {clean(progress.failures[0])}"
        return said


@dataclass(frozen=True, slots=True)
class Place:
    """Name the tasks of a queue in one state, ``group`` for those that are aggregating."""

    queue: str
    state: TaskState
    group: str | None = None

    def __str__(self) -> str:
        group = "" if self.group is None else f" in group {clean(self.group)}"
        return f"{self.state} tasks of {clean(self.queue)}{group}"


@dataclass(frozen=True, slots=True)
class Deed:
    """Be what is done to tasks: to one, and to all of a state; ``states`` are those in which it can be done."""

    verb: str
    past: str
    what_for: str
    states: frozenset[TaskState]
    one: Callable[[TaskInfo, int], Flow[None]]
    all: Callable[[Place, int], Flow[int]]


AGGREGATION: Final = "aggregation"
"""The state of a task that is being made into another, in an error."""
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
    """Tell whether something can be done to tasks in a state."""
    return state in DEEDS[name].states if name in DEEDS else state is TaskState.ACTIVE


def doing(name: str, desk: Desk, infos: Sequence[TaskInfo]) -> Job:
    """Do something to tasks that are named, one after the other, whatever becomes of the others."""
    deed = DEEDS[name]

    async def work(progress: Progress) -> None:
        await _each(infos, progress, lambda info: desk.broker.drive(deed.one(info, SystemClock().unix_ns())))

    question = f"{deed.verb} {_named(infos)}, {deed.what_for}?"
    return Job(question, deed.past, len(infos), work, destroys=deed is DELETE)


def canceling(desk: Desk, infos: Sequence[TaskInfo]) -> Job:
    """Ask the servers that run tasks to stop them; what becomes of them then is the servers' to say."""

    async def work(progress: Progress) -> None:
        await _each(infos, progress, lambda info: desk.inspector.cancel_processing(info.id, queue=info.queue))

    return Job(f"Cancel {_named(infos)}; servers stop and retry them?", "asked to stop", len(infos), work)


def doing_all(name: str, desk: Desk, place: Place, count: int) -> Job:
    """Do something to all tasks of a state, some hundreds at a time, however long Redis is away meanwhile."""
    deed = DEEDS[name]

    async def work(progress: Progress) -> None:
        flow = deed.all(place, SystemClock().unix_ns())
        await desk.broker.drive(watched(flow, progress.note, progress.check, progress.lost))

    question = f"{deed.verb} all {number(count)} {place}, {deed.what_for}?"
    return Job(question, deed.past, count, work, destroys=deed is DELETE)


def pausing(desk: Desk, info: QueueInfo) -> Job:
    """Pause a queue, or let it go on if it is paused."""
    inspector, name = desk.inspector, clean(info.queue)

    async def work(progress: Progress) -> None:
        await (inspector.unpause_queue if info.paused else inspector.pause_queue)(info.queue)
        progress.done = 1

    pending = f"its {number(info.pending)} pending tasks"
    if info.paused:
        return Job(f"Resume {name}, so that servers take {pending}?", f"resumed: {name}", 1, work, thing="queue")
    return Job(f"Pause {name}, so that servers leave {pending}?", f"paused: {name}", 1, work, thing="queue")


async def _each(infos: Sequence[TaskInfo], progress: Progress, act: Callable[[TaskInfo], Awaitable[None]]) -> None:
    for info in infos:
        progress.check()
        try:
            await act(info)
        except BrokerError:
            raise
        except TaskStateError as error:
            progress.failures.append(_moved(info, error.state))
        except TaskNotFoundError:
            progress.failures.append(_moved(info, "gone"))
        except FastqError as error:
            progress.failures.append(str(error))
        else:
            progress.done += 1


def _moved(info: TaskInfo, state: str) -> str:
    if state == AGGREGATION:
        return f"{info.id} is being made into another task now"
    return f"{info.id} is {state} now, no longer {info.state}"


def _named(infos: Sequence[TaskInfo]) -> str:
    if len(infos) == 1:
        return f"1 {infos[0].state} task of {clean(infos[0].queue)}: {clean(infos[0].id)} ({clean(infos[0].type)})"
    return f"the {number(len(infos))} {infos[0].state} tasks shown of {clean(infos[0].queue)}"
