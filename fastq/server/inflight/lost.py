"""The dequeues whose replies were lost: they may have leased tasks to us of which we know nothing.

Such tasks are found by the very score that their leases would have. The look is repeated, should Redis have carried
out the dequeue only after it.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from fastq.broker.operations.dequeue import MAX_BATCH_TASKS
from fastq.broker.operations.lease import Leased, LeasedTask, list_leases
from fastq.errors import BrokerError
from fastq.server.commands import Commands
from fastq.server.inflight.held import HeldTask
from fastq.server.inflight.holdings import Holdings

__all__ = ["Found", "LostDequeues"]

LOOKS: Final = 3
LOOK_AGAIN_S: Final = 5.0
SAME_LEASE_S: Final = 2.0
"""Leases that end closer to one another than this may be of the same dequeue: scores have whole seconds."""
_NOTHING: Final = Leased([], [])


@dataclass(slots=True)
class _Lost:
    queue: str
    lease_score: str
    looks: int = LOOKS
    due_s: float = 0.0


class Found(NamedTuple):
    """Hold the tasks that a lost dequeue of a queue had leased to us, or why the look failed."""

    queue: str
    leased: Leased
    error: BrokerError | None = None


class LostDequeues:
    """Remember them, and look for their tasks."""

    def __init__(self, commands: Commands, holdings: Holdings) -> None:
        self._commands = commands
        self._held = holdings.held
        self._clock = holdings.clock
        self._lost: list[_Lost] = []

    def __len__(self) -> int:
        return len(self._lost)

    def add(self, queue: str, lease_score: str) -> None:
        """Remember a dequeue; tasks are looked for at once, and again later."""
        self._lost = [lost for lost in self._lost if (lost.queue, lost.lease_score) != (queue, lease_score)]
        self._lost.append(_Lost(queue, lease_score))

    def due_s(self) -> float:
        """Return when the next look is due, in monotonic seconds; infinity if none is."""
        return min((lost.due_s for lost in self._lost), default=float("inf"))

    def is_open(self, queue: str) -> bool:
        """Tell whether a dequeue of a queue may have leased tasks to us that no look has shown yet."""
        return any(lost.queue == queue and lost.looks == LOOKS for lost in self._lost)

    def _is_new(self, found: LeasedTask, lost: _Lost, held: HeldTask | None) -> bool:
        """Tell whether a task that has the lease of a lost dequeue is not the one that is held under its id.

        One whose end is in doubt may have come back: its id was free as soon as Redis had carried out that write.
        """
        if held is None:
            return True
        if not held.in_doubt:
            return False
        ends_s = held.leased_until_s - self._clock.monotonic_s() + self._clock.unix_ns() / 1e9
        return found.message != held.view.data or abs(int(float(lost.lease_score)) - ends_s) > SAME_LEASE_S

    async def look(self, *, at_once: bool = False) -> list[Found]:
        """Look for the tasks of all dequeues for which a look is due, or of all."""
        now_s = self._clock.monotonic_s()
        due = [lost for lost in self._lost if at_once or lost.due_s <= now_s]
        if not due:
            return []
        # Taken before the look: a task whose outcome is being written now must not be taken for a lost one.
        known = {queue: {task.id: task for task in tasks} for queue, tasks in self._held.by_queue()}
        results = await self._commands.run_many(
            [list_leases(lost.queue, lost.lease_score, lost.lease_score, MAX_BATCH_TASKS) for lost in due]
        )
        found = []
        for lost, result in zip(due, results, strict=True):
            if isinstance(result, BrokerError):
                lost.due_s = now_s + 1.0
                found.append(Found(lost.queue, _NOTHING, result))
                continue
            lost.looks -= 1
            lost.due_s = now_s + LOOK_AGAIN_S
            ours = known.get(lost.queue, {})
            tasks = [
                task
                for task in result.tasks
                if self._is_new(task, lost, ours.get(task.id) or self._held.get(lost.queue, task.id))
            ]
            found.append(Found(lost.queue, Leased.of(tasks)))
        self._lost = [lost for lost in self._lost if lost.looks > 0]
        return found
