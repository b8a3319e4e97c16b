"""The fetcher: keeps the pool supplied, one round trip for all queues, split by weight.

Wakes: when the pool has room, when a wake-up says that a queue has tasks, and as a fallback at every check interval.
Writes: pending, active and lease of its queues. If it dies: nothing new is started here; what is held goes on.

A queue that answered "empty" or "paused" rests for a jittered check interval, or until it is woken. A dequeue whose
reply was lost may have leased tasks to us; they are found by the score they would have.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from fastq.broker.dequeue import MAX_BATCH_TASKS, NoTasks, dequeue
from fastq.broker.lease import Leased, LeasedTask, list_leases
from fastq.errors import BrokerError
from fastq.prioritizer import Prioritizer
from fastq.server.actor import Actor
from fastq.server.commands import Commands
from fastq.server.holdings import Holdings
from fastq.server.waker import Waker

__all__ = ["Fetcher"]

NO_ROOM_PAUSE_S: Final = 0.2
WOKEN_INTERVAL_S: Final = 10.0
"""How often a queue is asked that a waker waits for: only in case that a wake-up is lost."""
LOOKS: Final = 3
LOOK_AGAIN_S: Final = 5.0


@dataclass(slots=True)
class LostReply:
    """Remember a dequeue whose reply was lost: the score its leases would have, and the looks that are left."""

    queue: str
    lease_score: str
    looks: int = LOOKS
    due_s: float = 0.0


class Taker(Protocol):
    """Name whom the fetcher works for."""

    @property
    def room(self) -> int:
        """Return how many more tasks would start soon."""

    def accept(self, queue: str, leased: Sequence[LeasedTask]) -> None:
        """Take tasks that were leased just now."""


class Fetcher(Actor):
    """Fetch tasks for the pool."""

    name = "fetcher"

    def __init__(
        self,
        commands: Commands,
        prioritizer: Prioritizer,
        holdings: Holdings,
        taker: Taker,
        check_interval_s: float,
    ) -> None:
        super().__init__()
        self._commands = commands
        self._prioritizer = prioritizer
        self._taker = taker
        self._check_interval_s = check_interval_s
        self._held = holdings.held
        self._owner = holdings.owner
        self._clock = holdings.clock
        self._lease_s = holdings.timing.lease_s
        self._resting: dict[str, float] = {}
        self._lost: list[LostReply] = []
        self.wakers: Mapping[str, Waker] = {}
        self.paused_queues: set[str] = set()

    def queue_has_tasks(self, queue: str) -> None:
        """Let a resting queue be asked at once."""
        if self._resting.pop(queue, None) is not None:
            self.wake()

    def ask_all(self) -> None:
        """Let every resting queue be asked at once."""
        self._resting.clear()
        self.wake()

    @property
    def all_resting(self) -> bool:
        """Tell whether every queue answered "empty" or "paused" when it was last asked, and is not due again."""
        return len(self._resting) == len(self._prioritizer.weights) and not self._lost

    async def tick(self) -> float:
        """Fetch once."""
        if self._lost:
            await self._look_for_lost()
        room = min(self._taker.room, MAX_BATCH_TASKS)
        if room <= 0:
            return NO_ROOM_PAUSE_S
        quotas = self._prioritizer.split(room, self._still_resting())
        if not quotas:
            return self._until_next_s()
        score = self._owner.score(self._clock.unix_ns() / 1e9, self._lease_s)
        results = await self._commands.run_many([dequeue(queue, count, score) for queue, count in quotas])
        failure: BrokerError | None = None
        for (queue, count), result in zip(quotas, results, strict=True):
            if isinstance(result, BrokerError):
                failure = result
                self._prioritizer.give_back(queue, count)
                if result.maybe_applied:
                    self._lost.append(LostReply(queue, score))
            else:
                self._take(queue, count, result)
        if failure is not None:
            raise failure
        return 0.0 if len(self._resting) < len(self._prioritizer.weights) else self._until_next_s()

    def _take(self, queue: str, count: int, result: Leased | NoTasks) -> None:
        if isinstance(result, NoTasks):
            self._prioritizer.give_back(queue, count)
            self._rest(queue, result)
            return
        if result.ghosts:
            self._log.warning("dropped %d ids without a task from queue %s", result.ghosts, queue)
        if len(result.tasks) < count:
            self._prioritizer.give_back(queue, count - len(result.tasks))
        self.paused_queues.discard(queue)
        if waker := self.wakers.get(queue):
            waker.brought_work()
        self._taker.accept(queue, result.tasks)

    def _rest(self, queue: str, why: NoTasks) -> None:
        waker = self.wakers.get(queue)
        interval_s = self._check_interval_s
        if why is NoTasks.PAUSED:
            self.paused_queues.add(queue)
        else:
            self.paused_queues.discard(queue)
            if waker is not None:
                waker.arm()
                interval_s = max(interval_s, WOKEN_INTERVAL_S) if waker.is_waiting else interval_s
        # As asynq: half to one and a half times the interval, so that servers do not ask in step.
        self._resting[queue] = self._clock.monotonic_s() + interval_s * random.uniform(0.5, 1.5)

    def _still_resting(self) -> frozenset[str]:
        now_s = self._clock.monotonic_s()
        self._resting = {queue: until_s for queue, until_s in self._resting.items() if until_s > now_s}
        return frozenset(self._resting)

    def _until_next_s(self) -> float:
        return max(0.001, min(self._resting.values(), default=0.001) - self._clock.monotonic_s())

    async def _look_for_lost(self) -> None:
        """Find tasks that a dequeue without reply leased to us; look again later, should Redis have been behind."""
        now_s = self._clock.monotonic_s()
        due = [lost for lost in self._lost if lost.due_s <= now_s]
        # Taken before the look: a task whose outcome is being written now must not be taken for a lost one.
        known = {queue: {task.id for task in tasks} for queue, tasks in self._held.by_queue()}
        for lost in due:
            span = (lost.lease_score, lost.lease_score)
            found = await self._commands.run(list_leases(lost.queue, *span, MAX_BATCH_TASKS))
            unknown = [
                task
                for task in found.tasks
                if task.id not in known.get(lost.queue, ()) and self._held.get(lost.queue, task.id) is None
            ]
            if unknown:
                self._log.info("found %d tasks of queue %s whose dequeue had no reply", len(unknown), lost.queue)
                self._taker.accept(lost.queue, unknown)
            lost.looks -= 1
            lost.due_s = now_s + LOOK_AGAIN_S
        self._lost = [lost for lost in self._lost if lost.looks > 0]
