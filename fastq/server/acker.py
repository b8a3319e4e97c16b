"""The acker: writes what came of tasks, many in one round trip.

Wakes: when results are there; it flushes at 500 of them, 2 ms after the first, or when the pool runs dry. Writes: done,
completed, retry, archived, pending of its queues, and takes the tasks off active and lease. What Redis failed to take
goes to the syncer. If it dies: tasks stay held and leased until it is back.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

from fastq.broker.finish import Completed, Done, Finish, Guard, Retried, archive, complete, done, requeue, retry
from fastq.broker.lease import Owner
from fastq.broker.operation import Operation
from fastq.errors import BrokerError
from fastq.info import at_unix_ns
from fastq.server.actor import Actor
from fastq.server.commands import Commands
from fastq.server.held import HeldTask
from fastq.server.holdings import Holdings
from fastq.server.outcomes import Archived, Requeued, Write

__all__ = ["Acker", "Result", "operations_of"]

FLUSH_AT: Final = 500
FLUSH_AFTER_S: Final = 0.002
MAX_CALL_TASKS: Final = 500
MAX_CALL_BYTES: Final = 256_000


class Result(NamedTuple):
    """Pair a held task with the write that ends it."""

    task: HeldTask
    write: Write


class Batch(NamedTuple):
    """Pair an operation with the results it writes, in order."""

    operation: Operation[list[Finish]]
    results: Sequence[Result]


class Acker(Actor):
    """Gather results and flush them."""

    name = "acker"

    def __init__(self, commands: Commands, holdings: Holdings) -> None:
        super().__init__()
        self._commands = commands
        self._stall = holdings.stall
        self._held = holdings.held
        self._owner = holdings.owner
        self._clock = holdings.clock
        self._waiting: list[Result] = []
        self._timer: asyncio.TimerHandle | None = None
        self.failed: list[Result] = []
        self.on_failed = asyncio.Event()

    def first_tick_after_s(self) -> None:
        """Wait for the first result."""

    def add(self, results: Sequence[Result], *, pool_is_dry: bool) -> None:
        """Take results to be written soon; at once when nothing more will come for now."""
        self._waiting += results
        if pool_is_dry or len(self._waiting) >= FLUSH_AT:
            self.wake()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_AFTER_S, self.wake)

    async def tick(self) -> None:
        """Write everything that waits, in one round trip."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        results, self._waiting = self._waiting, []
        if results:
            # Work that was done is written whoever holds the lease, unless this process may have slept through it.
            await self.write(results, Guard(self._owner if self._stall.suspect else None))

    async def flush(self) -> None:
        """Write what waits now; for the shutdown, after the loop of ticks has ended."""
        await self.tick()

    async def write(self, results: Sequence[Result], done_guard: Guard, *, again: bool = False) -> None:
        """Write results; those whose write failed for want of Redis are added to ``failed``.

        ``again`` says that these were sent before: what is not there any more was then written by that.
        """
        now_ns = self._clock.unix_ns()
        batches = operations_of(results, self._owner, now_ns, done_guard)
        outcomes = await self._commands.run_many([batch.operation for batch in batches])
        for batch, outcome in zip(batches, outcomes, strict=True):
            if isinstance(outcome, BrokerError):
                self._log.warning("%d results wait for Redis: %s", len(batch.results), outcome)
                self.failed += batch.results
                self.on_failed.set()
            else:
                self._settle(batch.results, outcome, again=again)

    def _settle(self, results: Sequence[Result], outcomes: Sequence[Finish], *, again: bool) -> None:
        for result, outcome in zip(results, outcomes, strict=True):
            self._held.drop(result.task)
            if outcome is not Finish.OK and not again:
                self._log.warning(
                    "task %s of queue %s was lost before its outcome was written (%s): its lease had ended",
                    result.task.id,
                    result.task.queue,
                    outcome.name.lower(),
                )


def operations_of(results: Sequence[Result], owner: Owner, now_ns: int, done_guard: Guard) -> list[Batch]:
    """Group results by queue and outcome into operations of bounded size, in the order of the results."""
    groups: defaultdict[tuple[str, type[Write]], list[Result]] = defaultdict(list)
    for result in results:
        groups[result.task.queue, type(result.write)].append(result)
    writer = _Writer(Guard(owner), done_guard, now_ns)
    return [
        Batch(writer.operation(queue, kind, part), part)
        for (queue, kind), group in groups.items()
        for part in _parts(group)
    ]


def _parts(group: list[Result]) -> list[list[Result]]:
    kind = type(group[0].write)
    if kind is Done or kind is Requeued:
        parts = [group[at : at + MAX_CALL_TASKS] for at in range(0, len(group), MAX_CALL_TASKS)]
        # What is requeued last is run first.
        return parts[::-1] if kind is Requeued else parts
    parts = [[]]
    size = 0
    for result in group:
        weight = 500 + len(result.task.view.data)
        if size + weight > MAX_CALL_BYTES and parts[-1]:
            parts.append([])
            size = 0
        parts[-1].append(result)
        size += weight
    return parts


class _Writer:
    """Turn results of one queue and kind into an operation."""

    def __init__(self, guard: Guard, done_guard: Guard, now_ns: int) -> None:
        self._guard = guard
        self._done_owner = done_guard.owner
        self._now_ns = now_ns
        self._now = at_unix_ns(now_ns)

    def operation(self, queue: str, kind: type[Write], results: Sequence[Result]) -> Operation[list[Finish]]:
        writes = [result.write for result in results]
        if kind is Done:
            return done(queue, [w for w in writes if isinstance(w, Done)], self._now, self._done_owner)
        if kind is Completed:
            return complete(queue, [w for w in writes if isinstance(w, Completed)], self._now, self._done_owner)
        if kind is Retried:
            return retry(queue, [w for w in writes if isinstance(w, Retried)], self._now, self._guard)
        if kind is Archived:
            archived = [(w.id, w.message) for w in writes if isinstance(w, Archived)]
            return archive(queue, archived, self._now, self._guard)
        return requeue(queue, [w.id for w in writes], self._now_ns, self._guard)
