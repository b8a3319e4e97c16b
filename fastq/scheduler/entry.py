"""An entry: a task and its schedule as registered, and the progress of its ticks."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from fastq._ids import new_task_id
from fastq.broker.operations.ticks import LastTick
from fastq.cron.schedule import Schedule
from fastq.errors import hint_of_call
from fastq.options import check_options, check_text, complete
from fastq.scheduler.option_list import option_strings
from fastq.scheduler.ticks import (
    GIVE_UP_AFTER,
    SURELY_KNOWN,
    Missed,
    Pick,
    begin_at,
    count_left_out,
    next_tick,
    pick_ticks,
)
from fastq.task import Task
from fastq.wire.messages import SchedulerEntry

SET_BACK: Final = timedelta(hours=1)
"""If the clock is further than this before the last tick, it was wrong at that tick, and the entry starts over."""


@dataclass(frozen=True, slots=True)
class Registration:
    """The arguments of ``register``; ``options`` are as given, ``checked`` has them in the form for ``complete``."""

    schedule: Schedule
    task: Task
    options: Mapping[str, Any]
    checked: Mapping[str, Any]
    name: str | None
    missed: Missed

    @property
    def queue(self) -> str:
        """Return the queue of the tasks."""
        return complete(self.checked, 0).queue

    @property
    def plan(self) -> str:
        """Return a text that identifies the schedule; schedulers share the last tick of an entry only if the texts are
        equal.
        """
        return f"{self.schedule.zone} {self.schedule.spec}"

    @property
    def recalls(self) -> bool:
        """Return whether the scheduler makes up for ticks that were due before it started."""
        return self.name is not None and self.missed is not Missed.SKIP


def check_registration(
    schedule: Schedule, task: object, options: Mapping[str, Any], name: object, missed: object
) -> Registration:
    """Refuse a task that could not be enqueued later; ``TypeError`` or ``ValueError`` names the fault."""
    if isinstance(task, str):
        task = Task(task)
    if not isinstance(task, Task):
        raise TypeError(f"task must be a fastq.Task or a type name, not {task!r}{hint_of_call(task)}")
    checked = {**task.options, **check_options(options)}
    complete(checked, 0)
    if name is not None:
        name = check_text(name, "name")
    policy = next((policy for policy in Missed if policy == missed), None)
    if policy is None:
        raise ValueError(f"missed must be one of {', '.join(Missed)}, not {missed!r}")
    return Registration(schedule, task, dict(options), checked, name, policy)


@dataclass(slots=True)
class Attempt:
    """The tick that is being enqueued, its task and id, and whether the task may be in Redis; kept for repeated tries.

    ``is_id_ours`` means that the id was generated for this tick, so no other task has it. ``failing_since`` is the time
    of the first failure.
    """

    due: datetime
    task: Task
    task_id: str
    is_id_ours: bool
    announced: bool = False
    maybe_applied: bool = False
    reported: bool = False
    failing_since: datetime | None = None


class Entry:
    """One registration and its ticks; times in UTC, ``retry_at_s`` monotonic."""

    def __init__(self, registration: Registration, now: datetime) -> None:
        self.id = str(uuid.uuid4())
        self.registration = registration
        self.prev: datetime | None = None
        self.recalled = not registration.recalls
        self.failures = 0
        self.retry_at_s = 0.0
        self.is_behind = False
        """Whether ticks were left out before the last finished tick; this is logged only once."""
        self._attempt: Attempt | None = None
        self._pick: Pick | None = None
        self._begin(now)

    def __repr__(self) -> str:
        name = repr(self.registration.name) if self.registration.name else self.id
        return f"entry {name} ({self.registration.schedule.spec}, {self.registration.task.type})"

    def _begin(self, now: datetime) -> None:
        schedule = self.registration.schedule
        self._move_to(begin_at(schedule, now, shared=self.registration.name is not None))

    def _move_to(self, position: datetime) -> None:
        self._position = position
        self.next = next_tick(self.registration.schedule, position)

    def begin(self, now: datetime) -> None:
        """Count ticks from now on, not from the registration, unless missed ticks are made up for."""
        if not self.registration.recalls:
            self._begin(now)

    def must_recall(self, now: datetime) -> bool:
        """Return whether to read the last tick from Redis: at the start, and if other schedulers may be far ahead."""
        if not self.recalled:
            return True
        makes_up_all = self.registration.recalls and self.registration.missed is Missed.ALL
        return makes_up_all and self.next is not None and now - self.next > SURELY_KNOWN

    def recall(self, last: LastTick | None) -> None:
        """Move to the last tick that a scheduler tried, if it has the same plan; move back only the first time."""
        is_first, self.recalled = not self.recalled, True
        self._note_answer()
        if last is None or last.plan != self.registration.plan:
            return
        tick = datetime.fromtimestamp(last.due_s, UTC)
        if is_first or tick > self._position:
            self._move_to(tick)

    def pick(self, now: datetime) -> Pick | None:
        """Return the ticks to enqueue now, None if none is due."""
        if now < self._position - SET_BACK:
            self._begin(now)
        if self.next is None or self.next > now:
            return None
        pick = pick_ticks(self.registration.schedule, self._position, now, self.registration.missed)
        if pick is not None and self._gives_up(pick.latest, now):
            pick = Pick([], pick.latest, leaves_out=True)
        self._pick = pick
        return pick

    def count_left_out(self) -> int:
        """Return how many ticks the last pick leaves out, at most 1000; 0 once a tick of the pick is finished."""
        return 0 if self._pick is None else count_left_out(self.registration.schedule, self._position, self._pick)

    def leave_uncounted(self) -> None:
        """Leave it to another scheduler to count the ticks that the last pick leaves out."""
        self._pick = None

    def _gives_up(self, due: datetime, now: datetime) -> bool:
        """Return whether a tick has failed for so long that it counts as missed, and missed ticks are skipped.

        The time counts from the first failure, not from the due time, since a suspended machine has not tried the tick
        yet.
        """
        attempt = self._attempt
        if self.registration.missed is not Missed.SKIP or attempt is None or attempt.due != due:
            return False
        return attempt.failing_since is not None and now - attempt.failing_since > GIVE_UP_AFTER

    def attempt(self, due: datetime) -> Attempt:
        """Return the attempt at a tick: the same one, with the same task id, until its result is known."""
        if self._attempt is None or self._attempt.due != due:
            given = self.registration.checked.get("task_id") or self.registration.checked.get("key")
            self._attempt = Attempt(due, self.registration.task, given or new_task_id(), is_id_ours=not given)
        return self._attempt

    def settle(self, due: datetime) -> None:
        """Record that a tick is finished, whatever its result."""
        self.prev = due
        self.leave_behind(due)

    def leave_behind(self, tick: datetime) -> None:
        """Record that a tick, and all ticks before it, are finished."""
        self._attempt = self._pick = None
        self._note_answer()
        if tick > self._position:
            self._move_to(tick)

    def _note_answer(self) -> None:
        self.failures = 0
        self.retry_at_s = 0.0

    def message(self) -> SchedulerEntry:
        """Describe the entry for inspectors, with the options given to ``register``, as asynq does. A queue that is set
        in the task is included, since inspectors would otherwise show the default queue.
        """
        registration = self.registration
        queue = {"queue": registration.task.options["queue"]} if "queue" in registration.task.options else {}
        return SchedulerEntry(
            id=self.id,
            spec=registration.schedule.spec,
            task_type=registration.task.type,
            task_payload=registration.task.payload,
            enqueue_options=option_strings({**queue, **registration.options}),
            next_enqueue_time=self.next,
            prev_enqueue_time=self.prev,
        )
