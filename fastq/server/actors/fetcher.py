"""The fetcher: keeps the pool supplied; one round trip fetches from all queues, according to their weights.

Wakes: when the pool has room, when a wake-up says that a queue has tasks, and as a fallback at every check interval.
Writes: pending, active and lease of its queues. If it dies: nothing new is started here; what is in flight goes on.

A fetch asks for as many tasks as the pool has room for (``Dispatcher.free``), at most 500, and a call for at most about
``MAX_BATCH_BYTES``. A queue that answered "empty" or "paused", or gave all it had to a server with a waker, rests for a
jittered check interval, or until it is woken; one that fails rests for growing pauses, while the others are served.
Each node of a cluster gets its own requests. A dequeue whose reply was lost may have leased tasks to us; they are found
by the score that their leases would have.

A queue with lanes is asked by ``take``. It rests until a lane is due, its bell rings or it has pending tasks.
"""

import asyncio
import random
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol

from fastq._prioritizer import Prioritizer
from fastq.broker.operations.dequeue import MAX_BATCH_BYTES, MAX_BATCH_TASKS, NoTasks, Taken, dequeue, take
from fastq.broker.operations.lease import Leased, list_leases
from fastq.common.clock import Moment
from fastq.errors import BrokerError
from fastq.server.actors.per_node import PerNodeActor
from fastq.server.actors.waker import Waker
from fastq.server.base.commands import Commands
from fastq.server.base.outage import FailingQueues
from fastq.server.inflight.in_flight import InFlight
from fastq.server.inflight.stats import RepairKind, RoundTrip
from fastq.server.inflight.uncertain import DequeueCall, LostDequeue

FULL_BATCH: Final = 64
"""Smaller batches are passed on at once: a delay gains little, and the pool waits for the tasks."""
RESTED_S: Final = 0.01
"""If fetches are this far apart, the pool still has work, so the next fetch may wait to share a round trip."""
LARGE_BATCH: Final = 128
QUEUES_OF_A_LARGE_BATCH: Final = 3
"""The most queues that a large fetch asks: each costs a call as expensive as 15 tasks, and later a call of ``done``."""
NO_ROOM_PAUSE_S: Final = 0.25
"""The time between two requests to failing queues while the pool has no room; the pool reports when it has room."""
WOKEN_INTERVAL_S: Final = 10.0
"""The polling interval of a queue with a waiting waker: only in case a wake-up is lost."""
MOST_CALLS: Final = 4
"""The most calls per round trip for a queue whose large messages fill each call; the other queues wait."""
IN_DOUBT_PAUSE_S: Final = 0.2
UNKNOWN_PAUSE_S: Final = 0.01
AWAITED_S: Final = 0.25
"""How long room is reserved for the tasks that a node of a cluster was asked for; a slower node holds up no other."""
VAIN_S: Final = 0.4
"""The shortest rest of a queue whose due lanes gave nothing twice in a row: other servers serve these lanes already."""
SHORTEST_REST_S: Final = 0.001
NOTHING_TO_DO_S: Final = 3600.0
_NONE: Final[frozenset[str]] = frozenset()


class Taker(Protocol):
    """The recipient of fetched tasks."""

    @property
    def room(self) -> int:
        """Return how many more tasks would start soon."""

    def idle(self, *, only_async: bool) -> int:
        """Return how many more tasks would start at once, of any sort or only coroutines."""

    def are_coroutines(self, messages: Iterable[bytes]) -> bool:
        """Return whether all messages are of tasks that run as coroutines."""

    def accept(self, queue: str, leased: Leased, asked_s: float = 0.0) -> None:
        """Take tasks that were leased just now."""


class Fetcher(PerNodeActor):
    """The actor that fetches tasks for the pool."""

    name = "fetcher"

    def __init__(
        self,
        commands: Commands,
        prioritizer: Prioritizer,
        in_flight: InFlight,
        taker: Taker,
        wakers: Mapping[str, Waker],
        check_interval_s: float,
    ) -> None:
        super().__init__(in_flight.stats.outage, commands.node_name_of)
        self._commands = commands
        self._awaited: dict[str, tuple[int, float]] = {}
        self._prioritizer = prioritizer
        self._taker = taker
        self._wakers = wakers
        self._bells: Mapping[str, Waker] = {}
        # The queues with rates, and whether all tasks with a rate that a queue gave were coroutines: then the free rows
        # of children that run coroutines count as idle, in which a plain task would have to wait.
        self._rated: dict[str, bool] = {}
        self._waits_for_turns: set[str] = set()
        self._in_vain: dict[str, int] = {}
        self._stats = in_flight.stats
        self._check_interval_s = check_interval_s
        self._ends = in_flight.ends
        self._dequeues = in_flight.dequeues
        self._owner = in_flight.owner
        self._clock = in_flight.clock
        self._lease_s = in_flight.timing.lease_s
        self._resting: dict[str, float] = {}
        self._failing = FailingQueues(self, self.outage, self._log)
        self._mean_bytes: dict[str, float] = {}
        self._asked_s = 0.0
        self._is_fetching = True
        self._lacks_room = False
        self.quiet = asyncio.Event()
        """Set once fetching has ended: no dequeue is under way, but tasks of one without reply may still be found."""

    def hear(self, bells: Mapping[str, Waker]) -> None:
        """Use wakers that wait for the bells of queues with lanes."""
        self._bells = bells

    def stop_fetching(self) -> None:
        """Stop fetching; tasks leased to us by a dequeue without reply are still looked for."""
        self._is_fetching = False
        self._failing.forget()
        if self._task is None:
            self.quiet.set()
        self.wake()

    def note_room(self) -> None:
        """Wake if the last tick lacked room; if it had room, more room changes nothing."""
        if self._lacks_room:
            self.wake()

    def queue_has_tasks(self, queue: str) -> None:
        """Ask a resting queue at once."""
        if self._resting.pop(queue, None) is not None:
            self.wake()

    def ask_all(self) -> None:
        """Ask every resting queue at once."""
        self._resting.clear()
        self.wake()

    def try_again(self) -> None:
        """Ask the failing queues at once."""
        for queue in self._failing:
            self._resting.pop(queue, None)
        super().try_again()
        if self._failing:
            self.wake()

    @property
    def queues(self) -> frozenset[str]:
        """Return the queues from which tasks are fetched."""
        return frozenset(self._prioritizer.weights)

    @property
    def failing(self) -> Mapping[str, BrokerError]:
        """Return the error of each queue from which no tasks can be fetched just now."""
        return self._failing.errors

    async def stop(self) -> None:
        """End at once; fetched tasks are passed on to the pool."""
        await super().stop()
        self._failing.forget()
        self._hand_on()

    async def finish(self, within_s: float) -> None:
        """End, after a last look for tasks that a dequeue without reply leased to us: nothing would find them later."""
        await super().finish(within_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._take_lost(at_once=True)
                await self._per_node.settle()
        await self._per_node.stop()
        self._dequeues.give_up()

    @property
    def all_resting(self) -> bool:
        """Return whether every queue had no more tasks, or was paused, at its last dequeue and is not due again."""
        are_resting = len(self._resting) == len(self._prioritizer.weights)
        return are_resting and not (self._dequeues.any_lost or self._failing or self._waits_for_turns)

    async def tick(self) -> float:
        """Fetch once.

        A full batch is passed on only after the next one has been requested, so that Redis works meanwhile.
        """
        self._lacks_room = False
        if self._dequeues.any_lost or not self._is_fetching:
            self._hand_on()  # the search for lost dequeues would treat tasks not yet passed on as lost
            if not self._is_fetching:
                return await self._end_fetching()
            await self._take_lost()
        room = min(self._taker.room - self._dequeues.brought - self._expected(), MAX_BATCH_TASKS)
        if room <= 0:
            return await self._without_room()
        in_doubt = (
            self._ends.queues_in_doubt() | self._per_node.busy(self._prioritizer.weights) | self._dequeues.asked()
        )
        unknown = self._commands.lanes.unknown
        quotas = self._quotas(room, self._still_resting() | in_doubt | unknown)
        if not quotas:
            if self._dequeues.brought:
                self._hand_on()
                return 0.0
            if unknown:
                return UNKNOWN_PAUSE_S if unknown.issuperset(self._prioritizer.weights) else IN_DOUBT_PAUSE_S
            return min(IN_DOUBT_PAUSE_S, self._until_next_s()) if in_doubt else self._until_next_s()
        self.get_on()
        calls = [call for queue, count in quotas for call in self._calls(queue, self._of_rated(queue, count))]
        if not calls:
            return await self._without_room()
        if self._per_node.are_many:
            now_s = self._clock.monotonic_s()
            for node, part in self._per_node.split(calls, lambda call: call.queue).items():
                self._awaited[node] = sum(call.most for call in part), now_s + AWAITED_S
                self._per_node.begin(node, self._fetch(part))
        else:
            await self._fetch(calls)
        return self._pause_s()

    async def _end_fetching(self) -> float:
        """Note when no dequeue is under way any more; then look for the tasks of dequeues without reply."""
        if not self._per_node:
            self.quiet.set()
        if self.quiet.is_set():
            await self._take_lost()
        return min(NOTHING_TO_DO_S, max(0.001, self._dequeues.due_s() - self._clock.monotonic_s()))

    async def _without_room(self) -> float:
        """Pass on what was fetched, or wait until there is room."""
        if self._dequeues.brought:
            self._hand_on()
            return 0.0
        if self._failing:
            await self._ask_failing()
        self._lacks_room = True
        return NO_ROOM_PAUSE_S

    def _pause_s(self) -> float:
        """Return the pause after a fetch."""
        if len(self._resting) == len(self._prioritizer.weights):
            return self._until_next_s()
        if self._taker.room > self._dequeues.brought:
            return 0.0
        self._lacks_room = True
        return NO_ROOM_PAUSE_S

    def _expected(self) -> int:
        """Return how many tasks may come from the nodes that were just asked."""
        if not self._per_node:
            return 0
        now_s = self._clock.monotonic_s()
        return sum(
            most for node, (most, until_s) in self._awaited.items() if node in self._per_node and now_s < until_s
        )

    def _quotas(self, room: int, skip: frozenset[str]) -> list[tuple[str, int]]:
        return self._prioritizer.split(room, skip, QUEUES_OF_A_LARGE_BATCH if room >= LARGE_BATCH else 0)

    async def _fetch(self, calls: Sequence[DequeueCall]) -> None:
        asked = Moment.now(self._clock)
        most = sum(call.most for call in calls)
        # A small fetch, or one after a pause, is not worth a round trip of its own: it shares the round trip of the
        # acks.
        joins = most < FULL_BATCH or asked.monotonic_s - self._asked_s >= RESTED_S
        self._asked_s = asked.monotonic_s
        lanes = self._commands.lanes
        operations = [take(*call) if call.queue in lanes else dequeue(*call) for call in calls]
        answer = self._commands.begin(operations, joins=joins)
        self._dequeues.begin(calls)
        try:
            if self._dequeues.brought:
                await asyncio.sleep(0)  # lets this request go out first
                self._hand_on()
            results = await answer
        except BaseException:
            answer.cancel()
            for call in calls:
                self._dequeues.lose(call, asked.monotonic_s)
            raise
        finally:
            self._dequeues.end(calls)
        self._stats.round_trips_s[RoundTrip.FETCH].observe(self._clock.monotonic_s() - asked.monotonic_s)
        for call, result in zip(calls, results, strict=True):
            if isinstance(result, BrokerError):
                self._prioritizer.give_back(call.queue, call.most)
                if result.maybe_applied:
                    self._dequeues.lose(call, asked.monotonic_s)
                self._note_failure(call.queue, result)
                continue
            self._failing.note_answer(call.queue)
            self._note(call, result, asked)
        brought = self._dequeues.brought
        if brought:
            self._stats.fetched.observe(brought)
        is_full = brought >= max(FULL_BATCH, most)
        if not (is_full and self._taker.room - brought >= FULL_BATCH):
            self._hand_on()

    def _note(self, call: DequeueCall, result: Leased | Taken | NoTasks, asked: Moment) -> None:
        """Note what a queue has given, or that it had nothing."""
        if isinstance(result, NoTasks):
            self._prioritizer.give_back(call.queue, call.most)
            self._waits_for_turns.discard(call.queue)
            if result is NoTasks.WITHOUT_RULES:
                self._commands.lanes.discard(call.queue)
            else:
                self._rest(call.queue, result)
            return
        leased = result.leased if isinstance(result, Taken) else result
        self._note_tasks(call.queue, call.most, leased)
        if leased.size:
            self._dequeues.bring(call, leased, asked)
        if isinstance(result, Taken):
            self._note_lanes(call, result)
        elif self._has_emptied(call, leased):
            self._rest(call.queue, NoTasks.EMPTY)

    def _has_emptied(self, call: DequeueCall, leased: Leased) -> bool:
        """Return whether a queue gave all its tasks, and a waker will notice more; a polled queue is asked again."""
        if leased.size + leased.dangling == call.most or sum(map(len, leased.messages)) >= MAX_BATCH_BYTES:
            return False
        waker = self._wakers.get(call.queue)
        return waker is not None and waker.works

    def _note_lanes(self, call: DequeueCall, taken: Taken) -> None:
        """Let a queue with lanes rest until a lane is due, if it gave fewer tasks than it was asked for."""
        queue, size = call.queue, taken.leased.size
        if taken.rated:
            rated = (taken.leased.messages[at] for at in taken.rated)
            self._rated[queue] = self._rated.get(queue, True) and self._taker.are_coroutines(rated)
        if taken.due_s is None:
            self._waits_for_turns.discard(queue)
        else:
            self._waits_for_turns.add(queue)
        self._in_vain[queue] = 0 if size else self._in_vain.get(queue, 0) + 1
        if size < call.most:
            self._rest(queue, NoTasks.EMPTY, is_full=taken.is_full)
            if taken.due_s is not None:
                due_s = taken.due_s + SHORTEST_REST_S
                if self._in_vain[queue] > 1:
                    due_s = max(due_s, VAIN_S * random.uniform(1.0, 1.5))
                self._resting[queue] = min(self._resting[queue], self._clock.monotonic_s() + due_s)

    def _hand_on(self) -> None:
        for call, leased, asked in self._dequeues.hand_on():
            self._taker.accept(call.queue, leased, asked.monotonic_s)

    def _of_rated(self, queue: str, count: int) -> int:
        """Return how many tasks to ask for; if the queue has rates, only as many as can start at once, to keep them."""
        if (only_async := self._rated.get(queue)) is None:
            return count
        if queue not in self._commands.lanes:  # its limits are removed
            del self._rated[queue]
            return count
        idle = max(0, min(count, self._taker.idle(only_async=only_async) - self._dequeues.brought))
        self._prioritizer.give_back(queue, count - idle)
        return idle

    def _calls(self, queue: str, count: int) -> list[DequeueCall]:
        """Split a queue's share into calls, each about as large as a call may be.

        Their leases end a second apart, because the leases of one call are recognized by their end.
        """
        most = max(1, int(MAX_BATCH_BYTES / self._mean_bytes.get(queue, 1.0)))
        calls = min(MOST_CALLS, -(-count // most))
        now_s = self._clock.unix_ns() / 1e9
        shares = [count * (at + 1) // calls - count * at // calls for at in range(calls)]
        return [
            DequeueCall(queue, share, self._owner.score(now_s + at, self._lease_s)) for at, share in enumerate(shares)
        ]

    def _note_tasks(self, queue: str, count: int, result: Leased) -> None:
        if result.dangling:
            self._stats.repairs[RepairKind.NO_TASK] += result.dangling
            self._log.warning("dropped %d ids without a task from queue %s", result.dangling, queue)
        if result.size:
            self._mean_bytes[queue] = max(1.0, sum(map(len, result.messages)) / result.size)
        if result.size < count:
            self._prioritizer.give_back(queue, count - result.size)
        self._resting.pop(queue, None)  # another call of the same round trip may have found it empty
        for waker in self._wakers_of(queue) if result.size or result.dangling else ():
            waker.brought_work()

    def _wakers_of(self, queue: str, *, is_full: bool = False) -> list[Waker]:
        """Return the wakers that notice tasks of a queue; while it is at its limit, only its bell's waker does."""
        wakers = [] if is_full else [self._wakers.get(queue)]
        if queue in self._commands.lanes:
            wakers.append(self._bells.get(queue))
        return [waker for waker in wakers if waker is not None]

    def _rest(self, queue: str, why: NoTasks, *, is_full: bool = False) -> None:
        interval_s = self._check_interval_s
        wakers = self._wakers_of(queue, is_full=is_full) if why is NoTasks.EMPTY else []
        for waker in wakers:
            waker.arm()
        if wakers and all(waker.is_waiting and waker.delay_s <= interval_s for waker in wakers):
            interval_s = max(interval_s, WOKEN_INTERVAL_S)
        # As in asynq: half to one and a half times the interval, so that servers do not poll in step.
        self._resting[queue] = self._clock.monotonic_s() + interval_s * random.uniform(0.5, 1.5)

    def _still_resting(self) -> frozenset[str]:
        if not self._resting:
            return _NONE
        now_s = self._clock.monotonic_s()
        self._resting = {queue: until_s for queue, until_s in self._resting.items() if until_s > now_s}
        return frozenset(self._resting)

    def _until_next_s(self) -> float:
        due_s = min((self._dequeues.due_s(), *self._resting.values()))
        return max(0.001, due_s - self._clock.monotonic_s())

    # Failures ---------------------------------------------------------------------------------------------------

    async def _ask_failing(self) -> None:
        """Ask the queues of an outage whether the outage is over, because without room no dequeue would show it."""
        queues = self._failing.in_outage().difference(self._still_resting())
        await self._per_node.spread(queues, str, self._ask)

    async def _ask(self, queues: Sequence[str]) -> None:
        results = await self._commands.run_many([list_leases(queue, "-inf", "-inf", 0) for queue in queues])
        for queue, result in zip(queues, results, strict=True):
            if isinstance(result, BrokerError):
                self._note_failure(queue, result)
            else:
                self._failing.note_answer(queue)

    def _note_failure(self, queue: str, error: BrokerError) -> None:
        if not self._is_fetching:
            return  # no later dequeue would show that the trouble is over
        self._resting[queue] = self._clock.monotonic_s() + self._failing.note_failure(queue, error)

    async def _take_lost(self, *, at_once: bool = False) -> None:
        await self._per_node.spread(self._dequeues.due(at_once=at_once), lambda lost: lost.queue, self._look_for)

    async def _look_for(self, lost: Sequence[LostDequeue]) -> None:
        for found in await self._dequeues.look(self._commands, lost):
            if found.error is not None:
                self._note_failure(found.queue, found.error)
            elif found.leased.size:
                if self.outage.may_tell(self._clock.monotonic_s()):
                    text = "found %d tasks of queue %s that a dequeue with a lost reply had leased"
                    self._log.info(text, found.leased.size, found.queue)
                else:
                    self.outage.leave_untold()
                self._taker.accept(found.queue, found.leased, found.asked_s)
