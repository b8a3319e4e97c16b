"""The lane keeper: knows which queues have lanes, and makes sure that each lane with tasks has a turn.

Wakes: whenever the subscriber has begun to listen, when it hears that rules have changed, and every 4 s while there are
lanes. Reads: the number of rules; groups. Writes: turns of lanes that a Go producer or forwarder has filled, or that
were groups before there was a rule. It deletes the records of rates that delay nothing any more. If it dies: another
server does this.
"""

import math
import random
from collections.abc import Callable, Sequence
from typing import Final

from fastq.broker.operations.lanes import has_rules, prune_rates, sweep_lanes
from fastq.common.clock import Clock
from fastq.errors import BrokerError
from fastq.server.actors.actor import Actor
from fastq.server.base.commands import Commands
from fastq.server.base.outage import Outage

SWEEP_EVERY_S: Final = 4.0
WITHOUT_SUBSCRIBER_S: Final = 1.0
MOST_CALLS: Final = 20
"""The most calls per sweep, of 500 groups each; further groups wait for the next sweep."""


class LaneKeeper(Actor):
    """The actor that keeps ``commands.lanes``, and sweeps the queues in it."""

    name = "lane_keeper"

    def __init__(
        self,
        commands: Commands,
        queues: Sequence[str],
        clock: Clock,
        on_tasks: Callable[[str], None],
        outage: Outage,
    ) -> None:
        super().__init__(outage)
        self._commands = commands
        self._queues = queues
        self._clock = clock
        self._on_tasks = on_tasks
        self._to_look_at: set[str] = set()
        self.failing: dict[str, BrokerError] = {}
        """The error of each queue of which nothing is fetched, because its rules could not be read yet."""
        self._has_looked = False
        self._cursors: dict[str, int] = {}
        self._rate_cursors: dict[str, int] = {}
        self._sweep_s = -math.inf
        commands.lanes.unknown.update(queues)

    def first_tick_after_s(self) -> float:
        """Wait until the subscriber listens, at most a second.

        The first tick then reads which queues have rules; messages announce later changes.
        """
        return WITHOUT_SUBSCRIBER_S

    def look_at(self, queue: str) -> None:
        """Read again whether a queue has rules, since they may have changed."""
        self._to_look_at.add(queue)
        self.wake()

    def look_at_all(self) -> None:
        """Read again which queues have rules."""
        self._to_look_at.update(self._queues)
        self.wake()

    async def tick(self) -> float | None:
        """Read which of the queues to look at have rules, and sweep the queues with lanes when it is time."""
        if not self._has_looked:
            self._to_look_at.update(self._queues)
        await self._look()
        lanes = self._commands.lanes
        now_s = self._clock.monotonic_s()
        if lanes and now_s >= self._sweep_s:
            self._sweep_s = now_s + SWEEP_EVERY_S * random.uniform(0.75, 1.25)
            for queue in sorted(lanes):
                await self._sweep(queue)
        return max(0.0, self._sweep_s - self._clock.monotonic_s()) if lanes else None

    async def _look(self) -> None:
        queues, self._to_look_at = sorted(self._to_look_at), set()
        if not queues:
            return
        lanes, failure = self._commands.lanes, None
        results = await self._commands.run_many([has_rules(queue) for queue in queues])
        for queue, result in zip(queues, results, strict=True):
            if isinstance(result, BrokerError):
                self._to_look_at.add(queue)
                failure = result
                if result.transient:
                    if queue in lanes.unknown:
                        self.failing[queue] = result
                    continue
            elif result:
                if queue not in lanes:
                    self._log.info("queue %s has lanes: their tasks are taken by turns and within limits", queue)
                    lanes.add(queue)
                    self._sweep_s = -math.inf
                self._on_tasks(queue)
            else:
                lanes.discard(queue)
            lanes.unknown.discard(queue)
            self.failing.pop(queue, None)
        if failure is not None:
            raise failure
        self._has_looked = True

    async def _sweep(self, queue: str) -> None:
        cursor, turns = self._cursors.get(queue, 0), 0
        for _ in range(MOST_CALLS):
            self.get_on()
            swept = await self._commands.run(sweep_lanes(queue, cursor))
            cursor, turns = swept.cursor, turns + swept.turns
            if not cursor:
                break
        self._cursors[queue] = cursor
        if turns:
            self._on_tasks(queue)
        self._rate_cursors[queue] = await self._commands.run(prune_rates(queue, self._rate_cursors.get(queue, 0)))
