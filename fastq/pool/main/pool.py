"""The pool as the server uses it: tasks in, events out, in the server's event loop.

Wakes when a child rings, and at its tick (20 ms while it has work, 1 s otherwise); reads the result rings; writes the
task rings. Only ``start``, ``drain`` and ``stop`` wait for children, each for a limited time.
"""

import asyncio
import math
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from fastq.pool.main.child import Child, ChildState, SharedBell
from fastq.pool.main.child_queue import Event, Submission
from fastq.pool.main.config import PoolConfig
from fastq.pool.main.dispatcher import Dispatcher, free_coroutines
from fastq.pool.main.fork_server import ForkServer
from fastq.pool.main.memory_watch import MemoryWatch
from fastq.pool.main.preloader_client import PoolStartError
from fastq.pool.main.protocol import CancelOutcome, PoolCensus, PoolListener, Running
from fastq.pool.main.step_watch import StepWatch
from fastq.pool.main.supervisor import Reports, Supervisor
from fastq.pool.main.timekeeper import Timekeeper
from fastq.pool.main.wakeup import Wakeup
from fastq.pool.shared import layout
from fastq.pool.shared.memory import Segment
from fastq.pool.shared.ring import Memory, RingCorruptError, now_ns

__all__ = ["ForkServer", "PoolConfig", "ProcessPool"]

_IDLE_TICK_S = 1.0
_LONGEST_TICK_S = 0.02  # the results of a child that still has work stay unread until a tick, because it does not ring
_SHORTEST_TICK_S = 0.01
_TICKS_A_PREFETCH = 2.5  # a task that waited for 1.5 prefetch times is found before it has waited for 2
_ABORT_GRACE_S = 0.5
_EXIT_S = 0.3
_LOOK_EVERY_S = 0.05  # between looks at what changes slowly: memory, steps, starts and exits of children
_SHORTAGE_EVERY_S = 60.0  # between lines of log
_ROUNDS = 4  # rounds of collecting before the loop's other callbacks get their turn


class ProcessPool:
    """A pool of child processes that run submissions.

    The processes come from ``forks``, by default a fork server of the pool's own.
    """

    def __init__(self, config: PoolConfig, forks: ForkServer | None = None) -> None:
        self._config = config
        self._listener = PoolListener()
        self._tick_s = min(max(config.prefetch_time / _TICKS_A_PREFETCH, _SHORTEST_TICK_S), _LONGEST_TICK_S)
        self._bell = Segment.create(layout.PAGE)
        self._ring = Wakeup.create()
        self._dispatcher = Dispatcher(Memory(self._bell.memory), config.prefetch_time, config.prefetch_records)
        self._forks = forks or ForkServer(config, self._notice, self._info)
        self._owns_forks = forks is None
        self._supervisor = Supervisor(
            config,
            SharedBell(self._bell, self._ring),
            self._dispatcher,
            Reports(
                on_resolved=self._deliver,
                on_change=self._changed,
                on_notice=self._notice,
                on_info=self._info,
                on_failed=self._failed,
                on_description=self._describe,
            ),
            self._forks,
        )
        self._timekeeper = Timekeeper(config.timeout_grace)
        self._memory = MemoryWatch(config.memory_limit, self._timekeeper, self._notice)
        self._steps = StepWatch(self._notice)
        self._tick: asyncio.TimerHandle | None = None
        self._busy = False
        self._busy_since_s = 0.0
        self._changes = asyncio.Event()
        self._error: PoolStartError | None = None
        self._next_look_s = self._next_shortage_s = 0.0

    # Life -------------------------------------------------------------------------------------------------------

    async def start(self, listener: PoolListener) -> None:
        """Import the app, fork the children, and return when all are ready; ``listener`` gets the reports.

        Raises ``PoolStartError`` with the reason or a traceback; ``stop`` must be called after that, too.
        """
        self._listener = listener
        loop = asyncio.get_running_loop()
        loop.add_reader(self._ring.read_fd, self._on_bell)
        self._dispatcher.fall_asleep()
        self._schedule(self._tick_s)
        await self._supervisor.start()
        while self._error is None and not self._supervisor.seats.all_ready:
            self._changes.clear()
            await self._changes.wait()
        if self._error is not None:
            raise self._error

    def announce_stop(self) -> None:
        """Let running tasks, and those that begin from now on, see that they should come to an end."""
        self._supervisor.announce_stop()

    def let_batches_go(self) -> None:
        """Let no batch wait for more tasks, from now on, since none will come."""
        if returned := self._dispatcher.let_batches_go():
            asyncio.get_running_loop().call_soon(self._deliver, returned)

    def withdraw_all(self) -> list[Submission]:
        """Take no more tasks. Return those that have not begun, in order of submission; they get no event."""
        return self._dispatcher.close()

    async def drain(self, within: float) -> bool:
        """Wait for at most ``within`` seconds until nothing runs; return whether that was reached."""
        try:
            async with asyncio.timeout(within):
                while self._dispatcher.pending:
                    self._changes.clear()
                    await self._changes.wait()
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        """End running tasks (ABORTED: soft signal, SIGKILL half a second later), children and the pool's own preloader.

        Takes at most 1.5 s, and 5 s more if children have stop functions; longer only if SIGKILL does not end a child.
        """
        rest = self._dispatcher.close()
        if rest:
            self._deliver(self._dispatcher.submit(rest))  # the dispatcher is closed, so it answers RETURNED
        for child in self._supervisor.children:
            for submission in child.queue.remaining():
                self._timekeeper.interrupt(child, submission, layout.ROW_ABORTED, now_ns())
        if self._dispatcher.pending:
            await self.drain(_ABORT_GRACE_S)
        await self._supervisor.stop(_EXIT_S)
        if self._owns_forks:
            await self._forks.stop()
        self._close()

    def _close(self) -> None:
        loop = asyncio.get_running_loop()
        if self._tick is not None:
            self._tick.cancel()
        if self._ring.read_fd >= 0:
            loop.remove_reader(self._ring.read_fd)
        self._ring.close()
        self._bell.close_fd()

    # Tasks ------------------------------------------------------------------------------------------------------

    def submit(self, batch: Sequence[Submission]) -> None:
        """Take tasks; their events go to ``on_events``, never within this call."""
        returned = self._dispatcher.submit(batch)
        if returned:
            asyncio.get_running_loop().call_soon(self._deliver, returned)
        if not self._busy:
            self._busy, self._busy_since_s = True, asyncio.get_running_loop().time()
            self._schedule(self._tick_s)
        if self._tick is not None and self._due_in_s() < self._tick.when() - asyncio.get_running_loop().time():
            self._schedule(self._tick_s)

    def _due_in_s(self) -> float:
        """Return in how many seconds the next batch goes even if it is not full."""
        due_at = self._dispatcher.due_at
        return (due_at - now_ns()) / 1e9 if due_at else math.inf

    @property
    def free(self) -> int:
        """Return how many more tasks would start within ``prefetch_time``, by the estimated durations."""
        return self._dispatcher.free(self._supervisor.only_async)

    @property
    def free_coroutines(self) -> int:
        """Return how many more coroutines would start at once."""
        return free_coroutines(self._dispatcher)

    @property
    def pending(self) -> int:
        """Return how many submissions have had no final event yet."""
        return self._dispatcher.pending

    @property
    def can_work(self) -> bool:
        """Return whether a child takes tasks or still works on those it has."""
        return any(child.state in (ChildState.READY, ChildState.LEAVING) for child in self._supervisor.children)

    def submissions(self) -> list[Submission]:
        """Return the submissions without a final event."""
        given = [submission for child in self._supervisor.children for submission in child.queue.remaining()]
        return given + self._dispatcher.list_waiting()

    @property
    def description(self) -> str:
        """Return the runner's description of itself."""
        return self._supervisor.description

    @property
    def preloader_pid(self) -> int:
        """Return the process id of the preloader."""
        return self._forks.pid

    @property
    def child_states(self) -> dict[int, ChildState]:
        """Return the state of each child that is not known to be dead, by process id."""
        return {child.pid: child.state for child in self._supervisor.children if child.pid}

    def running(self) -> list[Running]:
        """Return the tasks that are in a handler now."""
        found = []
        for child in self._supervisor.children:
            for submission in child.queue.remaining():
                if (row := child.queue.slots.look(submission.seq)) is not None:
                    found.append(Running(submission, child.pid, row[2], row[3]))
        return found

    def census(self) -> PoolCensus:
        """Return the numbers of the pool as of now."""
        return self._supervisor.census.take(self._supervisor.children, self.pending)

    def cancel(self, submission: Submission) -> CancelOutcome:
        """Withdraw a task, or ask it to end if it runs."""
        if self._dispatcher.withdraw(submission):
            return CancelOutcome.WITHDRAWN
        child = self._child_of(submission)
        if child and self._timekeeper.interrupt(child, submission, layout.ROW_CANCELED, now_ns()):
            return CancelOutcome.TOLD
        return CancelOutcome.TOO_LATE

    def note_saved(self, submission: Submission, number: int) -> None:
        """Let a running task see that its checkpoint of this number is saved."""
        if submission.queue is not None:
            submission.queue.slots.note_saved(submission.seq, number)

    def _child_of(self, submission: Submission) -> Child | None:
        queue = submission.queue
        return next((one for one in self._supervisor.children if one.queue is queue), None) if queue else None

    # Turns ------------------------------------------------------------------------------------------------------

    def _on_bell(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._ring.read_fd, 8)
        self._pump()

    def _pump(self) -> None:
        """Collect results, dispatch waiting tasks and deliver the events, until there is nothing new."""
        self._dispatcher.wake()
        events: list[Event] = []
        try:
            for _ in range(_ROUNDS):
                for queue, error in self._dispatcher.collect(events):
                    self._condemn(queue, error)
                events += self._dispatcher.dispatch()
                if self._dispatcher.any_leaves():
                    self._supervisor.seats.recycle()
                if self._dispatcher.fall_asleep():
                    break
            else:
                asyncio.get_running_loop().call_soon(self._pump)
        finally:
            self._deliver(events)

    def _condemn(self, queue: object, error: Exception) -> None:
        """Kill a child whose rings cannot be read any more, so that its tasks are resolved.

        If the child corrupted its ring, its task is charged. If this process lacked memory or descriptors, no task is.
        """
        for child in self._supervisor.children:
            if child.queue is queue:
                remaining = child.queue.remaining() if isinstance(error, RingCorruptError) else []
                child.text = f": {error}"
                child.kill(remaining[0] if remaining else None)
                if not remaining:
                    self._notice(f"worker process {child.pid} is replaced: its results cannot be read: {error!r}")

    def _notice(self, text: str) -> None:
        self._listener.on_notice(text)

    def _info(self, text: str) -> None:
        self._listener.on_info(text)

    def _describe(self, description: str) -> None:
        self._listener.on_description(description)

    def _deliver(self, events: list[Event]) -> None:
        try:
            if events:
                self._listener.on_events(events)
        finally:
            if not self._dispatcher.pending:
                self._changes.set()

    def _attempt(self, step: Callable[..., object], *args: Any) -> None:
        """Take a step of a tick.

        Report an unexpected error to the loop and return, so that the other steps are taken, too.
        """
        try:
            step(*args)
        except Exception as error:  # noqa: BLE001 - whatever it is, the tick must go on
            told = {"message": "unexpected error in the pool", "exception": error}
            asyncio.get_running_loop().call_exception_handler(told)

    def _changed(self) -> None:
        self._changes.set()
        returned = self._dispatcher.dispatch()
        if returned:
            asyncio.get_running_loop().call_soon(self._deliver, returned)
        if self.free:
            self._listener.on_room()

    def _failed(self, error: PoolStartError) -> None:
        self._error = error
        self._changes.set()
        self._listener.on_failed(error)

    def _schedule(self, delay_s: float) -> None:
        if self._tick is not None:
            self._tick.cancel()
        delay_s = max(0.0, min(delay_s, self._due_in_s()))
        self._tick = asyncio.get_running_loop().call_later(delay_s, self._on_tick)

    def _on_tick(self) -> None:
        """Check limits, and collect the results of children that did not ring because they still have work."""
        self._tick = None
        children, now_s = self._supervisor.children, asyncio.get_running_loop().time()
        self._supervisor.census.sample(children, now_s, self._busy_since_s)
        self._attempt(self._pump)
        self._attempt(self._timekeeper.check, children, now_ns())
        if now_s >= self._next_look_s:
            self._next_look_s = now_s + _LOOK_EVERY_S
            self._attempt(self._memory.check, children)
            self._attempt(self._steps.check, children, now_s)
            self._attempt(self._supervisor.check)
        self._attempt(self._relieve)
        self._busy = self._dispatcher.pending > 0 or any(one.state is not ChildState.READY for one in children)
        if self._tick is None:
            self._schedule(self._tick_s if self._busy else _IDLE_TICK_S)
        if (shortage := self._dispatcher.take_shortage()) is not None:
            self._tell_of_shortage(shortage)

    def _relieve(self) -> None:
        """Move or return tasks that wait too long; tell the listener if the passing of time has made room."""
        self._deliver(self._dispatcher.relieve())
        if self.free:
            self._listener.on_room()

    def _tell_of_shortage(self, shortage: Exception) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._next_shortage_s:
            self._next_shortage_s = now_s + _SHORTAGE_EVERY_S
            self._notice(
                f"cannot pass tasks to worker processes; the tasks wait or return to their queues: {shortage!r}"
            )
