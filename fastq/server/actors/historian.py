"""The historian: adds this server's counts of tasks to the history of the queues.

Wakes: every 5 s. Writes: the counts since the last time, to the current minute and hour, and by type to the current
ten minutes. If it dies: unwritten counts are lost; a killed server loses at most one interval.
"""

from collections import defaultdict
from collections.abc import Sequence

from fastq.broker.operations.history import add_history
from fastq.common.clock import Clock
from fastq.errors import BrokerError
from fastq.server.actors.actor import Actor
from fastq.server.base.commands import Commands
from fastq.server.inflight.stats import ServerStats
from fastq.server.inflight.tally import Tally
from fastq.wire.history import MAX_TYPES


class Historian(Actor):
    """The actor that writes the history, in calls of one queue each."""

    name = "historian"

    def __init__(self, commands: Commands, stats: ServerStats, clock: Clock, interval_s: float) -> None:
        super().__init__(stats.outage)
        self._commands = commands
        self._stats = stats
        self._clock = clock
        self._interval_s = interval_s

    def first_tick_after_s(self) -> float:
        """Wait one interval first."""
        return self._interval_s

    async def tick(self) -> float:
        """Write the new counts; a failing queue does not delay the others."""
        by_queue: defaultdict[str, list[Tally]] = defaultdict(list)
        for tally in self._stats.tallies.values():
            by_queue[tally.queue].append(tally)
        failure: BrokerError | None = None
        for queue, tallies in by_queue.items():
            for at in range(0, len(tallies), MAX_TYPES):
                failure = await self._write(queue, tallies[at : at + MAX_TYPES]) or failure
        if failure is not None:
            raise failure
        return self._interval_s

    async def _write(self, queue: str, tallies: Sequence[Tally]) -> BrokerError | None:
        """Write the new counts of some types.

        If the call is canceled, or it is not known whether Redis added the counts, the counts are dropped: missing
        counts are better than doubled ones.
        """
        new = [(tally, counts) for tally in tallies if (counts := tally.take()) is not None]
        if not new:
            return None
        now_s = self._clock.unix_ns() // 1_000_000_000
        by_type = {tally.type: counts for tally, counts in new}
        (result,) = await self._commands.run_many([add_history(queue, now_s, by_type)])
        if not isinstance(result, BrokerError):
            return None
        if not result.maybe_applied:
            for tally, counts in new:
                tally.give_back(counts)
        return result
