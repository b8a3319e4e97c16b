"""The heartbeater: extends the leases of all tasks in flight, and publishes this server for inspectors.

Wakes: every 5 s, the first time at once. Writes: the leases of its tasks; ServerInfo, WorkerInfo and the notice, each
for 10 s. The script names the tasks whose leases this server has lost. Where ``owner_marks`` cannot restore them, the
tasks are canceled and never acked. If it dies: leases end after 30 s and other servers take the tasks over.
"""

from collections.abc import Callable, Iterator
from typing import Final

from fastq.broker.operations.lease import extend_leases
from fastq.broker.operations.presence import (
    ServerIdentity,
    ServerState,
    count_servers,
    list_server,
    publish_server_state,
)
from fastq.broker.transport.aio import AsyncBroker
from fastq.errors import BrokerError
from fastq.server.actors.actor import Actor
from fastq.server.base.outage import is_shared
from fastq.server.inflight.in_flight import InFlight
from fastq.server.inflight.owner_marks import restore_marks
from fastq.server.inflight.stats import RoundTrip
from fastq.server.inflight.tasks import InFlightTask

STRETCH: Final = 500


class Heartbeater(Actor):
    """The actor that extends leases and publishes presence, on a connection that no slow script of ours blocks."""

    name = "heartbeater"
    tick_limit_s = 20.0
    """Less than a lease."""

    def __init__(
        self,
        broker: AsyncBroker,
        identity: ServerIdentity,
        presence: Callable[[], ServerState],
        in_flight: InFlight,
        lost: Callable[[InFlightTask], None],
    ) -> None:
        super().__init__(in_flight.stats.outage)
        # No longer than this, because recoverers wait after an outage only until all live servers have sent a
        # heartbeat.
        self.longest_backoff_s = in_flight.timing.heartbeat_interval_s
        self._broker = broker
        self._identity = identity
        self._presence = presence
        self._lost = lost
        self._in_flight = in_flight
        self._tasks = in_flight.tasks
        self._ends = in_flight.ends
        self._owner = in_flight.owner
        self._stall = in_flight.stall
        self._clock = in_flight.clock
        self._timing = in_flight.timing
        self._stats = in_flight.stats
        self.servers = 1
        """The number of servers, including this one."""
        self._is_told = False
        self.is_answered = False
        """Whether Redis, or at least one node of a cluster, answered the last heartbeat."""
        self._ttl_s = max(1, round(2 * in_flight.timing.heartbeat_interval_s))

    async def tick(self) -> float:
        """Send one heartbeat: the leases first, since they matter more than the published data."""
        began_s = self._clock.monotonic_s()
        failures = await self._extend(began_s)
        self.get_on()
        now_s = self._clock.unix_ns() // 1_000_000_000
        listed = list_server(self._identity, now_s + self._ttl_s)
        published = publish_server_state(self._identity, self._presence(), self._ttl_s)
        counted = () if self._is_told else (count_servers(now_s),)
        self._is_told = False
        results = await self._broker.run_many((*listed, *published, *counted))
        self.is_answered |= any(map(_is_answer, results))
        if counted and not isinstance(servers := results.pop(), BrokerError):  # a failed count is no failed heartbeat
            self.servers = max(1, servers)
        failures += [result for result in results if isinstance(result, BrokerError)]
        if failures:
            raise failures[0]
        return max(0.0, self._timing.heartbeat_interval_s - (self._clock.monotonic_s() - began_s))

    def note_servers(self, count: int) -> None:
        """Note how many servers there are, so that the next heartbeat need not count them."""
        self.servers, self._is_told = max(1, count), True

    async def _extend(self, began_s: float) -> list[BrokerError]:
        """Extend all leases; return the errors of the failed queues."""
        score = self._owner.score(self._clock.unix_ns() / 1e9, self._timing.lease_s)
        stretches = self._stretches()
        results = await self._broker.run_many(
            [extend_leases(queue, self._owner, score, [task.id for task in tasks]) for queue, tasks in stretches]
        )
        self.is_answered = any(map(_is_answer, results))
        if stretches:
            self._stats.round_trips_s[RoundTrip.EXTEND].observe(self._clock.monotonic_s() - began_s)
        failures: list[BrokerError] = []
        suspects: list[InFlightTask] = []
        for (_, tasks), lost_ids in zip(stretches, results, strict=True):
            if isinstance(lost_ids, BrokerError):
                failures.append(lost_ids)
            else:
                suspects += self._note(tasks, set(lost_ids), began_s)
        try:
            await self._keep_or_cancel(suspects, began_s)
        except BrokerError as error:
            failures.append(error)
        if not failures:
            self._stall.leases_confirmed(began_s)
        return failures

    def _stretches(self) -> list[tuple[str, list[InFlightTask]]]:
        return [
            (queue, tasks[at : at + STRETCH])
            for queue, tasks in self._tasks.by_queue()
            for at in range(0, len(tasks), STRETCH)
        ]

    def _note(self, tasks: list[InFlightTask], lost_ids: set[str], began_s: float) -> Iterator[InFlightTask]:
        """Note what is leased, drop what has ended, and yield the running tasks whose leases lack our mark."""
        self._stats.lease_margins_s.observe(min(task.leased_until_s for task in tasks) - began_s)
        for task in tasks:
            if task.id not in lost_ids:
                task.leased_until_s = began_s + self._timing.lease_s
            elif self._ends.is_in_doubt(task):
                # The reply to the write of its outcome was lost. Either Redis carried out that write, or another server
                # has the task. In both cases nothing is left to be written.
                self._tasks.drop(task)
            elif task.in_flight and not task.ended:
                # A task that ended meanwhile has no lease any more: its ack has ended it.
                yield task

    async def _keep_or_cancel(self, suspects: list[InFlightTask], began_s: float) -> None:
        """Restore our mark on the leases of running tasks that lack it; cancel the tasks that are not ours any more."""
        ours = await restore_marks(self._broker.run_many, self._in_flight, suspects)
        for task in suspects:
            if task in ours:
                task.leased_until_s = began_s + self._timing.lease_s
            elif task.in_flight and not task.ended:
                self._log.warning("lost the lease of task %s of queue %s; canceling it here", task.id, task.queue)
                self._stats.leases_lost += 1
                self._lost(task)


def _is_answer(result: object) -> bool:
    return not (isinstance(result, BrokerError) and is_shared(result))
