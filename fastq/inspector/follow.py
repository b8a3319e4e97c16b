"""The events of a queue, derived from snapshots: asynq's protocol has no stream of events.

Each snapshot is bounded: it has the ids that entered each state last, and reads the tasks of at most ``LOOKED_UP`` of
them. Tasks that come and go between two snapshots are not seen. Their runs are only counted, with the counters that
servers keep in Redis.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from fastq.broker.inspect.queues import Peek, peek_queue
from fastq.broker.inspect.tasks import FoundTask, read_tasks
from fastq.broker.operation import Flow, Pause
from fastq.common.clock import at_unix_ns
from fastq.common.states import TaskState
from fastq.info import TaskInfo
from fastq.inspector.checks import check_queue
from fastq.inspector.driver import Driver, Given, Stream, stream
from fastq.inspector.progress import OnProgress, Progress
from fastq.inspector.queues import require_queue
from fastq.inspector.records import TaskEvent
from fastq.inspector.tasks import describe

WINDOW: Final = 200
LOOKED_UP: Final = 200
WAITED_AT_ONCE_S: Final = 0.25
REMEMBERED: Final = 20_000
CLOCKS_APART: Final = timedelta(seconds=2)
_NAMES: Final = {
    TaskState.PENDING: "enqueued",
    TaskState.ACTIVE: "started",
    TaskState.SCHEDULED: "scheduled",
    TaskState.RETRY: "retried",
    TaskState.ARCHIVED: "archived",
    TaskState.COMPLETED: "completed",
    TaskState.AGGREGATING: "grouped",
}
ENDS: Final = frozenset({"retried", "archived", "completed", "done"})


@dataclass(frozen=True, slots=True)
class _Known:
    state: TaskState
    type: str


class FollowMethods(Driver):
    """The inspector's view of the events in a queue."""

    @stream
    def follow(self, queue: str, *, interval: float = 0.5, progress: OnProgress | None = None) -> Stream[TaskEvent]:
        """Yield the events of a queue from now on, without end; the queue is read every ``interval`` seconds.

        Redis has no stream of events, so the last 200 ids of each state are compared with those of the previous
        snapshot. A task that was enqueued and done between two snapshots is not seen, but such runs are counted
        ("missed"). ``progress`` is called now and then while there are no events, and may end the stream by raising an
        exception.
        """
        if not interval > 0:
            raise ValueError(f"interval must be more than 0 seconds: {interval!r}")
        return self._looks(Follower(queue), interval, progress)

    def _looks(self, follower: "Follower", interval_s: float, progress: OnProgress | None) -> Stream[TaskEvent]:
        now = Progress()
        while True:
            events = yield from follower.look(self._now_ns())
            now.done += len(events)
            yield Given(events)
            left_s = interval_s
            while left_s > 0:
                if progress is not None:
                    progress(now)
                yield Pause(min(left_s, WAITED_AT_ONCE_S))
                left_s -= WAITED_AT_ONCE_S


class Follower:
    """The follower of a queue, which compares each snapshot with the previous one.

    The first snapshot yields nothing.
    """

    def __init__(self, queue: str) -> None:
        self._queue = check_queue(queue)
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._last: Peek | None = None
        self._looked = at_unix_ns(0)

    def look(self, now_ns: int) -> Flow[list[TaskEvent]]:
        """Return the events since the last snapshot."""
        if self._last is None:
            return (yield from self._begin(now_ns))
        last: Peek = self._last
        peek: Peek = yield peek_queue(self._queue, WINDOW)
        infos = yield from self._look_up(list(dict.fromkeys(self._in_question(peek))), now_ns)
        noted = (self._noted(task_id, info, peek) for task_id, info in infos.items())
        events = [event for event in noted if event is not None]
        self._last, self._looked = peek, at_unix_ns(now_ns)
        missed = peek.processed - last.processed - sum(event.name in ENDS for event in events)
        return events + ([TaskEvent("missed", runs=missed)] if missed > 0 else [])

    def _begin(self, now_ns: int) -> Flow[list[TaskEvent]]:
        """Record the current tasks."""
        yield from require_queue(self._queue)
        peek: Peek = yield peek_queue(self._queue, WINDOW)
        self._last, self._looked = peek, at_unix_ns(now_ns)
        for state, ids in peek.ids.items():
            self._known.update((task_id, _Known(state, "")) for task_id in ids)
        infos = yield from self._look_up(peek.ids[TaskState.ACTIVE] + peek.ids[TaskState.PENDING], now_ns)
        for task_id, info in infos.items():
            self._noted(task_id, info, peek)
        return []

    def _look_up(self, ids: Sequence[bytes], now_ns: int) -> Flow[dict[bytes, TaskInfo | None]]:
        """Read some tasks; if there are many or large ones, only the first."""
        asked = ids[:LOOKED_UP]
        found: list[FoundTask] = (yield read_tasks(self._queue, asked)) if asked else []
        pairs = zip(asked, found, strict=False)
        return {task_id: describe(self._queue, task_id, task, now_ns) for task_id, task in pairs}

    def _in_question(self, peek: Peek) -> Iterator[bytes]:
        """Yield the ids to look up.

        Ids that have left active come first, since these tasks ran. Then come ids that are new in a state, and then ids
        that have left pending, retry or scheduled.
        """
        yield from self._left(peek, TaskState.ACTIVE)
        for state in (TaskState.ACTIVE, TaskState.ARCHIVED, TaskState.RETRY, TaskState.COMPLETED, TaskState.SCHEDULED):
            yield from self._came(peek, state)
        yield from self._new_in_pending(peek)
        for state in (TaskState.PENDING, TaskState.RETRY, TaskState.SCHEDULED):
            yield from self._left(peek, state)

    def _came(self, peek: Peek, state: TaskState) -> Iterable[bytes]:
        """Return the ids that are new in a state; none if the state has many ids in another order than arrival."""
        is_whole = state in (TaskState.ACTIVE, TaskState.ARCHIVED) or peek.sizes[state] <= WINDOW
        ids = peek.ids[state] if is_whole else []
        return [task_id for task_id in ids if not self._is_known_in(task_id, state)]

    def _new_in_pending(self, peek: Peek) -> Iterator[bytes]:
        """Return the ids before the first known id; all ids behind it are older."""
        for task_id in peek.ids[TaskState.PENDING]:
            if self._is_known_in(task_id, TaskState.PENDING):
                return
            yield task_id

    def _left(self, peek: Peek, state: TaskState) -> Iterable[bytes]:
        if self._last is None:
            return []
        there = set(peek.ids[state])
        return [
            task_id for task_id in self._last.ids[state] if task_id not in there and self._is_known_in(task_id, state)
        ]

    def _is_known_in(self, task_id: bytes, state: TaskState) -> bool:
        known = self._known.get(task_id)
        return known is not None and known.state is state

    def _noted(self, task_id: bytes, info: TaskInfo | None, peek: Peek) -> TaskEvent | None:
        """Record the state of a task; returns an event if the state has changed."""
        known = self._known.pop(task_id, None)
        name = task_id.decode(errors="replace")
        if info is None:
            if known is None:
                return None
            word = "done" if known.state is TaskState.ACTIVE else "gone"
            return TaskEvent(word, name, known.type, None, known.state)
        self._known[task_id] = _Known(info.state, info.type)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        previous = None if known is None else known.state
        if previous is info.state or (known is None and self._is_old(info, peek)):
            return None
        failed = info.state in (TaskState.RETRY, TaskState.ARCHIVED)
        return TaskEvent(_NAMES[info.state], name, info.type, info.state, previous, info.last_err if failed else "")

    def _is_old(self, info: TaskInfo, peek: Peek) -> bool:
        """Return whether a task was in a big archive before, and comes into view only because others were removed."""
        is_big = info.state is TaskState.ARCHIVED and peek.sizes[TaskState.ARCHIVED] > WINDOW
        return is_big and info.last_failed_at is not None and info.last_failed_at < self._looked - CLOCKS_APART
