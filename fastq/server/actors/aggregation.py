"""The part of a server for groups: wires the aggregator to its child, and ends both."""

import asyncio

from fastq.common.clock import Clock
from fastq.server.actors.actor import Actor
from fastq.server.actors.aggregator import Aggregator
from fastq.server.base.commands import Commands
from fastq.server.base.config import ServerConfig
from fastq.server.base.timing import Timing
from fastq.server.children.aggregation_child import AggregationChild
from fastq.server.inflight.stats import ServerStats


class Aggregation:
    """The groups of a server's queues: aggregated if the app has an aggregator."""

    def __init__(
        self,
        config: ServerConfig,
        timing: Timing,
        commands: Commands,
        clock: Clock,
        child: AggregationChild,
        stats: ServerStats,
    ) -> None:
        self._child = child
        self._aggregator: Aggregator | None = None
        if config.group_aggregator is not None:
            self._aggregator = Aggregator(commands, config, child, clock, timing, stats)

    @property
    def actors(self) -> list[Actor]:
        """Return the aggregator, if there is one."""
        return [] if self._aggregator is None else [self._aggregator]

    @property
    def is_busy(self) -> bool:
        """Return whether grouped tasks are being combined."""
        return self._aggregator is not None and self._aggregator.is_busy

    async def drain(self, within_s: float) -> None:
        """Start no more work, and wait for the current work, up to a number of seconds."""
        if self._aggregator is not None:
            await self._aggregator.wind_down(within_s)

    async def stop(self, within_s: float) -> None:
        """End the app's aggregator, give its tasks back, and end the actor, within a number of seconds."""
        if self._aggregator is not None:
            # A stopped child answers that the server stops, so the tasks go back to their group at once.
            await asyncio.gather(self._child.stop(), self._aggregator.finish(within_s))
