"""A pool of the simulation: handlers take simulated time, and end as the seed has decided for the task and attempt."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from fastq.pool.main.protocol import (
    CancelOutcome,
    Event,
    EventKind,
    PoolCensus,
    PoolListener,
    Running,
    Sort,
    Submission,
)
from fastq.worker.shared.description import AppDescription
from fastq.worker.shared.report import FailureReport

__all__ = ["Fate", "SimulatedPool", "draw_fate"]

START_S = 0.5


class Fate(NamedTuple):
    """How long a handler takes, and the kind and data of its end."""

    takes_s: float
    kind: EventKind
    data: bytes = b""


def draw_fate(of_task: Random, of_attempt: Random) -> Fate:
    """Draw: a task takes about as long each time; most attempts end well, some fail, or die with their child."""
    takes_s = of_task.expovariate(1 / 0.3) if of_task.random() < 0.93 else of_task.choice((12, 25, 50, 100, 200))
    takes_s, chance = takes_s * of_attempt.uniform(0.8, 1.2), of_attempt.random()
    if chance < 0.1:
        return Fate(takes_s, EventKind.FAILED, FailureReport("ValueError: by chance").encode())
    if chance < 0.14:
        return Fate(takes_s, EventKind.CRASHED, b"died with signal SIGSEGV")
    if chance < 0.16:
        return Fate(takes_s, EventKind.SKIP_RETRY, FailureReport("SkipRetry: by chance", final="SkipRetry").encode())
    return Fate(takes_s, EventKind.RESULT, b"a result") if chance < 0.3 else Fate(takes_s, EventKind.DONE)


class SimulatedPool:
    """A ``Pool`` whose children run one plain task each; ``note`` is told of each begin and end of a handler."""

    def __init__(
        self, children: int, fate_of: Callable[[Submission], Fate], note: Callable[[str, Submission, str], None]
    ) -> None:
        self._children, self._fate_of, self._note = children, fate_of, note
        self._listener = PoolListener()
        self._waiting: list[Submission] = []
        self._runs: dict[Submission, tuple[Running, asyncio.TimerHandle]] = {}
        self._is_closed = False
        self._changed = asyncio.Event()
        self.description = AppDescription({"work": Sort.PLAIN}).encode()

    @property
    def free(self) -> int:
        return 0 if self._is_closed else max(0, 2 * self._children - self.pending)

    @property
    def pending(self) -> int:
        return len(self._waiting) + len(self._runs)

    @property
    def can_work(self) -> bool:
        return not self._is_closed

    def submissions(self) -> list[Submission]:
        return [*self._runs, *self._waiting]

    async def start(self, listener: PoolListener) -> None:
        self._listener = listener
        await asyncio.sleep(START_S)
        listener.on_description(self.description)

    def submit(self, batch: Sequence[Submission]) -> None:
        if self._is_closed:
            returned = [Event(EventKind.RETURNED, one) for one in batch]
            asyncio.get_running_loop().call_soon(self._listener.on_events, returned)
            return
        self._waiting += batch
        self._begin()

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting and len(self._runs) < self._children and not self._is_closed:
            one = self._waiting.pop(0)
            fate = self._fate_of(one)
            if one.timeout_ns and fate.takes_s > one.timeout_ns / 1e9:
                fate = Fate(one.timeout_ns / 1e9, EventKind.TIMEOUT)
            timer = loop.call_later(fate.takes_s, self._end, one, fate)
            self._runs[one] = Running(one, 1000 + len(self._runs), int(loop.time() * 1e9), 0), timer
            self._note("begins", one, "")

    def _end(self, one: Submission, fate: Fate) -> None:
        del self._runs[one]
        self._note("ends", one, fate.kind.name)
        self._begin()
        self._changed.set()
        self._listener.on_events([Event(fate.kind, one, fate.data, int(fate.takes_s * 1e9))])
        self._listener.on_room()

    def cancel(self, submission: Submission) -> CancelOutcome:
        if submission in self._waiting:
            self._waiting.remove(submission)
            return CancelOutcome.WITHDRAWN
        if submission not in self._runs:
            return CancelOutcome.TOO_LATE
        self._runs[submission][1].cancel()
        asyncio.get_running_loop().call_later(0.01, self._end, submission, Fate(0.01, EventKind.CANCELED))
        return CancelOutcome.TOLD

    def running(self) -> list[Running]:
        return [running for running, _ in self._runs.values()]

    def note_saved(self, submission: Submission, number: int) -> None: ...

    def announce_stop(self) -> None: ...

    def census(self) -> PoolCensus:
        busy = len(self._runs)
        children = {"starting": 0, "idle": self._children - busy, "busy": busy, "leaving": 0}
        return PoolCensus(children, busy, len(self._waiting), (0, 0), {}, (0.0, 0.0), ())

    def withdraw_all(self) -> list[Submission]:
        self._is_closed = True
        withdrawn, self._waiting = self._waiting, []
        return withdrawn

    async def drain(self, within: float) -> bool:
        try:
            async with asyncio.timeout(within):
                while self._runs:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        self._is_closed = True
        runs, self._runs = self._runs, {}
        for one, (_, timer) in runs.items():
            timer.cancel()
            self._note("ends", one, EventKind.ABORTED.name)
        if runs:
            self._listener.on_events([Event(EventKind.ABORTED, one) for one in runs])
