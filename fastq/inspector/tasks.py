"""What an inspector reads of tasks, as flows: one by its id, a page of a state, or all of a state."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fastq.broker.inspect.queues import queue_exists
from fastq.broker.inspect.tasks import FoundTask, list_ids, list_ids_newest_first, read_all_tasks, read_tasks
from fastq.broker.operation import Flow, together
from fastq.errors import InvalidMessageError, QueueNotFoundError, TaskNotFoundError
from fastq.info import TaskInfo, at_unix_ns, task_info
from fastq.inspector.checks import check_page, check_queue, check_state, check_task_id
from fastq.inspector.queues import require_queue
from fastq.states import TaskState
from fastq.wire.codec import clean_text, decode_task_message
from fastq.wire.messages import UNDECODABLE_TYPE, TaskMessage

__all__ = ["Listing", "describe", "get_task_info"]

SECOND_NS: Final = 1_000_000_000
FAR_S: Final = 1e15
IDS_A_CALL: Final = 5_000
STATES: Final = frozenset(state.value for state in TaskState)
TIMED: Final = frozenset({TaskState.SCHEDULED, TaskState.RETRY})


def get_task_info(queue: str, task_id: str, now_ns: int) -> Flow[TaskInfo]:
    """Describe one task."""
    check_queue(queue)
    check_task_id(task_id)
    exists, found = yield from together(queue_exists(queue), read_tasks(queue, [task_id]))
    if not exists:
        raise QueueNotFoundError(queue)
    info = describe(queue, task_id.encode(), found[0], now_ns)
    if info is None:
        raise TaskNotFoundError(queue, task_id)
    return info


@dataclass(frozen=True, slots=True)
class Listing:
    """Be the tasks of a queue in one state, ``group`` for those that are aggregating."""

    queue: str
    state: TaskState
    group: str

    @classmethod
    def of(cls, queue: str, state: TaskState | str, group: str | None) -> "Listing":
        """Check what the user asks for; ``ValueError`` or ``TypeError`` names what is wrong."""
        return cls(check_queue(queue), *check_state(state, group))

    def page(self, page: int, page_size: int, now_ns: int) -> Flow[list[TaskInfo]]:
        """Read a page; tasks that leave the state while it is read are left out."""
        start, count = check_page(page, page_size)
        exists, ids = yield from together(
            queue_exists(self.queue), list_ids(self.queue, self.state, self.group, start, count)
        )
        if not exists:
            raise QueueNotFoundError(self.queue)
        return (yield from self.read(ids, now_ns))

    def read(self, ids: Sequence[bytes], now_ns: int) -> Flow[list[TaskInfo]]:
        """Read those of the tasks that are in this state."""
        found = yield from read_all_tasks(self.queue, ids)
        infos = (describe(self.queue, task_id, task, now_ns) for task_id, task in zip(ids, found, strict=True))
        return [info for info in infos if info is not None and info.state is self.state]

    def ids(self) -> Flow[list[bytes]]:
        """Read the ids of all tasks in this state, in the order of the pages.

        Tasks leave a state at its oldest end, so it is read from the newest on: what leaves shifts nothing that is
        still to be read, and what comes in is read twice and counted once.
        """
        yield from require_queue(self.queue)
        ids: dict[bytes, None] = {}
        start = 0
        while True:
            some = yield list_ids_newest_first(self.queue, self.state, self.group, start, IDS_A_CALL)
            ids.update(dict.fromkeys(some))
            start += len(some)
            if len(some) < IDS_A_CALL:
                return list(reversed(ids))

    def pieces(self, ids: Sequence[bytes], size: int) -> list[Sequence[bytes]]:
        """Cut ids into pieces, each to be read when it is its turn."""
        return [ids[start : start + size] for start in range(0, len(ids), size)]


def describe(queue: str, task_id: bytes, found: FoundTask, now_ns: int) -> TaskInfo | None:
    """Describe a task; None if there is none, or one of a state that asynq does not know."""
    if found.message is None or found.state not in STATES:
        return None
    state = TaskState(found.state)
    next_ns = None
    if state is TaskState.PENDING:
        next_ns = now_ns
    elif state in TIMED and found.score is not None:
        next_ns = int(max(-FAR_S, min(found.score, FAR_S))) * SECOND_NS  # a score may be infinite
    orphaned = state is TaskState.ACTIVE and (found.score is None or found.score <= now_ns // SECOND_NS)
    return task_info(
        _message_of(queue, task_id, found.message),
        state,
        next_process_at=None if next_ns is None else at_unix_ns(next_ns),
        is_orphaned=orphaned,
        result=found.result,
        lost=found.lost,
    )


def _message_of(queue: str, task_id: bytes, data: bytes) -> TaskMessage:
    """Decode a message; one that cannot be is shown as servers put it into the archive (asynq hides it)."""
    try:
        return decode_task_message(data)
    except InvalidMessageError as error:
        return TaskMessage(
            type=UNDECODABLE_TYPE,
            payload=data,
            id=task_id.decode(errors="replace"),
            queue=queue,
            error_msg=clean_text(f"InvalidMessageError: {error}"),
        )
