"""The forwarder: moves scheduled and retry tasks whose time has come to pending, or to their group.

Wakes: every delayed_task_check_interval, and at the next due time that it saw. Reads and writes: scheduled, retry,
pending, groups of its queues. If it dies: due tasks wait for another server's forwarder.
"""

import math
from collections.abc import Sequence

from fastq import keys
from fastq.broker.maintain import Forwarded, forward
from fastq.clock import Clock
from fastq.errors import BrokerError
from fastq.server.actor import Actor
from fastq.server.commands import Commands
from fastq.server.repairs import Repair, Repairs

__all__ = ["Forwarder"]

BATCH = 100


class Forwarder(Actor):
    """Forward due tasks, 100 a script call, until nothing is due."""

    name = "forwarder"

    def __init__(self, commands: Commands, queues: Sequence[str], interval_s: float, clock: Clock) -> None:
        super().__init__()
        self.repairs: Repairs = Repairs()
        self._commands = commands
        self._queues = queues
        self._interval_s = interval_s
        self._clock = clock

    async def tick(self) -> float:
        """Forward what is due in every queue; return the seconds until the next is."""
        places = [(queue, key(queue)) for queue in self._queues for key in (keys.scheduled, keys.retry)]
        next_due_s: float | None = None
        failure: BrokerError | None = None
        while places:
            self.get_on()
            now_ns = self._clock.unix_ns()
            results = await self._commands.run_many([forward(queue, key, now_ns, BATCH) for queue, key in places])
            more = []
            for place, result in zip(places, results, strict=True):
                if isinstance(result, BrokerError):
                    failure = result
                    continue
                if self._note(place[0], result) == BATCH:
                    more.append(place)
                elif result.next_due_s is not None:
                    next_due_s = min(result.next_due_s, next_due_s or result.next_due_s)
            places = more
        if failure is not None:
            raise failure
        return self._pause_s(next_due_s)

    def _note(self, queue: str, result: Forwarded) -> int:
        if result.ghosts:
            self.repairs[Repair.NO_TASK] += result.ghosts
            self._log.warning("dropped %d ids without a task from queue %s", result.ghosts, queue)
        return result.taken

    def _pause_s(self, next_due_s: float | None) -> float:
        if next_due_s is None:
            return self._interval_s
        # Scores are compared with whole seconds: a task is due from the beginning of the one that reaches its score.
        due_s = math.ceil(min(next_due_s, 1e18))
        return min(self._interval_s, max(0.005, due_s - self._clock.unix_ns() / 1e9))
