"""A pool of the simulation: handlers take simulated time, and end as the seed has decided for the task and attempt."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from fastq.pool.main.protocol import (
    ITS_BATCH,
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

START_S = 0.5
GRACE_S = 5.0
HANGS_S = 3600.0
MAY_HANG_S = 60.0
"""Only what has a shorter time limit hangs, so that runs come to an end."""


class Fate(NamedTuple):
    """How long a handler takes, and the kind and data of its end.

    ``tells`` is what it writes after which share of its time: a result, progress or a checkpoint. One that ``ignores``
    what it is told is killed with its child after the grace.
    """

    takes_s: float
    kind: EventKind
    data: bytes = b""
    tells: tuple[tuple[float, EventKind, bytes], ...] = ()
    ignores: bool = False


def draw_fate(of_task: Random, of_attempt: Random, run: str = "") -> Fate:
    """Draw: a task takes about as long each time; most attempts end well, some fail, hang, or die with their child.

    What a run writes names the run.
    """
    takes_s = of_task.expovariate(1 / 0.3) if of_task.random() < 0.93 else of_task.choice((12, 25, 50, 100))
    takes_s, chance = takes_s * of_attempt.uniform(0.8, 1.2), of_attempt.random()
    kinds = (EventKind.WRITTEN, EventKind.PROGRESS, EventKind.CHECKPOINT)
    tells = tuple(
        (at, of_attempt.choice(kinds), f'"{run} {nth}"'.encode())
        for nth, at in enumerate(sorted(of_attempt.random() for _ in range(of_attempt.choice((0, 0, 0, 1, 3)))))
    )
    ignores = of_attempt.random() < 0.3
    if chance < 0.1:
        return Fate(takes_s, EventKind.FAILED, FailureReport("ValueError: by chance").encode(), tells, ignores)
    if chance < 0.14:
        return Fate(takes_s, EventKind.CRASHED, b"died with signal SIGSEGV", tells, ignores)
    if chance < 0.16:
        report = FailureReport("SkipRetry: by chance", final="SkipRetry").encode()
        return Fate(takes_s, EventKind.SKIP_RETRY, report, tells, ignores)
    if chance < 0.2:
        return Fate(HANGS_S, EventKind.DONE, b"", tells, ignores)
    if chance < 0.4:
        return Fate(takes_s, EventKind.RESULT, f'"{run} end"'.encode(), tells, ignores)
    return Fate(takes_s, EventKind.DONE, b"", tells, ignores)


@dataclass(slots=True)
class _Run:
    running: Running
    fate: Fate
    ends_s: float
    call: Sequence[Submission]
    """What runs in the same call, itself included."""
    timers: list[asyncio.TimerHandle] = field(default_factory=list)
    is_told: bool = False
    checkpoints: int = 0


class SimulatedPool:
    """A ``Pool`` whose children run one plain task each; ``note`` is told of each begin and end of a handler.

    With ``batch``, tasks of the type "work" are run by calls of up to so many, which take as many children.
    """

    def __init__(
        self,
        children: int,
        fate_of: Callable[[Submission], Fate],
        note: Callable[[str, Submission, Event], None],
        batch: int = 0,
    ) -> None:
        self._children, self._fate_of, self._note = children, fate_of, note
        self._listener = PoolListener()
        self._waiting: list[Submission] = []
        self._runs: dict[Submission, _Run] = {}
        self._number = 0
        self._is_closed = False
        self._changed = asyncio.Event()
        patterns = {"work": Sort.PLAIN, "batch": Sort.PLAIN, "tick": Sort.PLAIN}
        batches = {"work": (batch, 0.0, 1_000_000)} if batch else {}
        self.description = AppDescription(patterns, batches=batches).encode()

    @property
    def free(self) -> int:
        return 0 if self._is_closed else max(0, 2 * self._children - self.pending)

    @property
    def free_coroutines(self) -> int:
        return 0

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
        while self._waiting and len(self._runs) < self._children and not self._is_closed:
            first = self._waiting[0]
            call = [first]
            if first.batch is not None:
                most = min(first.batch.size, self._children - len(self._runs))
                call = [one for one in self._waiting if one.batch is first.batch][:most]
            self._waiting = [one for one in self._waiting if one not in call]
            self._call(call)

    def _call(self, call: Sequence[Submission]) -> None:
        """Begin a call; those of several tasks end together, and none is charged for what kills their child."""
        fates = [self._fate_of(one) for one in call]
        limit_s = min((one.timeout_ns / 1e9 for one in call if one.timeout_ns > 0), default=0.0)
        if not 0 < limit_s < MAY_HANG_S:
            fates = [fate._replace(takes_s=1.0) if fate.takes_s == HANGS_S else fate for fate in fates]
        takes_s, of_all = max(fate.takes_s for fate in fates), None
        dies = [fate.takes_s for fate in fates if fate.kind is EventKind.CRASHED]
        if dies and len(call) > 1:
            takes_s, of_all = min(dies), (EventKind.RERUN, ITS_BATCH)
        if 0 < limit_s < takes_s:
            ignores = any(fate.ignores for fate in fates)
            takes_s = limit_s + GRACE_S * ignores
            of_all = (EventKind.RERUN, ITS_BATCH) if ignores and len(call) > 1 else (EventKind.TIMEOUT, b"")
        for one, fate in zip(call, fates, strict=True):
            self._run(one, fate, takes_s, *(of_all or (fate.kind, fate.data)), call)

    def _run(
        self, one: Submission, fate: Fate, takes_s: float, kind: EventKind, data: bytes, call: Sequence[Submission]
    ) -> None:
        loop = asyncio.get_running_loop()
        self._number += 1
        running = Running(one, 1000 + self._number, int(loop.time() * 1e9), 0)
        run = self._runs[one] = _Run(running, fate, loop.time() + takes_s, call)
        for share, told, what in fate.tells:
            run.timers.append(loop.call_later(share * min(takes_s, fate.takes_s), self._tell, one, told, what))
        run.timers.append(loop.call_later(takes_s, self._end, one, kind, data))
        self._note("begins", one, Event(kind, one))

    def _tell(self, one: Submission, kind: EventKind, data: bytes) -> None:
        run = self._runs[one]
        number = 0
        if kind is EventKind.CHECKPOINT:
            number = run.checkpoints = run.checkpoints + 1
        event = Event(kind, one, data, number)
        self._note("tells", one, event)
        self._listener.on_events([event])

    def _end(self, one: Submission, kind: EventKind, data: bytes) -> None:
        run = self._runs.pop(one)
        for timer in run.timers:
            timer.cancel()
        event = Event(kind, one, data, int(asyncio.get_running_loop().time() * 1e9) - run.running.started_ns)
        self._note("ends", one, event)
        self._begin()
        self._changed.set()
        self._listener.on_events([event])
        self._listener.on_room()

    def cancel(self, submission: Submission) -> CancelOutcome:
        if submission in self._waiting:
            self._waiting.remove(submission)
            return CancelOutcome.WITHDRAWN
        run = self._runs.get(submission)
        if run is None or run.is_told:
            return CancelOutcome.TOO_LATE
        run.is_told = True
        now_s = asyncio.get_running_loop().time()
        call = [one for one in run.call if one in self._runs]
        if all(self._runs[one].is_told for one in call):
            after_s = GRACE_S if any(self._runs[one].fate.ignores for one in call) else 0.01
            for one in call:
                self._cancel_at(now_s + after_s, one)
        else:
            self._cancel_at(run.ends_s, submission)  # it is marked, and the others go on
        return CancelOutcome.TOLD

    def _cancel_at(self, at_s: float, submission: Submission) -> None:
        timers = self._runs[submission].timers
        timers[-1].cancel()
        timers.append(asyncio.get_running_loop().call_at(at_s, self._end, submission, EventKind.CANCELED, b""))

    def running(self) -> list[Running]:
        return [run.running for run in self._runs.values()]

    def note_saved(self, submission: Submission, number: int) -> None:
        if submission in self._runs:
            self._note("saved", submission, Event(EventKind.CHECKPOINT, submission, b"", number))

    def announce_stop(self) -> None: ...

    def let_batches_go(self) -> None: ...

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
        aborted = [Event(EventKind.ABORTED, one) for one in runs]
        for run, event in zip(runs.values(), aborted, strict=True):
            for timer in run.timers:
                timer.cancel()
            self._note("ends", event.submission, event)
        if aborted:
            self._listener.on_events(aborted)
