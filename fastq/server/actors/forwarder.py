"""The forwarder: moves due tasks from scheduled and retry to pending, or to their group.

Wakes: for each queue at the next due time that it knows, and every delayed_task_check_interval. It knows the times that
it saw at its last look, and earlier times that the scripts have published since. Reads and writes: scheduled, retry,
pending, groups of its queues. If it dies: due tasks wait for another server's forwarder.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final

from fastq.broker.operations.maintain import Forwarded, forward
from fastq.common.clock import Clock
from fastq.errors import BrokerError
from fastq.server.actors.actor import Actor
from fastq.server.base.commands import Commands
from fastq.server.base.outage import FailingQueues
from fastq.server.inflight.stats import RepairKind, ServerStats

BATCH: Final = 100
SHORTEST_PAUSE_S: Final = 0.005


class Forwarder(Actor):
    """The actor that forwards due tasks, 100 of a set per script call, until none is due."""

    name = "forwarder"

    def __init__(
        self,
        commands: Commands,
        queues: Sequence[str],
        interval_s: float,
        clock: Clock,
        stats: ServerStats,
        on_tasks: Callable[[str], None],
    ) -> None:
        """Forward for ``queues``; ``on_tasks`` is called with each queue to which tasks were forwarded."""
        super().__init__(stats.outage)
        self._repairs = stats.repairs
        self._on_tasks = on_tasks
        self._commands = commands
        self._failing = FailingQueues(self, self.outage, self._log)
        self._interval_s = interval_s
        self._clock = clock
        # Monotonic times: a wall clock that is set back must not delay the next look.
        self._look_s = dict.fromkeys(queues, -math.inf)
        self._announced_s: dict[str, float] = {}

    def try_again(self) -> None:
        """Look at the failing queues at once."""
        super().try_again()
        for queue in self._failing:
            self._look_s[queue] = -math.inf
            self.wake()

    async def stop(self) -> None:
        """End, in the middle of a tick if need be."""
        await super().stop()
        self._failing.forget()

    def note_due(self, queue: str, due_s: float) -> None:
        """Note that a task of a queue is due at a Unix second, earlier than the queue's other tasks."""
        at_s = self._moment_of(due_s)
        before_s = self._next_look_s()
        if at_s < self._announced_s.get(queue, math.inf):
            self._announced_s[queue] = at_s
        if at_s < before_s:
            self.wake()

    async def tick(self) -> float:
        """Forward the due tasks of every queue whose time has come; return the seconds until the next queue's time."""
        began_s = self._clock.monotonic_s()
        queues = [queue for queue in self._look_s if self._look_at_s(queue) <= began_s]
        while queues:
            self.get_on()
            now_ns = self._clock.unix_ns()
            for queue in queues:
                self._announced_s.pop(queue, None)  # the answer may lack the times announced from now on
                self._look_s[queue] = began_s  # the queue stays due if this look fails
            results = await self._commands.run_many([forward(queue, now_ns, BATCH) for queue in queues])
            more = []
            for queue, result in zip(queues, results, strict=True):
                if isinstance(result, BrokerError):
                    self._look_s[queue] = self._clock.monotonic_s() + self._failing.note_failure(queue, result)
                    continue
                self._failing.note_answer(queue)
                self._note(queue, result)
                if result.next_due_s is not None and result.next_due_s <= now_ns // 1_000_000_000:
                    more.append(queue)
            queues = more
        return max(SHORTEST_PAUSE_S, self._next_look_s() - self._clock.monotonic_s())

    def _note(self, queue: str, result: Forwarded) -> None:
        if result.dangling:
            self._repairs[RepairKind.NO_TASK] += result.dangling
            self._log.warning("dropped %d ids without a task from queue %s", result.dangling, queue)
        if result.taken > result.dangling:
            self._on_tasks(queue)
        in_turn_s = self._clock.monotonic_s() + self._interval_s
        self._look_s[queue] = min(
            in_turn_s, self._moment_of(math.inf if result.next_due_s is None else result.next_due_s)
        )

    def _next_look_s(self) -> float:
        return min(map(self._look_at_s, self._look_s))

    def _look_at_s(self, queue: str) -> float:
        return min(self._look_s[queue], self._announced_s.get(queue, math.inf))

    def _moment_of(self, due_s: float) -> float:
        # Scores are compared with whole seconds: a task is due from the start of the second that reaches its score.
        wait_s = math.ceil(max(-1e18, min(due_s, 1e18))) - self._clock.unix_ns() / 1e9
        return self._clock.monotonic_s() + max(SHORTEST_PAUSE_S, wait_s)
