"""The janitor: deletes completed tasks whose retention has ended.

Wakes: every janitor_interval, the first time after one. Reads and writes: completed and its tasks, in bounded batches.
If it dies: expired tasks stay until another server's janitor comes by.
"""

from collections.abc import Sequence

from fastq.broker.maintain import delete_expired_completed
from fastq.clock import Clock
from fastq.errors import BrokerError
from fastq.server.actor import Actor
from fastq.server.commands import Commands

__all__ = ["Janitor"]


class Janitor(Actor):
    """Delete expired completed tasks, one batch a script call, until none is left."""

    name = "janitor"

    def __init__(
        self, commands: Commands, queues: Sequence[str], interval_s: float, batch_size: int, clock: Clock
    ) -> None:
        super().__init__()
        self._commands = commands
        self._queues = queues
        self._interval_s = interval_s
        self._batch_size = batch_size
        self._clock = clock

    def first_tick_after_s(self) -> float:
        """Wait one interval, as asynq does."""
        return self._interval_s

    async def tick(self) -> float:
        """Clean every queue; a failing one does not keep the others waiting."""
        queues = list(self._queues)
        failure: BrokerError | None = None
        while queues:
            self.get_on()
            now_s = self._clock.unix_ns() // 1_000_000_000
            results = await self._commands.run_many(
                [delete_expired_completed(queue, now_s, self._batch_size) for queue in queues]
            )
            failure = next((result for result in results if isinstance(result, BrokerError)), failure)
            queues = [queue for queue, deleted in zip(queues, results, strict=True) if deleted == self._batch_size]
        if failure is not None:
            raise failure
        return self._interval_s
