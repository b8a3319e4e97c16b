"""The aggregator: replaces a group's tasks with one task when the group has waited long enough.

Wakes: when the next group that it saw is due, at least every 7 s, or every grace period if that is shorter. Reads:
groups, and the tasks of due groups. Writes: aggregation sets; the new task, and in the same step a mark that its set
was aggregated. If it dies: any server's recoverer, also Go's, returns a set without the mark to its group after 2 min;
fastq's recoverers delete the rest of a set with the mark.
"""

import asyncio
import time
import uuid
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Final, Protocol

from fastq.broker.operations.aggregate import (
    MAX_SET,
    AggregationSet,
    CommitOutcome,
    GroupRule,
    commit_set,
    scan_groups,
    take_set,
)
from fastq.broker.operations.enqueue import register_queue
from fastq.broker.operations.lanes import in_lanes
from fastq.broker.operations.lease import LeasedTask
from fastq.common.clock import Clock
from fastq.errors import BrokerError
from fastq.server.actors.actor import Actor
from fastq.server.actors.aggregation_sets import SetReader, archive_tasks, clear_away, delete_set, give_back
from fastq.server.base.commands import Commands
from fastq.server.base.config import ServerConfig, seconds_of
from fastq.server.base.timing import Timing
from fastq.server.children.aggregation_child import AggregationFailure
from fastq.server.inflight.dispositions import undecodable
from fastq.server.inflight.stats import ServerStats
from fastq.worker.shared.requests import Combined, Unreadable

MAX_INTERVAL_S: Final = 7.0
FIRST_WAIT_S: Final = 10.0
LONGEST_WAIT_S: Final = 120.0
LEAST_PAUSE_S: Final = 0.05
UNTIL_KNOWN_S: Final = 0.5
"""The pause while it is unknown whether a queue has lanes, because lanes must not be combined."""
MAX_KNOWN_WAITS: Final = 10_000
MAX_AT_ONCE: Final = 8
QUICK_S: Final = 1.0
"""Several sets are taken at once if that takes less than this; a set that waits longer for the child is given back."""

_REFUSALS: Final = {
    CommitOutcome.ID_CONFLICT: "a task with the id of the new one exists",
    CommitOutcome.DUPLICATE: "another task holds the unique lock of the new one",
    CommitOutcome.GONE: "the set was given back to its group meanwhile",
}


class Combiner(Protocol):
    """The runner of the app's aggregator."""

    async def prepare(self) -> bool:
        """Start the child for ``combine`` before a set is taken, so that the start does not use up the set's time."""

    async def combine(
        self, queue: str, group: str, messages: Sequence[bytes]
    ) -> Combined | Unreadable | AggregationFailure:
        """Return the aggregator's answer for a group's messages, oldest first."""


class Turn(Enum):
    """How a group's turn came out."""

    OVER = auto()
    MORE = auto()
    """There may be another set to take."""

    NOT_NOW = auto()
    """The group had no turn: other groups took the time."""


class Aggregator(Actor):
    """The actor that aggregates the groups of every queue."""

    name = "aggregator"

    def __init__(
        self,
        commands: Commands,
        config: ServerConfig,
        child: Combiner,
        clock: Clock,
        timing: Timing,
        stats: ServerStats,
    ) -> None:
        super().__init__(stats.outage)
        rule = GroupRule.of_seconds(
            seconds_of(config.group_grace_period), seconds_of(config.group_max_delay), config.group_max_size
        )
        self._commands = commands
        self._queues = list(config.queues)
        self._rule = rule
        self._child = child
        self._clock = clock
        self._timing = timing
        self._interval_s = min(MAX_INTERVAL_S, rule.grace_s)
        self.tick_limit_s = 1.25 * timing.aggregation_s
        self._limit = min(rule.max_size or MAX_SET, MAX_SET)
        self._at_once = 1
        self._turn = asyncio.Lock()
        self._open: set[AggregationSet] = set()
        self._backoff = GroupBackoff(clock)
        self._stats = stats

    @property
    def is_busy(self) -> bool:
        """Return whether tasks are in aggregation sets of this server."""
        return bool(self._open)

    async def tick(self) -> float:
        """Aggregate the due groups of every queue; return the seconds until the next one is due."""
        for one in list(self._open):  # left by a tick that failed
            await self._give_back(one)
            self._open.discard(one)
        until_s = time.monotonic() + self._interval_s
        while True:
            pause_s, failure = await self._go_round()
            if pause_s or self._finishing or time.monotonic() >= until_s:
                break
        if failure is not None:
            raise failure
        return pause_s

    async def _go_round(self) -> tuple[float, BrokerError | None]:
        """Aggregate at most one set of every due group; return the seconds until the next is due, and any error."""
        pauses = [self._interval_s]
        failure: BrokerError | None = None
        for queue in self._queues:
            try:
                pauses.append(await self._aggregate_queue(queue))
            except BrokerError as error:
                failure = error
        return min(pauses), failure

    async def _aggregate_queue(self, queue: str) -> float:
        """Aggregate at most one set of a queue's due groups; return the seconds until a group is due, 0 for now."""
        if queue in self._commands.lanes.unknown:
            return UNTIL_KNOWN_S
        pause_s, cursor, more = self._interval_s, 0, False
        while True:
            self.get_on()
            found = await self._commands.run(scan_groups(queue, cursor, self._rule, self._now_s()))
            due = [name for name in found.due if not self._backoff.left_s(queue, name)]
            more = await self._aggregate_groups(queue, due) or more
            pause_s = min([pause_s, *filter(None, (self._backoff.left_s(queue, name) for name in found.due))])
            if found.next_due_s is not None:
                pause_s = min(pause_s, found.next_due_s - self._clock.unix_ns() / 1e9)
            cursor = found.cursor
            if not cursor or self._finishing:
                return 0.0 if more else max(LEAST_PAUSE_S, pause_s)

    async def _aggregate_groups(self, queue: str, groups: Sequence[str]) -> bool:
        """Aggregate a set of each group; return whether some groups are due again.

        Several sets are taken at once while that is quick, else one by one: each set has a deadline, and all share one
        child.
        """
        left, more = list(groups), False
        while left and not self._finishing:
            some, left = left[: self._at_once], left[self._at_once :]
            began_s = time.monotonic()
            results = await asyncio.gather(
                *(self._aggregate_group(queue, group) for group in some), return_exceptions=True
            )
            for result in results:
                if isinstance(result, BaseException):
                    raise result
            left[:0] = [group for group, result in zip(some, results, strict=True) if result is Turn.NOT_NOW]
            more = more or Turn.MORE in results
            is_quick = time.monotonic() - began_s < QUICK_S
            self._at_once = min(2 * self._at_once, MAX_AT_ONCE) if is_quick else 1
        return more

    async def _aggregate_group(self, queue: str, group: str) -> Turn:
        """Aggregate one set of a group, not more, so that a group that fills up fast leaves the others their turns."""
        if not await self._child.prepare():
            self._backoff.longer(queue, group)
            return Turn.OVER
        one = AggregationSet(queue, group, str(uuid.uuid4()))
        now_s = self._now_s()
        self.get_on()
        self._open.add(one)
        take = take_set(one, self._rule, now_s, now_s + self._timing.aggregation_s)
        # Redis decides whether the group is a lane: this server may have been cut off when its queue got lanes.
        taken = await self._commands.run(in_lanes(take, queue))
        turn = await self._aggregate(one, taken) if taken else Turn.OVER
        self._open.discard(one)
        return turn

    async def _aggregate(self, one: AggregationSet, taken: int) -> Turn:
        """Replace a set of ``taken`` tasks with one task.

        Before its turn only the first part of a set is read. A large set is settled within its turn, so that no two of
        them are in memory.
        """
        reading = SetReader(self._commands, one, taken)
        await reading.read_part()
        is_small = reading.is_done
        if not await self._has_turn():
            await self._give_back(one)
            return Turn.NOT_NOW
        try:
            members, answer = await self._answer(one, reading)
            if not is_small:
                return await self._settle(one, taken, members, answer)
        finally:
            self._turn.release()
        return await self._settle(one, taken, members, answer)

    async def _has_turn(self) -> bool:
        """Wait for the child before a call's time begins; return False if the child is not free within a second."""
        try:
            async with asyncio.timeout(QUICK_S):
                return await self._turn.acquire()
        except TimeoutError:
            return False

    async def _settle(
        self,
        one: AggregationSet,
        taken: int,
        members: Sequence[LeasedTask],
        answer: Combined | AggregationFailure | None,
    ) -> Turn:
        if isinstance(answer, Combined):
            refusal = await self._commit(one, members, answer)
            if refusal is None:
                # A set has limits; the tasks beyond them are due at once.
                return Turn.MORE if len(members) < taken or taken == self._limit else Turn.OVER
            answer = AggregationFailure(refusal)
        await self._give_back(one)
        if answer is None:
            return Turn.MORE if taken == self._limit else Turn.OVER
        self._note_failure(one, len(members), answer)
        return Turn.OVER

    async def _answer(
        self, one: AggregationSet, reading: SetReader
    ) -> tuple[list[LeasedTask], Combined | AggregationFailure | None]:
        """Return the readable tasks of a set, and the aggregator's answer for them; None if no task is readable."""
        while not reading.is_done:
            await reading.read_part()
        members = reading.members
        while members:
            self.get_on()
            answer = await self._child.combine(one.queue, one.group, [task.message for task in members])
            if not isinstance(answer, Unreadable):
                return members, answer
            await self._archive(one, members, answer.reasons)
            members = [task for index, task in enumerate(members) if index not in answer.reasons]
        return [], None

    async def _give_back(self, one: AggregationSet) -> None:
        if await give_back(self._commands, one) < 0:
            await clear_away(self._commands, one)

    async def _commit(self, one: AggregationSet, members: Sequence[LeasedTask], combined: Combined) -> str | None:
        """Enqueue the new task and delete its parts; return why Redis refused the new task, None if it did not."""
        commit = commit_set(one, len(members), combined.task, combined.state, combined.now_ns)
        _, outcome = await self._commands.run_many((register_queue(one.queue), commit))
        if isinstance(outcome, BrokerError):
            raise outcome
        if outcome in _REFUSALS:
            return _REFUSALS[outcome]
        self._stats.aggregated += 1
        self._backoff.forget(one.queue, one.group)
        self._log.debug(
            "group %r of queue %s: aggregated %d tasks into task %s",
            one.group,
            one.queue,
            len(members),
            combined.task.id,
        )
        locks = {task.id: combined.locks.get(index, "") for index, task in enumerate(members)}
        await delete_set(self._commands, one, locks)
        return None

    async def _archive(self, one: AggregationSet, members: Sequence[LeasedTask], reasons: Mapping[int, str]) -> None:
        now_s = self._now_s()
        rewritten = (
            (task.id, undecodable(task.id, one.queue, task.message, reasons[index], now_s))
            for index, task in enumerate(members)
            if index in reasons
        )
        await archive_tasks(self._commands, one, rewritten, now_s)
        self._log.error(
            "group %r of queue %s: archived %d tasks that cannot be read, the first: %s",
            one.group,
            one.queue,
            len(reasons),
            next(iter(reasons.values())),
        )

    def _note_failure(self, one: AggregationSet, tasks: int, failure: AggregationFailure) -> None:
        wait_s = self._backoff.longer(one.queue, one.group)
        self._log.error(
            "group %r of queue %s was not aggregated: %s; its %d tasks will be aggregated again in %.0f s",
            one.group,
            one.queue,
            failure.why,
            tasks,
            wait_s,
            extra={"below": failure.trace},
        )

    def _now_s(self) -> int:
        return self._clock.unix_ns() // 1_000_000_000


class GroupBackoff:
    """The groups that failed, each with the time for which it is left alone; the time doubles with each failure."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[float, float]] = {}

    def left_s(self, queue: str, group: str) -> float:
        """Return the seconds until a group may be tried again, 0 for now."""
        _, until_s = self._known.get((queue, group), (0.0, 0.0))
        return max(0.0, until_s - self._clock.monotonic_s())

    def longer(self, queue: str, group: str) -> float:
        """Note one more failure; return the seconds that the group is left alone."""
        wait_s, _ = self._known.pop((queue, group), (0.0, 0.0))
        wait_s = min(2 * wait_s, LONGEST_WAIT_S) or FIRST_WAIT_S
        self._known[queue, group] = (wait_s, self._clock.monotonic_s() + wait_s)
        if len(self._known) > MAX_KNOWN_WAITS:
            del self._known[next(iter(self._known))]  # the group whose failure is the oldest
        return wait_s

    def forget(self, queue: str, group: str) -> None:
        """Note a success."""
        self._known.pop((queue, group), None)
