"""The recoverer's work on groups: sets of dead servers, and groups that are missing from the list of groups."""

import logging
from collections.abc import Callable
from typing import Final

from fastq.broker.operations.aggregate import (
    STRETCH,
    AggregationSet,
    drop_sets,
    list_sets,
    relist_groups,
    unlist_due_groups,
)
from fastq.common.clock import Clock
from fastq.server.actors.aggregation_sets import clear_away, give_back
from fastq.server.base.commands import Commands

SETS_AT_ONCE: Final = 100
STRETCHES_A_ROUND: Final = 100
"""Pages of 500 keys per round: a scan of a million keys takes 20 rounds, and none of them blocks Redis."""

_log = logging.getLogger("fastq.recoverer")


class Reclaimer:
    """The part of a recoverer that returns overdue sets, deletes the rest of aggregated sets, and lists missing groups.

    Only a server that aggregates or takes from lanes looks for groups that are not listed. Any other server calls
    ``on_groups`` with a queue that has groups: it may have rules for lanes that this server does not know yet. If not,
    the next round logs, once, that the queue has groups.
    """

    def __init__(
        self, commands: Commands, clock: Clock, on_groups: Callable[[str], object], *, aggregates: bool
    ) -> None:
        self._commands = commands
        self._clock = clock
        self._on_groups = on_groups
        self._aggregates = aggregates
        self._cursors: dict[str, int] = {}
        self._asked: set[str] = set()
        self._warned: set[str] = set()

    async def reclaim(self, queue: str, get_on: Callable[[], None]) -> None:
        """Check the sets and the groups of one queue; ``get_on`` is called at each step, because it may take long."""
        groups, sets = await self._unlist(queue, get_on)
        if sets:
            await self._give_back_stale(queue, get_on)
            for one in await self._sets(queue, None, get_on):
                get_on()
                await clear_away(self._commands, one)
        if self._aggregates or queue in self._commands.lanes:
            await self._relist(queue, get_on)
        elif groups:
            self._on_groups(queue)
            if queue in self._asked:
                self._warn(queue, groups)
            self._asked.add(queue)

    async def _give_back_stale(self, queue: str, get_on: Callable[[], None]) -> None:
        now_s = self._clock.unix_ns() // 1_000_000_000
        before: list[AggregationSet] = []
        # Returned sets are not listed again, so if the same list comes once more, its sets cannot be returned.
        while (stale := await self._sets(queue, now_s, get_on)) != before:
            for one in stale:
                get_on()
                if await give_back(self._commands, one) > 0:
                    _log.warning(
                        "returned tasks to group %r of queue %s: their aggregation did not finish", one.group, queue
                    )
            before = stale

    async def _sets(self, queue: str, until_s: int | None, get_on: Callable[[], None]) -> list[AggregationSet]:
        """List sets; members of the list that name no set are removed, so that they do not hide sets."""
        while True:
            found = await self._commands.run(list_sets(queue, until_s, SETS_AT_ONCE))
            if not found.foreign or not await self._commands.run(drop_sets(queue, found.foreign)):
                return found.sets
            get_on()
            _log.warning(
                "queue %s: dropped %d members of aggregation_sets that are not sets, the first: %r",
                queue,
                len(found.foreign),
                found.foreign[0],
            )

    async def _unlist(self, queue: str, get_on: Callable[[], None]) -> tuple[int, int]:
        """Take a group off the list if its scheduled tasks were deleted, run or archived before they could join it.

        Return how many groups and sets the queue has.
        """
        for _ in range(STRETCHES_A_ROUND):
            get_on()
            found = await self._commands.run(unlist_due_groups(queue))
            if found.looked_at < STRETCH:
                break
        return found.listed, found.sets

    async def _relist(self, queue: str, get_on: Callable[[], None]) -> None:
        for _ in range(STRETCHES_A_ROUND):
            get_on()
            found = await self._commands.run(relist_groups(queue, self._cursors.get(queue, 0)))
            self._cursors[queue] = found.cursor
            if found.groups:
                _log.warning(
                    "queue %s: listed %d groups that had tasks but were missing from the list", queue, found.groups
                )
            if not found.cursor:
                return

    def _warn(self, queue: str, groups: int) -> None:
        if queue not in self._warned:
            self._warned.add(queue)
            _log.warning(
                "queue %s has %d groups, but this server has no group_aggregator; their tasks wait for one with it",
                queue,
                groups,
            )
