"""The beacon: shows that this server lives, and takes the tasks of fastq servers that are gone, within seconds.

Wakes: every 2 s, the first time at once. Writes: a sign of life, on a connection of its own; the fates of the tasks of
servers that are gone (``lost_tasks``). Reads: the servers whose sign is late; all others in the first tick. If it dies,
or the Redis user lacks a right: tasks are taken only after their leases have ended.

A silent server may be frozen or cut off. It is gone if its process has ended; only a process on the same host can know
that. It also counts as gone if Redis has closed the connection of its last sign. A closed connection proves nothing if
this server has not heard from Redis for as long either, or if Redis is not the same process any more. If the server has
extended leases since its last sign, it is alive, and only its sign is refused.

A server may come back after its tasks were taken. Only leases up to its last sign are taken, so it keeps the tasks
whose leases it has extended since, and finds the others gone. Until it has checked its own leases, it does not trust
them.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from fastq.broker.operations.finish import Guard
from fastq.broker.operations.lease import LeasedTask, list_owned, read_leased
from fastq.broker.operations.signs import (
    ServerFacts,
    SilentServer,
    Takeover,
    connected,
    forget_signer,
    identify,
    note_takeover,
    sign,
)
from fastq.broker.transport.own_line import OwnLine
from fastq.common.clock import Moment
from fastq.errors import BrokerError, BrokerOutOfMemoryError
from fastq.server.actors.actor import Actor
from fastq.server.actors.lost_tasks import LostTasks
from fastq.server.base.commands import Commands
from fastq.server.base.outage import is_shared
from fastq.server.base.this_process import ProcessFacts
from fastq.server.inflight.in_flight import InFlight

AT_FIRST: Final = 1000
AT_ONCE: Final = 100
"""How many silent servers one tick looks at.

In the first tick all other servers count as silent, and the limit is ``AT_FIRST``.
"""
MOST_OWNED: Final = 5000
LATE: Final = 1.25
"""A server is looked at after this many intervals without a sign."""
BATCH: Final = 100
BATCH_BYTES: Final = 256_000
REFUSED_S: Final = 60.0
"""The pause after Redis has refused the sign itself."""
CERTAINLY_S: Final = 60
"""Seconds by which the leases of an ended process may end later than expected, since its clock may have been set."""
NOT_TAKEN: Final = "tasks of a dead server on another host wait until its leases have ended"


class OwnProcess(Protocol):
    """The process of this server, which can check whether other processes have ended."""

    facts: ProcessFacts

    def is_gone(self, other: ProcessFacts) -> bool | None:
        """Return whether another process has ended, None if this process cannot know."""


class _Line(NamedTuple):
    """The connection of the signs: how often it was opened, its client id, the run id of Redis."""

    opened: int
    client_id: int | None
    run_id: str | None


class Beacon(Actor):
    """The actor that gives signs of life, and takes over from servers that are gone."""

    name = "beacon"
    longest_backoff_s = 1.0
    """A longer pause may look like death: others take the tasks of a silent server whose connection is closed."""

    def __init__(
        self,
        line: OwnLine,
        commands: Commands,
        queues: Sequence[str],
        name: str,
        process: OwnProcess,
        in_flight: InFlight,
        *,
        takeover_s: float,
        lost: LostTasks,
        tell_servers: Callable[[int], None],
    ) -> None:
        """Give signs under ``name``; ``tell_servers`` is called with the number of servers."""
        super().__init__(in_flight.stats.outage)
        self._line = line
        self._commands = commands
        self._queues = tuple(queues)
        self._name = name
        self._process = process
        self._owner = in_flight.owner
        self._clock = in_flight.clock
        self._timing = in_flight.timing
        self._stall = in_flight.stall
        self._takeover_s = takeover_s
        self._trusted_s = 2 * self._timing.sign_interval_s
        self._lost = lost
        self._tell_servers = tell_servers
        self._known = _Line(0, None, None)
        self._steady_since_s = self._clock.monotonic_s()
        self._answered: Moment | None = None
        self._has_looked = self._has_complained = self._has_signed = False
        self._seen_to: dict[str, bytes] = {}

    async def stop(self) -> None:
        """End, and close the connection."""
        await super().stop()
        await self._line.drop()

    async def tick(self) -> float:
        """Give one sign, and look at the servers that are silent."""
        began = Moment.now(self._clock)
        # Look before takeover_s is over, because an ended process on this host is recognized at once.
        late_s = min(self._takeover_s, LATE * self._timing.sign_interval_s)
        silent_s, most = (late_s, AT_ONCE) if self._has_looked else (0.0, AT_FIRST)
        is_first = not self._has_signed
        try:
            await self._identify()
            if is_first:
                self._stall.signed(began, self._trusted_s)
            self._has_signed = True
            signed = await self._line.run(sign(self._owner, self._facts(), silent_s, most))
        except BrokerError as error:
            self._answered = None
            if not is_shared(error):
                if is_first:
                    self._stall.forget_sign()
                self._complain(str(error))
                return REFUSED_S
            self._stall.doubt()  # from now on others may take our leases
            if not isinstance(error, BrokerOutOfMemoryError):
                await self._line.drop()  # a new connection may lead to another master
            raise
        if self._line.opened != self._known.opened:
            return 0.0  # the sign was sent again on a new connection, whose client id is not known yet
        self._note_answer(began, is_first=is_first)
        self._tell_servers(signed.servers)
        self._seen_to = {
            mark: data for mark, data in self._seen_to.items() if data in {one.data for one in signed.silent}
        }
        for silent in signed.silent:
            self.get_on()
            await self._look_at(silent)
        self._has_looked = True
        return max(0.0, self._timing.sign_interval_s - (self._clock.monotonic_s() - began.monotonic_s))

    async def _identify(self) -> None:
        """Ask for the client id of a new connection, and for the run id of Redis."""
        if self._line.is_open and self._known.opened == self._line.opened:
            return
        self._answered = None
        found = await self._line.run_many(identify())
        for error in found:
            if isinstance(error, BrokerError):
                if is_shared(error):
                    raise error
                self._complain(str(error))
        client_id, run_id = (None if isinstance(one, BrokerError) else one for one in found)
        self._known = _Line(self._line.opened, client_id, run_id)

    def _facts(self) -> ServerFacts:
        process = self._process.facts
        return ServerFacts(
            name=self._name,
            queues=self._queues,
            client_id=self._known.client_id,
            run_id=self._known.run_id,
            host=process.host,
            boot=process.boot,
            namespace=process.namespace,
            pid=process.pid,
            started=process.started,
            wall_s=self._clock.unix_ns() / 1e9,
            lease_s=self._timing.lease_s,
        )

    def _complain(self, why: str) -> None:
        if not self._has_complained:
            self._has_complained = True
            self._log.warning("%s; %s", why, NOT_TAKEN)

    def _note_answer(self, asked: Moment, *, is_first: bool) -> None:
        """Note that Redis has answered; after a gap, all servers get time to sign before any is taken for gone."""
        now = Moment.now(self._clock)
        # Before the first sign no other server knows us, so none can have taken our leases.
        before = asked if is_first else self._answered
        is_late = before is None or before.until(now) > self._trusted_s
        if is_first or is_late:
            self._steady_since_s = now.monotonic_s
        if is_late:
            self._stall.doubt()
        self._answered = asked
        self._stall.signed(asked, self._trusted_s)

    async def _look_at(self, silent: SilentServer) -> None:
        """If a silent server is gone, take its tasks in the queues of this server."""
        queues = [queue for queue in self._queues if queue in silent.facts.queues]
        if not queues or self._seen_to.get(str(silent.owner)) == silent.data:
            return
        why, until_s = await self._why_gone(silent, queues)
        if not why:
            return
        for queue in queues:
            await self._take(queue, silent, until_s, why)
        if set(queues) == set(silent.facts.queues):
            await self._line.run(forget_signer(silent))
        self._seen_to[str(silent.owner)] = silent.data

    async def _why_gone(self, silent: SilentServer, queues: Sequence[str]) -> tuple[str, int]:
        """Return why a server is gone, "" if it may live, and the latest end of leases to be taken (Unix seconds)."""
        facts = silent.facts
        last_s = facts.wall_s + facts.lease_s
        process = ProcessFacts(facts.host, facts.boot, facts.namespace, facts.pid, facts.started)
        is_gone = self._process.is_gone(process)
        if is_gone is not None:
            return ("its process has ended" if is_gone else ""), int(last_s + silent.silent_s) + CERTAINLY_S
        heard_s = self._clock.monotonic_s() - self._steady_since_s
        if min(silent.silent_s, heard_s) < self._takeover_s or await self._may_be_connected(facts):
            return "", 0
        until_s = int(last_s + self._timing.sign_interval_s) + 1
        later_s = range(until_s, int(last_s + silent.silent_s) + 2)
        for queue in queues:
            if await self._commands.run(list_owned(queue, silent.owner, later_s, 1)):
                return "", 0
        return f"no sign of it for {silent.silent_s:.0f} s, and its connection to Redis is closed", until_s

    async def _may_be_connected(self, facts: ServerFacts) -> bool:
        """Return whether Redis may still have the connection of a server's last sign; True if that is not known."""
        ours = self._known.client_id
        if facts.client_id is None or ours is None or not facts.run_id or facts.run_id != self._known.run_id:
            return True
        try:
            found = await self._line.run(connected(ours, facts.client_id))
        except BrokerError as error:
            if is_shared(error):
                raise
            self._complain(str(error))
            return True
        # An answer without our own client id came from another Redis, or from a proxy with client ids of its own.
        return facts.client_id in found or ours not in found

    async def _take(self, queue: str, silent: SilentServer, until_s: int, why: str) -> None:
        """Take the tasks that a server has leased in a queue, and note the takeover for the doctor."""
        taken = await self._take_all(queue, silent, until_s, f"server {silent.facts.name} is gone: {why}")
        if taken:
            takeover = Takeover(self._clock.unix_ns() / 1e9, self._name, silent.facts.name, why, queue, taken)
            await self._line.run_many(note_takeover(takeover))

    async def _take_all(self, queue: str, silent: SilentServer, until_s: int, cause: str) -> int:
        """Take the newest tasks first, since each goes to the head of the queue; return how many were taken."""
        guard = Guard(silent.owner, expired_at=until_s)
        ends_s = range(int(silent.facts.wall_s) - self._timing.recover_grace_s, until_s)
        taken = 0
        while ids := await self._commands.run(list_owned(queue, silent.owner, ends_s, MOST_OWNED)):
            moved = 0
            while ids:
                self.get_on()
                batch, ids = ids[-BATCH:], ids[:-BATCH]
                for tasks in reversed(_slices(await self._read(queue, batch))):
                    moved += (await self._lost.put(queue, tasks, guard, cause, self.get_on)).moved
            taken += moved
            if not moved:
                break
        return taken

    async def _read(self, queue: str, ids: Sequence[str]) -> list[tuple[LeasedTask, int]]:
        """Read tasks; those that cannot be read are left to the recoverer."""
        found = await self._commands.run_many([read_leased(queue, task_id) for task_id in ids])
        return [
            (LeasedTask(task_id, one[0]), one[1])
            for task_id, one in zip(ids, found, strict=True)
            if not isinstance(one, BrokerError) and one[0] is not None
        ]


def _slices(tasks: Sequence[tuple[LeasedTask, int]]) -> list[list[tuple[LeasedTask, int]]]:
    """Divide tasks into calls of bounded size."""
    slices: list[list[tuple[LeasedTask, int]]] = []
    size = BATCH_BYTES
    for task in tasks:
        size += len(task[0].message)
        if size > BATCH_BYTES:
            slices.append([])
            size = len(task[0].message)
        slices[-1].append(task)
    return slices
