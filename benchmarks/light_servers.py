"""Servers without pool and children, many to a process: what of a server talks to Redis about one queue.

Each has the fetcher, waker, acker, held tasks and command connection of a real one; a task is done as soon as it is
taken. Each line on standard input is answered by a line of JSON: what was sent so far, by kind.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from fastq._prioritizer import Prioritizer
from fastq.broker.operation import Operation
from fastq.broker.operations.dequeue import NoTasks
from fastq.broker.operations.finish import Done
from fastq.broker.operations.lease import Leased, Owner
from fastq.broker.transport.aio import AsyncBroker
from fastq.broker.transport.open import open_async_broker
from fastq.broker.transport.wait import TaskWatch
from fastq.common.clock import SystemClock
from fastq.server.actors.acker import Acker
from fastq.server.actors.fetcher import Fetcher
from fastq.server.actors.waker import Waker
from fastq.server.base.commands import Commands
from fastq.server.base.timing import STANDARD
from fastq.server.inflight.ack_writer import AckWriter
from fastq.server.inflight.in_flight import InFlight
from fastq.server.inflight.stall import StallWatch
from fastq.server.inflight.task_log import TaskLog
from fastq.server.inflight.tasks import view_leased
from fastq.wire import keys
from fastq.wire.codec import decode_task_message

QUEUE: Final = "default"
CHECK_INTERVAL_S: Final = 1.0
ROOM: Final = 4
WOKEN: Final = "woken"
AFTER_TASK: Final = "asked on after a task"
POLL_DEAF: Final = "polled while not waiting"
POLL_WAITING: Final = "polled while waiting"
POLLS: Final = (POLL_DEAF, POLL_WAITING)
WHYS: Final = (WOKEN, AFTER_TASK, *POLLS)
"""Why a queue was asked."""
TASK: Final = "task"
EMPTY: Final = "empty"
DONE: Final = "done"


class Tally:
    """Count what servers send, and note how long each task lay in its queue, in ms."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.waits_ms: list[float] = []

    def take(self) -> str:
        """Return the counts so far and the waits since the last call."""
        waits_ms, self.waits_ms = self.waits_ms, []
        return json.dumps({"counts": self.counts, "waits_ms": waits_ms, "cpu_s": time.process_time()})


class CountedCommands(Commands):
    """Count operations; ``why`` is asked at each dequeue, ``told`` hears whether it brought tasks."""

    def __init__(self, broker: AsyncBroker, server: "LightServer") -> None:
        super().__init__(broker)
        self._server = server

    def begin(self, operations: Sequence[Operation[Any]], *, joins: bool = False) -> asyncio.Future[list[Any]]:
        """Do as ever, and count."""
        answer = super().begin(operations, joins=joins)
        for at, operation in enumerate(operations):
            if operation.name == "dequeue":
                answer.add_done_callback(self._server.heard_by(self._server.why(), at))
            else:
                self._server.tally.counts[operation.name] += 1
        return answer


class LightServer:
    """One server of one queue."""

    def __init__(self, url: str, servers: int, tally: Tally) -> None:
        self.tally = tally
        self._clock = SystemClock()
        self._broker = open_async_broker(url)
        stall = StallWatch(self._clock, STANDARD.stall_s)
        in_flight = InFlight.of(Owner.draw(), stall, self._clock, STANDARD)
        self._tasks = in_flight.tasks
        commands = CountedCommands(self._broker, self)
        self._acker = Acker(
            AckWriter(commands, in_flight, TaskLog(None, "", in_flight.clock)),
            in_flight,
            lambda: True,
            lambda: None,
            lambda: None,
        )
        self._watch = TaskWatch(self._broker.transport)
        self.waker = Waker(self._watch, QUEUE, keys.pending, self._wake, lambda: servers, in_flight.stats.outage)
        wakers = {QUEUE: self.waker}
        self.fetcher = Fetcher(commands, Prioritizer({QUEUE: 1}, False), in_flight, self, wakers, CHECK_INTERVAL_S)
        self._was_woken = False
        self._had_task = False

    def start(self) -> None:
        """Begin on the running loop."""
        for actor in (self._acker, self.fetcher, self.waker):
            actor.start()

    async def stop(self) -> None:
        """End."""
        for actor in (self.waker, self.fetcher, self._acker):
            await actor.stop()
        await self._watch.close()
        await self._broker.close()

    # What the fetcher asks of the pool.

    def idle(self, *, only_async: bool) -> int:
        """Return how many more tasks would begin at once."""
        return self.room

    def are_coroutines(self, messages: Iterable[bytes]) -> bool:
        """Return False: none is."""
        return False

    @property
    def room(self) -> int:
        """Return how many more tasks there is room for."""
        return ROOM - len(self._tasks)

    def accept(self, queue: str, leased: Leased, asked_s: float = 0.0) -> None:
        """Finish tasks immediately."""
        ended = []
        for leased_task in leased.tasks:
            view = view_leased(leased_task)
            self.tally.waits_ms.append(
                (time.time_ns() - int(decode_task_message(leased_task.message).payload or b"0")) / 1e6
            )
            task = self._tasks.add(queue, view, self._clock.monotonic_s())
            task.disposition = Done(view.id)
            ended.append(task)
        self._acker.add(ended)
        self.fetcher.wake()

    # What is counted.

    def _wake(self, queue: str) -> None:
        self.tally.counts["wake"] += 1
        self._was_woken = self.fetcher.all_resting
        self.fetcher.queue_has_tasks(queue)

    def why(self) -> str:
        """Return why the queue is asked now."""
        if self._was_woken:
            self._was_woken = False
            return WOKEN
        if self._had_task:
            return AFTER_TASK
        return POLL_WAITING if self.waker.is_waiting and not self.waker.delay_s else POLL_DEAF

    def heard_by(self, why: str, at: int) -> Any:
        """Return what counts the answer to a dequeue."""

        def heard(answer: asyncio.Future[list[Any]]) -> None:
            result = None if answer.cancelled() else answer.result()[at]
            self._had_task = isinstance(result, Leased)
            if isinstance(result, Leased | NoTasks):
                self.tally.counts[f"{why}: {TASK if self._had_task else EMPTY}"] += 1
            else:
                self.tally.counts[f"failed: {result}"] += 1

        return heard


async def serve(url: str, here: int, servers: int) -> None:
    """Run ``here`` of so many servers until standard input ends."""
    tally = Tally()
    lights = [LightServer(url, servers, tally) for _ in range(here)]
    for light in lights:
        light.start()
    while await asyncio.to_thread(sys.stdin.readline):
        print(tally.take(), flush=True)
    await asyncio.gather(*(light.stop() for light in lights))


def main() -> None:
    """Take the URL, how many servers to be, and how many there are in all, from the command line."""
    url, here, servers = sys.argv[1:]
    asyncio.run(serve(url, int(here), int(servers)))


if __name__ == "__main__":
    main()
