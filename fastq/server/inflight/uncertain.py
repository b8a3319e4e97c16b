"""Uncertain outcomes: ends that may not be written, and dequeues that may have leased unknown tasks to us.

If a reply is lost, it is not known whether Redis carried out the call. docs/internals/uncertain-ends.md has the table
of the states. The acker's writes note ends and the syncer settles them; the fetcher notes dequeues and looks for their
tasks. The two meet in one rule: an end whose write may have been carried out must not be written again while its id may
have come back to us as another task.
"""

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

from fastq.broker.operations.dequeue import MAX_BATCH_TASKS
from fastq.broker.operations.lease import Leased, LeasedTask, list_leases
from fastq.common.clock import Clock, Moment
from fastq.errors import BrokerError
from fastq.server.base.commands import Commands
from fastq.server.base.outage import is_shared
from fastq.server.inflight.tasks import InFlightTask, InFlightTasks

LOOKS: Final = 3
LOOK_AGAIN_S: Final = 5.0
LOOK_FAILED_S: Final = 1.0
SAME_LEASE_S: Final = 2.0
"""Leases that end closer together than this may belong to the same dequeue, because scores have whole seconds."""
_NOTHING: Final = Leased([], [])
_NO_QUEUES: Final[frozenset[str]] = frozenset()


# Ends ---------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _UncertainEnd:
    """An end whose write failed. It may be in doubt, refused, both or neither."""

    since_s: float
    """When the first write of the end failed (monotonic)."""
    in_doubt: bool = False
    """A write of it may have been carried out."""
    refused: BrokerError | None = None
    """The last error, if it means that Redis refuses the end for good; None in an outage: then nothing is given up."""
    write_by_s: float = inf
    """Until when (monotonic) a refused end is tried: the end of the lease that the task had at the first refusal.

    The heartbeater would otherwise keep the task forever. An expired lease alone is no reason to give up: the task is
    ours until a recoverer takes it, and the write finds that out.
    """


class DueEnds(NamedTuple):
    """The tasks whose ends must be written again now, and the tasks given up, each with its refusal."""

    ready: list[InFlightTask]
    given_up: list[tuple[InFlightTask, BrokerError]]


class UncertainEnds:
    """The ends of tasks that are not known to be written, until a reply to their write settles them.

    ``waiting`` are the tasks whose ends must be written again; the others are being written.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.waiting: list[InFlightTask] = []
        self._ends: dict[InFlightTask, _UncertainEnd] = {}

    def keep(self, tasks: Sequence[InFlightTask], error: BrokerError) -> None:
        """Note that the ends of tasks could not be written."""
        for task in tasks:
            if not task.in_flight:
                self._ends.pop(task, None)
                continue
            end = self._ends.setdefault(task, _UncertainEnd(self._clock.monotonic_s()))
            end.in_doubt = end.in_doubt or error.maybe_applied
            if is_shared(error):
                end.refused = None  # whether Redis would still refuse it is not known
            else:
                end.refused = error
                if end.write_by_s == inf:
                    end.write_by_s = task.leased_until_s
            self.waiting.append(task)

    def add(self, tasks: Sequence[InFlightTask]) -> None:
        """Add tasks whose ends no write has carried yet."""
        self.waiting += tasks

    def take_due(self, now_s: float, may_bring: Callable[[str], bool], queues: Container[str]) -> DueEnds:
        """Take the ends that may be written now, of the given queues; forget ends of tasks that are not ours any more.

        An end in doubt waits as long as its id may have come back to us as another task, which the write would end.
        """
        tasks, self.waiting = self.waiting, []
        due = DueEnds([], [])
        for task in tasks:
            end = self._ends.get(task, _FRESH)
            if not task.in_flight:
                self._ends.pop(task, None)
            elif task.queue not in queues:
                self.waiting.append(task)
            elif end.refused is not None and end.write_by_s <= now_s:
                del self._ends[task]
                due.given_up.append((task, end.refused))
            elif end.in_doubt and may_bring(task.queue):
                self.waiting.append(task)
            else:
                due.ready.append(task)
        return due

    def __bool__(self) -> bool:
        """Return whether any end is uncertain, also one that is being written now."""
        return bool(self.waiting or self._ends)

    @property
    def oldest_s(self) -> float:
        """Return the seconds since the first failed write of any end that is not written yet; 0 if there is none."""
        first = next(iter(self._ends.values()), None)
        return 0.0 if first is None else self._clock.monotonic_s() - first.since_s

    def settle(self, tasks: Sequence[InFlightTask]) -> None:
        """Forget the doubts about tasks, because a write of their ends had a reply."""
        if self._ends:
            for task in tasks:
                self._ends.pop(task, None)

    def is_in_doubt(self, task: InFlightTask) -> bool:
        """Return whether the end of a task in flight may have been written."""
        return task.in_flight and self._ends.get(task, _FRESH).in_doubt

    def queues_in_doubt(self) -> frozenset[str]:
        """Return the queues of tasks whose ends are in doubt: nothing is fetched from them meanwhile."""
        if not self._ends:
            return _NO_QUEUES
        return frozenset(task.queue for task, end in self._ends.items() if end.in_doubt and task.in_flight)


_FRESH: Final = _UncertainEnd(0.0)


# Dequeues -----------------------------------------------------------------------------------------------------------


class DequeueCall(NamedTuple):
    """The arguments of one ``dequeue`` call."""

    queue: str
    most: int
    score: str


@dataclass(slots=True)
class LostDequeue:
    """A dequeue that may have leased tasks to us without our knowledge; their leases have exactly this score."""

    queue: str
    lease_score: str
    asked_s: float
    looks: int = LOOKS
    due_s: float = 0.0


class Found(NamedTuple):
    """The result of a look for a lost dequeue that was sent at ``asked_s``: the tasks leased to us, or an error."""

    queue: str
    leased: Leased
    asked_s: float
    error: BrokerError | None = None


class UncertainDequeues:
    """The dequeues whose tasks may be leased to us without being in flight yet: under way, brought, or lost.

    The look for the tasks of a lost dequeue is repeated, in case Redis carried it out only after the look.
    """

    def __init__(self, tasks: InFlightTasks, ends: UncertainEnds, clock: Clock, lease_s: float) -> None:
        self._tasks = tasks
        self._ends = ends
        self._clock = clock
        self._lease_s = lease_s
        self._under_way: list[Sequence[DequeueCall]] = []
        self._brought: list[tuple[DequeueCall, Leased, Moment]] = []
        self._lost: list[LostDequeue] = []
        self._is_over = False

    def asked(self) -> frozenset[str]:
        """Return the queues with a dequeue under way at any node; if the slot has moved, no other node is asked now."""
        if not self._under_way:
            return _NO_QUEUES
        return frozenset(call.queue for calls in self._under_way for call in calls)

    def may_bring(self, queue: str) -> bool:
        """Return whether tasks of a queue may be on their way here, or be leased to us without our knowing."""
        if queue in self.asked() or any(queue == call.queue for call, *_ in self._brought):
            return True
        return not self._is_over and any(lost.queue == queue and lost.looks == LOOKS for lost in self._lost)

    # Under way, brought

    def begin(self, calls: Sequence[DequeueCall]) -> None:
        """Note that queues are being asked."""
        self._under_way.append(calls)

    def end(self, calls: Sequence[DequeueCall]) -> None:
        """Note that these queues have answered, or will not answer."""
        self._under_way.remove(calls)

    def bring(self, call: DequeueCall, leased: Leased, asked: Moment) -> None:
        """Keep the tasks that a call has brought, and the time of its request, until they are passed on."""
        self._brought.append((call, leased, asked))

    @property
    def brought(self) -> int:
        """Return the number of tasks that wait to be passed on."""
        return sum([leased.size for _, leased, _ in self._brought]) if self._brought else 0

    def hand_on(self) -> Iterator[tuple[DequeueCall, Leased, Moment]]:
        """Yield the fetched tasks, the oldest first, unless this process was suspended meanwhile.

        In that case the leases may have been lost: tasks that are still ours are found as after a dequeue without
        reply.
        """
        while self._brought:
            call, leased, asked = self._brought.pop(0)
            if asked.until(Moment.now(self._clock)) > self._lease_s / 2:
                self.lose(call, asked.monotonic_s)
            else:
                yield call, leased, asked

    # Lost

    def lose(self, call: DequeueCall, asked_s: float) -> None:
        """Note that a dequeue asked for at ``asked_s`` had no reply; its tasks are looked for now, and again later."""
        lost = LostDequeue(call.queue, call.score, asked_s)
        self._lost = [one for one in self._lost if (one.queue, one.lease_score) != (call.queue, call.score)]
        self._lost.append(lost)

    @property
    def any_lost(self) -> bool:
        """Return whether there is a lost dequeue to look for."""
        return bool(self._lost)

    def due_s(self) -> float:
        """Return when the next look is due, in monotonic seconds; infinity if none is."""
        return min((lost.due_s for lost in self._lost), default=inf)

    def give_up(self) -> None:
        """Note that nobody will look for lost dequeues any more."""
        self._is_over = True

    def due(self, *, at_once: bool = False) -> list[LostDequeue]:
        """Return the dequeues to look for now: those that are due, or all."""
        now_s = self._clock.monotonic_s()
        asked = {(call.queue, call.score) for calls in self._under_way for call in calls}
        asked.update((call.queue, call.score) for call, *_ in self._brought)
        due = []
        for lost in self._lost:
            if (lost.queue, lost.lease_score) in asked:
                lost.due_s = now_s + LOOK_FAILED_S  # a dequeue under way at another node has leases of this very score
            elif at_once or lost.due_s <= now_s:
                due.append(lost)
        return due

    async def look(self, commands: Commands, due: Sequence[LostDequeue]) -> list[Found]:
        """Look for the tasks of some dequeues."""
        now_s = self._clock.monotonic_s()
        for lost in due:
            lost.due_s = now_s + LOOK_FAILED_S  # not twice at the same time
        # Read before the look: a task whose end is being written now must not be mistaken for a lost one.
        known = {queue: {task.id: task for task in tasks} for queue, tasks in self._tasks.by_queue()}
        results = await commands.run_many(
            [list_leases(lost.queue, lost.lease_score, lost.lease_score, MAX_BATCH_TASKS) for lost in due]
        )
        found = []
        for lost, result in zip(due, results, strict=True):
            if isinstance(result, BrokerError):
                found.append(Found(lost.queue, _NOTHING, lost.asked_s, result))
                continue
            lost.looks -= 1
            lost.due_s = now_s + LOOK_AGAIN_S
            ours = known.get(lost.queue, {})
            tasks = [
                task
                for task in result.tasks
                if self._is_new(task, lost, ours.get(task.id) or self._tasks.get(lost.queue, task.id))
            ]
            found.append(Found(lost.queue, Leased.of(tasks), lost.asked_s))
        self._lost = [lost for lost in self._lost if lost.looks > 0]
        return found

    def _is_new(self, found: LeasedTask, lost: LostDequeue, ours: InFlightTask | None) -> bool:
        """Return whether a task with the lease of a lost dequeue is another one than the task in flight under its id.

        A task whose end is in doubt may have come back: its id was free as soon as Redis had carried out that write.
        """
        if ours is None:
            return True
        if not self._ends.is_in_doubt(ours):
            return False
        if found.message != ours.view.data:
            return True
        if ours.leased_until_s == lost.asked_s + self._lease_s:
            return False  # an earlier look found it
        ends_s = ours.leased_until_s - self._clock.monotonic_s() + self._clock.unix_ns() / 1e9
        return abs(int(float(lost.lease_score)) - ends_s) > SAME_LEASE_S
