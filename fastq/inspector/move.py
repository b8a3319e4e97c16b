"""The flow that moves tasks from one queue to another; a later move finishes an interrupted move."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from fastq.broker.inspect.move import (
    ParkedTask,
    claim_tasks,
    commit_move,
    drop_parked,
    forget_move,
    read_notes,
    unpark_tasks,
)
from fastq.broker.inspect.put import MOVING, PutOutcome, TaskToPut, lock_of, put_tasks, read_lock, readdress
from fastq.broker.operation import Flow, together
from fastq.broker.operations.enqueue import register_queue
from fastq.broker.operations.walk import Source, Walk, WalkedTask, WalkPage
from fastq.common.states import TaskState
from fastq.errors import InvalidMessageError
from fastq.wire import keys
from fastq.wire.codec import view_task_message

TOKEN: Final = b"move_token"
COPY: Final = b"move_copy"
MARKS: Final = (b"state", b"move_state", b"move_score", b"move_group", b"move_to", b"move_from", TOKEN, COPY)
FOR_EVER: Final = -1
NOT_HELD: Final = -2
MOST_NAMED: Final = 20


@dataclass(slots=True)
class Move:
    """A move of the ``wanted`` tasks of ``origin`` to ``target``; ``token`` is different for each move.

    ``stayed`` counts the tasks that could not be moved, by reason (``PutOutcome``); ``named`` are the first such tasks.
    """

    origin: str
    target: str
    token: str
    wanted: Callable[[Source, WalkedTask], bool]
    stayed: dict[PutOutcome, int] = field(
        default_factory=lambda: dict.fromkeys((PutOutcome.ID_CONFLICT, PutOutcome.DUPLICATE), 0)
    )
    named: list[tuple[str, PutOutcome]] = field(default_factory=list)
    moved: int = 0

    def run(self, sources: Sequence[Source]) -> Flow[int]:
        """Finish interrupted moves, then move all wanted tasks of the sources; returns how many were moved."""
        yield register_queue(self.target)
        yield from self._finish()
        yield from self._tidy()
        for source in sources:
            yield from self._move_all(source)
        return self.moved

    def _move_all(self, source: Source) -> Flow[None]:
        walk = Walk(source)
        left: int = yield source.size()
        while left > 0:
            page: WalkPage = yield walk.page()
            if not page.tasks:
                return
            left -= len(page.tasks)
            ids = [task.id for task in page.tasks if task.message is not None and self.wanted(source, task)]
            back: set[bytes] = set()
            if ids:
                yield claim_tasks(source, ids, self.token, self.target, page.place)
                back = yield from self._finish()
            gone = set(ids) - back
            walk.passed(page, [task for task in page.tasks if task.id not in gone])

    def _finish(self) -> Flow[set[bytes]]:
        """Finish the moves of parked tasks; returns the ids of tasks that were put back into the old queue."""
        back: set[bytes] = set()
        for token, tasks in (yield from self._parked(self.origin, b"move_to", self.target)).items():
            back |= yield from self._bring(token, tasks)
        for token, tasks in (yield from self._parked(self.target, b"move_from", self.origin)).items():
            yield from self._settle(token, [self._copy(task) for task in tasks])
        return back

    def _tidy(self) -> Flow[None]:
        """Delete the notes on tasks that have arrived.

        A task is parked before its note is written, and the notes are read before the parked tasks. So a task with a
        note that is not parked has arrived.
        """
        notes: dict[bytes, bytes] = yield read_notes(self.origin)
        parked = yield from self._parked(self.target, b"move_from", self.origin)
        waiting = {(token, task.id) for token, tasks in parked.items() for task in tasks}
        for note, copy in notes.items():
            token, _, task_id = note.partition(b":")
            target = copy.partition(b":")[2]
            if target == self.target.encode() and (token.decode(), task_id) not in waiting:
                yield forget_move(self.origin, token.decode(), [task_id])

    def _parked(self, queue: str, role: bytes, peer: str) -> Flow[dict[str, list[WalkedTask]]]:
        """Read the tasks parked in a queue whose field ``role`` names ``peer``, by the token of their move."""
        found: dict[str, list[WalkedTask]] = defaultdict(list)
        walk = Walk(Source(queue, keys.moving(queue), TaskState.SCHEDULED))
        while True:
            page: WalkPage = yield walk.page()
            for task in page.tasks:
                if task.fields.get(role) == peer.encode():
                    found[task.fields.get(TOKEN, b"").decode(errors="replace")].append(task)
            walk.passed(page, page.tasks)
            if not page.tasks:
                return found

    def _bring(self, token: str, tasks: Sequence[WalkedTask]) -> Flow[set[bytes]]:
        """Park tasks in the other queue; put back the tasks that it cannot take."""
        locks = [_lock_of(self.origin, task) for task in tasks]
        left = yield from together(*(read_lock(lock, task.id) for task, lock in zip(tasks, locks, strict=True) if lock))
        each_left = iter(left)
        kept = [
            self._task_to_put(task, next(each_left) if lock else NOT_HELD)
            for task, lock in zip(tasks, locks, strict=True)
        ]
        outcomes: list[PutOutcome] = yield from put_tasks(self.target, kept, token=token)
        back = []
        for task, outcome in zip(tasks, outcomes, strict=True):
            if outcome not in (PutOutcome.DONE, PutOutcome.DONE_BEFORE):
                back.append(ParkedTask(task.id))
                self._note(task, outcome)
        if back:
            yield unpark_tasks(self.origin, token, back, back=True)
        return {task.id for task in back}

    def _copy(self, task: WalkedTask) -> ParkedTask:
        """Describe a task that is parked in the other queue, with its unique lock there and in the old queue."""
        lock = _lock_of(self.target, task)
        old_lock = keys.queue_prefix(self.origin) + lock.removeprefix(keys.queue_prefix(self.target)) if lock else ""
        return ParkedTask(task.id, task.fields.get(COPY, b"").decode(errors="replace"), lock, old_lock)

    def _settle(self, token: str, parked: Sequence[ParkedTask]) -> Flow[None]:
        """Finish the moves of tasks that are parked in the other queue."""
        outcomes: list[int] = yield commit_move(self.origin, token, parked)
        ours = [copy for copy, outcome in zip(parked, outcomes, strict=True) if outcome]
        others = [copy for copy, outcome in zip(parked, outcomes, strict=True) if not outcome]
        if others:  # another call has already finished this move
            yield drop_parked(self.target, token, others)
        if ours:
            taken = yield unpark_tasks(self.target, token, ours)
            self.moved += taken.tasks
            yield forget_move(self.origin, token, [copy.id for copy in ours])

    def _task_to_put(self, task: WalkedTask, lock_ms: int) -> TaskToPut:
        fields = {name: value for name, value in task.fields.items() if name not in MARKS}
        marks = {name: task.fields[name] for name in (b"move_state", b"move_score", b"move_group", TOKEN)}
        with suppress(InvalidMessageError):  # an unreadable message is moved as it is
            fields = readdress(fields, self.origin, self.target)
        parked = WalkedTask(task.id, b"", fields)
        lock = _lock_of(self.target, parked) if lock_ms != NOT_HELD else ""
        marks |= {b"move_from": self.origin.encode(), COPY: self.token.encode()}
        left_ms = None if lock_ms == FOR_EVER else max(1, lock_ms)  # Redis refuses a lock of 0 ms
        return TaskToPut(task.id, MOVING, {**fields, **marks}, task.score.decode() or "0", b"", lock, left_ms)

    def _note(self, task: WalkedTask, outcome: PutOutcome) -> None:
        self.stayed[outcome] += 1
        if len(self.named) < MOST_NAMED:
            self.named.append((task.id.decode("utf-8", "surrogateescape"), outcome))


def _lock_of(queue: str, task: WalkedTask) -> str:
    """Return the unique lock that a task's message names, if it is a lock of the queue."""
    try:
        return lock_of(queue, view_task_message(task.message or b"").unique_key)
    except InvalidMessageError:
        return ""
