"""The janitor: deletes completed tasks whose retention has ended, and applies the limits of the archives.

Wakes: every janitor_interval, the first time after one interval; a queue without completed and archived tasks is left
out of three rounds of four. Reads and writes: completed and its tasks, in bounded batches; tasks beyond the archives'
limits (``archive_keeper``). If it dies: these tasks stay until another server's janitor comes by.
"""

from typing import Final

from fastq.broker.operations.maintain import delete_expired_completed
from fastq.common.clock import Clock
from fastq.errors import BrokerError
from fastq.server.actors.actor import Actor
from fastq.server.actors.archive_keeper import ArchiveKeeper
from fastq.server.base.commands import Commands
from fastq.server.base.config import ServerConfig, seconds_of
from fastq.server.base.outage import Outage

EMPTY_ROUNDS: Final = 3
"""Rounds without a look at an empty queue; otherwise 100 mostly empty queues would cost 12 needless commands a second.
"""


class Janitor(Actor):
    """The actor that deletes expired completed tasks, one batch per script call, until none is left."""

    name = "janitor"

    def __init__(
        self, commands: Commands, config: ServerConfig, keeper: ArchiveKeeper, clock: Clock, outage: Outage
    ) -> None:
        super().__init__(outage)
        self._commands = commands
        self._queues = list(config.queues)
        self._interval_s = seconds_of(config.janitor_interval)
        self._batch_size = config.janitor_batch_size
        self._keeper = keeper
        self._clock = clock
        self._rounds_left_out: dict[str, int] = {}

    def first_tick_after_s(self) -> float:
        """Wait one interval first, as asynq does."""
        return self._interval_s

    async def tick(self) -> float:
        """Clean every queue; a failing queue does not delay the others."""
        queues = self._of_this_round()
        failure: BrokerError | None = None
        while queues:
            self.get_on()
            now_s = self._clock.unix_ns() // 1_000_000_000
            results = await self._commands.run_many(
                [delete_expired_completed(queue, now_s, self._batch_size) for queue in queues]
            )
            again = []
            for queue, result in zip(queues, results, strict=True):
                if isinstance(result, BrokerError):
                    failure = result
                elif result.deleted == self._batch_size:
                    again.append(queue)
                else:
                    self._rounds_left_out[queue] = 0 if result.completed or result.archived else EMPTY_ROUNDS
                    try:
                        await self._keeper.look(queue, result, self.get_on)
                    except BrokerError as error:
                        failure = error
            queues = again
        if failure is not None:
            raise failure
        return self._interval_s

    def _of_this_round(self) -> list[str]:
        left_out = {queue for queue, rounds in self._rounds_left_out.items() if rounds}
        for queue in left_out:
            self._rounds_left_out[queue] -= 1
        return [queue for queue in self._queues if queue not in left_out]
