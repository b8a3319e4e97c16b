"""Run the tasks of a child that run side by side: coroutines in one event loop, plain handlers in threads beside it.

The loop is entered when the next task is one of these. It is left when the next task runs alone and none of these is
running. It is the same loop every time, so the clients and sessions that handlers bound to it stay valid. Each task
runs in a context of its own, a copy of the child's context at the start.
"""

import asyncio
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Protocol

from fastq.pool.child.last_words import last_words
from fastq.pool.child.steps import Stage
from fastq.pool.child.threads import Threads
from fastq.pool.child.work import NO_ROW, Attempt, Work
from fastq.pool.shared.event_kind import NOT_BEGUN, EventKind
from fastq.pool.shared.processes import leave
from fastq.pool.shared.runner import Answer, Runner

_LOOK_OUT_S = 1.0
_TELL_AGAIN_S = 0.002


class _Host(Protocol):
    on_drained: Callable[[], object] | None
    loop: asyncio.AbstractEventLoop | None

    @property
    def wake_fd(self) -> int: ...

    def drain(self) -> None: ...


class Coroutines:
    """The child's event loop and the coroutines in it."""

    def __init__(self, work: Work, stage: Stage, runner: Runner, host: _Host, rows: int) -> None:
        self._work = work
        self._stage = stage
        self._context = work.context
        self._runner = runner
        self._host = host
        self.threads = Threads(work, self._thread_ended)
        self._free = list(range(rows - 1, -1, -1))
        self._running: dict[int, tuple[asyncio.Task[None], Attempt]] = {}  # by row
        self._loop: asyncio.AbstractEventLoop | None = None
        self._done: asyncio.Future[None] | None = None
        self._look_out: asyncio.TimerHandle | None = None
        self._telling: asyncio.TimerHandle | None = None
        self._rings = False

    def make_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop of all coroutines of this child; it is made at the first call."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._loop.set_task_factory(self._stage.make_task)
            asyncio.set_event_loop(self._loop)
            self._host.loop = self._loop
        return self._loop

    def call(self, function: Callable[[], object]) -> None:
        """Call a function while no handler runs, and await its result in the handlers' loop if it can be awaited.

        The function runs in the context that is copied for each handler.
        """
        try:
            outcome = self._context.run(function)
            if isawaitable(outcome):
                loop = self.make_loop()
                loop.run_until_complete(asyncio.Task(_wait_for(outcome), loop=loop, context=self._context))
        except BaseException as error:
            if self._work.forked:
                leave(error)
            raise
        if self._work.forked:
            leave(None)  # the function has returned in a process that it forked

    def serve(self) -> None:
        """Run coroutines until none is left and the next task is a plain one or the child must exit."""
        loop = self.make_loop()
        self._done = loop.create_future()
        # If the loop has been left before this is called, because a handler stopped it, the next one must go on.
        self._done.add_done_callback(lambda done: loop.stop() if done is self._done else None)
        loop.add_reader(self._host.wake_fd, self._wake)
        # A handler may consume the wake-up, if it blocks the loop while it waits for room in the ring.
        self._host.on_drained = lambda: loop.call_soon(self._wake)
        loop.call_soon(self._take)
        while not self._done.done():
            self._run_loop(loop)
        self._host.on_drained = None
        loop.remove_reader(self._host.wake_fd)
        self._work.wake_up()
        self._work.ring_if_due()

    def _run_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the loop until it ends, which a handler can cause, too: by stopping it, or by a SystemExit in a task."""
        try:
            loop.run_forever()
            self._stage.check()
            if self._done is not None and not self._done.done():
                told = "a coroutine or callback stopped the event loop; its worker process continues"
                loop.call_exception_handler({"message": told})
        except (SystemExit, KeyboardInterrupt) as error:
            if self._work.forked:
                leave(error)
            loop.call_exception_handler(
                {"message": "a coroutine or callback exited; its worker process continues", "exception": error}
            )

    def _wake(self) -> None:
        self._stage.check()
        self._host.drain()
        self._work.wake_up()
        for running, task in list(self._running.values()):
            if self._work.was_told(task):
                running.add_done_callback(self._ended)
                running.cancel(f"fastq: {task.interruption}")
        if self._telling is None:
            self._tell_threads()
        self._take()

    def _take(self) -> None:
        assert self._loop is not None
        # Once ``_done`` is set, the loop is about to be left, and a coroutine that began now would stand still. The
        # ring is read again after the loop.
        while self._done is not None and not self._done.done():
            while (task := self._work.begin_async(self._free[-1] if self._free else NO_ROW)) is not None:
                self._free.pop()
                step = self._stage.follow(task.seq, self._run(task))
                running: asyncio.Task[None] = asyncio.Task(step, loop=self._loop, context=self._context.copy())
                self._running[task.row] = (running, task)
                if self._look_out is None:
                    self._look_out = self._loop.call_later(_LOOK_OUT_S, self._look)
            is_idle = not (self._running or self.threads.running)
            if is_idle and (self._work.must_exit or self._work.next_is_plain):
                self._stop()
                return
            # Without a free row, or behind a plain task, new records can wait, and so can the order to exit: each task
            # that ends calls this function again. While no task runs, none will end, so the function must read on.
            row = self._free[-1] if self._free else NO_ROW
            has_row = row != NO_ROW or self._work.thread_rows
            if not is_idle and (not has_row or self._work.must_wait(row) or self._work.must_exit):
                return
            if self._work.fall_asleep(rings=False):
                return

    def _tell_threads(self) -> None:
        """Raise in the threads of interrupted tasks; try again where a thread is taking a lock, until its task ends."""
        assert self._loop is not None
        self._telling = self._loop.call_later(_TELL_AGAIN_S, self._tell_threads) if self.threads.tell() else None

    def _thread_ended(self) -> None:
        """Let the loop take the rows of ended tasks; called in a thread."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._take_rows)

    def _take_rows(self) -> None:
        self.threads.take_rows()
        self._take()
        self._work.ring_if_due()

    def _ring(self) -> None:
        """Ring once for all tasks that ended in a turn of the loop: a ring for each would cost more than the tasks."""
        self._rings = False
        self._work.ring_if_due()

    def _stop(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    async def _run(self, task: Attempt) -> None:
        kind = EventKind.DONE
        answer: Answer | list[Answer] = None
        self._work.enter_async(task)
        try:
            if 0 < task.deadline_ns <= task.started_ns:
                answer = (EventKind.TIMEOUT, NOT_BEGUN)  # as asynq: a task whose time is up is not started
            else:
                answer = await (
                    self._runner.run_async(task.data, task)
                    if task.followers is None
                    else self._runner.run_batch_async(*task.batch)
                )
        except asyncio.CancelledError:
            kind, answer = task.interruption or EventKind.BROKEN, _if_unasked(task)
        except BaseException as error:  # SystemExit included: it must not end the child
            if self._work.forked:
                raise
            answer = (EventKind.BROKEN, last_words(error))
        self._end(task, kind, answer)

    def _look(self) -> None:
        """End coroutines that other code canceled before their first step."""
        self._stage.check()
        for running, _ in list(self._running.values()):
            if running.done():
                self._ended(running)
        self._look_out = self._loop.call_later(_LOOK_OUT_S, self._look) if self._running and self._loop else None

    def _ended(self, running: asyncio.Task[None]) -> None:
        """End a coroutine that was canceled before its first step: its own code never ran."""
        for unseen, task in list(self._running.values()):
            if unseen is running:
                self._end(task, task.interruption or EventKind.BROKEN, _if_unasked(task))

    def _end(self, task: Attempt, kind: EventKind, answer: Answer | list[Answer]) -> None:
        # The coroutine itself calls this: a done callback would cost as much again as everything else here.
        self._work.finish_async(task, kind, answer)
        if not self._rings and self._loop is not None:
            self._rings = True
            self._loop.call_soon(self._ring)
        del self._running[task.row]
        self._free.append(task.row)
        self._take()


async def _wait_for(outcome: Awaitable[object]) -> None:
    await outcome


def _if_unasked(task: Attempt) -> Answer:
    """Return the answer for a canceled coroutine, BROKEN unless the pool canceled it."""
    return None if task.interruption else (EventKind.BROKEN, b"the coroutine was canceled from within its own code")
